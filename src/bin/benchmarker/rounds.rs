//! Alternating runs of the tested server and of a server without lookups (the ceiling), under equal load.
//!
//! In: a plan. Out: the results of both servers, and the ratio of their rates. The speed of a machine varies from
//! second to second, so each round compares two runs in direct succession.

use std::sync::Arc;

use serde::Serialize;
use zero_kv::client::Options;

use crate::canned::Canned;
use crate::ceiling::CeilingServer;
use crate::keys::Table;
use crate::load::{self, Outcome};
use crate::plan::Plan;

/// Number of rounds, which share `--seconds` and `--warmup` equally. A round measures the tested server and the server
/// without lookups (the ceiling).
const ROUNDS: u32 = 3;

/// The rates of the two servers in one round.
#[derive(Serialize)]
pub(crate) struct Round {
    pub(crate) requests_per_second: f64,
    pub(crate) ceiling_requests_per_second: f64,
}

impl Round {
    pub(crate) fn ratio(&self) -> f64 {
        self.requests_per_second / self.ceiling_requests_per_second
    }
}

/// The results of the server without lookups (the ceiling), and the rates of both servers in each round.
pub(crate) struct CeilingOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) response_len_bytes: f64,
    /// The rounds in the order in which they ran.
    pub(crate) rounds: Vec<Round>,
}

impl CeilingOutcome {
    /// Returns the rate of the tested server in all rounds divided by the rate of the ceiling in all rounds. The
    /// report shows these two rates, so it must not show another ratio, such as the median of the rounds' ratios.
    pub(crate) fn ratio(&self, server: &Outcome) -> f64 {
        server.requests_per_second() / self.outcome.requests_per_second()
    }

    /// Returns the smallest and the largest ratio of a round.
    pub(crate) fn ratio_min_max(&self) -> (f64, f64) {
        let ratios = || self.rounds.iter().map(Round::ratio);
        (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max))
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

    let mut rounds = Vec::new();
    let mut ceiling: Option<Outcome> = None;
    let mut rate = outcome.requests_per_second();
    for round in 0..ROUNDS {
        if round > 0 {
            let next = load::run(&server_plan, table).await?;
            rate = next.requests_per_second();
            outcome.add(next);
        }
        let next = load::run(&ceiling_plan, table).await?;
        rounds.push(Round { requests_per_second: rate, ceiling_requests_per_second: next.requests_per_second() });
        match &mut ceiling {
            Some(ceiling) => ceiling.add(next),
            None => ceiling = Some(next),
        }
    }
    Ok((outcome, ceiling.map(|outcome| CeilingOutcome { outcome, response_len_bytes, rounds })))
}
