//! The results of a run, formatted for people and for programs.

use std::borrow::Cow;
use std::fmt::Write;

use hdrhistogram::Histogram;
use indicatif::{HumanCount, HumanFloatCount};
use serde::Serialize;

use crate::args::Args;
use crate::ceiling::{CeilingOutcome, Round};
use crate::keys::Distribution;
use crate::load::Outcome;
use crate::memory::{JsonMemory, Memory};
use crate::wire::Protocol;

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

pub(crate) struct Report<'r> {
    pub(crate) args: &'r Args,
    pub(crate) outcome: &'r Outcome,
    pub(crate) ceiling: Option<&'r CeilingOutcome>,
    pub(crate) memory: Option<&'r Memory>,
}

impl Report<'_> {
    pub(crate) fn hit_rate(&self) -> f64 {
        self.outcome.tally.hits as f64 / self.outcome.tally.requests.max(1) as f64
    }

    /// Returns the reported quantiles of latency in microseconds, each with its name.
    pub(crate) fn latencies_us(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let tally = &self.outcome.tally;
        QUANTILES.into_iter().chain([("max", 1.0)]).map(|(name, quantile)| (name, tally.quantile_us(quantile)))
    }

    pub(crate) fn text(&self) -> String {
        let (args, tally) = (self.args, &self.outcome.tally);
        let latencies: Vec<String> = self.latencies_us().map(|(name, us)| format!("{name} {us:.0} µs")).collect();
        format!(
            "{} clients x {} requests, {}, miss ratio {}, seed {}{}{}{}\n\
             {} requests/s\n\
             {} requests in {:.2} s after {} s of warm-up\n\
             {:.2}% hits ({} hits, {} misses)\n\
             {} errors\n\
             {} bytes/s\n\
             pipeline latency: {}{}{}",
            args.clients,
            args.pipeline,
            args.op,
            args.miss_ratio,
            args.seed,
            match args.protocol {
                Protocol::Native => "",
                Protocol::Resp => ", Redis protocol",
            },
            match args.distribution {
                Distribution::Uniform => String::new(),
                _ => format!(", {}", args.distribution_name()),
            },
            if args.verify { ", values verified" } else { "" },
            HumanCount(self.outcome.requests_per_second() as u64),
            HumanCount(tally.requests),
            self.outcome.elapsed.as_secs_f64(),
            args.warmup,
            self.hit_rate() * 100.0,
            HumanCount(tally.hits),
            HumanCount(tally.misses),
            HumanCount(self.outcome.errors()),
            HumanCount(self.outcome.per_second(tally.response_bytes) as u64),
            latencies.join(", "),
            format_lines(&tally.latency_ns),
            self.optional_lines(),
        )
    }

    /// Formats the lines that `--rate`, `--ceiling`, and `--memory` add to the results.
    fn optional_lines(&self) -> String {
        let mut lines = String::new();
        if let Some(rate) = self.args.rate {
            let unsent = HumanCount(self.outcome.tally.unsent_requests);
            lines += &format!("\nschedule: {} requests/s, {unsent} scheduled requests were not sent", HumanCount(rate));
        }
        if let Some(ceiling) = self.ceiling {
            let (min, max) = ceiling.ratio_min_max();
            lines += &format!(
                "\nceiling: {} requests/s from a server without lookups, responses of {:.2} bytes\n\
                 server / ceiling: {:.3} (rounds from {min:.3} to {max:.3})",
                HumanCount(ceiling.outcome.requests_per_second() as u64),
                ceiling.response_len_bytes,
                ceiling.ratio(self.outcome),
            );
        }
        if let Some(memory) = self.memory {
            lines += "\n";
            lines += &memory.text();
        }
        lines
    }

    /// Formats the results for programs, as one object on one line.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (args, tally) = (self.args, &self.outcome.tally);
        let [p50, p90, p99, p99_9] = QUANTILES.map(|(_, quantile)| tally.quantile_us(quantile));
        let is_uniform = args.distribution == Distribution::Uniform;
        serde_json::to_string(&JsonReport {
            requests_per_second: rounded(self.outcome.requests_per_second()),
            requests: tally.requests,
            hits: tally.hits,
            misses: tally.misses,
            hit_rate: self.hit_rate(),
            errors: self.outcome.errors(),
            bytes_per_second: rounded(self.outcome.per_second(tally.response_bytes)),
            elapsed_seconds: self.outcome.elapsed.as_secs_f64(),
            latency_us_p50: p50,
            latency_us_p90: p90,
            latency_us_p99: p99,
            latency_us_p99_9: p99_9,
            latency_us_max: tally.quantile_us(1.0),
            clients: args.clients,
            pipeline_requests: args.pipeline,
            measure_seconds: args.seconds,
            warmup_seconds: args.warmup,
            seed: args.seed,
            miss_ratio: args.miss_ratio,
            protocol: args.protocol.name(),
            op: args.op.to_string(),
            verify: args.verify,
            db: args.db.to_string_lossy(),
            socket: args.socket().to_string_lossy().into_owned().into(),
            distribution: (!is_uniform).then(|| args.distribution_name()),
            rate: args.rate,
            unsent_requests: args.rate.map(|_| tally.unsent_requests),
            ceiling_requests_per_second: self.ceiling.map(|ceiling| rounded(ceiling.outcome.requests_per_second())),
            ceiling_ratio: self.ceiling.map(|ceiling| ceiling.ratio(self.outcome)),
            ceiling_rounds: self.ceiling.map(|ceiling| &ceiling.rounds[..]),
            ceiling_answer_len_bytes: self.ceiling.map(|ceiling| ceiling.response_len_bytes),
            memory: self.memory.map(Memory::json),
        })
    }
}

