//! Lookups in a table that is larger than the memory of the process.
//!
//! Canonical load: 60 million rows with values of 100 bytes (7.5 GB), random keys. The bench evicts the file from the
//! page cache and starts `kv_store` with default options in a memory control group of 2 GiB. Then 64 clients with 16
//! requests in flight look random keys up, with Gets, GETs of Redis, and Floors, and so do 16 clients with one Get in
//! flight. In the next loads, a process in such a group looks up batches of 256 keys with the library and in direct mode.
//! Finally, clients with up to 4096 requests in flight look random keys up, while one client looks up a few keys that are
//! in memory, one at a time. For comparison, threads read random blocks of 4 KiB from the device (O_DIRECT) before each
//! measurement. The server has a watchdog with a period of 2 s; the bench prints the longest time between two of the
//! notifications of each server.
//!
//! `cargo bench --bench cold -- --db FILE` keeps the table in FILE, and bakes it if FILE does not exist. The bench
//! needs root, for the control group; without root, the process's memory is not limited, and the bench says so. `--only
//! TEXT` runs the loads whose name contains TEXT. `--rows`, `--memory-mib`, `--seconds`, and `--server` (another binary
//! of `kv_store`) change the loads.

mod cold_loads;
mod support;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cold_loads::device::{device_rate, evict};
use cold_loads::library::{self, Mode};
use cold_loads::pipeline::{Lookup, Pipeline};
use cold_loads::server::Server;
use cold_loads::table::CsvRows;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{is_test, warn_if_slow};
use zero_kv::bake::{Options, bake_csv};

/// The number of keys that the hot client looks up.
const HOT_KEYS: u64 = 64;

/// The command line.
pub(crate) struct Args {
    db: Option<PathBuf>,
    server: PathBuf,
    rows: u64,
    memory_bytes: u64,
    measured: Duration,
    /// A part of the names of the loads that run.
    only: String,
}

