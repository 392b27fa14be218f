//! The counters of each worker, and of the whole server.
//!
//! In: the results of each pass, and rare events. Out: counts, which are added up over all workers on request. Each
//! worker writes only its own counters, with plain loads and stores, so counting costs a few nanoseconds per pass and
//! next to nothing per request. This module does not format the counts.
//!
//! Reasons and evidence: `docs/decisions/counters.md`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::process::log_queue::LogQueue;
use crate::protocol::native::{Op, OpKind, Status};

// Reading the clock costs as much as a lookup.
const TIMED_EVERY: u64 = 64;

/// The index in [`Requests`] of the counters of Redis commands. Lower indexes are the op codes of native requests.
pub(super) const REDIS: usize = Op::ALL.len();
/// The index in [`Requests`] of the counters of native requests with an unknown op code.
pub(super) const UNKNOWN_OP: usize = REDIS + 1;

/// The names of the request counters in the response to an Info request.
pub(super) const REQUESTS_NAMES: [&str; UNKNOWN_OP + 1] = {
    let mut names = ["requests_redis"; UNKNOWN_OP + 1];
    let mut at = 0;
    while at < Op::ALL.len() {
        names[at] = Op::ALL[at].counter_name();
        at += 1;
    }
    names[UNKNOWN_OP] = "requests_other";
    names
};

/// The names of the request counters in the section `Commandstats` of INFO (Redis protocol).
pub(super) const COMMAND_STATS: [&str; UNKNOWN_OP + 1] = {
    let mut names = ["cmdstat_redis"; UNKNOWN_OP + 1];
    let mut at = 0;
    while at < Op::ALL.len() {
        names[at] = Op::ALL[at].command_stats_name();
        at += 1;
    }
    names[UNKNOWN_OP] = "cmdstat_native|other";
    names
};

/// The names of the statuses that are counted separately, in the order of their codes. Other statuses are counted as
/// `error`.
pub(super) const STATUS_NAMES: [&str; 3] = ["ok", "not_found", "error"];

/// The number of requests by op and status.
pub(super) type Requests<N> = [[N; STATUS_NAMES.len()]; REQUESTS_NAMES.len()];

/// A number that one thread writes and any thread reads.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number. Only one thread may call this method.
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.get() + count, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of native requests of one pass, by op and status.
#[derive(Default)]
pub(super) struct Tally(Requests<u32>);

impl Tally {
    /// Counts a request. `op` is `None` if the request's op is unknown.
    #[inline(always)]
    pub(super) fn count(&mut self, op: Option<Op>, status: Status) {
        self.0[op.map_or(UNKNOWN_OP, |op| op as usize)][status as usize] += 1;
    }

    /// Counts `count` Gets that found a value. [`Tally::count`] is not called for these requests.
    #[inline(always)]
    pub(super) fn count_values(&mut self, count: usize) {
        self.0[Op::Get as usize][Status::Ok as usize] += count as u32;
    }

    #[inline]
    pub(super) fn total(&self) -> usize {
        self.0.as_flattened().iter().sum::<u32>() as usize
    }

    /// Returns the number of requests about the server, such as Info and Reload.
    pub(super) fn about_server(&self) -> usize {
        let ops = Op::ALL.into_iter().filter(|op| op.kind() == OpKind::Server);
        ops.map(|op| self.0[op as usize].iter().sum::<u32>() as usize).sum()
    }

    /// Returns whether the pass executed a Reload or a Rollback. A pass that executed one must not be repeated, and has
    /// answered no other request.
    pub(super) fn has_effects(&self) -> bool {
        let mut with_effects = Op::ALL.iter().filter(|op| op.has_effects());
        with_effects.any(|op| self.0[*op as usize][Status::Ok as usize] > 0)
    }
}

/// The counters of a worker, on cache lines that no other data shares.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    /// Connections that were assigned to the worker. Only the thread that accepts connections writes this counter.
    accepted: Counter,
    /// Accepted connections that have ended.
    closed: Counter,
    requests: Requests<Counter>,
    /// Keys that commands of the Redis protocol looked up and found.
    redis_hits: Counter,
    redis_misses: Counter,
    read_len_bytes: Counter,
    written_len_bytes: Counter,
    /// Passes that answered at least one request. Info and the metrics call these passes batches.
    batches: Counter,
    /// The histogram of the number of requests per pass.
    batch_requests: Histogram,
    /// The histogram of the durations of timed passes. A pass ends when its responses are sent or become pending.
    service_ns: Histogram,
}

impl Counters {
    pub(super) fn connection_opened(&self) {
        self.accepted.add(1);
    }

    pub(super) fn connection_closed(&self) {
        self.closed.add(1);
    }

