//! Searches for the highest rate at which the p99 latency stays within a limit.
//!
//! In: a plan, and the limit. Out: the highest rate, and the result of each run. A first run without a schedule finds
//! the server's maximum rate. The following runs have scheduled rates: first the maximum rate, and then rates that
//! bisect the interval between the highest rate that passed and the lowest rate that failed.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::anyhow;
use indicatif::HumanCount;
use serde::Serialize;

use crate::keys::Table;
use crate::load::{self, Outcome, Plan};
use crate::report::rounded;

const STEPS_MAX: usize = 24;
/// The search ends when the highest rate that passed is at least `1 - PRECISION` times the lowest rate that
/// failed.
const PRECISION: f64 = 0.05;
/// Minimum number of pipelines per run. With fewer pipelines, the p99 would not be meaningful.
const PIPELINES_MIN: f64 = 100.0;

#[derive(Serialize)]
struct SweepStep {
    rate: u64,
    requests_per_second: f64,
    p99_us: f64,
    #[serde(rename = "kept")]
    is_passed: bool,
}

pub(crate) struct Sweep {
    p99_us_max: f64,
    steps: Vec<SweepStep>,
    /// The results of the last run.
    pub(crate) last: Outcome,
}

/// A run that failed is repeated once if the server reached more than this share of the scheduled rate.
const REPEAT_MIN: f64 = 0.95;

/// Runs the search. Prints the result of each run when the run ends, unless the output is JSON.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>, p99_us_max: f64, json: bool) -> anyhow::Result<Sweep> {
    let print = |line: String| match json {
        true => Ok(()),
        false => writeln!(io::stdout(), "{line}").map_err(|error| anyhow!("standard output: {error}")),
    };
    let mut sweep = Sweep { p99_us_max, steps: Vec::new(), last: load::run(plan, table).await? };
    let rate_max = sweep.last.requests_per_second() as u64;
    print(format!("without a schedule: {} requests/s, p99 {:.0} µs", HumanCount(rate_max), p99_us(&sweep.last)))?;
    let rate_min = (PIPELINES_MIN * plan.pipeline_requests as f64 / plan.measure.as_secs_f64()).ceil() as u64;
    let (mut passed, mut failed) = (0, rate_max + 1);
    let mut rate = rate_max;
    while sweep.last.errors() == 0 && sweep.steps.len() < STEPS_MAX && rate >= rate_min {
        let mut is_passed = sweep.step(plan, table, rate, &print).await?;
        if !is_passed && sweep.last.requests_per_second() > rate as f64 * REPEAT_MIN {
            // The server reached the rate, so a short stall of the machine may have caused the high latency. The run is
            // therefore repeated.
            is_passed = sweep.step(plan, table, rate, &print).await?;
        }
        if is_passed {
            passed = rate;
        } else {
            failed = rate;
        }
        if (failed - passed) as f64 <= failed as f64 * PRECISION {
            break;
        }
        // Before the search gives up, it tries the lowest possible rate once.
        rate = match passed + (failed - passed) / 2 {
            rate if rate < rate_min && failed > rate_min => rate_min,
            rate => rate,
        };
    }
    Ok(sweep)
}

fn p99_us(outcome: &Outcome) -> f64 {
    outcome.tally.quantile_us(0.99)
}

impl SweepStep {
    fn text(&self) -> String {
        format!(
            "rate {}: {} requests/s, p99 {:.0} µs, {}",
            HumanCount(self.rate),
            HumanCount(self.requests_per_second as u64),
            self.p99_us,
            if self.is_passed { "passed" } else { "failed" },
        )
    }
}

impl Sweep {
    /// Runs the load at this rate, and returns whether the rate passed. A rate passes if the p99 is within the limit
    /// and every scheduled request was sent.
    async fn step(
        &mut self,
        plan: &Plan,
        table: &Arc<Table>,
        rate: u64,
        print: impl Fn(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        self.last = load::run(&Plan { rate: Some(rate), ..plan.clone() }, table).await?;
        let p99_us = p99_us(&self.last);
        let is_passed = p99_us <= self.p99_us_max && self.last.tally.unsent_requests == 0;
        let step = SweepStep { rate, requests_per_second: rounded(self.last.requests_per_second()), p99_us, is_passed };
        print(step.text())?;
        self.steps.push(step);
        Ok(is_passed)
    }

    pub(crate) fn rate(&self) -> Option<u64> {
        self.steps.iter().filter(|step| step.is_passed).map(|step| step.rate).max()
    }

    pub(crate) fn text(&self) -> String {
        let rate = self.rate().map_or("none".to_owned(), |rate| format!("{} requests/s", HumanCount(rate)));
        format!("highest rate with a p99 of at most {} µs: {rate}", self.p99_us_max)
    }

    pub(crate) fn failure(&self) -> String {
        match self.steps.last() {
            Some(step) => format!(
                "the p99 exceeds {} µs even at {} requests/s: raise --p99-us",
                self.p99_us_max,
                HumanCount(step.rate)
            ),
            None => format!(
                "a step has fewer than {PIPELINES_MIN} pipelines, too few for a p99: pass longer --seconds or a \
                 shorter --pipeline"
            ),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&JsonSweep { p99_us_max: self.p99_us_max, rate: self.rate(), steps: &self.steps })
    }
}

#[derive(Serialize)]
struct JsonSweep<'s> {
    p99_us_max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    steps: &'s [SweepStep],
}
