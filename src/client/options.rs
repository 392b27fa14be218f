//! Options of clients and pools.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::protocol::native::VALUE_LEN_MAX_BYTES;

/// Time-outs, retries, limits, and the trusted user of a client.
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
    /// How long to wait for a server that lives and does not take the connection:
    /// its queue is full. 5 s unless told.
    pub connect_timeout: Duration,
    /// How long a call takes at most, with all of its questions, retries and pauses; exceeded by a
    /// sixty-fourth at most. 30 s unless told; `None`: as long as it takes.
    pub call_timeout: Option<Duration>,
    /// How often a call is made once more when its connection failed. 1 unless told.
    /// Calls that ask the server to do something are never repeated.
    pub retries: u32,
    /// How long such a retry goes on connecting to a server that is not there, with
    /// growing pauses. 2 s unless told.
    pub reconnect_timeout: Duration,
    /// The longest value that is taken. A header that announces a longer one is
    /// refused before any memory is. 1 GiB unless told, which is also the most.
    pub value_len_max_bytes: usize,
    /// A user, by name or number, that the server may run as. Root and this process's own effective user are always
    /// accepted. `None` unless set: the environment's `ZERO_KV_SERVER_USER`.
    ///
    /// - With a name, a server of any other user is rejected wherever its socket is.
    /// - Without one, a server of another user is accepted only where nobody but that user, root, and this process's user
    ///   can write to the socket's directory or to one above it. Elsewhere, as in `/tmp`, anybody could have put a server
    ///   in the right one's place. An abstract socket has no directory: the server of another user must be named.
    /// - In a user namespace, users without a number share one (65534, or `kernel.overflowuid`), so it identifies nobody:
    ///   to accept all of them, name that number.
    ///
    /// The check happens after connecting and before anything is sent.
    pub server_user: Option<String>,
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
        }
    }
}

/// How many connections a pool has, and how long one is waited for.
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
    /// Connections at most. They are made when they are needed. 8 unless told.
    pub connections_max: NonZeroUsize,
    /// How long one is waited for, if all are in use. 5 s unless told.
    pub wait_timeout: Duration,
    /// What each of them is like.
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
