//! The listening TCP socket, if there is to be one.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::server::{Config, ServerError};

/// Takes what was handed in, or listens on an address.
pub(in crate::server) fn tcp(config: &Config) -> Result<Option<TcpListener>, ServerError> {
    match (&config.inherited.tcp, config.inherited.tcp_address().or(config.tcp)) {
        (Some(socket), Some(address)) => open(address, config.tcp_exposed, || socket.try_clone()).map(Some),
        (None, Some(address)) => listen_on_tcp(address, config.tcp_exposed).map(Some),
        (_, None) => Ok(None),
    }
}

/// Listens on an address. `exposed` is whether it may be one that other machines reach.
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
        return Err(refuse(
            "other machines may reach this address, and there is no password: choose 127.0.0.1 or [::1], \
             or pass --tcp-exposed if every reader may have the table"
                .to_owned(),
        ));
    }
    let listening = listen().and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| refuse(format!("cannot listen: {error}: choose another address")))
}
