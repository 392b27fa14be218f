//! Compares Zero-KV with other engines and servers on equal rows, and writes a
//! Markdown report and a chart.
//!
//! `rows` defines rows and requests, `engine` opens and reads each engine,
//! `measure` measures engines in turn, `server` does both for servers, `resp` compares
//! `kv_store` with Redis in the Redis protocol, and `report` and `chart` write the
//! results.

mod chart;
mod cleanup;
mod engine;
mod machine;
mod measure;
mod page_cache;
mod plan;
mod report;
mod resp;
mod rows;
mod server;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::measure::Table;
use crate::plan::Plans;
use crate::report::Report;
use crate::rows::Rows;

/// Compares Zero-KV with LMDB, RocksDB, redb, cdb, HashMap, Redis and memcached.
///
/// The report goes to standard output, progress to standard error. Use run.sh,
/// which installs and builds what this needs.
#[derive(Parser, Debug)]
#[command(name = "peers", version, max_term_width = 100)]
struct Args {
    /// Use small tables and short loads, whose results are not valid
    #[arg(long)]
    quick: bool,
    /// Measure this table; can be repeated [default: 100000x26, 1000000x26, 10000000x100]
    #[arg(long = "table", value_name = "ROWSxBYTES", value_parser = plan::table)]
    tables: Vec<Rows>,
    /// Use this many rows of 256 bytes for the mixed load, 0 for none [default: as many as memory and disk allow]
    #[arg(long, value_name = "ROWS")]
    mixed_rows: Option<u64>,
    /// Run this many rounds, and report medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Measure only engines and servers whose names begin with this; `resp` is the Redis protocol [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Put the run's files into this folder on a disk; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target"))]
    dir: PathBuf,
    /// Run this kv_store
    #[arg(
        long,
        value_name = "FILE",
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/kv_store")
    )]
    kv_store: PathBuf,
    /// Write the chart to this file [default: peers.svg beside run.sh, unless an option makes the run smaller]
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Args {
    fn takes(&self, name: &str) -> bool {
        let lower = name.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|only| lower.starts_with(&only.to_lowercase()))
    }

    fn is_full(&self) -> bool {
        !self.quick && self.tables.is_empty() && self.mixed_rows.is_none() && self.only.is_empty()
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let folder = cleanup::run_folder(&args.dir)?;
    let free_bytes = page_cache::free_disk_bytes(folder.path())?;
    let plans = Plans::of(args, free_bytes)?;
    let report = measure_all(args, &plans, folder.path());
    folder.close().with_context(|| format!("{}: cannot remove the run's folder", args.dir.display()))?;

    let default_svg = args.is_full().then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.svg"));
    if let Some(path) = args.svg.clone().or(default_svg) {
        fs::write(&path, chart::svg(&report)).with_context(|| path.display().to_string())?;
    }
    match write!(io::stdout(), "{report}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn measure_all(args: &Args, plans: &Plans, folder: &Path) -> Report {
    let tell = |text: &str| {
        let _ = writeln!(io::stderr(), "{text}");
    };
    let mut report = Report::new();
    let mut engines = Vec::new();
    for engine in engine::all() {
        match engine {
            Ok(engine) if args.takes(engine.name) => engines.push(engine),
            Err(left_out) if args.takes(left_out.name) => report.left_out.push(left_out),
            _ => {}
        }
    }
    let tables = if engines.is_empty() { &[][..] } else { &plans.tables };
    for plan in tables {
        report.tables.push(Table::measure(*plan, &engines, folder, &tell));
    }
    for plan in &plans.servers {
        let lines = server::measure(*plan, &|name| args.takes(name), &args.kv_store, folder, &tell);
        if !lines.is_empty() {
            report.servers.push((*plan, lines));
        }
        if args.takes("resp") {
            report.comparisons.push((*plan, resp::measure(*plan, &args.kv_store, folder, &tell)));
        }
    }
    report
}
