//! The settings of a running server.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::generations::Source;
use super::limits::Limits;

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
    /// The maximum number of connections.
    pub(super) connections_max: usize,
}
