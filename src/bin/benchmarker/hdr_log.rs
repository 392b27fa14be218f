//! HdrHistogram logs of latencies, for `HistogramLogProcessor` and other tools.

use std::time::{Instant, SystemTime};

use anyhow::anyhow;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use crate::tally::Interval;

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
