//! Listening sockets that the process inherited.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

/// Listening sockets that this process inherited. systemd passes these sockets (socket activation) and keeps them open
/// while the server restarts, so that no connection is refused during a restart.
///
/// An inherited Unix socket replaces [`Config::socket`](super::super::Config::socket), and an inherited TCP socket
/// replaces [`Config::tcp`](super::super::Config::tcp). The server does not remove the file of an inherited Unix
/// socket.
#[derive(Clone, Debug, Default)]
pub struct Inherited {
    pub(in crate::server) unix: Option<Arc<UnixListener>>,
    pub(in crate::server) tcp: Option<Arc<TcpListener>>,
}

impl Inherited {
    /// Adds a Unix socket.
    ///
    /// # Errors
    /// If the socket does not listen, or if a Unix socket was added before.
    pub fn add_unix(&mut self, socket: UnixListener) -> Result<(), String> {
        check_listens(&socket)?;
        match self.unix.replace(Arc::new(socket)) {
            None => Ok(()),
            Some(_) => Err("a second Unix socket, where at most one was expected".to_owned()),
        }
    }

    /// Adds a TCP socket.
    ///
    /// # Errors
    /// If the socket does not listen, or if a TCP socket was added before.
    pub fn add_tcp(&mut self, socket: TcpListener) -> Result<(), String> {
        check_listens(&socket)?;
        match self.tcp.replace(Arc::new(socket)) {
            None => Ok(()),
            Some(_) => Err("a second TCP socket, where at most one was expected".to_owned()),
        }
    }

    /// Returns the path of the Unix socket, or an `@` and its abstract name, if there is a Unix socket.
    pub fn unix_path(&self) -> Option<PathBuf> {
        self.unix.as_ref().map(|socket| path_of(socket))
    }

    /// Returns the address of the TCP socket, if there is one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|socket| socket.local_addr().ok())
    }
}

fn check_listens(socket: impl std::os::fd::AsFd) -> Result<(), String> {
    match rustix::net::sockopt::socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        Ok(false) => Err("a socket that does not listen: a .socket unit needs Accept=no".to_owned()),
        Err(error) => Err(format!("cannot be examined: {}", io::Error::from(error))),
    }
}

pub(super) fn path_of(socket: &UnixListener) -> PathBuf {
    let Ok(address) = socket.local_addr() else { return PathBuf::new() };
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => path.to_path_buf(),
        (_, Some(name)) => std::ffi::OsString::from_vec([b"@", name].concat()).into(),
        (None, None) => PathBuf::new(),
    }
}

/// Returns the abstract name that follows the `@` at the beginning of a path. `None` for other paths.
pub(super) fn abstract_name(path: &std::path::Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"@")
}
