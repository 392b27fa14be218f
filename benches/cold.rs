//! Lookups in a table that is larger than the server's memory.
//!
//! Canonical load: 60 million rows with values of 100 bytes (7.5 GB), random keys. The bench evicts the file
//! from the page cache and starts `kv_store` with default options in a memory control group of 2 GiB. Then 64 clients
//! with 16 requests in flight look random keys up, with Gets, GETs of Redis, and Floors, and so do 16 clients with one
//! Get in flight. Next, clients with up to 4096 requests in flight look random keys up, while one client looks up a few
//! keys that are in memory, one at a time. For comparison, threads read random blocks of 4 KiB from the device (O_DIRECT) before each measurement.
//!
//! `cargo bench --bench cold -- --db FILE` keeps the table in FILE, and bakes it if FILE does not exist. The bench
//! needs root, for the control group; without root, the server's memory is not limited, and the bench says so.
//! `--rows`, `--memory-mib`, `--seconds`, and `--server` (another binary of `kv_store`) change the load.

mod support;

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::event::epoll;
use rustix::fs::{Advice, OFlags, fadvise};
use support::{is_test, warn_if_slow};
use zero_kv::Key;
use zero_kv::bake::{Options, bake_csv};
use zero_kv::client::Client;
use zero_kv::format::record::value_offset_bytes;
use zero_kv::protocol::native::{Op, PAGE_HEADER_LEN_BYTES, RESPONSE_HEADER_LEN_BYTES, Request};
use zerocopy::IntoBytes;

const VALUE_LEN_BYTES: usize = 100;
const RECORD_ALIGN_BYTES: usize = 8;
/// The maximum time from the start of the server to its first accepted connection.
const START_MAX: Duration = Duration::from_secs(60);
const BLOCK_LEN_BYTES: usize = 4096;
/// The number of keys that the hot client looks up.
const HOT_KEYS: u64 = 64;

/// The command line.
struct Args {
    db: Option<PathBuf>,
    server: PathBuf,
    rows: u64,
    memory_bytes: u64,
    measured: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    warn_if_slow();
    let args = Args::parse()?;
    let folder = tempfile::tempdir()?;
    let db = args.db.clone().unwrap_or_else(|| folder.path().join("cold.db"));
    if !db.exists() {
        println!("baking {} rows", args.rows);
        let rows = CsvRows { next_key: 0, rows: args.rows, line: Vec::new(), sent_bytes: 0 };
        bake_csv(rows, &db, &Options::default(), &mut |_| ())?;
    }
    println!("{} bytes, {} rows", fs::metadata(&db)?.len(), args.rows);
    let loads = [(Lookup::Get, 64, 16), (Lookup::RedisGet, 64, 16), (Lookup::Floor, 64, 16), (Lookup::Get, 16, 1)];
    for (lookup, clients, depth) in loads {
        let device = device_rate(&db, clients.min(64), args.measured)?;
        evict(&db)?;
        let server = Server::start(&args, &db, folder.path())?;
        let before = server.read_bytes();
        let cold = server.load(&args, lookup, clients, depth, &AtomicBool::new(false))?;
        let read_bytes = (server.read_bytes() - before) / cold.lookups.max(1);
        println!(
            "{lookup:?}, {clients} clients x {depth}: {:.0} lookups/s, {read_bytes} bytes read per lookup; device {device:.0} \
             reads/s; ratio {:.2}",
            cold.per_second,
            cold.per_second / device
        );
    }
    evict(&db)?;
    let server = Server::start(&args, &db, folder.path())?;
    println!("first answer {:.0} ms after the start of the server", server.started.as_secs_f64() * 1e3);
    hot_beside_cold(&args, &server, Lookup::Get, 0, 0)?;
    for lookup in [Lookup::Get, Lookup::RedisGet, Lookup::Floor] {
        for (clients, depth) in [(16, 256), (1, 4096)] {
            hot_beside_cold(&args, &server, lookup, clients, depth)?;
        }
    }
    Ok(())
}

/// How a client looks keys up.
#[derive(Clone, Copy, Debug)]
enum Lookup {
    Get,
    RedisGet,
    Floor,
}

impl Lookup {
    fn push_request(self, key: u64, requests: &mut Vec<u8>) {
        match self {
            Lookup::Get => requests.extend_from_slice(Request::new(Op::Get, key).as_bytes()),
            Lookup::Floor => requests.extend_from_slice(Request::new(Op::Floor, key).as_bytes()),
            Lookup::RedisGet => {
                let text = key.to_string();
                requests.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{text}\r\n", text.len()).as_bytes());
            }
        }
    }

