//! The highest rate that keeps a latency.
//!
//! In: a plan, and what the 99th percentile may be. Out: each step, and the rate. The
//! first step sends without a schedule and finds what the server can do at most; the
//! others halve the distance between a rate that was kept and one that was not.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::anyhow;
use indicatif::HumanCount;

use crate::json::Json;
use crate::keys::Table;
use crate::load::{self, Outcome};
use crate::plan::Plan;

const STEPS_MAX: usize = 24;
/// The answer is this near to a rate that was not kept.
const PRECISION: f64 = 0.05;
/// A percentile of fewer pipelines than this is none.
const PIPELINES_MIN: f64 = 100.0;

pub(crate) struct Step {
    rate: u64,
    requests_per_second: f64,
    p99_us: f64,
    is_kept: bool,
}

pub(crate) struct Sweep {
    p99_us_max: f64,
    steps: Vec<Step>,
    /// That of the last step that was run.
    pub(crate) last: Outcome,
}

/// A step that answered less than this share of its rate is not tried again.
const REACHED: f64 = 0.95;

/// Runs the steps, and prints each as it ends, unless it is for programs.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>, p99_us_max: f64, json: bool) -> anyhow::Result<Sweep> {
    let say = |line: String| match json {
        true => Ok(()),
        false => writeln!(io::stdout(), "{line}").map_err(|error| anyhow!("standard output: {error}")),
    };
    let mut sweep = Sweep { p99_us_max, steps: Vec::new(), last: load::run(plan, table).await? };
    let most = sweep.last.requests_per_second() as u64;
    say(format!("without a schedule: {} requests/s, p99 {:.0} µs", HumanCount(most), p99_us(&sweep.last)))?;
    let lowest = (PIPELINES_MIN * plan.pipeline_requests as f64 / plan.measure.as_secs_f64()).ceil() as u64;
    let (mut kept, mut missed) = (0, most + 1);
    let mut rate = most;
    while sweep.last.errors() == 0 && sweep.steps.len() < STEPS_MAX && rate >= lowest {
        let mut is_kept = sweep.step(plan, table, rate, &say).await?;
        if !is_kept && sweep.last.requests_per_second() > rate as f64 * REACHED {
            // The rate was reached, so it may have been the machine that stalled for a moment.
            is_kept = sweep.step(plan, table, rate, &say).await?;
        }
        if is_kept {
            kept = rate;
        } else {
            missed = rate;
        }
        if (missed - kept) as f64 <= missed as f64 * PRECISION {
            break;
        }
        // The least that is worth trying, once, before it is said that no rate is kept.
        rate = match kept + (missed - kept) / 2 {
            rate if rate < lowest && missed > lowest => lowest,
            rate => rate,
        };
    }
    Ok(sweep)
}

fn p99_us(outcome: &Outcome) -> f64 {
    outcome.tally.quantile_us(0.99)
}

impl Step {
    fn text(&self) -> String {
        format!(
            "rate {}: {} requests/s, p99 {:.0} µs, {}",
            HumanCount(self.rate),
            HumanCount(self.requests_per_second as u64),
            self.p99_us,
            if self.is_kept { "kept" } else { "not kept" },
        )
    }
}

impl Sweep {
    /// Runs one step, and says whether its rate was kept.
    async fn step(
        &mut self,
        plan: &Plan,
        table: &Arc<Table>,
        rate: u64,
        say: impl Fn(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        self.last = load::run(&Plan { rate: Some(rate), ..plan.clone() }, table).await?;
        let p99_us = p99_us(&self.last);
        let is_kept = p99_us <= self.p99_us_max && self.last.tally.unsent_requests == 0;
        let step = Step { rate, requests_per_second: self.last.requests_per_second(), p99_us, is_kept };
        say(step.text())?;
        self.steps.push(step);
        Ok(is_kept)
    }

    /// The highest rate that was kept.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.steps.iter().filter(|step| step.is_kept).map(|step| step.rate).max()
    }

    /// The last line for people.
    pub(crate) fn text(&self) -> String {
        let rate = self.rate().map_or("none".to_owned(), |rate| format!("{} requests/s", HumanCount(rate)));
        format!("highest rate with a p99 of at most {} µs: {rate}", self.p99_us_max)
    }

    pub(crate) fn why_none(&self) -> String {
        match self.steps.last() {
            Some(step) => format!("not even {} requests/s kept a p99 of {} µs", HumanCount(step.rate), self.p99_us_max),
            None => format!(
                "a step has less than {PIPELINES_MIN} pipelines, too few for a p99: pass longer --seconds or a shorter \
                 --pipeline"
            ),
        }
    }

    pub(crate) fn json(&self) -> String {
        let mut json = Json::default();
        json.number("p99_us_max", self.p99_us_max);
        if let Some(rate) = self.rate() {
            json.number("rate", rate);
        }
        json.objects(
            "steps",
            self.steps.iter().map(|step| {
                let mut json = Json::default();
                json.number("rate", step.rate);
                json.number("requests_per_second", format_args!("{:.1}", step.requests_per_second));
                json.number("p99_us", step.p99_us);
                json.number("kept", step.is_kept);
                json
            }),
        );
        json.end()
    }
}
