//! The listening TCP socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use super::Inherited;
use crate::server::error::ServerError;
use crate::setting::Setting;

/// Returns the inherited TCP socket, if there is one. Otherwise, listens on `address`, or returns `None` if there is no
/// address. Rejects an address that other machines can reach, unless `exposed` is true.
pub(in crate::server) fn tcp(
    inherited: &Inherited,
    address: Option<SocketAddr>,
    exposed: bool,
) -> Result<Option<TcpListener>, ServerError> {
    match (&inherited.tcp, inherited.tcp_address().or(address)) {
        (Some(socket), Some(address)) => open(address, exposed, || socket.try_clone()).map(Some),
        (None, Some(address)) => listen_on_tcp(address, exposed).map(Some),
        (_, None) => Ok(None),
    }
}

/// Listens on an address. Rejects an address that other machines can reach, unless `exposed` is true.
pub(in crate::server) fn listen_on_tcp(address: SocketAddr, exposed: bool) -> Result<TcpListener, ServerError> {
    open(address, exposed, || TcpListener::bind(address))
}

fn open(
    address: SocketAddr,
    exposed: bool,
    listen: impl FnOnce() -> io::Result<TcpListener>,
) -> Result<TcpListener, ServerError> {
    let refuse = |problem: String| ServerError::Tcp { address, problem };
    if !address.ip().to_canonical().is_loopback() && !exposed {
        return Err(refuse(format!(
            "other machines may reach this address, and there is no password: choose 127.0.0.1 or [::1], \
             or pass {} if everyone who can connect may read the table",
            Setting::TcpExposed
        )));
    }
    let listening = listen().and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| refuse(format!("cannot listen: {error}: choose another address")))
}
