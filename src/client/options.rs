//! Options of clients and pools.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::login::Login;
use crate::protocol::native::VALUE_LEN_MAX_BYTES;

/// Time-outs, retries, and limits of a client, and the user that its server may run as.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// use zero_kv::client::{Client, Options};
///
/// let options = Options { call_timeout: Some(Duration::from_millis(50)), retries: 0, ..Options::default() };
/// let client = Client::connect_with("/tmp/zero-kv.sock", &options)?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum time to connect. A client waits only while the server's queue of new connections is full. 5 s by
    /// default.
    pub connect_timeout: Duration,
    /// Maximum time of a call, including all of its requests, retries, and pauses. A call can take up to 1/64 longer
    /// than this time. 30 s by default; `None` means no maximum.
    pub call_timeout: Option<Duration>,
    /// Maximum number of retries of a call whose connection failed. 1 by default. Reads are retried; reloads and
    /// rollbacks are not.
    pub retries: u32,
    /// Maximum time for which a retry keeps trying to connect while no server runs. The pauses between attempts grow
    /// from 1 to 100 ms. 2 s by default.
    pub reconnect_timeout: Duration,
    /// Maximum length of a value. A response that announces a longer value is an error, and no memory is allocated for
    /// the value. 1 GiB by default, which is also the protocol's maximum.
    pub value_len_max_bytes: usize,
    /// A user, by name or number, that the server may run as. Root and this process's own effective user are always
    /// accepted. With `None`, the default, the environment variable `ZERO_KV_SERVER_USER` names the user.
    ///
    /// - If a user is named, only servers of that user, root, and this process's user are accepted, wherever their
    ///   sockets are.
    /// - If no user is named, a server of another user is accepted only if no user except that user, root, and this
    ///   process's user can write to the socket's directory or to the directories above it. In other directories, such
    ///   as `/tmp`, any user could have created the socket. An abstract socket has no directory, so its server's user
    ///   must be named.
    /// - In a user namespace, all users without a number of their own are reported as 65534 (or `kernel.overflowuid`).
    ///   This number identifies no single user. To accept all of these users, name this number.
    ///
    /// The check happens after connecting and before anything is sent.
    pub server_user: Option<String>,
    /// The user as whom each connection logs in. `None` by default: a connection over the Unix socket then has all
    /// permissions. The client logs in again whenever it reconnects.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connect_timeout: Duration::from_secs(5),
            call_timeout: Some(Duration::from_secs(30)),
            retries: 1,
            reconnect_timeout: Duration::from_secs(2),
            value_len_max_bytes: VALUE_LEN_MAX_BYTES,
            server_user: None,
            login: None,
        }
    }
}

/// Size and time-outs of a pool.
///
/// # Example
/// ```no_run
/// use zero_kv::client::{Pool, PoolOptions};
///
/// let options = PoolOptions { connections_max: 4.try_into()?, ..PoolOptions::default() };
/// let pool = Pool::connect_with("/tmp/zero-kv.sock", &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Maximum number of connections. The pool connects on demand. 8 by default.
    pub connections_max: NonZeroUsize,
    /// Maximum time to wait for a connection while all are in use. 5 s by default.
    pub wait_timeout: Duration,
    /// Options of each connection.
    pub client: Options,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            connections_max: const { NonZeroUsize::new(8).unwrap() },
            wait_timeout: Duration::from_secs(5),
            client: Options::default(),
        }
    }
}
