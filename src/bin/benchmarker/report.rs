//! Numbers, and their printing.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::Args;
use crate::load::{Clock, Outcome};

/// The quantiles that are told, under their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A shorter time than this, just after the warm-up, tells no rate.
const RATE_OVER_MIN: Duration = Duration::from_millis(100);

/// What a run came to.
pub(crate) struct Report<'r> {
    args: &'r Args,
    outcome: &'r Outcome,
}

impl<'r> Report<'r> {
    pub(crate) fn of(args: &'r Args, outcome: &'r Outcome) -> Self {
        Report { args, outcome }
    }

    fn per_second(&self, quantity: u64) -> f64 {
        let seconds = self.outcome.elapsed.as_secs_f64();
        if seconds > 0.0 { quantity as f64 / seconds } else { 0.0 }
    }

    fn hit_rate(&self) -> f64 {
        self.outcome.tally.hits as f64 / self.outcome.tally.requests.max(1) as f64
    }

    fn op_name(&self) -> String {
        self.args.op.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Each latency under its name, in microseconds.
    fn latencies_us(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let latency_ns = &self.outcome.tally.latency_ns;
        // The end of a histogram's bucket can lie above the largest value in it.
        let quantile_ns = |quantile| latency_ns.value_at_quantile(quantile).min(latency_ns.max());
        let quantiles = QUANTILES.map(|(name, quantile)| (name, quantile_ns(quantile)));
        quantiles.into_iter().chain([("max", latency_ns.max())]).map(|(name, ns)| (name, ns as f64 / 1e3))
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let (args, tally) = (self.args, &self.outcome.tally);
        let latencies: Vec<String> = self.latencies_us().map(|(name, us)| format!("{name} {us:.0} µs")).collect();
        format!(
            "{} clients x {} requests, {}, miss ratio {}, seed {}{}\n\
             {} requests/s\n\
             {} requests in {:.2} s after {} s of warm-up\n\
             {:.2}% hits ({} hits, {} misses)\n\
             {} errors\n\
             {} bytes/s\n\
             pipeline latency: {}",
            args.clients,
            args.pipeline,
            self.op_name(),
            args.miss_ratio,
            args.seed,
            if args.verify { ", values verified" } else { "" },
            HumanCount(self.per_second(tally.requests) as u64),
            HumanCount(tally.requests),
            self.outcome.elapsed.as_secs_f64(),
            args.warmup,
            self.hit_rate() * 100.0,
            HumanCount(tally.hits),
            HumanCount(tally.misses),
            HumanCount(self.outcome.errors()),
            HumanCount(self.per_second(tally.answer_bytes) as u64),
            latencies.join(", "),
        )
    }

    /// For programs: one object on one line.
    pub(crate) fn json(&self) -> String {
        let (args, tally) = (self.args, &self.outcome.tally);
        let mut json = Json(String::new());
        json.number("requests_per_second", format_args!("{:.1}", self.per_second(tally.requests)));
        json.number("requests", tally.requests);
        json.number("hits", tally.hits);
        json.number("misses", tally.misses);
        json.number("hit_rate", self.hit_rate());
        json.number("errors", self.outcome.errors());
        json.number("bytes_per_second", format_args!("{:.1}", self.per_second(tally.answer_bytes)));
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
        json.text("op", &self.op_name());
        json.number("verify", args.verify);
        json.path("db", &args.db);
        json.path("socket", &args.socket);
        json.end()
    }
}

/// The fields of an object, as they are written.
struct Json(String);

impl Json {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let _ = write!(self.0, "\"{name}\":");
    }

    /// A finite number, or a boolean: what stands for itself.
    fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let _ = write!(self.0, "{value}");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                control if control < ' ' => {
                    let _ = write!(self.0, "\\u{:04x}", control as u32);
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    fn path(&mut self, name: &str, value: &Path) {
        self.text(name, &value.to_string_lossy());
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// What a terminal shows while the clients run.
pub(crate) struct LiveLine {
    bar: Option<ProgressBar>,
    clock: Clock,
    shown_at: Instant,
    requests_shown: u64,
}

impl LiveLine {
    pub(crate) fn new(clock: Clock) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}").expect("a valid template");
            ProgressBar::new_spinner().with_style(style)
        });
        LiveLine { bar, clock, shown_at: clock.measured_from, requests_shown: 0 }
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    pub(crate) fn show(&mut self, (requests, wrong_answers): (u64, u64)) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        let left_seconds = |end: Instant| end.saturating_duration_since(now).as_secs_f64();
        if now <= self.clock.measured_from {
            bar.set_message(format!("warming up, {:.1} s left", left_seconds(self.clock.measured_from)));
        } else {
            let since_shown = now.saturating_duration_since(self.shown_at);
            if since_shown < RATE_OVER_MIN {
                return;
            }
            let per_second = (requests - self.requests_shown) as f64 / since_shown.as_secs_f64();
            bar.set_message(format!(
                "{} requests/s, {} errors, {:.1} s left",
                HumanCount(per_second as u64),
                HumanCount(wrong_answers),
                left_seconds(self.clock.end),
            ));
            (self.shown_at, self.requests_shown) = (now, requests);
        }
        bar.tick();
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_json_is_escaped() {
        let mut json = Json(String::new());
        json.text("path", "a\"b\\c\nd é");
        json.number("n", 1.5);
        assert_eq!(json.end(), r#"{"path":"a\"b\\c\u000ad é","n":1.5}"#);
    }
}
