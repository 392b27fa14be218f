//! Fetches of a published table from a store, and swaps to it.
//!
//! Canonical load: a table of 2 million rows with values of 100 bytes (265 MB), which an HTTP server in this process
//! serves. `kv_store --from` with default options, except for a poll every second, follows the table. Each of three
//! rounds has these parts:
//!
//! 1. A plain GET of the table in another process, to a file that is synced.
//! 2. A new generation, which the node fetches, verifies, and serves on request. Requests for Info every 5 ms show the
//!    stages and the memory of the node.
//! 3. A client that sends 16 Gets for random keys and waits for the responses, first alone, and then while the node
//!    fetches and serves the next generation after its next poll. Every value is checked.
//!
//! All processes share the processors, and the kernel caches all files. `cargo bench --bench publish -- --rows N` changes
//! the table; `--rounds`, `--poll`, `--seconds` (of the client without a fetch), and `--server` (another binary of
//! `kv_store`) change the load.

#[allow(dead_code, reason = "this bench uses one kind of lookups")]
#[path = "cold_loads/pipeline.rs"]
mod pipeline;
mod publish_loads;
mod support;
#[path = "cold_loads/table.rs"]
mod table;

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipeline::{Lookup, Pipeline};
use publish_loads::node::{Node, Swap};
use publish_loads::plain_get;
use publish_loads::report::{Figures, quantile};
use publish_loads::store;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use support::{is_test, warn_if_slow};
use table::{CsvRows, push_value};
use tempfile::TempDir;
use zero_kv::bake::{Cancel, Options, bake_csv};
use zero_kv::client::Client;
use zero_kv::publish::{CommitOptions, Entry, Publication, ShardFile};

/// The number of requests that the client has in flight.
const IN_FLIGHT: usize = 16;
const MIB: f64 = (1 << 20) as f64;

struct Args {
    rows: u64,
    rounds: usize,
    poll: String,
    measured: Duration,
    server: PathBuf,
}

impl Args {
    fn parse() -> Result<Args, Box<dyn Error>> {
        let (rows, rounds, poll, seconds) =
            if is_test() { (5_000, 1, "50ms", 0.05) } else { (2_000_000, 3, "1s", 5.0) };
        let mut args = Args {
            rows,
            rounds,
            poll: poll.to_owned(),
            measured: Duration::from_secs_f64(seconds),
            server: env!("CARGO_BIN_EXE_kv_store").into(),
        };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{name}: found no value, expected one"));
            match name.as_str() {
                "--rows" => args.rows = value()?.parse()?,
                "--rounds" => args.rounds = value()?.parse()?,
                "--poll" => args.poll = value()?,
                "--seconds" => args.measured = Duration::from_secs_f64(value()?.parse()?),
                "--server" => args.server = value()?.into(),
                // Cargo passes these.
                "--bench" | "--test" => {}
                _ => return Err(format!("{name}: not an option of this bench").into()),
            }
        }
        Ok(args)
    }
}

/// A table that is published to a folder, which an HTTP server serves.
struct Table {
    folder: TempDir,
    publication: Publication,
    address: String,
    rows: u64,
    newest: u64,
}