    /// Returns the number of open connections.
    pub(super) fn connections(&self) -> u64 {
        let closed = self.closed.get();
        self.accepted.get().saturating_sub(closed)
    }

    #[inline]
    pub(super) fn count_native(&self, tally: &Tally) {
        for (counter, count) in self.requests.as_flattened().iter().zip(tally.0.as_flattened()) {
            if *count > 0 {
                counter.add(u64::from(*count));
            }
        }
        self.count_batch(tally.total() as u64);
    }

    pub(super) fn count_redis(&self, commands: u64, errors: u64, hits: u64, misses: u64) {
        let requests = &self.requests[REDIS];
        // An error may belong to a command that was counted in an earlier pass, so a pass may count more errors than
        // commands.
        requests[Status::Ok as usize].add(commands.saturating_sub(errors));
        requests[Status::Error as usize].add(errors);
        self.redis_hits.add(hits);
        self.redis_misses.add(misses);
        self.count_batch(commands);
    }

    fn count_batch(&self, requests: u64) {
        if requests > 0 {
            self.batches.add(1);
            self.batch_requests.record(requests);
        }
    }

    pub(super) fn read(&self, len_bytes: usize) {
        self.read_len_bytes.add(len_bytes as u64);
    }

    pub(super) fn written(&self, len_bytes: usize) {
        self.written_len_bytes.add(len_bytes as u64);
    }

    /// Returns the start time of the pass that begins now, or `None` if this pass is not timed.
    #[inline]
    pub(super) fn start(&self) -> Option<Instant> {
        self.batches.get().is_multiple_of(TIMED_EVERY).then(Instant::now)
    }

    /// Ends a pass. Records the duration of the pass if the pass was timed and answered a request.
    #[inline]
    pub(super) fn end(&self, started: Option<Instant>) {
        if let Some(started) = started
            && !self.batches.get().is_multiple_of(TIMED_EVERY)
        {
            self.service_ns.record(started.elapsed().as_nanos() as u64);
        }
    }
}

#[derive(Default)]
pub(super) struct Sums {
    pub(super) accepted: u64,
    pub(super) connections: u64,
    pub(super) requests: Requests<u64>,
    pub(super) redis_hits: u64,
    pub(super) redis_misses: u64,
    pub(super) read_len_bytes: u64,
    pub(super) written_len_bytes: u64,
    pub(super) batches: u64,
    pub(super) batch_requests: Distribution,
    pub(super) service_ns: Distribution,
}

impl Sums {
    pub(super) fn add(&mut self, of: &Counters) {
        self.accepted += of.accepted.get();
        self.connections += of.connections();
        for (sum, counter) in self.requests.as_flattened_mut().iter_mut().zip(of.requests.as_flattened()) {
            *sum += counter.get();
        }
        self.redis_hits += of.redis_hits.get();
        self.redis_misses += of.redis_misses.get();
        self.read_len_bytes += of.read_len_bytes.get();
        self.written_len_bytes += of.written_len_bytes.get();
        self.batches += of.batches.get();
        self.batch_requests.add(&of.batch_requests);
        self.service_ns.add(&of.service_ns);
    }

    pub(super) fn hits(&self) -> u64 {
        self.keys(Status::Ok) + self.redis_hits
    }

    pub(super) fn misses(&self) -> u64 {
        self.keys(Status::NotFound) + self.redis_misses
    }

    /// Returns the number of single-key requests that were answered with the given status.
    fn keys(&self, status: Status) -> u64 {
        let points = Op::ALL.iter().filter(|op| op.kind() == OpKind::Point);
        points.map(|op| self.requests[*op as usize][status as usize]).sum()
    }

    /// Returns the number of requests that failed.
    pub(super) fn errors(&self) -> u64 {
        self.requests.iter().map(|of| of[Status::Error as usize]).sum()
    }
}

/// The base-2 logarithm of the number of buckets between two consecutive powers of two.
const PARTS_BITS: u32 = 2;
/// The number of buckets. The last bucket also counts all numbers above 2⁴⁰ (18 minutes in nanoseconds).
const BUCKETS: usize = bucket_of(1 << 40) + 1;

/// A histogram of numbers. Within a bucket, the largest value is at most 1.25 times the smallest value.
struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
    max: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { Counter(AtomicU64::new(0)) }; BUCKETS],
            sum: Counter::default(),
            max: Counter::default(),
        }
    }
}

impl Histogram {
    #[inline]
    fn record(&self, number: u64) {
        self.buckets[bucket_of(number).min(BUCKETS - 1)].add(1);
        self.sum.add(number);
        if number > self.max.get() {
            self.max.0.store(number, Ordering::Relaxed);
        }
    }
}

