//! The listening sockets: on a path, under an abstract name, on a TCP address, or inherited.
//!
//! In: addresses and access rules. Out: listening sockets. Nobody can connect to a socket on a path before its owner,
//! group, and mode are set. Knows no protocol.

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
pub(super) use access::Doorkeeper;
pub use access::SocketAccess;
pub use inherited::Inherited;
use inherited::{abstract_name, path_of};
use lock::Lock;
use path::{Identity, PATH_LEN_MAX_BYTES, check, identity, make_way, open_node};
#[cfg(feature = "metrics")]
pub(super) use tcp::listen_on_tcp;
pub(super) use tcp::tcp;

/// The number of connections that may wait to be accepted. The system lowers it to its maximum (net.core.somaxconn).
const BACKLOG: i32 = i32::MAX;

/// A Unix socket that listens.
pub(super) struct Listener {
    socket: UnixListener,
    /// As users write it: with an `@` before an abstract name.
    path: PathBuf,
    _bound: Option<Bound>,
}

/// The file of a socket. Removes it when dropped.
struct Bound {
    path: PathBuf,
    /// Distinguishes this socket from one that another server put at the path.
    identity: Identity,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // The next server replaces a file that cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Returns the inherited Unix socket, or listens on a path or under an abstract name. Replaces the socket file of a
    /// server that does not run any more.
    pub(super) fn new(
        path: &Path,
        is_abstract: bool,
        access: &SocketAccess,
        inherited: &Inherited,
    ) -> Result<Listener, ServerError> {
        let refuse = |problem: String| ServerError::Socket { path: path.to_path_buf(), problem };
        if let Some(socket) = &inherited.unix {
            return take(socket, access).map_err(|problem| ServerError::Socket { path: path_of(socket), problem });
        }
        if access.mode.is_some_and(|mode| mode > 0o777) {
            return Err(refuse("a mode has three octal digits, such as 0660".to_owned()));
        }
        match (abstract_name(path), is_abstract) {
            (None, false) => on_path(path, access).map_err(refuse),
            (Some(name), true) => under_name(path, name, access).map_err(refuse),
            (Some(_), false) => Err(refuse(format!(
                "begins with @, which stands for an abstract name: it has no owner and no mode, so every process \
                 of this machine, or of this network namespace, may connect: pass {} if that is wanted, \
                 or write ./@ for a file",
                Setting::AbstractSocket
            ))),
            (None, true) => {
                Err(refuse(format!("{} is for a {} that begins with @", Setting::AbstractSocket, Setting::Socket)))
            }
        }
    }

    /// Listens on a path. Its owner and its group may connect.
    #[cfg(feature = "metrics")]
    pub(super) fn bind(path: &Path) -> Result<Listener, ServerError> {
        on_path(path, &SocketAccess::default())
            .map_err(|problem| ServerError::Socket { path: path.to_path_buf(), problem })
    }

    /// Returns the socket, for a runtime.
    pub(super) fn socket(&self) -> io::Result<UnixListener> {
        self.socket.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn take(socket: &UnixListener, access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err(format!(
            "was handed in by who started the server, who also sets its mode, owner and group \
             (SocketMode=, SocketUser=, SocketGroup= of a .socket unit): leave {}, {} and {} out",
            Setting::SocketMode,
            Setting::SocketOwner,
            Setting::SocketGroup
        ));
    }
    let fault = |error: io::Error| format!("was handed in and cannot be used: {error}");
    socket.set_nonblocking(true).map_err(fault)?;
    Ok(Listener { socket: socket.try_clone().map_err(fault)?, path: path_of(socket), _bound: None })
}

fn on_path(path: &Path, access: &SocketAccess) -> Result<Listener, String> {
    check(path)?;
    let _lock = Lock::acquire(path)?;
    let address = SocketAddrUnix::new(path).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            make_way(path)?;
            bind(&socket, &address).map_err(cannot_listen)?;
        }
        bound => bound.map_err(cannot_listen)?,
    }
    let (node, identity) = open_node(path)?;
    let bound = Bound { path: path.to_path_buf(), identity };
    access.set(&node)?;
    // Connection attempts before this were refused.
    listen(&socket, BACKLOG).map_err(cannot_listen)?;
    Ok(Listener { socket: socket.into(), path: path.to_path_buf(), _bound: Some(bound) })
}

fn under_name(path: &Path, name: &[u8], access: &SocketAccess) -> Result<Listener, String> {
    if access.is_about_file() {
        return Err("an abstract socket has no mode, no owner and no group: leave them out".to_owned());
    }
    if name.is_empty() || name.len() > PATH_LEN_MAX_BYTES {
        return Err(format!("an abstract name has 1 to {PATH_LEN_MAX_BYTES} bytes behind the @"));
    }
    let address = SocketAddrUnix::new_abstract_name(name).map_err(cannot_listen)?;
    let socket = new_socket().map_err(cannot_listen)?;
    bind(&socket, &address).map_err(|error| match error {
        Errno::ADDRINUSE => {
            format!("another server has this name: stop that one, or choose another {}", Setting::Socket)
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
