//! Compares Zero-KV with other engines and servers on equal rows, writes a Markdown report, and records the figures of the
//! documents.
//!
//! `rows` defines rows and requests, `engine` builds, opens, and reads each engine, and `measure` measures the engines
//! alternately. `server` starts and measures servers, and `resp` compares `kv_store` with Redis in the Redis protocol.
//! `report` writes the results. `figures` records them in the data file of the documents, and `chart` draws them.

mod chart;
mod cleanup;
mod cold;
mod engine;
mod figures;
mod machine;
mod measure;
mod page_cache;
mod plan;
mod report;
mod resp;
mod rows;
mod server;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use crate::figures::{Figures, Origin};
use crate::measure::Table;
use crate::plan::Plans;
use crate::report::Report;
use crate::rows::Rows;

/// The folder of the documents.
const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
/// The duration of each load of `--cold`.
const COLD_MEASURED: Duration = Duration::from_secs(4);

/// Compares Zero-KV with LMDB, RocksDB, redb, cdb, HashMap, Redis, and memcached.
///
/// The report goes to standard output, and progress to standard error. Use run.sh, which installs
/// the required packages and builds the programs.
#[derive(Parser, Debug)]
#[command(name = "peers", version, max_term_width = 100)]
struct Args {
    /// Use small tables and short loads, whose results are not valid
    #[arg(long)]
    quick: bool,
    /// Measure this table; can be repeated [default: 100000x26, 1000000x26, 10000000x100]
    #[arg(long = "table", value_name = "ROWSxBYTES", value_parser = plan::table)]
    tables: Vec<Rows>,
    /// Use this many rows of 256 bytes for the mixed load, or 0 to skip it [default: as many as memory and disk allow]
    #[arg(long, value_name = "ROWS")]
    mixed_rows: Option<u64>,
    /// Run this many rounds, and report medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Measure only engines and servers whose names begin with one of these; `resp` is the comparison in the Redis
    /// protocol [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Create the run's files in this folder, which must be on a disk; the run removes them at its end
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"))]
    dir: PathBuf,
    /// Run this kv_store program
    #[arg(
        long,
        value_name = "FILE",
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/kv_store")
    )]
    kv_store: PathBuf,
    /// Measure gets in a table that is larger than the memory, instead of everything else: Zero-KV, LMDB, and the device.
    /// Needs root, for a control group [default of --table: 20000000x100]
    #[arg(long, conflicts_with_all = ["quick", "only", "mixed_rows"])]
    cold: bool,
    /// With --cold, limit the memory of the processes of an engine to this
    #[arg(long, value_name = "MIB", default_value_t = 640, requires = "cold")]
    memory_mib: u64,
    /// Record the figures in FOLDER/figures.json, and write the tables of the documents in FOLDER and the chart from it
    /// [default of FOLDER: docs]
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = DOCUMENTS)]
    record: Option<PathBuf>,
    /// Run this bench of the main package instead of the comparison; with --record, its tables are recorded. Arguments
    /// after `--` are passed to the bench
    #[arg(long, value_name = "NAME", conflicts_with_all = ["quick", "tables", "mixed_rows", "only", "cold"])]
    bench: Option<String>,
    /// Measure nothing, and write the tables of the documents in docs and the chart from docs/figures.json
    #[arg(long, exclusive = true)]
    render: bool,
    #[arg(last = true, hide = true, requires = "bench")]
    bench_arguments: Vec<String>,
}

impl Args {
    fn is_selected(&self, name: &str) -> bool {
        let lower = name.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|only| lower.starts_with(&only.to_lowercase()))
    }
}

fn main() -> ExitCode {
    let ended = cold::run_child().and_then(|is_child| if is_child { Ok(()) } else { run(&Args::parse()) });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.render {
        return figures::render(Path::new(DOCUMENTS));
    }
    let measured = match &args.bench {
        Some(name) => figures::of_bench(name, &args.bench_arguments, origin())?,
        None => compare(args)?,
    };
    match &args.record {
        Some(folder) => measured.record(folder),
        None => Ok(()),
    }
}

/// Describes this run. The command has no option of where the figures are recorded.
fn origin() -> Origin {
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--record"));
    let command = ["benches/peers/run.sh".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
    Origin { command, machine: machine::machine(), date: machine::date() }
}

/// Compares engines and servers, and prints the report.
fn compare(args: &Args) -> Result<Figures> {
    let folder = cleanup::run_folder(&args.dir)?;
    let cannot_remove = || format!("{}: cannot remove the run's folder", args.dir.display());
    if args.cold {
        let rows = args.tables.first().copied().unwrap_or(Rows { count: 20_000_000, value_len_bytes: 100 });
        let measured = cold::measure(rows, args.memory_mib << 20, COLD_MEASURED, folder.path(), &origin())?;
        folder.close().with_context(cannot_remove)?;
        return Ok(measured);
    }
    let free_bytes = page_cache::free_disk_bytes(folder.path())?;
    let plans = Plans::new(args, free_bytes)?;
    let report = measure_all(args, &plans, folder.path());
    folder.close().with_context(cannot_remove)?;
    match write!(io::stdout(), "{report}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(report.figures()),
    }
}

fn measure_all(args: &Args, plans: &Plans, folder: &Path) -> Report {
    let log = |text: &str| {
        let _ = writeln!(io::stderr(), "{text}");
    };
    let mut report = Report::new(origin());
    let mut engines = Vec::new();
    for engine in engine::all() {
        match engine {
            Ok(engine) if args.is_selected(engine.name) => engines.push(engine),
            Err(unavailable) if args.is_selected(unavailable.name) => report.unavailable.push(unavailable),
            _ => {}
        }
    }
    let tables = if engines.is_empty() { &[][..] } else { &plans.tables };
    for plan in tables {
        report.tables.push(Table::measure(*plan, &engines, folder, &log));
    }
    for plan in &plans.servers {
        let lines = server::measure(*plan, &|name| args.is_selected(name), &args.kv_store, folder, &log);
        if !lines.is_empty() {
            report.servers.push((*plan, lines));
        }
        if args.is_selected("resp") {
            report.comparisons.push((*plan, resp::measure(*plan, &args.kv_store, folder, &log)));
        }
    }
    report
}
