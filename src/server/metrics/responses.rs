//! The responses to requests for metrics and health checks.
//!
//! In: a request and the state of the server. Out: the response. Health checks never wait for an encoding of the
//! metrics, which takes milliseconds for a large table and runs on a thread of its own.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Mutex;

use crate::Lookup;
use crate::counted::counted;
use crate::printable::Printable;
use crate::server::facts::Value::{Counter, Counters, Gauge, Gauges, Histogram};
use crate::server::facts::{FACTS, Metric, Snapshot};
use crate::server::state::server::ServerState;
use crate::server::stats::counters::Distribution;

const TEXT: &str = "text/plain; charset=utf-8";

/// The pause between two encodings of the metrics, as a multiple of the time that the first one takes. However many
/// clients request metrics, at most a fifth of one processor encodes them.
const PAUSE_PER_ENCODING: u32 = 4;
/// The maximum pause between two encodings, in case the thread is suspended during the first one.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Creates the responses.
pub(super) struct Responder {
    state: Arc<ServerState>,
    encoded: Arc<Mutex<Encoded>>,
}

/// The last encoding of the metrics.
#[derive(Default)]
struct Encoded {
    began: Option<Instant>,
    /// When the next encoding may begin.
    next: Option<Instant>,
    text: String,
}

impl Responder {
    pub(super) fn new(state: Arc<ServerState>) -> Responder {
        Responder { state, encoded: Arc::default() }
    }

    pub(super) async fn answer(&self, request: &Request<Incoming>) -> Response<String> {
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

/// Returns the number of damaged blocks, if the server fetches the file again. Other servers have their rows, but a server
/// whose file somebody else has to replace may be one of many with the same file.
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
        "{state}: generation {generation}, {rows}, {resident_len_bytes} of {file_len_bytes} bytes resident ({share:.1} %)\n"
    );
    let damaged = blocks_to_replace(snapshot);
    if damaged > 0 {
        let _ = writeln!(lines, "{damaged} damaged blocks: the file is fetched again");
    }
    for problem in &snapshot.thread_problems {
        let _ = writeln!(lines, "{}", Printable(problem));
    }
    if !snapshot.file_refused.is_empty() {
        let _ = writeln!(lines, "{}", Printable(&snapshot.file_refused));
    }
    lines
}

/// The media type of the encoded metrics.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4";

/// Returns all metrics in the text format.
pub(super) fn encode(snapshot: &Snapshot) -> String {
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
    fn any_text_is_one_value_of_a_label() {
        let mut line = String::new();
        push_line(&mut line, "m", &[("a", "\"} 1\nm2 7\\".to_owned()), ("b", String::new())], 5);
        assert_eq!(line, "m{a=\"\\\"} 1\\nm2 7\\\\\",b=\"\"} 5\n");
    }
}
