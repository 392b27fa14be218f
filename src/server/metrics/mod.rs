//! Metrics for Prometheus and health checks, over HTTP.
//!
//! In: an address and the state of the server. Out: `/metrics`, `/healthz`, and `/readyz`. Runs on the main thread,
//! never on a worker. Its load is bounded: it serves at most 16 connections at a time, each with one short request and
//! a short time-out.

mod families;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::error;

use super::accept::ACCEPT_RETRY;
use super::error::ServerError;
use super::listener::{Exposure, Listener, listen_on_tcp};
use super::snapshot::Snapshot;
use super::state::ServerState;
use crate::setting::Setting;

/// The maximum number of connections that are served at a time. Other connections wait in the queue of the listening
/// socket.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to send its request and to receive the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of the head of a request.
const HEAD_MAX_BYTES: usize = 8192;
const HEADERS_MAX: usize = 64;

const TEXT: &str = "text/plain; charset=utf-8";

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
        let Err(error) = thread.keep(|| self.accept(&state)).await;
        error!("metrics are not served any more: {error}: restart the server");
        thread.ended();
    }

    /// Accepts and serves connections. Retries after a failed accept. Returns only if the socket cannot be used.
    async fn accept(&self, state: &Arc<ServerState>) -> io::Result<Infallible> {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let permit = async || Arc::clone(&permits).acquire_owned().await.expect("a semaphore that is never closed");
        match self {
            Endpoint::Tcp(listener) => {
                let listener = TcpListener::from_std(listener.try_clone()?)?;
                loop {
                    let permit = permit().await;
                    serve_accepted(listener.accept().await, permit, state).await;
                }
            }
            Endpoint::Unix(on_path) => {
                let listener = UnixListener::from_std(on_path.socket()?)?;
                loop {
                    let permit = permit().await;
                    serve_accepted(listener.accept().await, permit, state).await;
                }
            }
        }
    }
}

/// Serves an accepted connection in a task, which holds the permit until the connection ends.
async fn serve_accepted<S, A>(accepted: io::Result<(S, A)>, permit: OwnedSemaphorePermit, state: &Arc<ServerState>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok((stream, _)) = accepted else {
        // The loop that accepts clients encounters the same error, and logs it.
        return tokio::time::sleep(ACCEPT_RETRY).await;
    };
    let state = Arc::clone(state);
    tokio::spawn(async move {
        let _permit = permit;
        let thread = Arc::clone(&state.liveness.metrics);
        // Clients that take longer, or that send malformed requests, are disconnected.
        let _ = thread.catch_in(tokio::time::timeout(CONNECTION_TIMEOUT, serve_connection(stream, state))).await;
    });
}

/// Answers the one request of a connection.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<ServerState>,
) -> Result<(), hyper::Error> {
    let answer = |request: Request<Incoming>| {
        let response = answer(&request, &state);
        async move { Ok::<_, Infallible>(response) }
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEAD_MAX_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
}

fn answer(request: &Request<Incoming>, state: &ServerState) -> Response<String> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET or HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header's value"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let metrics = families::encode(&Snapshot::take(state));
            text(StatusCode::OK, families::TEXT_FORMAT, metrics)
        }
        // A server that can answer this request is alive.
        "/healthz" => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
        "/readyz" => {
            let snapshot = Snapshot::take(state);
            let is_ready = !snapshot.is_changed && snapshot.thread_problems.is_empty();
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            text(status, TEXT, readiness(&snapshot))
        }
        _ => text(StatusCode::NOT_FOUND, TEXT, "/metrics, /healthz or /readyz\n".to_owned()),
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type.parse().expect("a header's value"));
    response.headers_mut().insert(CACHE_CONTROL, "no-store".parse().expect("a header's value"));
    response
}

/// Returns one line with the state of the server, followed by one line for each problem.
fn readiness(snapshot: &Snapshot) -> String {
    let (state, generation, store) = (snapshot.state(), snapshot.generation.number, &snapshot.generation.store);
    let (resident_len_bytes, file_len_bytes) = (snapshot.server.residency.len_bytes(), store.file_len_bytes());
    let share = 100.0 * resident_len_bytes as f64 / file_len_bytes.max(1) as f64;
    let rows = store.len();
    let mut lines = format!(
        "{state}: generation {generation}, {rows} rows, {resident_len_bytes} of {file_len_bytes} bytes resident ({share:.1} %)\n"
    );
    for problem in &snapshot.thread_problems {
        lines.push_str(problem);
        lines.push('\n');
    }
    if !snapshot.file_refused.is_empty() {
        lines.push_str(&snapshot.file_refused);
        lines.push('\n');
    }
    lines
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
