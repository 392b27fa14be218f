//! Numbers, and their printing.

use indicatif::HumanCount;

use crate::args::Args;
use crate::bins;
use crate::json::Json;
use crate::keys::Distribution;
use crate::load::Outcome;
use crate::memory::Memory;
use crate::turns::CeilingOutcome;
use crate::wire::Protocol;

/// The quantiles that are told, under their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// What a run came to.
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

    /// Each latency under its name, in microseconds.
    pub(crate) fn latencies_us(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let tally = &self.outcome.tally;
        QUANTILES.into_iter().chain([("max", 1.0)]).map(|(name, quantile)| (name, tally.quantile_us(quantile)))
    }

    /// For people.
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
                Protocol::Resp => ", Redis's protocol",
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
            HumanCount(self.outcome.per_second(tally.answer_bytes) as u64),
            latencies.join(", "),
            bins::text(&tally.latency_ns),
            self.more_lines(),
        )
    }

    /// What was asked for beyond the numbers of every run.
    fn more_lines(&self) -> String {
        let mut lines = String::new();
        if let Some(rate) = self.args.rate {
            let unsent = HumanCount(self.outcome.tally.unsent_requests);
            lines += &format!("\nschedule: {} requests/s, {unsent} requests were due and not sent", HumanCount(rate));
        }
        if let Some(ceiling) = self.ceiling {
            let (min, max) = ceiling.ratio_min_max();
            lines += &format!(
                "\nceiling: {} requests/s from a server that looks nothing up, answers of {:.2} bytes\n\
                 server / ceiling: {:.3} (turns from {min:.3} to {max:.3})",
                HumanCount(ceiling.outcome.requests_per_second() as u64),
                ceiling.answer_len_bytes,
                ceiling.ratio(),
            );
        }
        if let Some(memory) = self.memory {
            lines += "\n";
            lines += &memory.text();
        }
        lines
    }

    /// For programs: one object on one line.
    pub(crate) fn json(&self) -> String {
        let (args, tally) = (self.args, &self.outcome.tally);
        let mut json = Json::default();
        json.number("requests_per_second", format_args!("{:.1}", self.outcome.requests_per_second()));
        json.number("requests", tally.requests);
        json.number("hits", tally.hits);
        json.number("misses", tally.misses);
        json.number("hit_rate", self.hit_rate());
        json.number("errors", self.outcome.errors());
        json.number("bytes_per_second", format_args!("{:.1}", self.outcome.per_second(tally.answer_bytes)));
        json.number("elapsed_seconds", self.outcome.elapsed.as_secs_f64());
        for (name, us) in self.latencies_us() {
            json.number(&format!("latency_us_{}", name.replace('.', "_")), us);
        }
        json.number("clients", args.clients);
        json.number("pipeline_requests", args.pipeline);
        json.number("measure_seconds", args.seconds);
        json.number("warmup_seconds", args.warmup);
        json.number("seed", args.seed);
        json.number("miss_ratio", args.miss_ratio);
        json.text("protocol", args.protocol.name());
        json.text("op", &args.op.to_string());
        json.number("verify", args.verify);
        json.path("db", &args.db);
        json.path("socket", &args.socket);
        if args.distribution != Distribution::Uniform {
            json.text("distribution", &args.distribution_name());
        }
        if let Some(rate) = args.rate {
            json.number("rate", rate);
            json.number("unsent_requests", tally.unsent_requests);
        }
        if let Some(ceiling) = self.ceiling {
            json.number("ceiling_requests_per_second", format_args!("{:.1}", ceiling.outcome.requests_per_second()));
            json.number("ceiling_ratio", ceiling.ratio());
            json.number("ceiling_answer_len_bytes", ceiling.answer_len_bytes);
        }
        if let Some(memory) = self.memory {
            memory.json(&mut json);
        }
        json.end()
    }
}
