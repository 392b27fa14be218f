//! Connects sockets.
//!
//! In: a path, how long to wait, and which user the server may run as. Out: a descriptor, or why there is none.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with};

use super::error::{ClientError, Phase};
use super::retry::Deadline;
use super::server_user::check_peer;

/// What the system takes for a time-out at most; nobody waits so long.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 30);

/// Connects, waits for a server whose queue is full, and checks the server's user.
pub(super) fn connect_within(
    path: &Path,
    timeout: Duration,
    server_user: Option<&str>,
) -> Result<OwnedFd, ClientError> {
    let failed = |error: Errno| ClientError::of_connect(path, error.into());
    let address = address(path).map_err(failed)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let deadline = Deadline::after(Some(timeout));
    loop {
        // A connect over a Unix socket waits as long as a send may.
        set_timeout(&socket, Timeout::Send, deadline.left()).map_err(failed)?;
        match connect(&socket, &address) {
            Ok(()) => return check_peer(&socket, path, server_user).map(|()| socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let after = deadline.started.elapsed();
                return Err(ClientError::TimedOut { path: path.to_path_buf(), phase: Phase::Connect, after });
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Connects at once, and checks the server's user; returns `None` if the server's queue is full.
#[cfg(feature = "tokio")]
pub(super) fn connect_now(path: &Path, server_user: Option<&str>) -> Result<Option<OwnedFd>, ClientError> {
    let failed = |error: Errno| ClientError::of_connect(path, error.into());
    let address = address(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) => check_peer(&socket, path, server_user).map(|()| Some(socket)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Whether a connection is open, and nothing has come on it.
pub(super) fn is_quiet(socket: impl AsFd) -> bool {
    recv(socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT) == Err(Errno::AGAIN)
}

/// The address that a path stands for: one that begins with an `@` is the abstract
/// name behind it.
fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(path),
    }
}

/// How long the system waits on this socket. No time at all would be taken for no end of it.
pub(super) fn set_timeout(socket: impl AsFd, which: Timeout, timeout: Option<Duration>) -> Result<(), Errno> {
    let timeout = timeout.map(|timeout| timeout.clamp(Duration::from_micros(1), TIMEOUT_MAX));
    set_socket_timeout(socket, which, timeout)
}
