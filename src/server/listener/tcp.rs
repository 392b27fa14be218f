//! The listening TCP socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::listen;

use super::{BACKLOG, Inherited};
use crate::server::error::ServerError;
use crate::setting::Setting;

/// Determines whether a TCP socket may have an address that other machines can reach.
#[derive(Clone, Copy, Default)]
pub(in crate::server) struct Exposure {
    /// Whether TLS protects what the socket's clients send and receive.
    pub(in crate::server) is_encrypted: bool,
    /// Whether a client must prove who it is before it can read the table.
    pub(in crate::server) is_authenticated: bool,
    /// Whether the configuration allows other machines to reach the socket even without encryption or authentication.
    pub(in crate::server) is_allowed: bool,
}

impl Exposure {
    /// Returns an error if other machines can reach the address, unless the configuration allows this, or the socket
    /// has both encryption and authentication.
    fn check(self, address: SocketAddr) -> Result<(), String> {
        let Exposure { is_encrypted, is_authenticated, is_allowed } = self;
        if address.ip().to_canonical().is_loopback() || is_allowed || is_encrypted && is_authenticated {
            return Ok(());
        }
        let (problem, remedy, readers) = match (is_encrypted, is_authenticated) {
            (true, _) => (
                "clients need neither a certificate nor a password",
                format!("require client certificates ({}) or passwords ({})", Setting::TlsClientCa, Setting::Users),
                "can connect",
            ),
            (false, true) => (
                "passwords and values are not encrypted",
                format!("use TLS ({})", Setting::Tls),
                "can read the network traffic",
            ),
            (false, false) => (
                "there is no password",
                format!("use TLS with client certificates or users ({})", Setting::Tls),
                "can connect",
            ),
        };
        Err(format!(
            "other machines may reach this address, and {problem}: choose 127.0.0.1 or [::1], {remedy}, or pass {} if \
             everyone who {readers} may read the table",
            Setting::TcpExposed
        ))
    }
}

/// Returns the inherited TCP socket, if there is one. Otherwise, listens on `address`, or returns `None` if there is no
/// address. Rejects an address that other machines can reach, unless `exposed` is true. `needs_password` says whether
/// every client needs a password.
pub(in crate::server) fn tcp(
    inherited: &Inherited,
    address: Option<SocketAddr>,
    exposed: bool,
    needs_password: bool,
) -> Result<Option<TcpListener>, ServerError> {
    let exposure = Exposure { is_authenticated: needs_password, is_allowed: exposed, ..Exposure::default() };
    match (&inherited.tcp, inherited.tcp_address().or(address)) {
        (Some(socket), Some(address)) => open(address, exposure, || socket.try_clone()).map(Some),
        (None, Some(address)) => listen_on_tcp(address, exposure).map(Some),
        (_, None) => Ok(None),
    }
}

/// Listens on an address that `exposure` permits.
pub(in crate::server) fn listen_on_tcp(address: SocketAddr, exposure: Exposure) -> Result<TcpListener, ServerError> {
    open(address, exposure, || {
        let listener = TcpListener::bind(address)?;
        // The standard library lets only 128 connections wait. The kernel drops the first packet of others, and their clients
        // send it again after a second.
        listen(&listener, BACKLOG)?;
        Ok(listener)
    })
}

fn open(
    address: SocketAddr,
    exposure: Exposure,
    listen: impl FnOnce() -> io::Result<TcpListener>,
) -> Result<TcpListener, ServerError> {
    let refuse = |problem: String| ServerError::Tcp { address, problem };
    exposure.check(address).map_err(refuse)?;
    let listening = listen().and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| refuse(format!("cannot listen: {error}: choose another address")))
}
