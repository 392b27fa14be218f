//! The settings of a running server.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::generations::Source;
use super::limits::Limits;

/// What a Redis command does with a foreign key: a key that is not a number, in a table of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignKeys {
    /// Fails with an error, because the key reveals a bug in the client.
    #[default]
    Error,
    /// Treats the key as a missing key.
    Missing,
}

/// The resolved configuration of a running server.
pub(super) struct Settings {
    /// The path of the served file, and the checks that a new file must pass.
    pub(super) source: Source,
    /// The path or abstract name of the Unix socket.
    pub(super) socket: PathBuf,
    /// The address of the TCP socket.
    pub(super) tcp: Option<SocketAddr>,
    /// The address of the TLS socket.
    pub(super) tls: Option<SocketAddr>,
    pub(super) limits: Limits,
    /// What Redis commands do with keys that are not of the table's kind.
    pub(super) foreign_keys: ForeignKeys,
    /// The maximum number of connections.
    pub(super) connections_max: usize,
    /// The maximum number of connections and lingering sockets together, at least `connections_max`.
    pub(super) sockets_max: usize,
}
