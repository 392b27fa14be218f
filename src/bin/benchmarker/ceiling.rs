//! Alternating runs of the tested server and of a server without lookups (the ceiling), under equal load.
//!
//! In: a plan. Out: the results of both servers, and the ratio of their rates. The speed of a machine varies from
//! second to second, so each round compares two runs in direct succession.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::Serialize;
use zero_kv::client::Options;

use crate::canned::Canned;
use crate::keys::Table;
use crate::load::{self, Outcome, Plan};

/// Name of the hidden option that makes the benchmarker run as a server that responds without lookups.
pub(crate) const SERVE_CANNED: &str = "serve-canned";

/// The process of a server that responds without lookups. Dropping the value stops the process, and waits until it has
/// ended.
struct CeilingServer {
    child: Child,
    socket: PathBuf,
}

impl CeilingServer {
    /// Starts a server whose responses have this mean length, and waits until the server listens.
    pub(crate) fn start(response_len_bytes: f64) -> anyhow::Result<CeilingServer> {
        let this_program = std::env::current_exe().context("cannot find the benchmarker's executable")?;
        let mut child = Command::new(&this_program)
            .arg(format!("--{SERVE_CANNED}={response_len_bytes}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The server is in a separate process group, so Ctrl-C stops only the benchmarker. When the benchmarker
            // ends, the server's standard input is closed, which stops the server.
            .process_group(0)
            .spawn()
            .with_context(|| this_program.display().to_string())?;
        let mut path = Vec::new();
        let stdout = child.stdout.take().expect("it was piped");
        let mut ceiling = CeilingServer { child, socket: PathBuf::new() };
        BufReader::new(stdout)
            .read_until(b'\n', &mut path)
            .context("cannot read the socket's path from the server of --ceiling")?;
        if path.pop() != Some(b'\n') {
            bail!("the server of --ceiling exited before it listened");
        }
        ceiling.socket = OsString::from_vec(path).into();
        Ok(ceiling)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for CeilingServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Number of rounds, which share `--seconds` and `--warmup` equally. A round measures the tested server and the server
/// without lookups (the ceiling).
const ROUNDS: u32 = 3;

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
