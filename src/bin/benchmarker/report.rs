//! The results of a run, formatted for people and for programs.

use std::borrow::Cow;

use indicatif::HumanCount;
use serde::Serialize;

use crate::args::Args;
use crate::bins;
use crate::keys::Distribution;
use crate::load::Outcome;
use crate::memory::{JsonMemory, Memory};
use crate::rounds::{CeilingOutcome, Round};
use crate::wire::Protocol;

/// The reported quantiles and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// The options and results of a run, as input of the report.
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

    /// Formats the results for people.
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
            bins::format_lines(&tally.latency_ns),
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

/// Rounds a rate to one decimal.
pub(crate) fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}
