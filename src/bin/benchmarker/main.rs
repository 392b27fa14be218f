//! `benchmarker`: keeps a server busy and says how it did.
//!
//! This file is the order of things and the exit code. [`args`] is the command line,
//! [`plan`] what it comes to. [`keys`] draws what is asked, [`wire`] puts it into a
//! protocol's words, [`load`] connects the clients, [`client`] is one of them, [`answers`]
//! checks what comes back, [`tally`] counts it, and [`report`] makes numbers of it.

mod answers;
mod args;
mod bins;
mod canned;
mod canned_server;
mod ceiling;
mod client;
mod connect;
mod frames;
#[path = "../../generate.rs"]
mod generate;
mod hdr_log;
mod json;
mod keys;
mod live;
mod load;
mod memory;
mod mix;
mod page;
mod plan;
mod random;
mod report;
mod resp;
mod schedule;
#[path = "../../special_file.rs"]
mod special_file;
mod svg;
mod sweep;
mod tally;
mod turns;
#[path = "../../whole_file.rs"]
mod whole_file;
mod wire;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::CommandFactory;
use zero_kv::{KeyKind, MappedStore, Store, StoreError};

use args::Args;
use keys::Table;
use load::Outcome;
use memory::ServerProcess;
use report::Report;

/// More faulty clients than this are counted, not listed.
const CLIENTS_LISTED_MAX: usize = 10;

fn main() -> ExitCode {
    if let Some(code) = generate::if_asked(Args::command) {
        return code;
    }
    let args = Args::parse_and_check();
    let ended = match args.serve_canned {
        Some(answer_len_bytes) => canned_server::run(answer_len_bytes),
        None => run(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "benchmarker: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let Args { protocol, distribution, miss_ratio, seed, .. } = *args;
    let store = open(args)?;
    let table = Table::new(store, protocol, distribution, args.zipf_exponent(), miss_ratio, seed)?;
    if table.is_empty() && args.miss_ratio < 1.0 {
        bail!("{}: the table is empty, so no key of it can be asked for: pass --miss-ratio 1", args.db.display());
    }
    if args.ceiling && table.store.key_kind() == KeyKind::Bytes {
        bail!(
            "{}: --ceiling: its server answers requests for numbers only: pass a file of such keys",
            args.db.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args.sweep {
        true => runtime.block_on(sweep(args, &Arc::new(table))),
        false => runtime.block_on(measure(args, &Arc::new(table))),
    }
}

/// Opens the file. If values or absent keys are looked up in it, which costs a system call each in a mapped file, it is
/// copied unless there is too little memory.
fn open(args: &Args) -> Result<MappedStore, StoreError> {
    if !args.verify && args.miss_ratio == 0.0 {
        return MappedStore::open(&args.db);
    }
    match Store::open(&args.db) {
        Err(StoreError::Memory { .. }) => MappedStore::open(&args.db),
        opened => opened.map(MappedStore::from),
    }
}

async fn measure(args: &Args, table: &Arc<Table>) -> anyhow::Result<()> {
    // Before the run: a file that cannot be written is known at once.
    for path in args.report.iter().chain(&args.hdr) {
        whole_file::check_can_be_written(path)?;
    }
    let server = match args.memory {
        true => Some(ServerProcess::of_socket(&args.socket, args.server_user.as_deref()).await?),
        false => None,
    };
    let plan = args.plan();
    let (outcome, ceiling) = match args.ceiling {
        true => turns::run(&plan, table).await?,
        false => (load::run(&plan, table).await?, None),
    };
    let memory = server.map(|server| server.after_run(table.store.len(), table.store.file_len_bytes()));
    let report = Report { args, outcome: &outcome, ceiling: ceiling.as_ref(), memory: memory.as_ref() };
    print(&if args.json { report.json() } else { report.text() })?;
    if let Some(path) = &args.report {
        let page = page::of(&report);
        whole_file::write_whole(path, page.as_bytes())?;
    }
    if let Some(path) = &args.hdr {
        let log = hdr_log::text_of(&outcome.intervals)?;
        whole_file::write_whole(path, &log)?;
    }
    judge(&outcome)?;
    ceiling.as_ref().map_or(Ok(()), |ceiling| judge(&ceiling.outcome).context("the ceiling"))
}

async fn sweep(args: &Args, table: &Arc<Table>) -> anyhow::Result<()> {
    let sweep = sweep::run(&args.plan(), table, args.p99_us_max(), args.json).await?;
    judge(&sweep.last)?;
    print(&if args.json { sweep.json() } else { sweep.text() })?;
    match sweep.rate() {
        Some(_) => Ok(()),
        None => bail!("{}", sweep.why_none()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").map_err(|error| anyhow!("standard output: {error}"))
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