    /// Returns the number of bytes of a response before and after the value.
    fn frame_len_bytes(self) -> (usize, usize) {
        let record_head_len_bytes = value_offset_bytes(Key::U64(0));
        match self {
            Lookup::Get => (RESPONSE_HEADER_LEN_BYTES, 0),
            Lookup::RedisGet => (format!("${VALUE_LEN_BYTES}\r\n").len(), b"\r\n".len()),
            Lookup::Floor => (
                RESPONSE_HEADER_LEN_BYTES + PAGE_HEADER_LEN_BYTES + record_head_len_bytes,
                (record_head_len_bytes + VALUE_LEN_BYTES).next_multiple_of(RECORD_ALIGN_BYTES)
                    - (record_head_len_bytes + VALUE_LEN_BYTES),
            ),
        }
    }

    fn response_len_bytes(self) -> usize {
        let (before, after) = self.frame_len_bytes();
        before + VALUE_LEN_BYTES + after
    }
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
                // Cargo passes these.
                "--bench" | "--test" => {}
                _ => return Err(format!("{name}: not an option of this bench").into()),
            }
        }
        Ok(args)
    }
}

/// Appends the value of a key.
fn push_value(value: &mut Vec<u8>, key: u64) {
    let mut state = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    value.extend((0..VALUE_LEN_BYTES).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((state >> 59) % 26) as u8
    }));
}

/// The rows of the table as CSV, with the keys from 0.
struct CsvRows {
    next_key: u64,
    rows: u64,
    line: Vec<u8>,
    sent_bytes: usize,
}

impl Read for CsvRows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.sent_bytes == self.line.len() {
            self.line.clear();
            self.sent_bytes = 0;
            for key in self.next_key..self.rows.min(self.next_key + 1024) {
                write!(self.line, "{key},")?;
                push_value(&mut self.line, key);
                self.line.push(b'\n');
            }
            self.next_key += 1024;
        }
        let count = (&self.line[self.sent_bytes..]).read(buffer)?;
        self.sent_bytes += count;
        Ok(count)
    }
}

