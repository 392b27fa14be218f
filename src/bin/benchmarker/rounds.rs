//! Alternating runs of the tested server and of a server without lookups (the ceiling), under equal load.
//!
//! In: a plan. Out: the results of both servers, and the ratio of their rates. The speed of a machine varies from
//! second to second, so each round compares two runs in direct succession.

use std::sync::Arc;

use zero_kv::client::Options;

use crate::canned::Canned;
use crate::ceiling::CeilingServer;
use crate::keys::Table;
use crate::load::{self, Outcome};
use crate::plan::Plan;

/// Number of rounds, which share `--seconds` and `--warmup` equally. A round measures the tested server and the server
/// without lookups (the ceiling).
const ROUNDS: u32 = 3;

/// The results of the server without lookups (the ceiling), and the ratio of the two servers' rates in each round.
pub(crate) struct CeilingOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) response_len_bytes: f64,
    /// For each round, the rate of the tested server divided by the rate of the server without lookups, in ascending
    /// order.
    ratios: Vec<f64>,
}

impl CeilingOutcome {
    /// Returns the median of the rounds' ratios. A ratio is the rate of the tested server divided by the rate of the
    /// server without lookups.
    pub(crate) fn ratio_median(&self) -> f64 {
        self.ratios[self.ratios.len() / 2]
    }

    pub(crate) fn ratio_min_max(&self) -> (f64, f64) {
        (self.ratios[0], self.ratios[self.ratios.len() - 1])
    }
}

/// Runs all rounds. Returns the results of the tested server and of the server without lookups (the ceiling). If the
/// tested server's first run has errors, the ceiling is not measured, because canned responses must have the mean
/// length of correct responses.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>) -> anyhow::Result<(Outcome, Option<CeilingOutcome>)> {
    let server_plan = Plan { measure: plan.measure / ROUNDS, warmup: plan.warmup / ROUNDS, ..plan.clone() };
    let mut outcome = load::run(&server_plan, table).await?;
    if outcome.errors() > 0 {
        return Ok((outcome, None));
    }
    let response_len_bytes = outcome.tally.response_bytes as f64 / outcome.tally.requests as f64;
    let ceiling_server = CeilingServer::start(response_len_bytes)?;
    let canned = Some(Arc::new(Canned::with_mean_len(response_len_bytes)));
    let (socket, options) = (ceiling_server.socket().to_path_buf(), Options::default());
    let ceiling_plan = Plan { socket, options, canned, ..server_plan.clone() };

    let mut ratios = Vec::new();
    let mut ceiling: Option<Outcome> = None;
    let mut rate = outcome.requests_per_second();
    for round in 0..ROUNDS {
        if round > 0 {
            let next = load::run(&server_plan, table).await?;
            rate = next.requests_per_second();
            outcome.add(next);
        }
        let next = load::run(&ceiling_plan, table).await?;
        ratios.push(rate / next.requests_per_second());
        match &mut ceiling {
            Some(ceiling) => ceiling.add(next),
            None => ceiling = Some(next),
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    Ok((outcome, ceiling.map(|outcome| CeilingOutcome { outcome, response_len_bytes, ratios })))
}
