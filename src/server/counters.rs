//! What a server counts.
//!
//! In: what was answered, a pass at a time. Out: numbers that are added up when
//! somebody asks. Each worker writes its own counters only, without locked
//! instructions, so counting costs a pass some nanoseconds and a request none.
//! It knows nothing of how the numbers are shown.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::protocol::native::{Op, Status};

/// One pass in so many is timed.
const TIMED_EVERY: u64 = 64;

/// What requests are told apart by. Native ones come first, by their codes.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// Commands of the Redis protocol.
    Redis = 11,
    /// Native requests that are none.
    Other = 12,
}

/// By `Op`'s codes, then by `Asked`'s, behind `requests_`.
pub(super) const REQUESTS_NAMES: [&str; 13] = [
    "requests_get",
    "requests_exists",
    "requests_floor",
    "requests_ceiling",
    "requests_range",
    "requests_count",
    "requests_info",
    "requests_reload",
    "requests_rollback",
    "requests_open",
    "requests_ping",
    "requests_redis",
    "requests_other",
];

/// By `Status`'s codes.
pub(super) const STATUS_NAMES: [&str; 3] = ["ok", "not_found", "error"];

/// Requests by what they asked for, and by how they went.
pub(super) type Requests<N> = [[N; STATUS_NAMES.len()]; REQUESTS_NAMES.len()];

/// A number that one thread writes and any reads.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// For the thread that writes it.
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.store(self.get() + count, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The native requests of one pass.
#[derive(Default)]
pub(super) struct Tally(Requests<u32>);

impl Tally {
    /// A request, without an op if that is not known.
    #[inline(always)]
    pub(super) fn count(&mut self, op: Option<Op>, status: Status) {
        self.0[op.map_or(Asked::Other as usize, |op| op as usize)][status as usize] += 1;
    }

    /// Gets that found values: all that were not counted one by one.
    #[inline(always)]
    pub(super) fn count_values(&mut self, count: usize) {
        self.0[Op::Get as usize][Status::Ok as usize] += count as u32;
    }

    #[inline]
    pub(super) fn total(&self) -> usize {
        self.0.as_flattened().iter().sum::<u32>() as usize
    }

    /// Requests about the server itself.
    pub(super) fn about_server(&self) -> usize {
        let of = &self.0[Op::Info as usize..=Op::Ping as usize];
        of.as_flattened().iter().sum::<u32>() as usize
    }
}

/// What a worker counts, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    /// Connections that were given to the worker. Written by the thread that accepts.
    accepted: Counter,
    /// Those of them that have ended.
    closed: Counter,
    requests: Requests<Counter>,
    /// Keys that commands of the Redis protocol found, and did not find.
    redis_hits: Counter,
    redis_misses: Counter,
    read_len_bytes: Counter,
    written_len_bytes: Counter,
    /// Passes that answered requests.
    batches: Counter,
    /// How many requests they answered.
    batch_requests: Histogram,
    /// How long the timed ones took, until their answers were sent or had to wait.
    service_ns: Histogram,
}

impl Counters {
    pub(super) fn connection_opened(&self) {
        self.accepted.add(1);
    }

    pub(super) fn connection_closed(&self) {
        self.closed.add(1);
    }

    /// Connections that there are.
    pub(super) fn connections(&self) -> u64 {
        let closed = self.closed.get();
        self.accepted.get().saturating_sub(closed)
    }

    /// Counts a pass over native requests.
    #[inline]
    pub(super) fn count_native(&self, tally: &Tally) {
        for (counter, count) in self.requests.as_flattened().iter().zip(tally.0.as_flattened()) {
            if *count > 0 {
                counter.add(u64::from(*count));
            }
        }
        self.count_batch(tally.total() as u64);
    }

