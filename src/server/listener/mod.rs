//! The listening sockets: on a path, under an abstract name, on a TCP address, or inherited.
//!
//! In: addresses and access rules. Out: listening sockets. No client can connect to a socket on a path before the
//! socket's owner, group, and mode are set. This module does not depend on a protocol.

mod access;
mod inherited;
mod lock;
mod path;
mod tcp;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use super::error::ServerError;
use crate::setting::Setting;
pub(super) use access::PeerFilter;
pub use access::SocketAccess;
pub use inherited::Inherited;
use inherited::{abstract_name, path_of};
use lock::Lock;
use path::{Identity, PATH_LEN_MAX_BYTES, check, identity, open_node, remove_abandoned};
pub(super) use tcp::tcp;
#[cfg(any(feature = "metrics", feature = "tls"))]
pub(super) use tcp::{Exposure, listen_on_tcp};

/// The number of connections that may wait to be accepted. The system lowers this number to its maximum
/// (net.core.somaxconn).
const BACKLOG: i32 = i32::MAX;

/// A listening Unix socket.
pub(super) struct Listener {
    socket: UnixListener,
    /// The path of the socket, or an `@` and its abstract name.
    path: PathBuf,
    _bound: Option<Bound>,
}

/// The file of a bound socket. Dropping this value removes the file.
struct Bound {
    path: PathBuf,
    /// Distinguishes the file of this socket from a file that another server created at the path.
    identity: Identity,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If the file cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Returns the inherited Unix socket, if there is one. Otherwise, listens on a path or under an abstract name, and
    /// replaces the socket file of a server that no longer runs.
    pub(super) fn new(
        path: &Path,
        is_abstract: bool,
        access: &SocketAccess,
        inherited: &Inherited,
    ) -> Result<Listener, ServerError> {
        let refuse = |problem: String| ServerError::Socket { path: path.to_path_buf(), problem };
        if let Some(socket) = &inherited.unix {
            return from_inherited(socket, access)
                .map_err(|problem| ServerError::Socket { path: path_of(socket), problem });
        }
        if access.mode.is_some_and(|mode| mode > 0o777) {
            return Err(refuse("a mode is at most 0777: choose a mode such as 0660".to_owned()));
        }
        match (abstract_name(path), is_abstract) {
            (None, false) => listen_on_path(path, access).map_err(refuse),
            (Some(name), true) => listen_on_name(path, name, access).map_err(refuse),
            (Some(_), false) => Err(refuse(format!(
                "begins with @, which stands for an abstract name: an abstract socket has no owner and no mode, so \
                 every process of this machine, or of this network namespace, may connect: pass {} to allow this, \
                 or write ./@ for a file",
                Setting::AbstractSocket
            ))),
            (None, true) => {
                Err(refuse(format!("{} requires a {} that begins with @", Setting::AbstractSocket, Setting::Socket)))
            }
        }
    }

    /// Listens on a path. The owner and the group of the socket may connect.
    #[cfg(feature = "metrics")]
    pub(super) fn bind(path: &Path) -> Result<Listener, ServerError> {
        listen_on_path(path, &SocketAccess::default())
            .map_err(|problem| ServerError::Socket { path: path.to_path_buf(), problem })
    }

    /// Duplicates the socket, so that an async runtime can use it.
    pub(super) fn socket(&self) -> io::Result<UnixListener> {
        self.socket.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn from_inherited(socket: &UnixListener, access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err(format!(
            "is an inherited socket, whose mode, owner, and group are set by the service manager \
             (SocketMode=, SocketUser=, SocketGroup= of a .socket unit): omit {}, {}, and {}",
            Setting::SocketMode,
            Setting::SocketOwner,
            Setting::SocketGroup
        ));
    }
    let fault = |error: io::Error| format!("is an inherited socket that cannot be used: {error}");
    socket.set_nonblocking(true).map_err(fault)?;
    Ok(Listener { socket: socket.try_clone().map_err(fault)?, path: path_of(socket), _bound: None })
}

fn listen_on_path(path: &Path, access: &SocketAccess) -> Result<Listener, String> {
    check(path)?;
    let _lock = Lock::acquire(path)?;
    let address = SocketAddrUnix::new(path).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_abandoned(path)?;
            bind(&socket, &address).map_err(cannot_listen)?;
        }
        bound => bound.map_err(cannot_listen)?,
    }
    let (node, identity) = open_node(path)?;
    let bound = Bound { path: path.to_path_buf(), identity };
    access.set(&node)?;
    // Until this call, the kernel refuses connection attempts.
    listen(&socket, BACKLOG).map_err(cannot_listen)?;
    Ok(Listener { socket: socket.into(), path: path.to_path_buf(), _bound: Some(bound) })
}

fn listen_on_name(path: &Path, name: &[u8], access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err("an abstract socket has no mode, no owner, and no group: omit these options".to_owned());
    }
    if name.is_empty() || name.len() > PATH_LEN_MAX_BYTES {
        return Err(format!("an abstract name has 1 to {PATH_LEN_MAX_BYTES} bytes after the @"));
    }
    let address = SocketAddrUnix::new_abstract_name(name).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    bind(&socket, &address).map_err(|error| match error {
        Errno::ADDRINUSE => {
            format!("another server has this name: stop that server, or choose another {}", Setting::Socket)
        }
        error => cannot_listen(error),
    })?;
    listen(&socket, BACKLOG).map_err(cannot_listen)?;
    Ok(Listener { socket: socket.into(), path: path.to_path_buf(), _bound: None })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn cannot_listen(error: Errno) -> String {
    format!("cannot listen: {error}")
}
