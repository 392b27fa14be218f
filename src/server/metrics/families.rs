//! The text that Prometheus reads.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use crate::protocol::native::{Op, OpKind, Status};
use crate::server::counters::{Distribution, REQUESTS_NAMES, STATUS_NAMES, UNKNOWN_OP};
use crate::server::snapshot::{Snapshot, VERSION, digest_text};

/// The media type of the text.
pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4";

/// Upper bounds of the buckets of batches, as powers of two: 1 to 2,048 requests.
const BATCH_POWERS: RangeInclusive<u32> = 0..=11;
/// Upper bounds of the buckets of service times, as powers of two: 1 µs to 1.07 s, in nanoseconds.
const SERVICE_POWERS: RangeInclusive<u32> = 10..=30;

/// How a metric is computed from a snapshot.
enum Value {
    Gauge(fn(&Snapshot) -> u64),
    Counter(fn(&Snapshot) -> u64),
    /// A gauge with several series.
    Gauges(fn(&Snapshot) -> Vec<Series>),
    /// A counter with several series.
    Counters(fn(&Snapshot) -> Vec<Series>),
    /// A histogram with these upper bounds, as powers of two. Its numbers are multiplied by the unit.
    Histogram(fn(&Snapshot) -> &Distribution, RangeInclusive<u32>, f64),
}

