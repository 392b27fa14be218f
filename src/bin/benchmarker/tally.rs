//! What clients count.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::answers::Counts;

/// Significant decimal digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// Pipelines that were not sent enter the histogram in this many groups at most.
const UNSENT_GROUPS_MAX: u64 = 1_000;

/// What some of the clients counted.
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) answer_bytes: u64,
    /// Those of the warm-up and of broken pipelines too.
    pub(crate) wrong_answers: u64,
    /// Requests whose time to be sent had come before the end, and which were not sent.
    pub(crate) unsent_requests: u64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) last_answer: Option<Instant>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            requests: 0,
            hits: 0,
            misses: 0,
            answer_bytes: 0,
            wrong_answers: 0,
            unsent_requests: 0,
            // Grows with what it is given, so that no latency is cut short.
            latency_ns: Histogram::new(LATENCY_DIGITS).expect("3 digits are allowed"),
            last_answer: None,
        }
    }

    /// Counts a pipeline whose answers have all come.
    pub(crate) fn count(&mut self, counts: &Counts, started: Instant, finished: Instant) {
        self.requests += counts.answers as u64;
        self.hits += counts.hits;
        self.misses += counts.misses;
        self.answer_bytes += counts.bytes;
        self.record(finished - started, 1);
        self.last_answer = self.last_answer.max(Some(finished));
    }

    /// Counts pipelines that could not be sent in time, each with the time that it has
    /// waited: the first of them `waited`, each other `interval` less than the one before.
    pub(crate) fn count_unsent(
        &mut self,
        pipelines: u64,
        pipeline_requests: usize,
        waited: Duration,
        interval: Duration,
    ) {
        self.unsent_requests += pipelines * pipeline_requests as u64;
        let group = pipelines.div_ceil(UNSENT_GROUPS_MAX).max(1);
        for first in (0..pipelines).step_by(group as usize) {
            let earlier = Duration::from_secs_f64(interval.as_secs_f64() * first as f64);
            self.record(waited.saturating_sub(earlier), group.min(pipelines - first));
        }
    }

    fn record(&mut self, latency: Duration, pipelines: u64) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.record_n(latency_ns, pipelines).expect("a histogram that grows takes any latency");
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.misses += other.misses;
        self.answer_bytes += other.answer_bytes;
        self.wrong_answers += other.wrong_answers;
        self.unsent_requests += other.unsent_requests;
        self.latency_ns.add(&other.latency_ns).expect("a histogram that grows takes any other");
        self.last_answer = self.last_answer.max(other.last_answer);
    }

    /// The largest latency of this share of the pipelines.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        // The end of a histogram's bucket can lie above the largest value in it.
        self.latency_ns.value_at_quantile(quantile).min(self.latency_ns.max()) as f64 / 1e3
    }
}

/// A stretch of time, and what was counted in it.
pub(crate) struct Interval {
    pub(crate) began: Instant,
    pub(crate) len: Duration,
    pub(crate) tally: Tally,
}
