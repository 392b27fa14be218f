//! `benchmarker`: keeps a server saturated and says how it did.
//!
//! This file is arguments and exit code. [`keys`] draws what is asked,
//! [`load`] connects the clients and holds the clock, [`client`] is one of them,
//! [`answers`] checks what comes back, [`report`] makes numbers of it.

mod answers;
mod client;
mod keys;
mod load;
mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Parser, ValueEnum};
use zero_kv::protocol::native::Op;
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET, Store};

use keys::Table;
use load::{Outcome, Plan};
use report::Report;

/// More faulty clients than this are counted, not listed.
const CLIENTS_LISTED_MAX: usize = 10;
/// Three years: what is longer is a slip, and would overflow the clock.
const SECONDS_MAX: f64 = 1e8;

/// Saturates a kv_store with pipelined requests and measures it from outside.
///
/// Each client writes one pipeline of requests, reads all its answers, checks
/// them, and begins the next. Every key is drawn anew, uniformly, from the rows
/// of the file that is served. A pipeline's latency runs from its first byte
/// sent to its last answer read. Exits with 1 if any answer was wrong or any
/// connection broke.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Args {
    /// The server's socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// The file that is served; keys are drawn from it
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    db: PathBuf,
    /// Connections, each with one pipeline in flight
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Requests in a pipeline
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pipeline: u32,
    /// How long to measure; fractions are fine
    #[arg(long, default_value = "10", value_parser = seconds_above_zero)]
    seconds: f64,
    /// Seconds of load before that, which do not count (their errors do)
    #[arg(long, default_value = "1", value_parser = seconds)]
    warmup: f64,
    /// Where the random numbers begin: the same seed asks for the same keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Share of requests, 0 to 1, that ask for keys which are not in the file
    #[arg(long, value_name = "RATIO", default_value = "0", value_parser = ratio)]
    miss_ratio: f64,
    /// What to ask for
    #[arg(long, value_name = "OP", default_value = "get")]
    op: OpArg,
    /// Compare each value with the file's
    #[arg(long)]
    verify: bool,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OpArg {
    /// Values
    Get,
    /// Whether keys are there
    Exists,
}

impl From<OpArg> for Op {
    fn from(arg: OpArg) -> Self {
        match arg {
            OpArg::Get => Op::Get,
            OpArg::Exists => Op::Exists,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err("seconds were expected, such as `10` or `0.5`".to_owned()),
    }
}

fn seconds_above_zero(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        seconds if Duration::from_secs_f64(seconds).is_zero() => Err("more than 0 was expected".to_owned()),
        seconds => Ok(seconds),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("a number from 0 to 1 was expected".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "benchmarker: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let table = Table::new(Store::open(&args.db)?, args.miss_ratio);
    if table.is_empty() && args.miss_ratio < 1.0 {
        bail!("{}: the table is empty, so no key of it can be asked for: pass --miss-ratio 1", args.db.display());
    }
    let plan = Plan {
        socket: args.socket.clone(),
        clients: args.clients as usize,
        pipeline_requests: args.pipeline as usize,
        measure: Duration::from_secs_f64(args.seconds),
        warmup: Duration::from_secs_f64(args.warmup),
        seed: args.seed,
        op: args.op.into(),
        verify: args.verify,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(load::run(&plan, Arc::new(table)))?;
    let report = Report::of(args, &outcome);
    let text = if args.json { report.json() } else { report.text() };
    writeln!(io::stdout(), "{text}").map_err(|error| anyhow!("standard output: {error}"))?;
    judge(&outcome)
}

/// An error if any client met one, after a list of who and what.
fn judge(outcome: &Outcome) -> anyhow::Result<()> {
    if outcome.errors() == 0 {
        return Ok(());
    }
    for (client, reason) in outcome.faults.iter().take(CLIENTS_LISTED_MAX) {
        let _ = writeln!(io::stderr(), "client {client}: {reason}");
    }
    if outcome.faults.len() > CLIENTS_LISTED_MAX {
        let _ = writeln!(io::stderr(), "and {} clients more", outcome.faults.len() - CLIENTS_LISTED_MAX);
    }
    bail!("{} errors: the numbers are not those of a sound run", outcome.errors())
}
