//! The server and the ceiling by turns, under the same load.
//!
//! In: a plan. Out: what each came to, and how near the server is to the ceiling. A
//! machine's speed changes from second to second, so only neighbouring turns compare.

use std::sync::Arc;

use crate::canned::Canned;
use crate::ceiling::Ceiling;
use crate::keys::Table;
use crate::load::{self, Outcome};
use crate::plan::Plan;

/// Turns of each; the measured time is shared among them.
const TURNS: u32 = 3;

/// What the ceiling came to.
pub(crate) struct CeilingOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) answer_len_bytes: f64,
    /// The server's requests a second over the ceiling's, of each turn, in ascending order.
    ratios: Vec<f64>,
}

impl CeilingOutcome {
    /// That of the turn in the middle.
    pub(crate) fn ratio(&self) -> f64 {
        self.ratios[self.ratios.len() / 2]
    }

    pub(crate) fn ratio_min_max(&self) -> (f64, f64) {
        (self.ratios[0], self.ratios[self.ratios.len() - 1])
    }
}

/// Without a ceiling if the server's first turn met errors: its answers tell no length then.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>) -> anyhow::Result<(Outcome, Option<CeilingOutcome>)> {
    let ours = Plan { measure: plan.measure / TURNS, warmup: plan.warmup / TURNS, ..plan.clone() };
    let mut outcome = load::run(&ours, table).await?;
    if outcome.errors() > 0 {
        return Ok((outcome, None));
    }
    let answer_len_bytes = outcome.tally.answer_bytes as f64 / outcome.tally.requests as f64;
    let server = Ceiling::start(answer_len_bytes)?;
    let canned = Some(Arc::new(Canned::of_mean_len(answer_len_bytes)));
    let theirs = Plan { socket: server.socket().to_path_buf(), canned, ..ours.clone() };

    let mut ratios = Vec::new();
    let mut ceiling: Option<Outcome> = None;
    let mut rate = outcome.requests_per_second();
    for turn in 0..TURNS {
        if turn > 0 {
            let next = load::run(&ours, table).await?;
            rate = next.requests_per_second();
            outcome.add(next);
        }
        let next = load::run(&theirs, table).await?;
        ratios.push(rate / next.requests_per_second());
        match &mut ceiling {
            Some(ceiling) => ceiling.add(next),
            None => ceiling = Some(next),
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    Ok((outcome, ceiling.map(|outcome| CeilingOutcome { outcome, answer_len_bytes, ratios })))
}
