//! Connects to the Unix sockets and TCP ports of servers.
//!
//! In: an address, a time-out, and the user that the server may run as. Out: a connection, or an error.

use std::io::{self, ErrorKind};
#[cfg(feature = "tokio")]
use std::net::SocketAddr;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::address::{Address, TcpAddress};
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
            // The user is checked on the connection: the file at the path may have been replaced since.
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

/// Minimum time-out of an attempt to connect. The standard library rejects 0.
const TIMEOUT_MIN: Duration = Duration::from_micros(1);

/// Tries the addresses of the host in turn, and blocks the calling thread until the server's kernel accepts the
/// connection.
pub(super) fn connect_tcp(server: &Address, tcp: &TcpAddress, deadline: Deadline) -> Result<TcpStream, ClientError> {
    let found = (&*tcp.host, tcp.port).to_socket_addrs().map_err(|error| unresolved(server, tcp, &error))?;
    let mut failure = no_address();
    for address in found {
        let connected = match deadline.left() {
            Some(left) => TcpStream::connect_timeout(&address, left.max(TIMEOUT_MIN)),
            None => TcpStream::connect(address),
        };
        // Without TCP_NODELAY, the rest of a pipeline would wait for the acknowledgment of its first part.
        match connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(tcp_error(server, failure, deadline))
}

/// Connects like [`connect_tcp`], without blocking the thread.
#[cfg(feature = "tokio")]
pub(super) async fn connect_tcp_task(
    server: &Address,
    tcp: &TcpAddress,
    deadline: Deadline,
) -> Result<tokio::net::TcpStream, ClientError> {
    let resolved = within(deadline, tokio::net::lookup_host((&*tcp.host, tcp.port))).await;
    let found: Vec<SocketAddr> = match resolved {
        Ok(found) => found.collect(),
        Err(error) if error.kind() == ErrorKind::TimedOut => return Err(tcp_error(server, error, deadline)),
        Err(error) => return Err(unresolved(server, tcp, &error)),
    };
    let mut failure = no_address();
    for address in found {
        let connected = within(deadline, tokio::net::TcpStream::connect(address)).await;
        match connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(tcp_error(server, failure, deadline))
}

#[cfg(feature = "tokio")]
async fn within<T>(deadline: Deadline, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match deadline.at() {
        Some(at) => tokio::time::timeout_at(at.into(), work).await.map_err(|_| io::Error::from(ErrorKind::TimedOut))?,
        None => work.await,
    }
}

fn no_address() -> io::Error {
    io::Error::new(ErrorKind::AddrNotAvailable, "the host has no address")
}

fn unresolved(server: &Address, tcp: &TcpAddress, error: &io::Error) -> ClientError {
    let problem =
        format!("the address of host {:?} cannot be found: {error}: correct the name, or use an IP address", tcp.host);
    let error = io::Error::other(problem);
    ClientError::Io { server: server.clone(), phase: Phase::Connect, error }
}

fn tcp_error(server: &Address, error: io::Error, deadline: Deadline) -> ClientError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            let after = deadline.started.elapsed();
            ClientError::TimedOut { server: server.clone(), phase: Phase::Connect, after }
        }
        _ => ClientError::connect(server, error),
    }
}
