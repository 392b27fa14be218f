//! Why a server cannot start or had to stop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use super::table::generations::OpenError;
use super::users::UsersError;

/// Why a server cannot start or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The file cannot be served.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server cannot listen on the Unix socket.
    #[error("{}: {problem}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The cause and the remedy.
        problem: String,
    },
    /// The server cannot listen on the TCP address.
    #[error("{address}: {problem}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause and the remedy.
        problem: String,
    },
    /// The certificates or keys of the TLS port cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The users file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// A configured limit is out of its range.
    #[error("{0}")]
    Limits(String),
    /// A thread or a runtime cannot be started.
    #[error("a thread or its runtime cannot be started: {0}")]
    Worker(#[source] io::Error),
    /// The handler of SIGBUS cannot be installed.
    #[error("the handler of SIGBUS cannot be installed: {0}")]
    Signal(#[source] io::Error),
}
