//! Direct mode: lookups in the mapped file of a server, by one process and by a hundred processes.
//!
//! Canonical load: 100,000 rows with values of 26 bytes, random keys, seed 1. Lookups get 256 keys at a time or one key
//! at a time, and copy every value into one buffer or into a vector of its own. A sample is 102,400 lookups. Each of
//! the hundred processes looks up one key every two milliseconds while the file is replaced. The bench reports the time
//! from the server's notification of a new generation until half of the processes, and until all of them, have read a
//! value of that generation.

mod support;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{VALUE_LEN_MIN_BYTES, is_test, push_value, warn_if_slow};
use zero_kv::Lookup;
use zero_kv::bake::{Options, bake_csv};
use zero_kv::client::{Client, Direct};
use zero_kv::server::{Config, Server};
use zero_kv::store::{Memory, OpenOptions};

const BATCH_KEYS: usize = 256;
/// Interval between the lookups of a reader process.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(2);
/// Time limit for the server's notification of a new generation.
const SWAP_TIMEOUT: Duration = Duration::from_secs(60);
/// Environment variable that makes this program run as a reader process. The variable contains the path of the server's
/// socket.
const READER: &str = "ZERO_KV_BENCH_READER";
/// Key whose value is the number of the generation.
const GENERATION_KEY: u64 = 0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(socket) = std::env::var(READER) {
        return reader(Path::new(&socket));
    }
    warn_if_slow();
    let folder = tempfile::tempdir()?;
    for memory in [Memory::Map, Memory::Sealed] {
        let table =
            ServedTable { db: folder.path().join("storage.db"), socket: folder.path().join("s.sock"), rows: rows() };
        table.bake(1)?;
        let open = OpenOptions { warm: true, ..OpenOptions::default() };
        let config = Config { memory, open, socket: table.socket.clone(), ..Config::default() };
        let server = Server::bind(&table.db, &config)?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }));
        println!("{memory:?}");
        lookups(&table)?;
        processes(&table)?;
        drop(stop);
        serving.join().expect("server thread")?;
    }
    Ok(())
}

fn rows() -> u64 {
    if is_test() { 1000 } else { 100_000 }
}

/// A server's socket and its file.
struct ServedTable {
    db: PathBuf,
    socket: PathBuf,
    rows: u64,
}

