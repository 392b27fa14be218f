//! Options of clients and pools.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::cache::Cache;
use super::login::Login;
use crate::protocol::native::VALUE_LEN_MAX_BYTES;

/// Time-outs, retries, and limits of a client, how it logs in, and which servers it trusts.
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
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum time to connect, including the TLS handshake. Over a Unix socket, a client waits only while the server's
    /// queue of new connections is full. 5 s by default.
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
    /// - If no user is named, a server of another user is accepted only if its socket is in a protected directory: only
    ///   the server's user, root, and this process's user can write to this directory or to the directories above it.
    ///   In other directories, such as `/tmp`, any user could have created the socket. An abstract socket has no
    ///   directory, so its server's user must be named.
    /// - In a user namespace, the kernel reports all users that are not mapped into the namespace as user 65534 (or
    ///   `kernel.overflowuid`). This number identifies no single user. To accept all of these users, name this number.
    ///
    /// The check happens after connecting and before anything is sent. The check is impossible over TCP, so naming a
    /// user with this field is an error for an address over TCP.
    pub server_user: Option<String>,
    /// The user that each connection logs in as, also after a reconnect. With `None`, the default, a client logs in
    /// only if its [`Address`](super::Address) names a user. The password then comes from the environment: see
    /// [`Login::from_environment`].
    pub login: Option<Login>,
    /// Options for connections to addresses that start with `zkv+tls://`.
    pub tls: TlsOptions,
    /// A cache for the values of hot keys, which clients with clones of it share. `None` by default: see [`Cache`].
    pub cache: Option<Cache>,
    /// A function that blocking clients call when a signal interrupts their wait for a server, for hosts with their own
    /// handling of signals, such as the interpreter of another language. If it returns true, the call fails with
    /// [`ClientError::Io`](super::ClientError::Io) and an error of kind
    /// [`Interrupted`](std::io::ErrorKind::Interrupted), and the connection is closed. Otherwise, or with `None`, the
    /// default, the call continues to wait.
    pub interrupt_check: Option<fn() -> bool>,
}

/// How a client checks a server's certificate, and the certificate that the client itself presents. The files are read
/// when a client or pool is created. After a file has changed, the next connection reads all files again. If the new
/// contents cannot be used, the previous contents of all files remain in use.
///
/// # Example
/// ```no_run
/// use zero_kv::client::{Client, Options, TlsOptions};
///
/// let tls = TlsOptions { ca_file: Some("/etc/zero-kv/ca.crt".into()), ..TlsOptions::default() };
/// let client = Client::connect_with("zkv+tls://reader@db.example:6380", &Options { tls, ..Options::default() })?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The certificates of the authorities that may sign the server's certificate, as PEM. `None`, the default, means
    /// the authorities that the system trusts, or those that the environment variables `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` name.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and its intermediate certificates, as PEM. Needed only if the server requires client
    /// certificates. `None` by default.
    pub certificate_file: Option<PathBuf>,
    /// The private key of `certificate_file`, as PEM: PKCS #8, PKCS #1, or SEC 1.
    pub key_file: Option<PathBuf>,
    /// The name or IP address that the server's certificate must be valid for. `None`, the default, means the host of
    /// the address.
    pub server_name: Option<String>,
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
            tls: TlsOptions::default(),
            cache: None,
            interrupt_check: None,
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
#[derive(Clone, Debug)]
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
