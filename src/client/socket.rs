//! Connects to the Unix sockets of servers.
//!
//! In: a path, a time-out, and the user that the server may run as. Out: a descriptor, or an error.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::error::{ClientError, Phase};
use super::retry::Deadline;
use super::server_user::check_peer;

/// Maximum socket time-out: 34 years. [`set_timeout`] shortens longer time-outs to this value.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 30);

/// Connects to the socket at `path`, and checks the server's user. Waits while the server's queue of new connections is
/// full.
pub(super) fn connect_within(
    path: &Path,
    timeout: Duration,
    server_user: Option<&str>,
) -> Result<OwnedFd, ClientError> {
    let failed = |error: Errno| ClientError::connect(&path.into(), error.into());
    let address = address(path).map_err(failed)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let deadline = Deadline::after(Some(timeout));
    loop {
        // The send time-out also applies to connect() on a Unix socket.
        set_timeout(&socket, Timeout::Send, deadline.left()).map_err(failed)?;
        match connect(&socket, &address) {
            Ok(()) => return check_peer(&socket, path, server_user).map(|()| socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let after = deadline.started.elapsed();
                return Err(ClientError::TimedOut { server: path.into(), phase: Phase::Connect, after });
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Connects to the socket at `path` without waiting, and checks the server's user. Returns `None` if the server's queue
/// of new connections is full.
#[cfg(feature = "tokio")]
pub(super) fn connect_now(path: &Path, server_user: Option<&str>) -> Result<Option<OwnedFd>, ClientError> {
    let failed = |error: Errno| ClientError::connect(&path.into(), error.into());
    let address = address(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) => check_peer(&socket, path, server_user).map(|()| Some(socket)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Returns the socket address for a path. A path that starts with `@` names an abstract socket.
fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(path),
    }
}

/// Sets the socket's time-out for sending or receiving. The minimum is 1 µs, because the kernel interprets 0 as no
/// time-out.
pub(super) fn set_timeout(socket: impl AsFd, which: Timeout, timeout: Option<Duration>) -> Result<(), Errno> {
    let timeout = timeout.map(|timeout| timeout.clamp(Duration::from_micros(1), TIMEOUT_MAX));
    set_socket_timeout(socket, which, timeout)
}