/// Returns the bucket that counts a number. Each number from 1 to 8 has its own bucket, and 0 is counted as 1. Every
/// power of two is the largest number of its bucket.
const fn bucket_of(number: u64) -> usize {
    let number = number.saturating_sub(1);
    if number < 1 << PARTS_BITS {
        return number as usize;
    }
    let shift = number.ilog2() - PARTS_BITS;
    ((shift as usize) << PARTS_BITS) + (number >> shift) as usize
}

/// Returns the largest value that a bucket counts.
const fn bucket_end(bucket: usize) -> u64 {
    if bucket < 1 << PARTS_BITS {
        return bucket as u64 + 1;
    }
    let (shift, part) = ((bucket >> PARTS_BITS) - 1, bucket % (1 << PARTS_BITS));
    ((1 << PARTS_BITS) + part as u64 + 1) << shift
}

/// Several histograms merged into one, as of one moment.
pub(super) struct Distribution {
    buckets: [u64; BUCKETS],
    pub(super) sum: u64,
    pub(super) max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution { buckets: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl Distribution {
    /// Returns the text of a distribution in Info that is as long as possible.
    #[cfg(test)]
    pub(super) fn full() -> String {
        (0..BUCKETS).map(|bucket| format!("{}:{} ", bucket_end(bucket), u64::MAX)).collect()
    }

    fn add(&mut self, of: &Histogram) {
        for (sum, counter) in self.buckets.iter_mut().zip(&of.buckets) {
            *sum += counter.get();
        }
        self.sum += of.sum.get();
        self.max = self.max.max(of.max.get());
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns how many recorded numbers are at most 2 to the power of `power`.
    #[cfg(feature = "metrics")]
    pub(super) fn up_to_power(&self, power: u32) -> u64 {
        self.buckets[..=bucket_of(1 << power)].iter().sum()
    }

    /// Returns a pair for each nonempty bucket: the largest number that the bucket counts, and the bucket's count.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (bucket_end(bucket), *count))
    }

    /// Returns a quantile: if `share` is 0.99, at least 99 % of the recorded numbers are less than or equal to the
    /// result. The result exceeds the exact quantile by at most 25 %. Returns 0 if nothing was recorded.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return bucket_end(bucket).min(self.max);
            }
        }
        0
    }
}

/// The counters of a server and of its workers.
pub(super) struct Statistics {
    started: Instant,
    pub(super) totals: Totals,
    pub(super) outcomes: Outcomes,
    pub(super) tls: TlsStatus,
    /// The log of the process, if it reports how many of its lines were dropped.
    pub(super) log: OnceLock<LogQueue>,
    workers: Box<[Counters]>,
}

impl Statistics {
    /// Returns zeroed counters for a server that starts now.
    pub(super) fn new(workers: usize) -> Statistics {
        Statistics {
            started: Instant::now(),
            totals: Totals::default(),
            outcomes: Outcomes::default(),
            tls: TlsStatus::default(),
            log: OnceLock::new(),
            workers: std::iter::repeat_with(Counters::default).take(workers).collect(),
        }
    }

    /// Returns the counters of one worker. Only the worker's thread may write them, except the count of accepted
    /// connections.
    #[inline]
    pub(super) fn worker(&self, number: usize) -> &Counters {
        &self.workers[number]
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.workers.iter().for_each(|worker| sums.add(worker));
        sums
    }
}

/// The prefix of the names that the counters of disconnected connections have in the response to Info.
pub(super) const CUTS_PREFIX: &str = "connections_cut_";

