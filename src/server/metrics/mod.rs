//! Metrics for Prometheus and health checks, over HTTP.
//!
//! In: an address and the state of the server. Out: `/metrics`, `/healthz`, and `/readyz`. Runs on the main thread,
//! never on a worker. Its load is bounded: every connection is accepted, and the oldest of too many is closed. A health
//! check therefore gets its response however many connections clients open, and whatever these clients send or read.

mod responses;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tracing::{error, warn};

use super::error::ServerError;
use super::limits::metrics_connections_max;
use super::listen::accept::ACCEPT_RETRY;
use super::listen::listener::{Exposure, Listener, listen_on_tcp};
use super::process::log_queue::LogLimit;
use super::process::newest_tasks::{NewestTasks, Place};
use super::state::server::ServerState;
use crate::setting::Setting;
use crate::sync::unpoisoned;
use responses::Responder;

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

/// The share of connections that may be beyond their request: 1/`ANSWERED_SHARE` of all.
const ANSWERED_SHARE: usize = 4;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to send its request and to receive the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of the head of a request.
const HEAD_MAX_BYTES: usize = 8192;
const HEADERS_MAX: usize = 64;
/// The maximum number of bytes that are read and discarded after the response.
const DISCARDED_MAX_BYTES: u64 = 64 << 10;

/// A connection over TCP or a Unix socket.
trait Stream: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static> Stream for S {}

/// All connections. A connection is in one of two groups, so that neither clients that send no request nor clients that
/// read no response can close connections of the other group.
struct Connections {
    state: Arc<ServerState>,
    responder: Responder,
    /// Connections that have not sent a complete request.
    waiting: Arc<NewestTasks>,
    /// Connections whose clients have not received the whole response.
    answered: Arc<NewestTasks>,
    limit_log: LogLimit,
}

impl Connections {
    fn new(state: &Arc<ServerState>) -> Arc<Connections> {
        let max = metrics_connections_max(state.settings.connections_max);
        let answered_max = max / ANSWERED_SHARE;
        Arc::new(Connections {
            state: Arc::clone(state),
            responder: Responder::new(Arc::clone(state)),
            waiting: NewestTasks::new(max - answered_max),
            answered: NewestTasks::new(answered_max),
            limit_log: LogLimit::default(),
        })
    }

    /// Serves a connection in a task.
    fn begin(self: &Arc<Self>, stream: impl Stream) {
        let connections = Arc::clone(self);
        let is_oldest_closed = self.waiting.spawn(|place| async move {
            let thread = &connections.state.liveness.metrics;
            // Clients that take longer are disconnected. A panic is logged, and ends only this connection.
            let served = tokio::time::timeout(CONNECTION_TIMEOUT, connections.serve(stream, place));
            let _ = thread.catch_in(served).await;
        });
        if is_oldest_closed {
            self.report_limit("it had not sent its request, and was the oldest", self.waiting.max());
        }
    }

    /// Answers the one request of a connection.
    async fn serve(&self, stream: impl Stream, place: Place) -> io::Result<()> {
        reset_at_close(&stream)?;
        let place = Mutex::new(place);
        let answer = |request: Request<Incoming>| {
            if unpoisoned(&place).move_to(&self.answered) {
                self.report_limit("it had not received its response, and was the oldest", self.answered.max());
            }
            Box::pin(async move { Ok::<Response<String>, Infallible>(self.responder.answer(&request).await) })
        };
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .keep_alive(false)
            // A client may close its side after its request.
            .half_close(true)
            .max_buf_size(HEAD_MAX_BYTES)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        let answered = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let stream = connection.into_parts().io.into_inner();
        match answered {
            Err(error) if error.is_timeout() => Ok(()),
            // For a malformed request, hyper has sent a response with the status 400 or 431.
            _ => close(stream).await,
        }
    }

    /// Counts and logs a connection that was closed because of newer ones.
    fn report_limit(&self, reason: &str, max: usize) {
        self.state.statistics.totals.cut_metrics.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.limit_log.line() {
            warn!(left_out, "disconnected a client of the metrics: {reason} of {max}");
        }
    }
}

/// Makes the kernel drop unreceived responses when the connection is closed. Otherwise, clients that read nothing could
/// leave many responses in the kernel's memory. Has no effect on a Unix socket.
fn reset_at_close(stream: &impl Stream) -> io::Result<()> {
    // If the client has closed its side, the kernel keeps the response for at most this time.
    let _ = set_tcp_user_timeout(stream, CONNECTION_TIMEOUT.as_millis() as u32);
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Ends the response, and waits until the client closes its side. Discards what the client sends meanwhile, because the
/// client would lose the response if the connection were closed with unread bytes.
async fn close(mut stream: impl Stream) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut discarded, mut discarded_bytes) = ([0; 4096], 0);
    while discarded_bytes < DISCARDED_MAX_BYTES {
        match stream.read(&mut discarded).await? {
            0 => return Ok(set_socket_linger(&stream, None)?),
            len_bytes => discarded_bytes += len_bytes as u64,
        }
    }
    Ok(())
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
