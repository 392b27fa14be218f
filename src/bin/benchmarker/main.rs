//! `benchmarker`: saturates a server with requests and measures it.
//!
//! This file contains the main sequence and the exit status. [`args`] parses the command line into a plan. [`keys`]
//! draws keys, [`wire`] encodes requests in a protocol, [`encoding`] encodes the expected responses, [`load`] runs the
//! clients, and [`client`] is one client. [`responses`] checks the responses, [`tally`] counts them, and [`report`]
//! formats the results.

mod args;
mod canned;
mod ceiling;
mod client;
mod encoding;
mod keys;
mod load;
mod memory;
mod mix;
mod page;
mod report;
mod resp;
mod responses;
mod svg;
mod sweep;
mod tally;
mod wire;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use args::{Args, command};
use encoding::{ColumnEncoding, Encoding, FloorEncoding};
use keys::Table;
use load::Outcome;
use memory::ServerProcess;
use mix::Op;
use report::Report;
use zero_kv::cli::generate::MoreCompletions;
use zero_kv::cli::stderr::WithCauses;
use zero_kv::cli::{generate, whole_file};
use zero_kv::printable::{Printable, PrintableWriter};
use zero_kv::{KeyKind, Lookup, MappedStore, Store, StoreError};

const CLIENTS_LISTED_MAX: usize = 10;

fn main() -> ExitCode {
    if let Some(code) = generate::run_if_requested(command, MoreCompletions::default()) {
        return code;
    }
    let args = Args::parse_and_check();
    let ended = match args.serve_canned {
        Some(response_len_bytes) => canned::serve_until_stdin_closes(response_len_bytes),
        None => run(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "benchmarker: {}", Printable(WithCauses(&error)));
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let Args { protocol, distribution, miss_ratio, seed, .. } = *args;
    let store = open(args)?;
    let key_type = store.key_type();
    if protocol != wire::Protocol::Native && !key_type.is_plain() {
        bail!(
            "{}: the keys are {key_type}, which the Redis protocol takes as text: measure them with --protocol native, or \
             pass a file with keys of the type u64 or bytes",
            args.db.display()
        );
    }
    let encoding = match args.op.single() {
        Some(Op::Floor) => Encoding::Floor(FloorEncoding::new(protocol, &args.db)?),
        Some(op) if op.is_of_columns() => Encoding::Columns(ColumnEncoding::new(op, &store, &args.columns)?),
        _ => Encoding::Value,
    };
    let table = Table::new(store, protocol, distribution, args.zipf_exponent(), miss_ratio, seed, encoding)?;
    if table.is_empty() && args.miss_ratio < 1.0 {
        bail!("{}: the table is empty, so there is no key to request: pass --miss-ratio 1", args.db.display());
    }
    if args.ceiling && table.store.key_kind() == KeyKind::Bytes {
        bail!(
            "{}: the keys are bytes, but the server of --ceiling supports only numbers: pass a file with keys that \
             are numbers",
            args.db.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args.sweep {
        true => runtime.block_on(sweep(args, &Arc::new(table))),
        false => runtime.block_on(measure(args, &Arc::new(table))),
    }
}

/// Opens the baked file. If the run looks keys up in the file, to verify values or to draw absent keys, the file is
/// copied into memory, because each lookup in a mapped file costs a system call. Otherwise, or if memory is too small
/// for a copy, the file is mapped.
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
    // The output files are checked before the run. Otherwise, the results would be lost if a file could not be written.
    for path in args.report.iter().chain(&args.hdr) {
        whole_file::check_can_be_written(path)?;
    }
    let server = match args.memory {
        true => Some(ServerProcess::find(&args.socket(), args.server.server_user.as_deref()).await?),
        false => None,
    };
    let plan = args.plan()?;
    let (outcome, ceiling) = match args.ceiling {
        true => ceiling::run(&plan, table).await?,
        false => (load::run(&plan, table).await?, None),
    };
    let memory = server.map(|server| server.after_run(table.store.len(), table.store.file_len_bytes()));
    let report = Report { args, outcome: &outcome, ceiling: ceiling.as_ref(), memory: memory.as_ref() };
    print(&if args.json { report.json()? } else { report.text() })?;
    if let Some(path) = &args.report {
        let page = page::render(&report);
        whole_file::write_whole(path, page.as_bytes())?;
    }
    if let Some(path) = &args.hdr {
        let log = tally::encode(&outcome.intervals)?;
        whole_file::write_whole(path, &log)?;
    }
    check_errors(&outcome)?;
    ceiling.as_ref().map_or(Ok(()), |ceiling| check_errors(&ceiling.outcome).context("the ceiling"))
}

async fn sweep(args: &Args, table: &Arc<Table>) -> anyhow::Result<()> {
    let sweep = sweep::run(&args.plan()?, table, args.p99_us_max(), args.json).await?;
    check_errors(&sweep.last)?;
    print(&if args.json { sweep.json()? } else { sweep.text() })?;
    match sweep.rate() {
        Some(_) => Ok(()),
        None => bail!("{}", sweep.failure()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(PrintableWriter::new(io::stdout()), "{text}").map_err(|error| anyhow!("standard output: {error}"))
}

/// If a response was wrong or a client failed, prints the reasons and returns an error.
fn check_errors(outcome: &Outcome) -> anyhow::Result<()> {
    if outcome.errors() == 0 {
        return Ok(());
    }
    for (client, reason) in outcome.faults.iter().take(CLIENTS_LISTED_MAX) {
        let _ = writeln!(io::stderr(), "client {client}: {}", Printable(reason));
    }
    if outcome.faults.len() > CLIENTS_LISTED_MAX {
        let _ = writeln!(io::stderr(), "and {} more clients", outcome.faults.len() - CLIENTS_LISTED_MAX);
    }
    bail!("{} errors: the results are not valid", outcome.errors())
}
