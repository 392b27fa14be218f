//! The facts that a server reports about itself: their names, and how they are computed from a [`Snapshot`].
//!
//! In: a [`Snapshot`] of the server's state and counters. Out: the response to Info (native protocol), the facts in the
//! reply to INFO (Redis protocol), and the metrics for Prometheus. Each fact is one entry of [`FACTS`].

use std::cell::OnceCell;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cluster::{ClusterNode, View};
use super::process::log_queue::LogQueue;
use super::state::ServerState;
use super::stats::{CUTS_PREFIX, Distribution, REQUESTS_NAMES, STATUS_NAMES, Sums, TotalCounts, UNKNOWN_OP};
use super::table::{Generation, PublishedFacts};
use super::turns::STEP_LEN_BYTES;
use crate::Lookup;
use crate::excerpt::excerpt;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::printable::Printable;
use crate::protocol::native::{INFO_LEN_MAX_BYTES, Op, Status};
use crate::store::{Memory, Verify, Writers, WritersUnknown};
use crate::sync::unpoisoned;
use Value::{Counter, Counters, Gauge, Gauges, Histogram};

/// The upper bounds of the buckets for batch sizes, as exponents of two: from 2^0 (1 request) to 2^11 (2,048 requests).
const BATCH_POWERS: RangeInclusive<u32> = 0..=11;
/// The upper bounds of the buckets for service times, as exponents of two: from 2^10 ns (1 µs) to 2^30 ns (1.07 s).
const SERVICE_POWERS: RangeInclusive<u32> = 10..=30;
/// The maximum length of the text of a fact, except that of [`FILE_SLOTS_DIGITS`]. Many texts come from files, stores,
/// and options. With this limit, Info is not longer than [`INFO_LEN_MAX_BYTES`], which clients accept, whatever the
/// texts are.
const TEXT_LEN_MAX_BYTES: usize = 512;
/// The fact with all slots of the file, whose length does not depend on the slots.
const FILE_SLOTS_DIGITS: &str = "cluster_file_slots_digits";
/// The number of counters of disconnected connections that Info reports just before the counter of rejected
/// connections. Info reports the other counters of disconnected connections further down.
const CUTS_BEFORE_REFUSED: usize = 2;

/// A fact about the server, and how it is reported: by Info (native protocol), by INFO (Redis protocol), and as a
/// metric.
pub(super) struct Fact {
    text: Text,
    /// The fact's name in the reply to INFO (Redis protocol). Empty if it is the same as in Info (native protocol).
    redis: &'static str,
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics read this"))]
    pub(super) metric: Option<Metric>,
}

