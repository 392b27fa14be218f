//! The text that Prometheus reads.

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::protocol::native::Status;
use crate::server::counters::{Asked, Distribution, REQUESTS_NAMES, STATUS_NAMES};
use crate::server::snapshot::{Snapshot, VERSION, digest_text};

/// Upper bounds of the buckets of batches, as powers of two: 1 to 2,048 requests.
const BATCH_POWERS: std::ops::RangeInclusive<u32> = 0..=11;
/// The same of service times: 1 µs to 1.07 s, in nanoseconds.
const SERVICE_POWERS: std::ops::RangeInclusive<u32> = 10..=30;

/// All metrics, in the text format.
pub(super) fn encode(snapshot: &Snapshot) -> String {
    TextEncoder::new().encode_to_string(&families(snapshot)).unwrap_or_default()
}

/// `docs/OPERATIONS.md` lists them in this order.
fn families(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let sums = &snapshot.sums;
    let digest = digest_text(snapshot.digest);
    let about = [
        ("version", VERSION),
        ("digest", &digest),
        ("keys", snapshot.key_kind()),
        ("memory", snapshot.memory),
        ("verify", snapshot.verify),
    ];
    let mut families = vec![
        gauges("zero_kv_info", "The server and the file that it serves, as labels; always 1.", vec![gauge(&about, 1)]),
        plain_gauge("zero_kv_uptime_seconds", "Time since the server started.", snapshot.uptime.as_secs()),
        plain_gauge("zero_kv_workers", "Threads that answer.", snapshot.workers as u64),
        plain_gauge(
            "zero_kv_ready",
            "1 if the file is as it was when it was checked, else 0.",
            (!snapshot.is_changed).into(),
        ),
        plain_gauge("zero_kv_generation", "Number of the file, of those that were served.", snapshot.generation),
        plain_gauge("zero_kv_rows", "Rows of the file.", snapshot.rows),
        plain_gauge("zero_kv_file_bytes", "Length of the file.", snapshot.file_len_bytes),
        plain_gauge(
            "zero_kv_resident_bytes",
            "Bytes of the file that are in memory, measured every few seconds.",
            snapshot.resident_len_bytes,
        ),
        plain_gauge("zero_kv_blocks", "Blocks that the records of the file have.", snapshot.blocks.0 as u64),
        plain_gauge("zero_kv_blocks_verified", "Those of them that were found sound.", snapshot.blocks.1 as u64),
        plain_gauge(
            "zero_kv_blocks_damaged",
            "Those of them that were found damaged, up to 64.",
            snapshot.damaged_blocks as u64,
        ),
    ];
    families.extend(requests(snapshot));
    let thread_panics = snapshot.thread_panics.iter().map(|(thread, count)| counter(&[("thread", thread)], *count));
    let thread_panics = thread_panics.collect();
    families.extend([
        total("zero_kv_read_bytes_total", "Bytes of requests.", sums.read_len_bytes),
        total("zero_kv_written_bytes_total", "Bytes of answers.", sums.written_len_bytes),
        histogram(
            "zero_kv_batch_requests",
            "Requests that were answered together.",
            &sums.batch_requests,
            BATCH_POWERS,
            1.0,
        ),
        histogram(
            "zero_kv_service_seconds",
            "Time to answer a batch, of every 64th.",
            &sums.service_ns,
            SERVICE_POWERS,
            1e-9,
        ),
        plain_gauge("zero_kv_connections", "Connections that there are.", sums.connections),
        total("zero_kv_connections_accepted_total", "Connections that there were or are.", sums.accepted),
        counters(
            "zero_kv_connections_cut_total",
            "Connections that were cut off.",
            vec![
                counter(&[("reason", "idle")], snapshot.cut_idle),
                counter(&[("reason", "stalled")], snapshot.cut_stalled),
                counter(&[("reason", "http")], snapshot.cut_http),
                counter(&[("reason", "slow")], snapshot.cut_slow),
                counter(&[("reason", "generation")], snapshot.cut_generation),
                counter(&[("reason", "memory")], snapshot.cut_memory),
            ],
        ),
        total("zero_kv_connections_refused_total", "Connections that were not let in.", snapshot.refused),
        total("zero_kv_panics_total", "Connections that ended by a fault of the server.", snapshot.panics),
        total("zero_kv_swaps_total", "Generations that took the place of another.", snapshot.swaps),
        total("zero_kv_rollbacks_total", "Those of them that went back.", snapshot.rollbacks),
        total(
            "zero_kv_refused_files_total",
            "Files that were not served because something is wrong.",
            snapshot.refused_files,
        ),
        total("zero_kv_faults_total", "Times that the served file had changed or could not be read.", snapshot.faults),
        plain_gauge(
            "zero_kv_generations_retained",
            "Replaced generations that pending responses still hold.",
            snapshot.generations_retained,
        ),
        plain_gauge(
            "zero_kv_client_memory_bytes",
            "Memory that all connections hold together.",
            snapshot.client_memory_bytes,
        ),
        plain_gauge(
            "zero_kv_client_memory_max_bytes",
            "The most that they may hold.",
            snapshot.client_memory_max_bytes,
        ),
        plain_gauge(
            "zero_kv_file_refused",
            "1 if the file at the path was refused and an older one is served, else 0.",
            (!snapshot.file_refused.is_empty()).into(),
        ),
        plain_gauge(
            "zero_kv_thread_problems",
            "Threads that have ended, make no progress, or panic repeatedly.",
            snapshot.thread_problems.len() as u64,
        ),
        counters("zero_kv_thread_panics_total", "Panics of threads that went on, by thread.", thread_panics),
        plain_gauge(
            "zero_kv_writers_detected",
            "1 if a process that writes to the file is detected before it does, or nobody can; otherwise 0.",
            snapshot.writers_unknown.is_none().into(),
        ),
    ]);
    families
}