fn evict(db: &Path) -> io::Result<()> {
    let file = File::open(db)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Returns the number of random blocks that threads read per second from the device. If the file system does not
/// support O_DIRECT, the result is the rate of the page cache.
fn device_rate(db: &Path, threads: usize, measured: Duration) -> io::Result<f64> {
    let direct = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(db);
    let file = direct.or_else(|_| File::open(db))?;
    let blocks = (file.metadata()?.len() as usize / BLOCK_LEN_BYTES).max(1);
    let (is_over, reads, started) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (file, is_over, reads) = (&file, &is_over, &reads);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(thread as u64);
                let mut buffer = vec![0; 2 * BLOCK_LEN_BYTES];
                let start = buffer.as_ptr().align_offset(BLOCK_LEN_BYTES);
                while !is_over.load(Ordering::Relaxed) {
                    let at = random.random_range(0..blocks) * BLOCK_LEN_BYTES;
                    file.read_at(&mut buffer[start..start + BLOCK_LEN_BYTES], at as u64).expect("a block of the file");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(measured);
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(reads.into_inner() as f64 / started.elapsed().as_secs_f64())
}

/// A control group that limits the memory of the processes in it. Removed when dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group in version 1 or version 2 of control groups.
    fn new(limit_bytes: u64) -> io::Result<MemoryGroup> {
        let name = format!("zero-kv-cold-{}", std::process::id());
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let (folder, limit) = match version_1.exists() {
            true => (version_1.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        if !folder.exists() {
            fs::create_dir(&folder)?;
        }
        let group = MemoryGroup(folder);
        fs::write(group.0.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A running `kv_store`, in its control group.
struct Server {
    process: Child,
    socket: PathBuf,
    /// The time from the start of the process to the first answer.
    started: Duration,
    _group: Option<MemoryGroup>,
}

/// The result of a load.
struct Load {
    lookups: u64,
    per_second: f64,
}

impl Server {
    fn start(args: &Args, db: &Path, folder: &Path) -> Result<Server, Box<dyn Error>> {
        let group = MemoryGroup::new(args.memory_bytes)
            .inspect_err(|error| println!("the server's memory is not limited: {error}: run the bench as root"))
            .ok();
        let socket = folder.join("s.sock");
        let enter = group.as_ref().map(|group| format!("echo $$ > {} && ", group.0.join("cgroup.procs").display()));
        let shell = format!("{}exec \"$@\"", enter.unwrap_or_default());
        let began = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", &shell, "sh"]).arg(&args.server);
        let process = command.arg("--db").arg(db).arg("--socket").arg(&socket).stderr(Stdio::null()).spawn()?;
        let mut server = Server { process, socket, started: Duration::ZERO, _group: group };
        let mut client = loop {
            match Client::connect(&server.socket) {
                Ok(client) => break client,
                Err(error) if server.process.try_wait()?.is_some() => return Err(error.into()),
                Err(error) if began.elapsed() > START_MAX => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut expected = Vec::new();
        push_value(&mut expected, args.rows / 2);
        assert_eq!(client.get(args.rows / 2)?, Some(expected));
        server.started = began.elapsed();
        Ok(server)
    }

    /// Returns the number of bytes that the server has read from disks.
    fn read_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", self.process.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    /// Looks random keys up, with `clients` connections and `depth` requests in flight on each, until the measured time
    /// or `is_over`. Checks every value.
    fn load(
        &self,
        args: &Args,
        lookup: Lookup,
        clients: usize,
        depth: usize,
        is_over: &AtomicBool,
    ) -> Result<Load, Box<dyn Error>> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Each load has keys of its own, so it finds few of them in memory.
        let mut random = SmallRng::seed_from_u64((lookup as usize * 1_000_000 + clients * 10_000 + depth) as u64);
        let mut pipelines = Vec::new();
        for number in 0..clients {
            let mut pipeline = Pipeline::connect(&self.socket, lookup, depth)?;
            pipeline.send(args.rows, &mut random)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &pipeline.stream, data, epoll::EventFlags::IN)?;
            pipelines.push(pipeline);
        }
        let (mut lookups, began) = (0, Instant::now());
        let mut events = Vec::with_capacity(clients);
        while began.elapsed() < args.measured && !is_over.load(Ordering::Relaxed) {
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))?;
            for event in events.drain(..) {
                let pipeline = &mut pipelines[event.data.u64() as usize];
                if pipeline.receive()? {
                    lookups += depth as u64;
                    pipeline.send(args.rows, &mut random)?;
                }
            }
        }
        Ok(Load { lookups, per_second: lookups as f64 / began.elapsed().as_secs_f64() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}

/// A connection that sends its next requests when all responses have arrived.
struct Pipeline {
    stream: UnixStream,
    lookup: Lookup,
    depth: usize,
    keys: Vec<u64>,
    requests: Vec<u8>,
    responses: Vec<u8>,
    received_bytes: usize,
    expected: Vec<u8>,
}

impl Pipeline {
    fn connect(socket: &Path, lookup: Lookup, depth: usize) -> io::Result<Pipeline> {
        Ok(Pipeline {
            stream: UnixStream::connect(socket)?,
            lookup,
            depth,
            keys: Vec::new(),
            requests: Vec::new(),
            responses: vec![0; depth * lookup.response_len_bytes()],
            received_bytes: 0,
            expected: Vec::new(),
        })
    }

    fn send(&mut self, keys_end: u64, random: &mut SmallRng) -> io::Result<()> {
        self.keys.clear();
        self.keys.extend((0..self.depth).map(|_| random.random_range(0..keys_end)));
        self.requests.clear();
        self.keys.iter().for_each(|key| self.lookup.push_request(*key, &mut self.requests));
        self.received_bytes = 0;
        self.stream.write_all(&self.requests)
    }

    /// Receives bytes. Returns whether all responses have arrived, and are correct.
    fn receive(&mut self) -> io::Result<bool> {
        let count = self.stream.read(&mut self.responses[self.received_bytes..])?;
        assert!(count > 0, "the server closed a connection");
        self.received_bytes += count;
        if self.received_bytes < self.responses.len() {
            return Ok(false);
        }
        let (value_at_bytes, _) = self.lookup.frame_len_bytes();
        for (key, response) in self.keys.iter().zip(self.responses.chunks(self.lookup.response_len_bytes())) {
            self.expected.clear();
            push_value(&mut self.expected, *key);
            assert!(
                response[value_at_bytes..value_at_bytes + VALUE_LEN_BYTES] == self.expected,
                "key {key}: wrong value"
            );
        }
        Ok(true)
    }
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
    println!(
        "{lookup:?}, hot client beside {clients} cold clients x {depth} ({:.0} lookups/s): p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} \
         us, max {:.0} us",
        cold.map_or(0.0, |cold| cold.per_second),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0)
    );
    Ok(())
}