/// How Info reports a fact.
enum Text {
    /// Info does not report the fact.
    None,
    /// The fact's name, and the function that returns its text.
    One(&'static str, fn(&Snapshot) -> String),
    /// The fact's name, and the function that returns its numeric value.
    Number(&'static str, fn(&Snapshot) -> u64),
    /// The function that returns several names, each with its numeric value.
    Numbers(fn(&Snapshot) -> Vec<(&'static str, u64)>),
    /// The function that returns several names, each with its text.
    Texts(fn(&Snapshot) -> Vec<(&'static str, String)>),
}

/// A metric for Prometheus. `docs/operations/monitor.md` lists all metrics in the order of [`FACTS`].
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics read this"))]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: Value,
}

/// How a metric is computed from a [`Snapshot`] of the server.
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics read this"))]
pub(super) enum Value {
    Gauge(fn(&Snapshot) -> u64),
    Counter(fn(&Snapshot) -> u64),
    /// A gauge with several series.
    Gauges(fn(&Snapshot) -> Vec<Series>),
    /// A counter with several series.
    Counters(fn(&Snapshot) -> Vec<Series>),
    /// A histogram: the function that returns its distribution, the upper bounds of its buckets as exponents of two,
    /// and the factor that converts the recorded numbers to the metric's unit.
    Histogram(for<'a> fn(&'a Snapshot) -> &'a Distribution, RangeInclusive<u32>, f64),
}

/// The labels and the value of one series.
pub(super) type Series = (Vec<(&'static str, String)>, u64);

/// All facts, in the order in which Info and the metrics report them.
pub(super) const FACTS: &[Fact] = &[
    metric("zero_kv_info", "The server and its file, as labels. Always 1.", Gauges(info_labels)),
    text("version", |_| VERSION.to_owned()),
    number("pid", |_| std::process::id().into()),
    gauge("uptime_s", "zero_kv_uptime_seconds", "Time since the server started.", |s| {
        s.server.statistics.uptime().as_secs()
    }),
    gauge("workers", "zero_kv_workers", "Worker threads.", |s| s.server.statistics.worker_count() as u64),
    text("socket", |s| s.server.settings.socket.display().to_string()),
    text("tcp", |s| s.server.settings.tcp.map(|tcp| tcp.to_string()).unwrap_or_default()),
    text("tls", |s| s.server.settings.tls.map(|tls| tls.to_string()).unwrap_or_default()),
    text("file", |s| s.server.settings.source.path.display().to_string()),
    text("memory", |s| s.memory().to_owned()),
    text("verify", |s| s.verify().to_owned()),
    text("direct", |s| yes_or_no(s.server.table.is_direct(&s.generation))),
    gauge(
        "generation",
        "zero_kv_generation",
        "Number of the served table, counted from 1 since the server started: not that of a published generation.",
        |s| s.generation.number,
    )
    .redis("generation_number"),
    text("digest", |s| digest_text(s.generation.store.digest())).redis("generation"),
    text("keys", |s| s.key_type()).redis("key_kind"),
    gauge("rows", "zero_kv_rows", "Rows in the table.", |s| s.generation.store.len() as u64),
    gauge("file_len_bytes", "zero_kv_file_bytes", "Length of the served file.", |s| {
        s.generation.store.file_len_bytes()
    }),
    gauge(
        "file_modified_s",
        "zero_kv_file_modified_timestamp_seconds",
        "When the served file was modified, usually by its bake, in seconds since 1970.",
        |s| s.generation.modified_s(),
    ),
    gauge(
        "resident_len_bytes",
        "zero_kv_resident_bytes",
        "Bytes of the file that are in memory, measured every few seconds.",
        |s| s.server.residency.len_bytes(),
    ),
    gauge("blocks", "zero_kv_blocks", "Blocks of the file.", |s| s.blocks().0 as u64),
    gauge("blocks_verified", "zero_kv_blocks_verified", "Blocks that were verified and are intact.", |s| {
        s.blocks().1 as u64
    }),
    gauge("blocks_damaged", "zero_kv_blocks_damaged", "Blocks that were found damaged, at most 64.", |s| {
        s.generation.store.damaged_block_count() as u64
    }),
    text("state", |s| s.state().to_owned()).metric(
        "zero_kv_ready",
        "1 if the file is unchanged since it was checked, otherwise 0.",
        Gauge(|s| (!s.is_changed).into()),
    ),
    gauge("connections", "zero_kv_connections", "Open connections.", |s| s.sums.connections),
    counter("connections_accepted", "zero_kv_connections_accepted_total", "Accepted connections.", |s| s.sums.accepted),
    numbers(|s| s.totals.cuts()[..CUTS_BEFORE_REFUSED].to_vec()).metric(
        "zero_kv_connections_cut_total",
        "Disconnected connections, by reason.",
        Counters(cuts_by_reason),
    ),
    counter("connections_refused", "zero_kv_connections_refused_total", "Rejected connections.", |s| s.totals.refused),
    counter("panics", "zero_kv_panics_total", "Connections that ended because of a bug in the server.", |s| {
        s.totals.panics
    }),
    numbers(requests_by_op).metric(
        "zero_kv_requests_total",
        "Requests, by op and status.",
        Counters(requests_by_op_and_status),
    ),
    counter("hits", "zero_kv_hits_total", "Requested keys that were found.", |s| s.sums.hits()),
    counter("misses", "zero_kv_misses_total", "Requested keys that were not found.", |s| s.sums.misses()),
    number("errors", |s| s.sums.errors()),
    counter("read_len_bytes", "zero_kv_read_bytes_total", "Bytes of requests.", |s| s.sums.read_len_bytes),
    counter("written_len_bytes", "zero_kv_written_bytes_total", "Bytes of responses.", |s| s.sums.written_len_bytes),
    number("batches", |s| s.sums.batches),
    metric("zero_kv_batch_requests", "Requests per batch.", Histogram(|s| &s.sums.batch_requests, BATCH_POWERS, 1.0)),
    number("batch_requests_p50", |s| s.sums.batch_requests.quantile(0.5)),
    number("batch_requests_p99", |s| s.sums.batch_requests.quantile(0.99)),
    number("batch_requests_max", |s| s.sums.batch_requests.max),
    metric(
        "zero_kv_service_seconds",
        "Time to answer a batch, measured for every 64th batch.",
        Histogram(|s| &s.sums.service_ns, SERVICE_POWERS, 1e-9),
    ),
    text("service_us_p50", |s| service_us(s, 0.5)),
    text("service_us_p99", |s| service_us(s, 0.99)),
    text("service_us_p99.9", |s| service_us(s, 0.999)),
    text("users", |s| s.server.users.path().map(|path| path.display().to_string()).unwrap_or_default()),
    counter("logins_failed", "zero_kv_logins_failed_total", "Failed logins.", |s| s.totals.logins_failed),
    counter("refused_users_files", "zero_kv_refused_users_files_total", "Files of users that were rejected.", |s| {
        s.totals.refused_users
    }),
    text("users_refused", |s| s.server.users.refused()).metric(
        "zero_kv_users_refused",
        "1 if the users file was rejected and the previous users are in effect, otherwise 0.",
        Gauge(|s| (!s.server.users.refused().is_empty()).into()),
    ),
    counter("swaps", "zero_kv_swaps_total", "Swaps to another generation, including rollbacks.", |s| s.totals.swaps),
    counter("rollbacks", "zero_kv_rollbacks_total", "Rollbacks to the previous generation.", |s| s.totals.rollbacks),
    counter("refused_files", "zero_kv_refused_files_total", "Files that were rejected.", |s| s.totals.refused_files),
    counter("faults", "zero_kv_faults_total", "Times that the served file was found changed or unreadable.", |s| {
        s.totals.faults
    }),
    number("reload_requested", |s| s.totals.reload_requested),
    number("reload_done", |s| s.totals.reload_done),
    text("reload_last", |s| unpoisoned(&s.server.statistics.outcomes.reload_last).clone()),
    text("writers_detected", |s| s.writers_unknown().map_or("yes".to_owned(), |reason| format!("no: {reason}")))
        .metric(
            "zero_kv_writers_detected",
            "1 if every process that writes to the file is detected before it writes, otherwise 0.",
            Gauge(|s| s.writers_unknown().is_none().into()),
        ),
    numbers(|s| s.totals.cuts()[CUTS_BEFORE_REFUSED..].to_vec()),
    gauge(
        "generations_retained",
        "zero_kv_generations_retained",
        "Replaced generations that pending responses still hold.",
        |s| s.totals.generations_retained,
    ),
    number("generations_max", |s| s.server.settings.limits.generations_max as u64),
    gauge("client_memory_bytes", "zero_kv_client_memory_bytes", "Memory that all connections hold together.", |s| {
        s.server.client_memory.held_bytes() + s.server.statistics.tls.handshake_bytes.load(Ordering::Relaxed)
    }),
    gauge(
        "client_memory_max_bytes",
        "zero_kv_client_memory_max_bytes",
        "Limit on the memory that all connections hold together.",
        |s| s.server.client_memory.max_bytes,
    ),
    gauge(
        "client_sockets_bytes",
        "zero_kv_client_sockets_bytes",
        "Memory that the kernel holds for the sockets of connections, as last measured.",
        |s| s.server.client_memory.sockets.held_bytes(),
    ),
    text("file_refused", |s| s.file_refused.clone()).metric(
        "zero_kv_file_refused",
        "1 if the file at the path was rejected and an older one is served, otherwise 0.",
        Gauge(|s| (!s.file_refused.is_empty()).into()),
    ),
    text("rolled_back", |s| yes_or_no(s.generation.is_rollback)).metric(
        "zero_kv_rolled_back",
        "1 if a rollback serves the previous table instead of the one at the path, otherwise 0.",
        Gauge(|s| s.generation.is_rollback.into()),
    ),
    counter("tls_handshakes", "zero_kv_tls_handshakes_total", "Completed TLS handshakes.", |s| s.totals.tls_handshakes),
    counter("tls_handshakes_failed", "zero_kv_tls_handshakes_failed_total", "TLS handshakes that failed.", |s| {
        s.totals.tls_handshakes_failed
    }),
    counter("tls_reloads", "zero_kv_tls_reloads_total", "Times that TLS certificates and keys were read again.", |s| {
        s.totals.tls_reloads
    }),
    counter(
        "tls_reloads_refused",
        "zero_kv_tls_reloads_refused_total",
        "Times that changed TLS certificates or keys were rejected.",
        |s| s.totals.tls_reloads_refused,
    ),
    gauge(
        "tls_certificate_expires_s",
        "zero_kv_tls_certificate_expires_timestamp_seconds",
        "When the TLS certificate expires, in seconds since 1970. 0 without TLS.",
        |s| s.server.statistics.tls.expires_s.load(Ordering::Relaxed),
    ),
    text("tls_refused", |s| unpoisoned(&s.server.statistics.tls.refused).clone()).metric(
        "zero_kv_tls_refused",
        "1 if changed TLS certificates or keys were rejected and older ones are in use, otherwise 0.",
        Gauge(|s| (!unpoisoned(&s.server.statistics.tls.refused).is_empty()).into()),
    ),
    number("thread_panics", |s| s.server.liveness.threads().map(|thread| thread.panics()).sum()).metric(
        "zero_kv_thread_panics_total",
        "Panics of threads that continued, by thread.",
        Counters(panics_by_thread),
    ),
    text("thread_problems", |s| s.thread_problems.join("; ")).metric(
        "zero_kv_thread_problems",
        "Threads that have ended, make no progress, or panic repeatedly.",
        Gauge(|s| s.thread_problems.len() as u64),
    ),
    counter(
        "log_dropped_lines",
        "zero_kv_log_dropped_lines_total",
        "Log lines that were dropped because the log was not read, or could not be written.",
        |s| s.server.statistics.log.get().map_or(0, LogQueue::dropped_lines),
    ),
    texts_of(published_texts).metric(
        "zero_kv_published_generation",
        "Numbers of published generations: the served one, the prepared one, and the newest one.",
        Gauges(published_generations),
    ),
    metric(
        "zero_kv_published_lag_generations",
        "Published generations between the served one and the newest one.",
        Gauges(|s| published_series(s, |published| published.newest.saturating_sub(published.serving))),
    ),
    metric(
        "zero_kv_published_lag_seconds",
        "Age of the published generation that should be served but is not.",
        Gauges(|s| published_series(s, |published| published.lag_s)),
    ),
    metric(
        "zero_kv_published_poll_age_seconds",
        "Time since the store was last read successfully.",
        Gauges(|s| published_series(s, |published| published.poll_age_s)),
    ),
    metric(
        "zero_kv_published_serving_age_seconds",
        "Time since the served published generation was created.",
        Gauges(|s| published_series(s, |published| published.serving_age_s)),
    ),
    metric(
        "zero_kv_published_fetched_bytes_total",
        "Bytes fetched from the store.",
        Counters(|s| published_series(s, |published| published.fetched_bytes)),
    ),
    metric(
        "zero_kv_published_polls_total",
        "Times that the store was read.",
        Counters(|s| published_series(s, |published| published.polls)),
    ),
    metric(
        "zero_kv_published_name_taken",
        "1 if another process reports under the name of this server, otherwise 0.",
        Gauges(|s| published_series(s, |published| (!published.name_problem.is_empty()).into())),
    ),
    metric("zero_kv_published_failures_total", "Failures, by kind.", Counters(published_failures)),
    texts_of(cluster_texts).metric(
        "zero_kv_cluster_topology",
        "Number of the topology in effect.",
        Gauges(|s| cluster_view(s).map(|view| (Vec::new(), view.number())).into_iter().collect()),
    ),
    metric(
        "zero_kv_cluster_slots_lacking",
        "Slots that the topology assigns to this node, but whose rows its file lacks.",
        Gauges(|s| cluster_lacking(s).map(|lacking| (Vec::new(), lacking)).into_iter().collect()),
    ),
    metric(
        "zero_kv_cluster_topology_refused",
        "1 if the topology file was rejected and the previous topology is in effect, otherwise 0.",
        Gauges(|s| cluster_node(s).map(|node| (Vec::new(), (!node.refused().is_empty()).into())).into_iter().collect()),
    ),
];

/// Returns a fact that Info reports as a text, and that the metrics do not report.
const fn text(name: &'static str, text: fn(&Snapshot) -> String) -> Fact {
    Fact { text: Text::One(name, text), redis: "", metric: None }
}

/// Returns a fact that Info reports as a number, and that the metrics do not report.
const fn number(name: &'static str, number: fn(&Snapshot) -> u64) -> Fact {
    Fact { text: Text::Number(name, number), redis: "", metric: None }
}

/// Returns a fact that Info reports as several numbers, and that the metrics do not report.
const fn numbers(numbers: fn(&Snapshot) -> Vec<(&'static str, u64)>) -> Fact {
    Fact { text: Text::Numbers(numbers), redis: "", metric: None }
}

/// Returns a fact that Info reports as several texts.
const fn texts_of(texts: fn(&Snapshot) -> Vec<(&'static str, String)>) -> Fact {
    Fact { text: Text::Texts(texts), redis: "", metric: None }
}

/// Returns a fact that only the metrics report.
const fn metric(name: &'static str, help: &'static str, value: Value) -> Fact {
    Fact { text: Text::None, redis: "", metric: Some(Metric { name, help, value }) }
}

/// Returns a fact that is a number in Info and a gauge in the metrics.
const fn gauge(name: &'static str, metric: &'static str, help: &'static str, of: fn(&Snapshot) -> u64) -> Fact {
    number(name, of).metric(metric, help, Gauge(of))
}

/// Returns a fact that is a number in Info and a counter in the metrics.
const fn counter(name: &'static str, metric: &'static str, help: &'static str, of: fn(&Snapshot) -> u64) -> Fact {
    number(name, of).metric(metric, help, Counter(of))
}

impl Fact {
    const fn metric(mut self, name: &'static str, help: &'static str, value: Value) -> Fact {
        self.metric = Some(Metric { name, help, value });
        self
    }

    const fn redis(mut self, name: &'static str) -> Fact {
        self.redis = name;
        self
    }

    /// Appends each name that Info reports for the fact, with the text of its value.
    fn push_texts(&self, snapshot: &Snapshot, texts: &mut Vec<(&'static str, String)>) {
        match self.text {
            Text::None => {}
            Text::One(name, text) => texts.push((name, text(snapshot))),
            Text::Number(name, number) => texts.push((name, number(snapshot).to_string())),
            Text::Numbers(numbers) => {
                texts.extend(numbers(snapshot).into_iter().map(|(name, number)| (name, number.to_string())));
            }
            Text::Texts(of) => texts.extend(of(snapshot)),
        }
    }
}

/// Returns the names and texts of all facts that Info reports.
fn texts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    FACTS.iter().for_each(|fact| fact.push_texts(snapshot, &mut texts));
    texts.iter_mut().for_each(|(name, text)| *text = bounded_line(name, text));
    texts
}

/// Returns the text of a fact as Info reports it.
fn bounded_line(name: &str, text: &str) -> String {
    if name == FILE_SLOTS_DIGITS {
        return text.to_owned();
    }
    // A path may contain line ends and other control characters, whose escapes are longer.
    let escaped = Printable(excerpt(text, TEXT_LEN_MAX_BYTES)).to_string();
    excerpt(&escaped, TEXT_LEN_MAX_BYTES).into_owned()
}

/// Returns the names and texts of the facts in the reply to INFO (Redis protocol).
pub(super) fn redis_texts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let redis_name = |name| {
        let renamed = FACTS.iter().find(|fact| match fact.text {
            Text::One(of, _) | Text::Number(of, _) => of == name && !fact.redis.is_empty(),
            Text::None | Text::Numbers(_) | Text::Texts(_) => false,
        });
        renamed.map_or(name, |fact| fact.redis)
    };
    texts(snapshot).into_iter().map(|(name, text)| (redis_name(name), text)).collect()
}

/// The names of the last warnings and errors of the log, from the oldest to the newest.
const LOG_NAMES: [&str; 10] =
    ["log_1", "log_2", "log_3", "log_4", "log_5", "log_6", "log_7", "log_8", "log_9", "log_10"];

/// Formats the response to Info: the facts and the histograms, and for administrators the last warnings of the log,
/// which may name other clients and their users. A client can subtract the histograms of two responses to
/// compute the quantiles for the interval between these responses.
pub(super) fn info(snapshot: &Snapshot, is_admin: bool) -> String {
    let buckets = |seen: &Distribution| {
        let buckets: Vec<_> = seen.buckets().map(|(end, count)| format!("{end}:{count}")).collect();
        buckets.join(" ")
    };
    let mut texts = texts(snapshot);
    texts.push(("batch_requests_buckets", buckets(&snapshot.sums.batch_requests)));
    texts.push(("service_ns_buckets", buckets(&snapshot.sums.service_ns)));
    if let Some(log) = snapshot.server.statistics.log.get().filter(|_| is_admin) {
        let recent = log.recent();
        texts.extend(LOG_NAMES.into_iter().zip(recent).map(|(name, line)| (name, bounded_line(name, &line))));
    }
    lines(&texts)
}

/// Formats facts as lines. Leaves facts out that would make the text longer than clients accept. The limits of the
/// texts prevent this: see the tests.
fn lines(texts: &[(&'static str, String)]) -> String {
    let mut lines = String::new();
    for (name, text) in texts {
        if lines.len() + name.len() + text.len() + " \n".len() <= INFO_LEN_MAX_BYTES {
            lines.extend([name, " ", text, "\n"]);
        }
    }
    lines
}

fn yes_or_no(is_yes: bool) -> String {
    if is_yes { "yes" } else { "no" }.to_owned()
}

/// Returns a quantile of the service times, in microseconds.
fn service_us(snapshot: &Snapshot, share: f64) -> String {
    format!("{:.3}", snapshot.sums.service_ns.quantile(share) as f64 / 1e3)
}

fn info_labels(snapshot: &Snapshot) -> Vec<Series> {
    let labels = [
        ("version", VERSION.to_owned()),
        ("digest", digest_text(snapshot.generation.store.digest())),
        ("keys", snapshot.key_type()),
        ("memory", snapshot.memory().to_owned()),
        ("verify", snapshot.verify().to_owned()),
    ];
    vec![(labels.to_vec(), 1)]
}

fn cuts_by_reason(snapshot: &Snapshot) -> Vec<Series> {
    let reason = |name: &str| name.strip_prefix(CUTS_PREFIX).unwrap_or(name).to_owned();
    snapshot.totals.cuts().into_iter().map(|(name, count)| (vec![("reason", reason(name))], count)).collect()
}

fn panics_by_thread(snapshot: &Snapshot) -> Vec<Series> {
    let threads = snapshot.server.liveness.threads();
    threads.map(|thread| (vec![("thread", thread.name().to_owned())], thread.panics())).collect()
}

/// Returns what Info reports about the published table. Empty if the server follows none.
fn published_texts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let Some(published) = &snapshot.published else { return Vec::new() };
    let (fetching, fetching_total) = published.fetching_bytes;
    vec![
        ("published_url", published.url.clone()),
        ("published_node", published.node.clone()),
        ("published_slots", published.slots.clone()),
        ("published_generation", published.serving.to_string()),
        ("published_prepared", published.prepared.to_string()),
        ("published_newest", published.newest.to_string()),
        ("published_pin", published.pin.to_string()),
        ("published_lag_s", published.lag_s.to_string()),
        ("published_poll_age_s", published.poll_age_s.to_string()),
        ("published_poll_s", published.poll_s.to_string()),
        ("published_serving_age_s", published.serving_age_s.to_string()),
        ("published_polls", published.polls.to_string()),
        ("published_fetched_bytes", published.fetched_bytes.to_string()),
        ("published_fetching_bytes", fetching.to_string()),
        ("published_fetching_total_bytes", fetching_total.to_string()),
        ("published_failures", published.failures.iter().map(|(_, count)| count).sum::<u64>().to_string()),
        ("published_name_problem", published.name_problem.clone()),
        ("published_error", published.error.clone()),
    ]
}

fn cluster_node<'s>(snapshot: &Snapshot<'s>) -> Option<&'s Arc<ClusterNode>> {
    snapshot.server.settings.source.cluster.as_ref()
}

/// Returns what this node knows about its cluster. `None` if the server is not a node of one.
fn cluster_view(snapshot: &Snapshot) -> Option<Arc<View>> {
    cluster_node(snapshot).map(|node| node.view())
}

/// Returns the number of slots that the node has, but whose rows its file lacks. `None` if the server is not a node of
/// a cluster.
fn cluster_lacking(snapshot: &Snapshot) -> Option<u64> {
    cluster_view(snapshot).map(|view| view.lacking_slots(&snapshot.generation.slots).len() as u64)
}

/// Returns what Info reports about the cluster. Empty if the server is not a node of one.
fn cluster_texts(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let Some((node, view)) = cluster_node(snapshot).zip(cluster_view(snapshot)) else { return Vec::new() };
    let file_slots = &snapshot.generation.slots;
    let lacking = view.lacking_slots(file_slots);
    let mut texts = vec![
        ("cluster_node", node.id().to_owned()),
        ("cluster_topology", view.number().to_string()),
        ("cluster_role", if view.primary_of_this().is_some() { "replica" } else { "primary" }.to_owned()),
        ("cluster_slots", view.served_slots(true).summary()),
        ("cluster_file_slots", file_slots.summary()),
    ];
    if file_slots.is_summary_partial() {
        texts.push((FILE_SLOTS_DIGITS, file_slots.to_digits()));
    }
    texts.push(("cluster_slots_lacking", if lacking.is_empty() { String::new() } else { lacking.summary() }));
    texts.push(("cluster_topology_refused", node.refused()));
    texts
}

fn published_generations(snapshot: &Snapshot) -> Vec<Series> {
    let series = |published: &PublishedFacts| {
        let states = [("serving", published.serving), ("prepared", published.prepared), ("newest", published.newest)];
        states.map(|(state, number)| (vec![("state", state.to_owned())], number)).to_vec()
    };
    snapshot.published.as_ref().map(series).unwrap_or_default()
}

/// Returns one series without labels, or none if the server follows no published table.
fn published_series(snapshot: &Snapshot, value: impl Fn(&PublishedFacts) -> u64) -> Vec<Series> {
    snapshot.published.iter().map(|published| (Vec::new(), value(published))).collect()
}

fn published_failures(snapshot: &Snapshot) -> Vec<Series> {
    let failures = snapshot.published.iter().flat_map(|published| &published.failures);
    failures.map(|(kind, count)| (vec![("kind", (*kind).to_owned())], *count)).collect()
}

fn requests_by_op(snapshot: &Snapshot) -> Vec<(&'static str, u64)> {
    let counts = snapshot.sums.requests.iter().map(|by_status| by_status.iter().sum());
    REQUESTS_NAMES.into_iter().zip(counts).collect()
}

fn requests_by_op_and_status(snapshot: &Snapshot) -> Vec<Series> {
    let mut requests = Vec::new();
    for (kind, (name, by_status)) in REQUESTS_NAMES.iter().zip(&snapshot.sums.requests).enumerate() {
        let op = name.strip_prefix("requests_").unwrap_or(name);
        for (status, (status_name, count)) in STATUS_NAMES.iter().zip(by_status).enumerate() {
            if can_have_status(kind, status) {
                requests.push((vec![("op", op.to_owned()), ("status", (*status_name).to_owned())], *count));
            }
        }
    }
    requests
}

/// Returns whether a response to this kind of request can have this status. `kind` is an index of [`REQUESTS_NAMES`],
/// and `status` is a status code.
fn can_have_status(kind: usize, status: usize) -> bool {
    const NOT_FOUND: usize = Status::NotFound as usize;
    match (Op::ALL.get(kind), status) {
        (Some(op), _) if op.can_be_not_found() => true,
        (_, NOT_FOUND) => false,
        (_, status) => kind != UNKNOWN_OP || status == Status::Error as usize,
    }
}

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Formats the digest of a table as 32 hexadecimal digits.
pub(super) fn digest_text(digest: u128) -> String {
    format!("{digest:032x}")
}

/// The cost, in steps, of taking and formatting a [`Snapshot`], not including the cost of counting the verified blocks.
const SNAPSHOT_STEPS: usize = 1000;

/// The state and the counters of a server, at one moment. Values that have no field here are read from `server` when
/// they are reported.
pub(super) struct Snapshot<'s> {
    pub(super) server: &'s ServerState,
    /// The current generation.
    pub(super) generation: Arc<Generation>,
    /// See [`Snapshot::blocks`].
    blocks: OnceCell<(usize, usize)>,
    /// Whether the file was changed in place and is not trusted.
    pub(super) is_changed: bool,
    pub(super) sums: Sums,
    pub(super) totals: TotalCounts,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(super) file_refused: String,
    /// The published table that the server follows, if there is one.
    pub(super) published: Option<PublishedFacts>,
    /// The problems of the server's threads, for example that a thread makes no progress. Each problem is one sentence.
    pub(super) thread_problems: Vec<String>,
}

impl Snapshot<'_> {
    /// Copies the state and the counters of a running server.
    pub(super) fn take(server: &ServerState) -> Snapshot<'_> {
        let (generation, statistics) = (server.table.current(), &server.statistics);
        let store = &generation.store;
        Snapshot {
            blocks: OnceCell::new(),
            is_changed: server.table.is_changed() || !store.is_trusted(),
            sums: statistics.sums(),
            totals: statistics.totals.counts(),
            file_refused: unpoisoned(&statistics.outcomes.file_refused).clone(),
            published: server.control.published_facts(),
            thread_problems: server.liveness.problems(),
            server,
            generation,
        }
    }

    /// Returns the number of blocks, and how many of them are verified. The blocks of a large table take milliseconds
    /// to count, so the first call counts them.
    pub(super) fn blocks(&self) -> (usize, usize) {
        *self.blocks.get_or_init(|| self.generation.store.block_counts())
    }

    /// Returns the cost, in steps, of taking and formatting a [`Snapshot`]. The cost grows with the table, because the
    /// verified blocks are counted.
    pub(super) fn steps(server: &ServerState) -> usize {
        SNAPSHOT_STEPS + server.table.current().store.records().len() / BLOCK_LEN_BYTES / STEP_LEN_BYTES
    }

    /// Returns one word for the state of the served file: `serving`, or `changed` if the file was changed in place.
    pub(super) fn state(&self) -> &'static str {
        if self.is_changed { "changed" } else { "serving" }
    }

    /// Returns the value of `--memory`: `map`, `copy`, or `sealed`.
    pub(super) fn memory(&self) -> &'static str {
        match self.server.settings.source.plan.memory {
            Memory::Map => "map",
            Memory::Copy => "copy",
            Memory::Sealed => "sealed",
        }
    }

    /// Returns the value of `--verify`: `full`, `background`, or `touch`.
    pub(super) fn verify(&self) -> &'static str {
        let plan = &self.server.settings.source.plan;
        match (plan.options.verify, plan.background) {
            (Verify::Full, _) => "full",
            (_, true) => "background",
            (_, false) => "touch",
        }
    }

    /// Returns why the server cannot detect processes that write to the file, or `None` if it can.
    pub(super) fn writers_unknown(&self) -> Option<WritersUnknown> {
        match self.generation.writers {
            Writers::Unknown(reason) => Some(reason),
            Writers::None | Writers::Some => None,
        }
    }

    /// Returns the name of the type of the table's keys.
    pub(super) fn key_type(&self) -> String {
        self.generation.store.key_type().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a name that is as long as the longest one, for facts that have several.
    fn longest_texts() -> Vec<(&'static str, String)> {
        let (digits, number) = ("9".repeat(4096), u64::MAX.to_string());
        let foreign = "\u{1F980}\n".repeat(100_000);
        let text = |name| (name, bounded_line(name, &foreign));
        let mut texts = Vec::new();
        for fact in FACTS {
            match fact.text {
                Text::None => {}
                Text::One(name, _) => texts.push(text(name)),
                Text::Number(name, _) => texts.push((name, number.clone())),
                // These facts have one number for each op, or for each reason to disconnect a client.
                Text::Numbers(_) => {
                    let name = REQUESTS_NAMES.iter().max_by_key(|name| name.len()).unwrap();
                    texts.extend(REQUESTS_NAMES.iter().map(|_| (*name, number.clone())));
                }
                // Info has 18 texts about a published table, and fewer about a cluster.
                Text::Texts(_) => {
                    texts.extend([text("published_fetching_total_bytes")].into_iter().cycle().take(18));
                }
            }
        }
        let buckets = Distribution::full();
        texts.extend([("batch_requests_buckets", buckets.clone()), ("service_ns_buckets", buckets)]);
        texts.push((FILE_SLOTS_DIGITS, bounded_line(FILE_SLOTS_DIGITS, &digits)));
        texts.extend(LOG_NAMES.map(text));
        texts
    }

    #[test]
    fn info_has_all_facts_even_if_every_fact_has_its_maximum_length() {
        let texts = longest_texts();
        let lines = lines(&texts);
        assert_eq!(lines.lines().count(), texts.len());
        assert!(lines.len() <= INFO_LEN_MAX_BYTES, "{} bytes", lines.len());
    }

    #[test]
    fn info_is_never_longer_than_clients_accept() {
        let texts: Vec<(&'static str, String)> = (0..100).map(|at| ("name", "x".repeat(1000 * (at % 7)))).collect();
        let lines = lines(&texts);
        assert!(lines.len() <= INFO_LEN_MAX_BYTES && lines.len() > INFO_LEN_MAX_BYTES - 7000);
        assert!(lines.lines().all(|line| line.starts_with("name ")));
    }
}