impl ServedTable {
    fn bake(&self, generation: u64) -> Result<(), Box<dyn std::error::Error>> {
        let mut csv = format!("{GENERATION_KEY},{generation}\n").into_bytes();
        (1..=self.rows).for_each(|key| support::push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        bake_csv(&csv[..], &self.db, &Options::default())?;
        Ok(())
    }

    fn open(&self) -> Result<Direct, zero_kv::client::ClientError> {
        Client::connect(&self.socket)?.direct()
    }
}

fn lookups(table: &ServedTable) -> Result<(), Box<dyn std::error::Error>> {
    let direct = table.open()?;
    let mut random = SmallRng::seed_from_u64(1);
    let keys: Vec<u64> = (0..400 * BATCH_KEYS).map(|_| 1 + random.random_range(0..table.rows)).collect();
    let mut expected = Vec::new();
    for key in &keys {
        expected.clear();
        push_value(&mut expected, *key, VALUE_LEN_MIN_BYTES);
        assert_eq!(direct.get(*key)?.as_deref(), Some(&expected[..]), "key {key}");
    }
    let (mut buffer, mut total_len_bytes) = (vec![0; VALUE_LEN_MIN_BYTES * BATCH_KEYS], 0);
    let mut copy = |at: usize, value: Option<&[u8]>| {
        let value = value.expect("key of the table");
        let from = at * VALUE_LEN_MIN_BYTES;
        buffer[from..from + VALUE_LEN_MIN_BYTES].copy_from_slice(value);
        total_len_bytes += value.len();
    };
    report("batches of 256, copied", keys.len(), || {
        keys.chunks(BATCH_KEYS).try_for_each(|keys| direct.get_many_with(keys, &mut copy))
    })?;
    report("one at a time, copied", keys.len(), || {
        keys.iter().try_for_each(|key| direct.get_with(*key, |value| copy(0, value)))
    })?;
    let snapshot = direct.snapshot();
    report("one at a time, in one snapshot", keys.len(), || {
        keys.iter().try_for_each(|key| snapshot.get_with(*key, |value| copy(0, value)))
    })?;
    report("one at a time, each in a Vec", keys.len(), || {
        keys.iter().try_for_each(|key| direct.get(*key).map(|value| drop(std::hint::black_box(value))))
    })?;
    assert!(total_len_bytes > 0);
    Ok(())
}

/// Prints the minimum, median, and maximum time per lookup.
fn report<E>(what: &str, lookups: usize, mut run: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let mut samples_ns = Vec::new();
    for _ in 0..if is_test() { 1 } else { 51 } {
        let started = Instant::now();
        run()?;
        samples_ns.push(started.elapsed().as_nanos() as f64 / lookups as f64);
    }
    samples_ns.sort_by(f64::total_cmp);
    let (min, median, max) = (samples_ns[0], samples_ns[samples_ns.len() / 2], samples_ns[samples_ns.len() - 1]);
    println!("  {what:<30} {median:>6.1} ns ({min:.1} to {max:.1}), {:.0} million per second", 1e3 / median);
    Ok(())
}

/// Measures the memory of many reader processes, and the time until each of them reads a new generation.
fn processes(table: &ServedTable) -> Result<(), Box<dyn std::error::Error>> {
    let (count, swaps) = if is_test() { (3, 2) } else { (100, 5) };
    let direct = table.open()?;
    let mut readers: Vec<Reader> = (0..count).map(|_| Reader::start(&table.socket)).collect::<io::Result<_>>()?;
    readers.iter_mut().try_for_each(|reader| reader.line().map(drop))?;
    let pss_bytes: u64 = readers.iter().map(|reader| memory_bytes(reader, "Pss:")).sum();
    let rss_bytes: u64 = readers.iter().map(|reader| memory_bytes(reader, "Rss:")).sum();
    let table_len_bytes = direct.snapshot().file_len_bytes();
    println!(
        "  {count} processes, table of {:.1} MiB: per process {:.2} MiB of the mapping resident, {:.2} MiB proportional",
        mib(table_len_bytes),
        mib(rss_bytes) / f64::from(count),
        mib(pss_bytes) / f64::from(count),
    );
    for generation in 2..2 + swaps {
        table.bake(generation)?;
        let before = direct.snapshot();
        let deadline = Instant::now() + SWAP_TIMEOUT;
        while before.is_current() {
            if Instant::now() > deadline {
                return Err(format!("generation {generation} was not announced within {SWAP_TIMEOUT:?}").into());
            }
            thread::sleep(Duration::from_micros(100));
        }
        let notified_us = now_us();
        let mut visible_us = Vec::new();
        for reader in &mut readers {
            let line = reader.line()?;
            let (found, at_us) = line.trim().split_once(' ').ok_or("expected a line of two numbers")?;
            assert_eq!(found.parse::<u64>()?, generation);
            visible_us.push(at_us.parse::<u64>()?.saturating_sub(notified_us));
        }
        visible_us.sort_unstable();
        let (median, last) = (visible_us[visible_us.len() / 2], visible_us[visible_us.len() - 1]);
        println!(
            "  swap {generation}: visible after {:.1} ms in half of the processes, {:.1} ms in all",
            ms(median),
            ms(last)
        );
        direct.refresh()?;
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_micros() as u64
}

/// A reader process. Dropping the value stops the process.
struct Reader {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Reader {
    fn start(socket: &Path) -> io::Result<Reader> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(READER, socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Reader { child, stdout })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds up a field of `/proc/PID/smaps`, such as `Pss:`, over all mappings of the table in the reader's process.
fn memory_bytes(reader: &Reader, name: &str) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", reader.child.id())).unwrap_or_default();
    let mut is_table = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            is_table = line.contains("storage.db") || line.ends_with("memfd:zero-kv (deleted)");
        } else if is_table && first == name {
            kib += line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    kib << 10
}

/// Runs a reader process. It looks up all keys once, and then one key at intervals, until the process is killed.
fn reader(socket: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let direct = Client::connect(socket)?.direct()?;
    let keys: Vec<u64> = (0..rows()).collect();
    let mut found = 0;
    direct.get_many_with(&keys, |_, value| found += usize::from(value.is_some()))?;
    assert_eq!(found, keys.len());
    let mut stdout = io::stdout();
    writeln!(stdout, "ready")?;
    let mut generation = 1;
    loop {
        thread::sleep(LOOKUP_INTERVAL);
        let now = direct.get_with(GENERATION_KEY, |value| number(value.unwrap_or_default()))?;
        if now != Some(generation) {
            generation = now.ok_or("the value is not a number")?;
            writeln!(stdout, "{generation} {}", now_us())?;
        }
    }
}

fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}
