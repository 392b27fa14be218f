//! Direct mode: lookups in the file that a server has handed over, and what a
//! hundred processes that make them share.
//!
//! Canonical load: 100,000 rows with values of 26 bytes, keys drawn at random, seed
//! 1; `get_many_with` has 256 keys at a time, and every value is copied into one
//! buffer. A sample is 102,400 lookups. The processes ask for one key every
//! two milliseconds while the file is replaced; what they see is the time from the
//! server's word that it serves another generation to the first value of that.

mod support;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::{Random, VALUE_LEN_MIN_BYTES, is_test, push_value, warn_if_slow};
use zero_kv::bake::{Options, bake_csv};
use zero_kv::client::{Client, Direct};
use zero_kv::server::{Config, Server};
use zero_kv::store::{Memory, OpenOptions};

const BATCH_KEYS: usize = 256;
/// How often a process looks up that does nothing else.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Begins what a process of this bench that only looks up is told.
const READER: &str = "ZERO_KV_BENCH_READER";
/// A key that is in every generation, with a value that names it.
const MARK: u64 = 0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(socket) = std::env::var(READER) {
        return reader(Path::new(&socket));
    }
    warn_if_slow();
    let folder = tempfile::tempdir()?;
    for memory in [Memory::Map, Memory::Sealed] {
        let place = Place { db: folder.path().join("storage.db"), socket: folder.path().join("s.sock"), rows: rows() };
        place.bake(1)?;
        let open = OpenOptions { warm: true, ..OpenOptions::default() };
        let config = Config { memory, open, socket: place.socket.clone(), ..Config::default() };
        let server = Server::bind(&place.db, &config)?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }));
        println!("{memory:?}");
        lookups(&place)?;
        processes(&place)?;
        drop(stop);
        serving.join().expect("a server that ends")?;
    }
    Ok(())
}

fn rows() -> u64 {
    if is_test() { 1000 } else { 100_000 }
}

/// Where a server is, and what it serves.
struct Place {
    db: PathBuf,
    socket: PathBuf,
    rows: u64,
}

impl Place {
    fn bake(&self, generation: u64) -> Result<(), Box<dyn std::error::Error>> {
        let mut csv = format!("{MARK},{generation}\n").into_bytes();
        (1..=self.rows).for_each(|key| support::push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        bake_csv(&csv[..], &self.db, &Options::default(), &mut |_| ())?;
        Ok(())
    }

    fn open(&self) -> Result<Direct, zero_kv::client::ClientError> {
        Client::connect(&self.socket)?.direct()
    }
}

fn lookups(place: &Place) -> Result<(), Box<dyn std::error::Error>> {
    let direct = place.open()?;
    let mut random = Random(1);
    let keys: Vec<u64> = (0..400 * BATCH_KEYS).map(|_| 1 + random.below(place.rows)).collect();
    let mut expected = Vec::new();
    for key in &keys {
        expected.clear();
        push_value(&mut expected, *key, VALUE_LEN_MIN_BYTES);
        assert_eq!(direct.get(*key)?.as_deref(), Some(&expected[..]), "key {key}");
    }
    let (mut buffer, mut total_len_bytes) = (vec![0; VALUE_LEN_MIN_BYTES * BATCH_KEYS], 0);
    let mut copy = |at: usize, value: Option<&[u8]>| {
        let value = value.expect("a key of the table");
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
    let table = direct.snapshot();
    report("the same, in one snapshot", keys.len(), || {
        keys.iter().try_for_each(|key| table.get_with(*key, |value| copy(0, value)))
    })?;
    report("one at a time, each in a Vec", keys.len(), || {
        keys.iter().try_for_each(|key| direct.get(*key).map(|value| drop(std::hint::black_box(value))))
    })?;
    assert!(total_len_bytes > 0);
    Ok(())
}

/// Prints the least, the median and the most of what a lookup took.
fn report<E>(what: &str, lookups: usize, mut run: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let mut samples_ns = Vec::new();
    for _ in 0..if is_test() { 1 } else { 51 } {
        let started = Instant::now();
        run()?;
        samples_ns.push(started.elapsed().as_nanos() as f64 / lookups as f64);
    }
    samples_ns.sort_by(f64::total_cmp);
    let (least, median, most) = (samples_ns[0], samples_ns[samples_ns.len() / 2], samples_ns[samples_ns.len() - 1]);
    println!("  {what:<30} {median:>6.1} ns ({least:.1} to {most:.1}), {:.0} million a second", 1e3 / median);
    Ok(())
}

/// Has many processes look up while the file is replaced.
fn processes(place: &Place) -> Result<(), Box<dyn std::error::Error>> {
    let (count, swaps) = if is_test() { (3, 2) } else { (100, 5) };
    let direct = place.open()?;
    let mut readers: Vec<Reader> = (0..count).map(|_| Reader::start(&place.socket)).collect::<io::Result<_>>()?;
    readers.iter_mut().try_for_each(|reader| reader.line().map(drop))?;
    let pss_bytes: u64 = readers.iter().map(|reader| memory_bytes(reader, "Pss:")).sum();
    let rss_bytes: u64 = readers.iter().map(|reader| memory_bytes(reader, "Rss:")).sum();
    let table_len_bytes = direct.snapshot().file_len_bytes();
    println!(
        "  {count} processes, table of {:.1} MiB: of its mapping {:.2} MiB resident in each, {:.2} MiB in proportion",
        mib(table_len_bytes),
        mib(rss_bytes) / f64::from(count),
        mib(pss_bytes) / f64::from(count),
    );
    for generation in 2..2 + swaps {
        place.bake(generation)?;
        let before = direct.snapshot();
        while before.is_current() {
            thread::sleep(Duration::from_micros(100));
        }
        let said_us = now_us();
        let mut seen_us = Vec::new();
        for reader in &mut readers {
            let line = reader.line()?;
            let (found, at_us) = line.trim().split_once(' ').ok_or("a line of two numbers")?;
            assert_eq!(found.parse::<u64>()?, generation);
            seen_us.push(at_us.parse::<u64>()?.saturating_sub(said_us));
        }
        seen_us.sort_unstable();
        let (median, last) = (seen_us[seen_us.len() / 2], seen_us[seen_us.len() - 1]);
        println!("  swap {generation}: seen after {:.1} ms by half, {:.1} ms by all", ms(median), ms(last));
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
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros() as u64
}

/// A process that looks up. It ends when this is dropped.
struct Reader {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Reader {
    fn start(socket: &Path) -> io::Result<Reader> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(READER, socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Ok(Reader { child, said })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.said.read_line(&mut line)? {
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

/// What a process has of the table's mappings.
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

/// Looks up all keys once, and then one now and then, until it is killed.
fn reader(socket: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let direct = Client::connect(socket)?.direct()?;
    let keys: Vec<u64> = (0..rows()).collect();
    let mut found = 0;
    direct.get_many_with(&keys, |_, value| found += usize::from(value.is_some()))?;
    assert_eq!(found, keys.len());
    let mut said = io::stdout();
    writeln!(said, "ready")?;
    let mut generation = 1;
    loop {
        thread::sleep(LOOK_EVERY);
        let now = direct.get_with(MARK, |value| number(value.unwrap_or_default()))?;
        if now != Some(generation) {
            generation = now.ok_or("a value that is a number")?;
            writeln!(said, "{generation} {}", now_us())?;
        }
    }
}

fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}
