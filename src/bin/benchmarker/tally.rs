//! Tallies: the counts and latencies of one or more clients.

use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use crate::responses::Counts;

const LATENCY_DIGITS: u8 = 3;
/// Maximum number of groups into which unsent pipelines are divided. All pipelines of a group are recorded with one
/// latency, which saves time.
const UNSENT_GROUPS_MAX: u64 = 1_000;

pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) response_bytes: u64,
    /// Number of wrong responses, including wrong responses during the warm-up and in failed pipelines.
    pub(crate) wrong_responses: u64,
    /// Number of requests that were scheduled between the end of the warm-up and the end of the run, but not sent.
    pub(crate) unsent_requests: u64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) last_response: Option<Instant>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            requests: 0,
            hits: 0,
            misses: 0,
            response_bytes: 0,
            wrong_responses: 0,
            unsent_requests: 0,
            // The histogram has no maximum, so every latency can be recorded.
            latency_ns: Histogram::new(LATENCY_DIGITS).expect("3 digits are allowed"),
            last_response: None,
        }
    }

    pub(crate) fn count(&mut self, counts: &Counts, started: Instant, finished: Instant) {
        self.requests += counts.responses as u64;
        self.hits += counts.hits;
        self.misses += counts.misses;
        self.response_bytes += counts.bytes;
        self.record(finished - started, 1);
        self.last_response = self.last_response.max(Some(finished));
    }

    /// Counts pipelines that were not sent by the end of the run. The latency of such a pipeline is the time since its
    /// scheduled time: `waited` for the first pipeline, `waited - interval` for the second one, and so on.
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
        self.response_bytes += other.response_bytes;
        self.wrong_responses += other.wrong_responses;
        self.unsent_requests += other.unsent_requests;
        self.latency_ns.add(&other.latency_ns).expect("a histogram that grows takes any other");
        self.last_response = self.last_response.max(other.last_response);
    }

    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        // The histogram returns the upper bound of a bucket, which may exceed the largest recorded latency.
        self.latency_ns.value_at_quantile(quantile).min(self.latency_ns.max()) as f64 / 1e3
    }
}

pub(crate) struct Interval {
    pub(crate) started: Instant,
    pub(crate) len: Duration,
    pub(crate) tally: Tally,
}

/// Nanoseconds per millisecond. The log states the maximum latency of each interval in milliseconds.
const NS_PER_MS: f64 = 1e6;

pub(crate) fn encode(intervals: &[Interval]) -> anyhow::Result<Vec<u8>> {
    let first = intervals.first().map_or_else(Instant::now, |interval| interval.started);
    let start_time = SystemTime::now() - first.elapsed();
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(concat!("[Logged with Zero-KV benchmarker ", env!("CARGO_PKG_VERSION"), "]"))
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("Latencies of pipelines in nanoseconds")
        .with_start_time(start_time)
        .with_base_time(start_time)
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(&mut text, &mut serializer)?;
    for interval in intervals {
        log.write_histogram(&interval.tally.latency_ns, interval.started - first, interval.len, None)
            .map_err(|error| anyhow!("{error}"))?;
    }
    Ok(text)
}
