//! Metrics for Prometheus and health checks, over HTTP.
//!
//! In: an address and the state of the server. Out: `/metrics`, `/healthz`, and `/readyz`. Runs on the main thread,
//! never on a worker. Its load is bounded: every connection is accepted, and the oldest of too many is closed. A health
//! check therefore gets its response however many connections clients open, and whatever these clients send or read.

mod connection;
mod families;
mod responses;

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, UnixListener};
use tracing::error;

use super::accept::ACCEPT_RETRY;
use super::error::ServerError;
use super::listener::{Exposure, Listener, listen_on_tcp};
use super::state::ServerState;
use crate::setting::Setting;
use connection::{Connections, Stream};

/// The number of connections that are accepted before the runtime reads the requests of these connections. A fraction
/// of the minimum number of connections, so that none is closed because of newer ones before its request is read.
const ACCEPTS_PER_TURN: usize = 8;

/// The address on which metrics and health checks are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// An address and a port. Port 0 chooses a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    /// Parses an address with a port. Any other text that contains a slash is the path of a Unix socket.
    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        match text.parse() {
            Ok(address) => Ok(MetricsAddress::Tcp(address)),
            Err(_) if text.contains('/') => Ok(MetricsAddress::Unix(text.into())),
            Err(_) => Err("neither an address with a port, such as 127.0.0.1:9464 or [::1]:9464, nor the path of a \
                           Unix socket with a slash, such as ./metrics.sock"
                .to_owned()),
        }
    }
}

impl fmt::Display for MetricsAddress {
    /// Writes the URL of the metrics, or the path of the Unix socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddress::Tcp(address) => write!(f, "http://{address}/metrics"),
            MetricsAddress::Unix(path) => write!(f, "/metrics of {}", path.display()),
        }
    }
}

/// The listening socket of the metrics.
pub(super) enum Endpoint {
    Tcp(StdTcpListener),
    Unix(Listener),
}

impl Endpoint {
    /// Listens on an address. Rejects an address that other machines can reach, unless `exposed` is true.
    pub(super) fn bind(address: &MetricsAddress, exposed: bool) -> Result<Endpoint, ServerError> {
        match address {
            MetricsAddress::Tcp(address) if !address.ip().to_canonical().is_loopback() && !exposed => {
                let problem = format!(
                    "other machines may reach this address, and there is no password: choose 127.0.0.1 or [::1], or pass \
                     {} if everyone may read the server's metrics",
                    Setting::MetricsExposed
                );
                Err(ServerError::Tcp { address: *address, problem })
            }
            MetricsAddress::Tcp(address) => {
                let exposure = Exposure { is_allowed: true, ..Exposure::default() };
                listen_on_tcp(*address, exposure).map(Endpoint::Tcp)
            }
            MetricsAddress::Unix(path) => Listener::bind(path).map(Endpoint::Unix),
        }
    }

    /// Returns the address of the socket. If port 0 was requested, the port is the one that the system chose.
    pub(super) fn address(&self) -> io::Result<MetricsAddress> {
        match self {
            Endpoint::Tcp(listener) => listener.local_addr().map(MetricsAddress::Tcp),
            Endpoint::Unix(listener) => Ok(MetricsAddress::Unix(listener.path().to_path_buf())),
        }
    }

    /// Serves requests until the runtime ends. Continues after a panic, but ends with a log line if the socket cannot
    /// be used.
    pub(super) async fn serve(self, state: Arc<ServerState>) {
        let thread = &state.liveness.metrics;
        thread.started();
        let connections = Connections::new(&state);
        let Err(error) = thread.keep(|| self.accept(&connections)).await;
        error!("metrics are not served any more: {error}: restart the server");
        thread.ended();
    }

    /// Accepts connections. Returns only if the socket cannot be used.
    async fn accept(&self, connections: &Arc<Connections>) -> io::Result<Infallible> {
        match self {
            Endpoint::Tcp(listener) => {
                let listener = TcpListener::from_std(listener.try_clone()?)?;
                accept_from(|cx| listener.poll_accept(cx).map_ok(|(stream, _)| stream), connections).await
            }
            Endpoint::Unix(on_path) => {
                let listener = UnixListener::from_std(on_path.socket()?)?;
                accept_from(|cx| listener.poll_accept(cx).map_ok(|(stream, _)| stream), connections).await
            }
        }
    }
}

/// Accepts the connections that `poll_next` returns. Retries after a failed accept.
async fn accept_from<S: Stream>(
    poll_next: impl Fn(&mut Context<'_>) -> Poll<io::Result<S>>,
    connections: &Arc<Connections>,
) -> io::Result<Infallible> {
    loop {
        for _ in 0..ACCEPTS_PER_TURN {
            match poll_fn(&poll_next).await {
                Ok(stream) => connections.begin(stream),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // The loop that accepts clients encounters the same error, and logs it.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port_and_a_path_needs_a_slash() {
        for address in ["127.0.0.1:9464", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(address.parse(), Ok(MetricsAddress::Tcp(address.parse().unwrap())));
        }
        for path in ["/run/metrics.sock", "./m", "a:b/c"] {
            assert_eq!(path.parse(), Ok(MetricsAddress::Unix(path.into())));
        }
        for neither in ["9464", "127.0.0.1", "localhost:9464", "metrics.sock", ""] {
            assert!(neither.parse::<MetricsAddress>().unwrap_err().contains("127.0.0.1:9464"), "{neither}");
        }
    }
}