/// The fields of the JSON report. A field that belongs to an option is present only with that option.
#[derive(Serialize)]
struct JsonReport<'r> {
    requests_per_second: f64,
    requests: u64,
    hits: u64,
    misses: u64,
    hit_rate: f64,
    errors: u64,
    bytes_per_second: f64,
    elapsed_seconds: f64,
    latency_us_p50: f64,
    latency_us_p90: f64,
    latency_us_p99: f64,
    latency_us_p99_9: f64,
    latency_us_max: f64,
    clients: u32,
    pipeline_requests: u32,
    measure_seconds: f64,
    warmup_seconds: f64,
    seed: u64,
    miss_ratio: f64,
    protocol: &'static str,
    op: String,
    verify: bool,
    db: Cow<'r, str>,
    socket: Cow<'r, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distribution: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_requests_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_rounds: Option<&'r [Round]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_answer_len_bytes: Option<f64>,
    #[serde(flatten)]
    memory: Option<JsonMemory<'r>>,
}

pub(crate) fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Bounds of the bins in the decade from 100 ns to 1 µs. In all other decades, these bounds are multiplied by a power
/// of ten.
const STEPS_NS: &[u64] = &[100, 150, 200, 300, 500, 700];
const BAR_LEN_MAX: f64 = 40.0;

/// A bin of the histogram: the number of latencies that are at least `from_ns` and less than `to_ns`.
#[derive(Debug, PartialEq)]
pub(crate) struct Bin {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) count: u64,
}

/// Returns the bins from the first nonempty one to the last nonempty one.
pub(crate) fn bins(latency_ns: &Histogram<u64>) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    let mut bounds = bounds_ns().peekable();
    for step in latency_ns.iter_recorded() {
        let latency_ns = step.value_iterated_to();
        while bins.last().is_none_or(|bin| bin.to_ns <= latency_ns) {
            let from_ns = bins.last().map_or(0, |bin| bin.to_ns);
            let Some(to_ns) = bounds.next() else { break };
            bins.push(Bin { from_ns, to_ns, count: 0 });
        }
        if let Some(bin) = bins.last_mut() {
            bin.count += step.count_since_last_iteration();
        }
    }
    let first = bins.iter().position(|bin| bin.count > 0).unwrap_or(bins.len());
    bins.drain(..first);
    bins
}

/// Returns the upper bounds of the bins in ascending order. The first bound is 100 ns.
fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..17).flat_map(|decade| STEPS_NS.iter().map(move |step| step * 10u64.pow(decade))).chain([u64::MAX])
}

/// Formats nanoseconds as microseconds. Latencies below 10 µs get one decimal, unless they are whole microseconds.
fn format_us(ns: u64) -> String {
    match ns {
        ns if ns < 10_000 && !ns.is_multiple_of(1000) => format!("{:.1}", ns as f64 / 1e3),
        ns => HumanCount(ns / 1000).to_string(),
    }
}

/// Formats nanoseconds as ns, µs, ms, or s, with up to three decimals.
pub(crate) fn format_latency(ns: f64) -> String {
    let (divisor, unit) = match ns {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", HumanFloatCount((ns / divisor * 1e3).round() / 1e3))
}

/// Formats one line per bin with its bounds, its share, and a bar. The text has no colors, so it can be piped.
fn format_lines(latency_ns: &Histogram<u64>) -> String {
    let bins = bins(latency_ns);
    let total = bins.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64;
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(1) as f64;
    let mut text = String::new();
    for bin in &bins {
        let eighths = (bin.count as f64 / largest * BAR_LEN_MAX * 8.0).round() as usize;
        let end = [None, Some('▏'), Some('▎'), Some('▍'), Some('▌'), Some('▋'), Some('▊'), Some('▉')][eighths % 8];
        let bar: String = std::iter::repeat_n('█', eighths / 8).chain(end).collect();
        let (from, to, share) = (format_us(bin.from_ns), format_us(bin.to_ns), bin.count as f64 / total * 100.0);
        let line = format!("{from:>9} - {to:>9} µs {share:6.2}% {bar}");
        let _ = write!(text, "\n{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_one_bin() {
        let mut latency_ns = Histogram::new(3).unwrap();
        for ns in [1, 99, 100, 149, 1_000, 1_000_000, 5_000_000_000, u64::MAX / 4] {
            latency_ns.record(ns).unwrap();
        }
        let bins = bins(&latency_ns);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 8);
        assert_eq!(bins[0], Bin { from_ns: 0, to_ns: 100, count: 2 });
        assert_eq!(bins[1], Bin { from_ns: 100, to_ns: 150, count: 2 });
        assert!(bins.iter().zip(&bins[1..]).all(|(bin, next)| bin.to_ns == next.from_ns));
    }

    #[test]
    fn an_empty_histogram_has_no_lines() {
        assert_eq!(format_lines(&Histogram::new(3).unwrap()), "");
    }
}
