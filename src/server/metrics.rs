//! Metrics for Prometheus and health checks, over HTTP.
//!
//! In: an address and the state of the server. Out: `/metrics`, `/healthz`, and `/readyz`. Runs on the main thread,
//! never on a worker. Its load is bounded: every connection is accepted, and the oldest of too many is closed. A health
//! check therefore gets its response however many connections clients open, and whatever these clients send or read.
//! Health checks never wait for an encoding of the metrics, which takes milliseconds for a large table and runs on a
//! thread of its own.

use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};

use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Mutex as AsyncMutex;
use tracing::{error, warn};

use super::facts::Value::{Counter, Counters, Gauge, Gauges, Histogram};
use super::facts::{FACTS, Metric, Snapshot};
use super::limits::metrics_connections_max;
use super::listen::listener::{Exposure, Listener, listen_on_tcp};
use super::listen::{ACCEPT_RETRY, ServerError};
use super::process::log_queue::LogLimit;
use super::process::newest_tasks::{NewestTasks, Place};
use super::state::ServerState;
use super::stats::Distribution;
use crate::Lookup;
use crate::counted::counted;
use crate::printable::Printable;
use crate::setting::Setting;
use crate::sync::unpoisoned;

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
                    "other machines may reach this address, and there is no password: choose 127.0.0.1 or [::1], or \
                     pass {} if everyone may read the server's metrics",
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

const TEXT: &str = "text/plain; charset=utf-8";

/// The pause between two encodings of the metrics, as a multiple of the time that the first one takes. However many
/// clients request metrics, at most a fifth of one processor encodes them.
const PAUSE_PER_ENCODING: u32 = 4;
/// The maximum pause between two encodings, in case the thread is suspended during the first one.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Creates the responses.
struct Responder {
    state: Arc<ServerState>,
    encoded: Arc<AsyncMutex<Encoded>>,
}

#[derive(Default)]
struct Encoded {
    began: Option<Instant>,
    /// When the next encoding may begin.
    next: Option<Instant>,
    text: String,
}

impl Responder {
    fn new(state: Arc<ServerState>) -> Responder {
        Responder { state, encoded: Arc::default() }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET or HEAD\n".to_owned());
            response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header's value"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => match self.metrics().await {
                Some(metrics) => text(StatusCode::OK, TEXT_FORMAT, metrics),
                None => text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "a bug: see the server's log\n".to_owned()),
            },
            // A server that can answer this request is alive.
            "/healthz" => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => {
                let snapshot = Snapshot::take(&self.state);
                let is_intact = !snapshot.is_changed && blocks_to_replace(&snapshot) == 0;
                let is_ready = is_intact && snapshot.thread_problems.is_empty();
                let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                text(status, TEXT, readiness(&snapshot))
            }
            _ => text(StatusCode::NOT_FOUND, TEXT, "/metrics, /healthz or /readyz\n".to_owned()),
        }
    }

    /// Returns the metrics, as they are now or later. Requests that arrive before an encoding begins share it. Returns
    /// `None` after a panic, which is logged.
    async fn metrics(&self) -> Option<String> {
        let arrived = Instant::now();
        let mut encoded = Arc::clone(&self.encoded).lock_owned().await;
        if encoded.began.is_some_and(|began| began >= arrived) {
            return Some(encoded.text.clone());
        }
        if let Some(next) = encoded.next {
            tokio::time::sleep(next.saturating_duration_since(Instant::now())).await;
        }
        let state = Arc::clone(&self.state);
        // The closure owns the lock, so only one encoding runs at a time even if clients disconnect.
        let encode = move || {
            let began = Instant::now();
            let text = state.liveness.metrics.catch(|| encode(&Snapshot::take(&state))).ok()?;
            let pause = began.elapsed().saturating_mul(PAUSE_PER_ENCODING).min(PAUSE_MAX);
            *encoded = Encoded { began: Some(began), next: Some(Instant::now() + pause), text: text.clone() };
            Some(text)
        };
        tokio::task::spawn_blocking(encode).await.ok().flatten()
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type.parse().expect("a header's value"));
    response.headers_mut().insert(CACHE_CONTROL, "no-store".parse().expect("a header's value"));
    response
}

