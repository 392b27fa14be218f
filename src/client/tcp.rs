//! Connects to TCP ports.
//!
//! In: a host and a port. Out: a connection, or an error. The addresses of the host are tried in turn until one accepts
//! the connection. In the blocking client, finding the addresses of a host may take longer than the time-out, because
//! the system's resolver has its own time-out.

use std::io::{self, ErrorKind};
#[cfg(feature = "tokio")]
use std::net::SocketAddr;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::address::{Address, TcpAddress};
use super::error::{ClientError, Phase};
use super::retry::Deadline;

/// Minimum time-out of an attempt to connect. The standard library rejects 0.
const TIMEOUT_MIN: Duration = Duration::from_micros(1);

/// Connects, and blocks the calling thread until the server's kernel accepts the connection.
pub(super) fn connect(server: &Address, tcp: &TcpAddress, deadline: Deadline) -> Result<TcpStream, ClientError> {
    let found = (&*tcp.host, tcp.port).to_socket_addrs().map_err(|error| unresolved(server, tcp, &error))?;
    let mut failure = no_address();
    for address in found {
        let connected = match deadline.left() {
            Some(left) => TcpStream::connect_timeout(&address, left.max(TIMEOUT_MIN)),
            None => TcpStream::connect(address),
        };
        match connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failed(server, failure, deadline))
}

/// Connects like [`connect`], without blocking the thread.
#[cfg(feature = "tokio")]
pub(super) async fn connect_task(
    server: &Address,
    tcp: &TcpAddress,
    deadline: Deadline,
) -> Result<tokio::net::TcpStream, ClientError> {
    let resolved = within(deadline, tokio::net::lookup_host((&*tcp.host, tcp.port))).await;
    let found: Vec<SocketAddr> = match resolved {
        Ok(found) => found.collect(),
        Err(error) if error.kind() == ErrorKind::TimedOut => return Err(failed(server, error, deadline)),
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
    Err(failed(server, failure, deadline))
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

fn failed(server: &Address, error: io::Error, deadline: Deadline) -> ClientError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            let after = deadline.started.elapsed();
            ClientError::TimedOut { server: server.clone(), phase: Phase::Connect, after }
        }
        _ => ClientError::connect(server, error),
    }
}