impl Args {
    fn parse() -> Result<Args, Box<dyn Error>> {
        let (rows, measured) = if is_test() { (10_000, 0.05) } else { (60_000_000, 5.0) };
        let mut args = Args {
            db: None,
            server: env!("CARGO_BIN_EXE_kv_store").into(),
            rows,
            memory_bytes: 2 << 30,
            measured: Duration::from_secs_f64(measured),
            only: String::new(),
        };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{name}: found no value, expected one"));
            match name.as_str() {
                "--db" => args.db = Some(value()?.into()),
                "--server" => args.server = value()?.into(),
                "--rows" => args.rows = value()?.parse()?,
                "--memory-mib" => args.memory_bytes = value()?.parse::<u64>()? << 20,
                "--seconds" => args.measured = Duration::from_secs_f64(value()?.parse()?),
                "--only" => args.only = value()?,
                // Cargo passes these.
                "--bench" | "--test" => {}
                _ => return Err(format!("{name}: not an option of this bench").into()),
            }
        }
        Ok(args)
    }

    fn runs(&self, name: &str) -> bool {
        name.contains(&self.only)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if library::is_child() {
        return library::run_child();
    }
    warn_if_slow();
    let args = Args::parse()?;
    let folder = tempfile::tempdir()?;
    let db = args.db.clone().unwrap_or_else(|| folder.path().join("cold.db"));
    if !db.exists() {
        println!("baking {} rows", args.rows);
        bake_csv(CsvRows::new(args.rows), &db, &Options::default())?;
    }
    println!("{} bytes, {} rows", fs::metadata(&db)?.len(), args.rows);
    println!(
        "\n<!-- figures: cold-server -->\n\n\
         | lookups | clients | in flight | lookups/s | device, reads/s | ratio | bytes read per lookup |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    let loads = [(Lookup::Get, 64, 16), (Lookup::RedisGet, 64, 16), (Lookup::Floor, 64, 16), (Lookup::Get, 16, 1)];
    let mut notifications = Vec::new();
    for (lookup, clients, depth) in loads {
        notifications.extend(rate_of_server(&args, &db, folder.path(), lookup, clients, depth)?);
    }
    println!("\n{}", notifications.join("\n"));
    println!(
        "\n<!-- figures: cold-library -->\n\n\
         | lookups | threads | library, lookups/s | ratio to the device | direct mode, lookups/s | ratio |\n\
         |---|---:|---:|---:|---:|---:|"
    );
    for (operation, threads) in [("get_many", 1), ("get_many", 16), ("get", 16), ("floor_many", 1)] {
        rates_of_process(&args, &db, folder.path(), operation, threads)?;
    }
    hot_clients(&args, &db, folder.path())
}

/// Returns a rate in thousands.
fn thousands(rate: f64) -> String {
    format!("{:.1} k", rate / 1e3)
}

/// Returns the random numbers of a thread that reads blocks.
fn random_blocks(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = SmallRng::seed_from_u64(seed);
    move |end| random.random_range(0..end)
}

/// Measures the rate of lookups of cold clients of a server, beside the rate of the device. Returns the longest time between
/// notifications of the server, if the load runs.
fn rate_of_server(
    args: &Args,
    db: &Path,
    folder: &Path,
    lookup: Lookup,
    clients: usize,
    depth: usize,
) -> Result<Option<String>, Box<dyn Error>> {
    let name = format!("{lookup:?}, {clients} clients x {depth}");
    if !args.runs(&name) {
        return Ok(None);
    }
    let device = device_rate(db, clients, args.measured, random_blocks)?;
    evict(db)?;
    let server = Server::start(args, db, folder)?;
    let before = server.read_bytes();
    let cold = server.load(args, lookup, clients, depth, &AtomicBool::new(false))?;
    let read_bytes = (server.read_bytes() - before) / cold.lookups.max(1);
    println!(
        "| {} | {clients} | {depth} | {} | {} | {:.2} | {} |",
        lookup.name(),
        thousands(cold.per_second),
        thousands(device),
        cold.per_second / device,
        thousands(read_bytes as f64)
    );
    Ok(Some(format!("{name}: {}", server.watchdog())))
}

/// Measures the rates of lookups of processes without requests, in both modes, beside the rate of the device.
fn rates_of_process(
    args: &Args,
    db: &Path,
    folder: &Path,
    operation: &str,
    threads: usize,
) -> Result<(), Box<dyn Error>> {
    if !args.runs(&format!("Library, Direct, {operation}, threads: {threads}")) {
        return Ok(());
    }
    let mut cells = Vec::new();
    for mode in [Mode::Library, Mode::Direct] {
        let device = device_rate(db, 64, args.measured, random_blocks)?;
        evict(db)?;
        let rate = library::rate(args, db, folder, mode, operation, threads)?;
        cells.extend([thousands(rate), format!("{:.2}", rate / device)]);
    }
    let keys = if operation.ends_with("_many") { " of 256 keys" } else { "" };
    println!("| `{operation}`{keys} | {threads} | {} |", cells.join(" | "));
    Ok(())
}

/// Measures the latency of a hot client, without and with cold clients.
fn hot_clients(args: &Args, db: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let loads = [Lookup::Get, Lookup::RedisGet, Lookup::Floor].map(|lookup| [(lookup, 16, 256), (lookup, 1, 4096)]);
    let loads = [(Lookup::Get, 0, 0)].into_iter().chain(loads.into_iter().flatten());
    let loads: Vec<_> = loads.map(|load| (load, name_of_hot(load))).filter(|(_, name)| args.runs(name)).collect();
    if loads.is_empty() {
        return Ok(());
    }
    evict(db)?;
    let server = Server::start(args, db, folder)?;
    println!(
        "\n<!-- figures: cold-hot-client -->\n\n\
         | lookups | cold clients | in flight | their lookups/s | hot p50 | p99 | p99.9 |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    for ((lookup, clients, depth), _) in loads {
        hot_beside_cold(args, &server, lookup, clients, depth)?;
    }
    let started_ms = server.started.as_secs_f64() * 1e3;
    println!("\nfirst answer {started_ms:.0} ms after the start of the server\n{}", server.watchdog());
    Ok(())
}

fn name_of_hot((lookup, clients, depth): (Lookup, usize, usize)) -> String {
    format!("{lookup:?}, hot client beside {clients} cold clients x {depth}")
}

/// Measures the latency of a client whose keys are in memory, beside clients whose keys are not.
fn hot_beside_cold(
    args: &Args,
    server: &Server,
    lookup: Lookup,
    clients: usize,
    depth: usize,
) -> Result<(), Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    let (mut latencies_us, cold) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let load = (clients > 0).then(|| {
            let is_over = &is_over;
            scope.spawn(move || server.load(args, lookup, clients, depth, is_over).map_err(|error| error.to_string()))
        });
        let mut hot = Pipeline::connect(&server.socket, lookup, 1)?;
        let mut random = SmallRng::seed_from_u64(2);
        let (mut latencies_us, began) = (Vec::new(), Instant::now());
        while began.elapsed() < args.measured {
            let sent = Instant::now();
            hot.send(HOT_KEYS.min(args.rows), &mut random)?;
            while !hot.receive()? {}
            latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        is_over.store(true, Ordering::Relaxed);
        let cold = load.map(|load| load.join().expect("the load")).transpose()?;
        Ok((latencies_us, cold))
    })?;
    latencies_us.sort_by(f64::total_cmp);
    let quantile = |share: f64| latencies_us[((latencies_us.len() - 1) as f64 * share) as usize];
    let [depth, rate] = cold.map_or_else(Default::default, |cold| [depth.to_string(), thousands(cold.per_second)]);
    let [p50_us, p99_us, p999_us] = [0.5, 0.99, 0.999].map(quantile);
    let name = lookup.name();
    println!("| {name} | {clients} | {depth} | {rate} | {p50_us:.0} µs | {p99_us:.0} µs | {p999_us:.0} µs |");
    Ok(())
}