/// Returns the number of damaged blocks, if the server fetches the file again. Other servers have their rows, but a
/// server whose file somebody else has to replace may be one of many with the same file.
fn blocks_to_replace(snapshot: &Snapshot) -> usize {
    snapshot.published.as_ref().map_or(0, |_| snapshot.generation.store.damaged_block_count())
}

/// Returns one line with the state of the server, followed by one line for each problem.
fn readiness(snapshot: &Snapshot) -> String {
    let (state, generation, store) = (snapshot.state(), snapshot.generation.number, &snapshot.generation.store);
    let (resident_len_bytes, file_len_bytes) = (snapshot.server.residency.len_bytes(), store.file_len_bytes());
    let share = 100.0 * resident_len_bytes as f64 / file_len_bytes.max(1) as f64;
    let rows = counted(store.len(), "row");
    let mut lines = format!(
        "{state}: generation {generation}, {rows}, {resident_len_bytes} of {file_len_bytes} bytes resident \
         ({share:.1} %)\n"
    );
    let damaged = blocks_to_replace(snapshot);
    if damaged > 0 {
        let _ = writeln!(lines, "{damaged} damaged blocks: the file is fetched again");
    }
    for problem in &snapshot.thread_problems {
        let _ = writeln!(lines, "{}", Printable(problem));
    }
    if snapshot.generation.is_rollback {
        let _ = writeln!(lines, "the previous table is served, after a rollback");
    }
    if !snapshot.file_refused.is_empty() {
        let _ = writeln!(lines, "{}", Printable(&snapshot.file_refused));
    }
    lines
}

/// The media type of the encoded metrics.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4";

fn encode(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for Metric { name, help, value } in FACTS.iter().filter_map(|fact| fact.metric.as_ref()) {
        let kind = match value {
            Gauge(_) | Gauges(_) => "gauge",
            Counter(_) | Counters(_) => "counter",
            Histogram(..) => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        match value {
            Gauge(number) | Counter(number) => push_line(&mut text, name, &[], number(snapshot)),
            Gauges(series) | Counters(series) => {
                series(snapshot).iter().for_each(|(labels, number)| push_line(&mut text, name, labels, number));
            }
            Histogram(of, powers, unit) => push_histogram(&mut text, name, of(snapshot), powers.clone(), *unit),
        }
    }
    text
}

fn push_histogram(text: &mut String, name: &str, of: &Distribution, powers: RangeInclusive<u32>, unit: f64) {
    let bucket = format!("{name}_bucket");
    for power in powers {
        let bound = (1_u64 << power) as f64 * unit;
        push_line(text, &bucket, &[("le", bound.to_string())], of.up_to_power(power));
    }
    push_line(text, &bucket, &[("le", "+Inf".to_owned())], of.count());
    push_line(text, &format!("{name}_sum"), &[], of.sum as f64 * unit);
    push_line(text, &format!("{name}_count"), &[], of.count());
}

/// Appends the line of one series. The text format escapes only three characters in the values of labels.
fn push_line(text: &mut String, name: &str, labels: &[(&str, String)], number: impl Display) {
    text.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
    }
    let _ = writeln!(text, "{} {number}", if labels.is_empty() { "" } else { "}" });
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

#[cfg(test)]
mod responses_tests {
    use super::*;

    #[test]
    fn any_text_is_one_value_of_a_label() {
        let mut line = String::new();
        push_line(&mut line, "m", &[("a", "\"} 1\nm2 7\\".to_owned()), ("b", String::new())], 5);
        assert_eq!(line, "m{a=\"\\\"} 1\\nm2 7\\\\\",b=\"\"} 5\n");
    }
}