fn requests(snapshot: &Snapshot) -> [MetricFamily; 3] {
    let sums = &snapshot.sums;
    let mut requests = Vec::new();
    for (asked, (name, by_status)) in REQUESTS_NAMES.iter().zip(&sums.requests).enumerate() {
        let op = name.strip_prefix("requests_").unwrap_or(name);
        for (status, (status_name, count)) in STATUS_NAMES.iter().zip(by_status).enumerate() {
            if can_be(asked, status) {
                requests.push(counter(&[("op", op), ("status", status_name)], *count));
            }
        }
    }
    [
        counters("zero_kv_requests_total", "Requests, by op and by how they went.", requests),
        total("zero_kv_hits_total", "Keys that were asked for and found.", sums.hits()),
        total("zero_kv_misses_total", "Keys that were asked for and not found.", sums.misses()),
    ]
}

/// Whether a request of this kind can have this status.
fn can_be(asked: usize, status: usize) -> bool {
    const NOT_FOUND: usize = Status::NotFound as usize;
    match (asked, status) {
        // Get, Exists, Floor and Ceiling.
        (0..=3, _) => true,
        (_, NOT_FOUND) => false,
        (asked, status) => asked != Asked::Other as usize || status == Status::Error as usize,
    }
}

fn family(name: &str, help: &str, of: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(of);
    family.set_metric(metrics);
    family
}

fn counters(name: &str, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    family(name, help, MetricType::COUNTER, metrics)
}

fn gauges(name: &str, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    family(name, help, MetricType::GAUGE, metrics)
}

fn total(name: &str, help: &str, count: u64) -> MetricFamily {
    counters(name, help, vec![counter(&[], count)])
}

fn plain_gauge(name: &str, help: &str, number: u64) -> MetricFamily {
    gauges(name, help, vec![gauge(&[], number)])
}

fn counter(labels: &[(&str, &str)], count: u64) -> Metric {
    let (mut metric, mut counter) = (labelled(labels), Counter::default());
    counter.set_value(count as f64);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: &[(&str, &str)], number: u64) -> Metric {
    let (mut metric, mut gauge) = (labelled(labels), Gauge::default());
    gauge.set_value(number as f64);
    metric.set_gauge(gauge);
    metric
}

fn histogram(
    name: &str,
    help: &str,
    of: &Distribution,
    powers: std::ops::RangeInclusive<u32>,
    unit: f64,
) -> MetricFamily {
    let bucket = |power: u32| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound((1_u64 << power) as f64 * unit);
        bucket.set_cumulative_count(of.up_to_power(power));
        bucket
    };
    let (mut metric, mut histogram) = (labelled(&[]), Histogram::default());
    histogram.set_bucket(powers.map(bucket).collect());
    histogram.set_sample_count(of.count());
    histogram.set_sample_sum(of.sum as f64 * unit);
    metric.set_histogram(histogram);
    family(name, help, MetricType::HISTOGRAM, vec![metric])
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}