/// Labels and a number.
type Series = (Vec<(&'static str, String)>, u64);

use Value::{Counter, Counters, Gauge, Gauges, Histogram};

/// All metrics: name, help, and value. `docs/OPERATIONS.md` lists them in this order.
const METRICS: &[(&str, &str, Value)] = &[
    ("zero_kv_info", "The server and its file, as labels. Always 1.", Gauges(info)),
    ("zero_kv_uptime_seconds", "Time since the server started.", Gauge(|s| s.uptime.as_secs())),
    ("zero_kv_workers", "Worker threads.", Gauge(|s| s.workers as u64)),
    (
        "zero_kv_ready",
        "1 if the file is unchanged since it was checked, otherwise 0.",
        Gauge(|s| (!s.is_changed).into()),
    ),
    ("zero_kv_generation", "Number of the current generation.", Gauge(|s| s.generation)),
    ("zero_kv_rows", "Rows of the table.", Gauge(|s| s.rows)),
    ("zero_kv_file_bytes", "Length of the file.", Gauge(|s| s.file_len_bytes)),
    (
        "zero_kv_resident_bytes",
        "Bytes of the file that are in memory, measured every few seconds.",
        Gauge(|s| s.resident_len_bytes),
    ),
    ("zero_kv_blocks", "Blocks of the file's records.", Gauge(|s| s.blocks.0 as u64)),
    ("zero_kv_blocks_verified", "Verified blocks.", Gauge(|s| s.blocks.1 as u64)),
    ("zero_kv_blocks_damaged", "Damaged blocks that were found, at most 64.", Gauge(|s| s.damaged_blocks as u64)),
    ("zero_kv_requests_total", "Requests, by op and status.", Counters(requests)),
    ("zero_kv_hits_total", "Requested keys that were found.", Counter(|s| s.sums.hits())),
    ("zero_kv_misses_total", "Requested keys that were not found.", Counter(|s| s.sums.misses())),
    ("zero_kv_read_bytes_total", "Bytes of requests.", Counter(|s| s.sums.read_len_bytes)),
    ("zero_kv_written_bytes_total", "Bytes of responses.", Counter(|s| s.sums.written_len_bytes)),
    (
        "zero_kv_batch_requests",
        "Requests that were answered together.",
        Histogram(|s| &s.sums.batch_requests, BATCH_POWERS, 1.0),
    ),
    (
        "zero_kv_service_seconds",
        "Time to answer a batch, measured for every 64th.",
        Histogram(|s| &s.sums.service_ns, SERVICE_POWERS, 1e-9),
    ),
    ("zero_kv_connections", "Open connections.", Gauge(|s| s.sums.connections)),
    ("zero_kv_connections_accepted_total", "Accepted connections.", Counter(|s| s.sums.accepted)),
    ("zero_kv_connections_cut_total", "Disconnected connections, by reason.", Counters(disconnected)),
    ("zero_kv_connections_refused_total", "Refused connections.", Counter(|s| s.refused)),
    ("zero_kv_panics_total", "Connections that ended because of a fault of the server.", Counter(|s| s.panics)),
    ("zero_kv_swaps_total", "Generations that replaced another one.", Counter(|s| s.swaps)),
    ("zero_kv_rollbacks_total", "Swaps that returned to the previous generation.", Counter(|s| s.rollbacks)),
    ("zero_kv_refused_files_total", "Files that were rejected.", Counter(|s| s.refused_files)),
    ("zero_kv_faults_total", "Times that the served file was found changed or unreadable.", Counter(|s| s.faults)),
    (
        "zero_kv_generations_retained",
        "Replaced generations that pending responses still hold.",
        Gauge(|s| s.generations_retained),
    ),
    ("zero_kv_client_memory_bytes", "Memory that all connections hold together.", Gauge(|s| s.client_memory_bytes)),
    ("zero_kv_client_memory_max_bytes", "Limit on that memory.", Gauge(|s| s.client_memory_max_bytes)),
    (
        "zero_kv_file_refused",
        "1 if the file at the path was rejected and an older one is served, otherwise 0.",
        Gauge(|s| (!s.file_refused.is_empty()).into()),
    ),
    (
        "zero_kv_thread_problems",
        "Threads that have ended, make no progress, or panic repeatedly.",
        Gauge(|s| s.thread_problems.len() as u64),
    ),
    ("zero_kv_thread_panics_total", "Panics of threads that continued, by thread.", Counters(thread_panics)),
    (
        "zero_kv_writers_detected",
        "1 if every process that writes to the file is detected before it does, otherwise 0.",
        Gauge(|s| s.writers_unknown.is_none().into()),
    ),
];

/// Returns all metrics in the text format.
pub(super) fn encode(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (name, help, value) in METRICS {
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

/// Appends a series. A label's value must not contain control characters.
fn push_line(text: &mut String, name: &str, labels: &[(&str, String)], number: impl Display) {
    text.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(text, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
    }
    let _ = writeln!(text, "{} {number}", if labels.is_empty() { "" } else { "}" });
}

fn info(snapshot: &Snapshot) -> Vec<Series> {
    let labels = [
        ("version", VERSION.to_owned()),
        ("digest", digest_text(snapshot.digest)),
        ("keys", snapshot.key_kind().to_owned()),
        ("memory", snapshot.memory.to_owned()),
        ("verify", snapshot.verify.to_owned()),
    ];
    vec![(labels.to_vec(), 1)]
}

fn disconnected(snapshot: &Snapshot) -> Vec<Series> {
    let reasons = [
        ("idle", snapshot.cut_idle),
        ("stalled", snapshot.cut_stalled),
        ("http", snapshot.cut_http),
        ("slow", snapshot.cut_slow),
        ("generation", snapshot.cut_generation),
        ("memory", snapshot.cut_memory),
    ];
    reasons.into_iter().map(|(reason, count)| (vec![("reason", reason.to_owned())], count)).collect()
}

fn thread_panics(snapshot: &Snapshot) -> Vec<Series> {
    snapshot.thread_panics.iter().map(|(thread, count)| (vec![("thread", thread.clone())], *count)).collect()
}

fn requests(snapshot: &Snapshot) -> Vec<Series> {
    let mut requests = Vec::new();
    for (kind, (name, by_status)) in REQUESTS_NAMES.iter().zip(&snapshot.sums.requests).enumerate() {
        let op = name.strip_prefix("requests_").unwrap_or(name);
        for (status, (status_name, count)) in STATUS_NAMES.iter().zip(by_status).enumerate() {
            if can_be(kind, status) {
                requests.push((vec![("op", op.to_owned()), ("status", (*status_name).to_owned())], *count));
            }
        }
    }
    requests
}

/// Returns whether a request of this kind can have this status.
fn can_be(kind: usize, status: usize) -> bool {
    const NOT_FOUND: usize = Status::NotFound as usize;
    match (Op::ALL.get(kind).map(|op| op.kind()), status) {
        (Some(OpKind::Point | OpKind::Neighbor), _) => true,
        (_, NOT_FOUND) => false,
        (_, status) => kind != UNKNOWN_OP || status == Status::Error as usize,
    }
}