    /// Counts a pass over commands of the Redis protocol.
    pub(super) fn count_redis(&self, commands: u64, errors: u64, hits: u64, misses: u64) {
        let requests = &self.requests[Asked::Redis as usize];
        // An error may belong to a command that an earlier pass has counted.
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

    /// The time, if the pass that begins is to be timed.
    #[inline]
    pub(super) fn start(&self) -> Option<Instant> {
        self.batches.get().is_multiple_of(TIMED_EVERY).then(Instant::now)
    }

    /// The end of a pass. One that answered nothing does not count.
    #[inline]
    pub(super) fn end(&self, started: Option<Instant>) {
        if let Some(started) = started
            && !self.batches.get().is_multiple_of(TIMED_EVERY)
        {
            self.service_ns.record(started.elapsed().as_nanos() as u64);
        }
    }
}

/// What is counted of a server as a whole, where speed does not matter.
#[derive(Default)]
pub(super) struct Totals {
    /// Generations that took the place of one before.
    pub(super) swaps: AtomicU64,
    /// Those of them that were an older one again.
    pub(super) rollbacks: AtomicU64,
    /// Files that were not served because something is wrong with them.
    pub(super) refused_files: AtomicU64,
    /// Times that the file that is served was found to have changed or to be unreadable.
    pub(super) faults: AtomicU64,
    /// Attempts to serve another generation: asked for, and over.
    pub(super) reload_requested: AtomicU64,
    pub(super) reload_done: AtomicU64,
    /// How the last one went.
    pub(super) reload_last: Mutex<String>,
    /// Why the file at the path is not served; empty if it is, or if there is none.
    pub(super) file_refused: Mutex<String>,
    /// Connections that were cut off.
    pub(super) cut_idle: AtomicU64,
    pub(super) cut_stalled: AtomicU64,
    /// Connections that were closed because they sent HTTP.
    pub(super) cut_http: AtomicU64,
    /// Connections whose clients took pending responses too slowly.
    pub(super) cut_slow: AtomicU64,
    /// Connections that held a generation beyond the limit on retained ones.
    pub(super) cut_generation: AtomicU64,
    /// Connections that held the most memory when all together held too much.
    pub(super) cut_memory: AtomicU64,
    /// Replaced generations that are still held.
    pub(super) generations_retained: AtomicU64,
    /// Connections that were not let in.
    pub(super) refused: AtomicU64,
    /// Connections that ended in a panic.
    pub(super) panics: AtomicU64,
}

/// The sums of all workers' counters.
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

    /// Keys that were asked for and found, and those that were not.
    pub(super) fn hits(&self) -> u64 {
        self.keys(Status::Ok) + self.redis_hits
    }

    pub(super) fn misses(&self) -> u64 {
        self.keys(Status::NotFound) + self.redis_misses
    }

    /// Native requests for a key that went so.
    fn keys(&self, status: Status) -> u64 {
        [Op::Get, Op::Exists].iter().map(|op| self.requests[*op as usize][status as usize]).sum()
    }

    /// Requests that were answered with an error.
    pub(super) fn errors(&self) -> u64 {
        self.requests.iter().map(|of| of[Status::Error as usize]).sum()
    }
}

/// Each power of two is divided into so many buckets, two to this power.
const PARTS_BITS: u32 = 2;
/// Numbers above 2⁴⁰, 18 minutes in nanoseconds, are counted as that one.
const BUCKETS: usize = bucket_of(1 << 40) + 1;

/// How often numbers were seen, within a quarter of their size.
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

/// The bucket that a number is counted in: up to 4 each has its own, 0 is counted
/// as 1. A power of two is the last of its bucket.
const fn bucket_of(number: u64) -> usize {
    let number = number.saturating_sub(1);
    if number < 1 << PARTS_BITS {
        return number as usize;
    }
    let shift = number.ilog2() - PARTS_BITS;
    ((shift as usize) << PARTS_BITS) + (number >> shift) as usize
}

/// The largest number of a bucket.
const fn bucket_end(bucket: usize) -> u64 {
    if bucket < 1 << PARTS_BITS {
        return bucket as u64 + 1;
    }
    let (shift, part) = ((bucket >> PARTS_BITS) - 1, bucket % (1 << PARTS_BITS));
    ((1 << PARTS_BITS) + part as u64 + 1) << shift
}

/// Numbers that were seen, as they were counted up to one moment.
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

    /// How many were at most two to this power.
    #[cfg(feature = "metrics")]
    pub(super) fn up_to_power(&self, power: u32) -> u64 {
        self.buckets[..=bucket_of(1 << power)].iter().sum()
    }

    /// The largest number of each bucket that holds any, and how many it holds.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (bucket_end(bucket), *count))
    }

    /// A number that so large a share of them are not above, at most a quarter too
    /// large. 0 if there are none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_the_bucket_that_it_is_counted_in() {
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
    fn quantiles_are_at_most_a_quarter_too_large_and_never_above_the_greatest() {
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
    fn native_codes_and_names_agree() {
        for (code, name) in REQUESTS_NAMES.iter().enumerate() {
            let op = Op::from_code(code as u32).or(Op::from_long_code(code as u32 | 1 << 16));
            let expected = match op {
                Some(op) => format!("{op:?}").to_lowercase(),
                None if code == Asked::Redis as usize => "redis".to_owned(),
                None => "other".to_owned(),
            };
            assert_eq!(name.strip_prefix("requests_"), Some(&*expected));
        }
        assert_eq!(Asked::Other as usize, REQUESTS_NAMES.len() - 1);
    }
}