/// Defines the counters of rare events, one per line. A counter whose name begins with `cut_` counts the connections
/// that were disconnected for one reason. Info and the metrics report all these counters: see [`TotalCounts::cuts`].
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of rare events, which any thread may write.
        #[derive(Default)]
        pub(super) struct Totals {
            $($(#[$doc])* pub(super) $name: AtomicU64,)*
        }

        pub(super) struct TotalCounts {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        impl Totals {
            pub(super) fn counts(&self) -> TotalCounts {
                TotalCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl TotalCounts {
            /// Returns, for each reason, the name and the value of the counter of disconnected connections. The name is
            /// the one in the response to Info: [`CUTS_PREFIX`], followed by the reason.
            pub(super) fn cuts(&self) -> Vec<(&'static str, u64)> {
                let totals = [$((concat!("connections_", stringify!($name)), self.$name)),*];
                totals.into_iter().filter(|(name, _)| name.starts_with(CUTS_PREFIX)).collect()
            }
        }
    };
}

totals! {
    /// Swaps: replacements of the served generation.
    swaps,
    /// Swaps that were rollbacks to an older generation.
    rollbacks,
    /// Files that were rejected.
    refused_files,
    /// The number of times that the served file was found changed or unreadable.
    faults,
    /// The number of the last reload or rollback that was requested. Reloads and rollbacks share one sequence of
    /// numbers.
    reload_requested,
    /// The number of the last reload or rollback that is complete.
    reload_done,
    /// Connections that were disconnected because of the idle time-out: the client sent no request for that time.
    cut_idle,
    /// Connections that were disconnected because of the stall time-out: the client did not send the rest of a request,
    /// or did not receive pending responses.
    cut_stalled,
    /// Connections that were disconnected because they sent HTTP.
    cut_http,
    /// Connections that were disconnected because their clients received pending responses too slowly.
    cut_slow,
    /// Connections that were disconnected because they held an old generation when there were more retained generations
    /// than the limit allows.
    cut_generation,
    /// Connections that were disconnected because they held the most memory when the limit on client memory was
    /// exceeded.
    cut_memory,
    /// Connections that were disconnected because they sent more requests than the limit allows without receiving the
    /// responses.
    cut_buffer,
    /// Connections that a client ended with CLIENT KILL.
    cut_killed,
    /// Connections that were disconnected because their TLS handshake took too long, or because the handshakes in
    /// progress were too many or held too much memory.
    cut_handshake,
    /// Connections that were disconnected because they sent plaintext to the TLS port.
    cut_plaintext,
    /// Connections that were disconnected because they began a TLS handshake on a socket without TLS.
    cut_tls,
    /// Connections to the socket for metrics that were disconnected because they were the oldest of too many.
    cut_metrics,
    /// TLS handshakes that were completed.
    tls_handshakes,
    /// TLS handshakes that failed, for example because a client's certificate was rejected.
    tls_handshakes_failed,
    /// The number of times that changed certificates and keys were accepted.
    tls_reloads,
    /// The number of times that changed certificates and keys were rejected.
    tls_reloads_refused,
    /// Connections that were disconnected because their user was removed or disabled, or now needs a password.
    cut_user,
    /// Failed logins.
    logins_failed,
    /// Users files that were rejected.
    refused_users,
    /// Replaced generations that are still in use.
    generations_retained,
    /// Connections that were rejected.
    refused,
    /// Connections that ended in a panic.
    panics,
}

/// The outcomes of the last checks of the file, as text.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The outcome of the last reload or rollback.
    pub(super) reload_last: Mutex<String>,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(super) file_refused: Mutex<String>,
}

#[derive(Default)]
pub(super) struct TlsStatus {
    /// When the certificate expires, in seconds since 1970. 0 if there is no TLS port, or if the time is unknown.
    pub(super) expires_s: AtomicU64,
    /// The memory that all handshakes together hold.
    pub(super) handshake_bytes: AtomicU64,
    /// Why the certificate and key files were rejected. Empty if these files are in use.
    pub(super) refused: Mutex<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_both_ends_of_a_bucket_are_counted_in_that_bucket() {
        let mut before = None;
        for bucket in 0..BUCKETS {
            let (first, last) = (before.map_or(1, |before| before + 1), bucket_end(bucket));
            assert_eq!((bucket_of(first), bucket_of(last)), (bucket, bucket));
            assert!(last - first <= first / 4, "{first} to {last}");
            before = Some(last);
        }
        assert_eq!((before, bucket_of(0)), (Some(1 << 40), 0));
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_large_and_never_above_the_maximum() {
        let histogram = Histogram::default();
        for number in 1..=1000 {
            histogram.record(number * 1000);
        }
        histogram.record(u64::MAX >> 1);
        let mut seen = Distribution::default();
        seen.add(&histogram);
        seen.add(&Histogram::default());
        assert_eq!((seen.count(), seen.max), (1001, u64::MAX >> 1));
        for (share, exact) in [(0.5, 501_000), (0.99, 991_000)] {
            let found = seen.quantile(share);
            assert!((exact..=exact + exact / 4).contains(&found), "{share}: {found}");
        }
        assert_eq!(Distribution::default().quantile(0.5), 0);
        assert_eq!([0, 10, 17, 20, 40].map(|power| seen.up_to_power(power)), [0, 1, 131, 1000, 1001]);
    }

    #[test]
    fn each_op_code_is_the_index_of_the_counter_named_after_the_op() {
        for (code, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
            // `GetColumns` becomes `_get_columns`.
            let separated = |letter: char| [letter.is_uppercase().then_some('_'), Some(letter.to_ascii_lowercase())];
            let name: String = format!("{op:?}").chars().flat_map(separated).flatten().collect();
            assert_eq!(REQUESTS_NAMES[code], format!("requests{name}"));
        }
        assert_eq!(REQUESTS_NAMES[Op::ALL.len()..], ["requests_redis", "requests_other"]);
    }
}