impl Table {
    fn new(rows: u64) -> Result<Table, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let publication = Publication::create(&format!("file://{}/store/users", folder.path().display()))?;
        let address = store::serve(&folder.path().join("store"))?;
        Ok(Table { folder, publication, address, rows, newest: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Uploads the next generation, which has one row more than the preceding one.
    fn upload(&mut self) -> Result<Entry, Box<dyn Error>> {
        let db = self.path("next.db");
        self.newest += 1;
        bake_csv(CsvRows::new(self.rows + self.newest), &db, &Options::default())?;
        let entry = self.publication.upload(&ShardFile::whole(&db), &Cancel::default())?;
        // Otherwise, the system would write these bytes while the next ones are measured.
        rustix::fs::sync();
        Ok(entry)
    }

    fn commit(&self, entry: Entry) -> Result<u64, Box<dyn Error>> {
        Ok(self.publication.commit(vec![entry], &CommitOptions::default())?.number)
    }

    /// Checks that the node serves the newest generation.
    fn check(&self, node: &Node) -> Result<(), Box<dyn Error>> {
        let (mut client, mut value) = (Client::connect(&node.socket)?, Vec::new());
        let last_key = self.rows + self.newest - 1;
        push_value(&mut value, last_key);
        assert_eq!(client.get(last_key)?, Some(value));
        assert_eq!(client.count(..)?, last_key + 1);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if plain_get::is_child() {
        return plain_get::run_child();
    }
    warn_if_slow();
    let args = Args::parse()?;
    let mut table = Table::new(args.rows)?;
    let entry = table.upload()?;
    let len_bytes = entry.bytes;
    table.commit(entry)?;
    let url = format!("http://{}/users", table.address);
    let node = Node::start(&args.server, &url, &args.poll, table.folder.path())?;
    table.check(&node)?;
    let mut figures = Figures::default();
    for _ in 0..args.rounds {
        fetch_alone(&mut table, &node, &mut figures)?;
        fetch_beside_client(&args, &mut table, &node, &mut figures)?;
    }
    println!("{} rows, {len_bytes} bytes", args.rows);
    figures.print();
    Ok(())
}

/// Measures a plain GET, and a fetch of the same object by the node, whose clients are idle.
fn fetch_alone(table: &mut Table, node: &Node, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let entry = table.upload()?;
    let (object, output, len_bytes) = (format!("users/{}", entry.object), table.path("plain"), entry.bytes);
    recycle_pages(table, len_bytes)?;
    let plain = plain_get::measure(&table.address, &object, &output)?;
    recycle_pages(table, len_bytes)?;
    let swap = node.observe(len_bytes, true, || table.commit(entry))?;
    table.check(node)?;
    assert!(same_bytes(&output, &table.path("store").join(&object))?, "the plain GET returned other bytes");
    fs::remove_file(&output)?;
    let (mib, gb) = (len_bytes as f64 / MIB, len_bytes as f64 / 1e9);
    let synced_seconds = swap.fetch_seconds + swap.verify_seconds;
    figures.add("plain GET to a synced file", " MiB/s", mib / plain.seconds);
    figures.add("fetch", " MiB/s", mib / swap.fetch_seconds);
    figures.add("fetch, sync, and verification", " MiB/s", mib / synced_seconds);
    figures.add("rate of the fetch / rate of the plain GET of the same round", "", plain.seconds / swap.fetch_seconds);
    figures.add("rate of fetch, sync, and verification / rate of the plain GET", "", plain.seconds / synced_seconds);
    figures.add("processor time of the plain GET", " s/GB", plain.cpu_seconds / gb);
    figures.add("processor time of the fetch", " s/GB", swap.fetch_cpu_seconds / gb);
    figures.add("processor time of fetch, sync, and verification", " s/GB", swap.verify_cpu_seconds / gb);
    add_stages("after a requested reload", &swap, figures);
    let mib = |bytes: u64| bytes as f64 / MIB;
    figures.add("anonymous memory before the commit", " MiB", mib(swap.before.anonymous_bytes));
    figures.add("greatest anonymous memory", " MiB", mib(swap.peak.anonymous_bytes));
    figures.add("resident memory before the commit, with mapped files", " MiB", mib(swap.before.resident_bytes));
    figures.add("greatest resident memory, with mapped files", " MiB", mib(swap.peak.resident_bytes));
    Ok(())
}

fn add_stages(load: &str, swap: &Swap, figures: &mut Figures) {
    for (stage, seconds) in [
        ("from the commit until the generation is served", swap.total_seconds()),
        ("wait for the poll", swap.poll_seconds),
        ("fetch", swap.fetch_seconds),
        ("sync and verification", swap.verify_seconds),
        ("opening, reading into memory, and swap", swap.swap_seconds),
    ] {
        figures.add(&format!("{load}: {stage}"), " s", seconds);
    }
}

/// Writes a file and deletes it, so that the next file gets pages that were written to a moment ago. On a virtual
/// machine, the first write to a page takes much longer, because the host must allocate the page.
fn recycle_pages(table: &Table, len_bytes: u64) -> Result<(), Box<dyn Error>> {
    let path = table.path("recycled");
    let (mut file, block) = (File::create(&path)?, vec![1; 1 << 20]);
    for _ in 0..3 * len_bytes / block.len() as u64 {
        file.write_all(&block)?;
    }
    Ok(fs::remove_file(path)?)
}

/// Measures the latency of a client, alone and while the node fetches and serves a generation.
fn fetch_beside_client(
    args: &Args,
    table: &mut Table,
    node: &Node,
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let entry = table.upload()?;
    let len_bytes = entry.bytes;
    let (rows, socket) = (table.rows, node.socket.as_path());
    let mut alone_us = latencies_us(socket, rows, Some(args.measured), &AtomicBool::new(false))?;
    recycle_pages(table, len_bytes)?;
    let is_over = AtomicBool::new(false);
    let (swap, beside_us) = thread::scope(|scope| {
        let client = scope.spawn(|| latencies_us(socket, rows, None, &is_over).map_err(|error| error.to_string()));
        let swap = node.observe(len_bytes, false, || table.commit(entry));
        is_over.store(true, Ordering::Relaxed);
        (swap, client.join().expect("a client that does not panic"))
    });
    let (swap, mut beside_us) = (swap?, beside_us?);
    table.check(node)?;
    let [p99_alone_us, p99_beside_us] = [&mut alone_us, &mut beside_us].map(|figures| quantile(figures, 0.99));
    figures.add("16 Gets of a client, p99, without a fetch", " µs", p99_alone_us);
    figures.add("16 Gets of a client, p99, from the commit until the generation is served", " µs", p99_beside_us);
    figures.add("p99 with / without a fetch", "", p99_beside_us / p99_alone_us);
    figures.add("16 Gets of a client, greatest, without a fetch", " µs", quantile(&mut alone_us, 1.0));
    figures.add("16 Gets of a client, greatest, with a fetch", " µs", quantile(&mut beside_us, 1.0));
    add_stages("beside the client", &swap, figures);
    Ok(())
}

/// Looks random keys up, and returns the latency of each pipeline. Checks all values.
fn latencies_us(
    socket: &Path,
    rows: u64,
    measured: Option<Duration>,
    is_over: &AtomicBool,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut pipeline = Pipeline::connect(socket, Lookup::Get, IN_FLIGHT)?;
    let (mut random, mut latencies_us, began) = (SmallRng::seed_from_u64(1), Vec::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) && measured.is_none_or(|measured| began.elapsed() < measured) {
        let sent = Instant::now();
        pipeline.send(rows, &mut random)?;
        while !pipeline.receive()? {}
        latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies_us)
}

fn same_bytes(left: &Path, right: &Path) -> Result<bool, Box<dyn Error>> {
    Ok(fs::read(left)? == fs::read(right)?)
}
