//! What tests of the server share: a folder, a table, a running kv_store, and
//! raw bytes of the wire.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of this")]

mod frames;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use frames::answer;

/// How long a test waits for what must happen, on however slow a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A table as the tests know it.
pub type Model = BTreeMap<u64, Vec<u8>>;

/// A folder of its own, with a baked table.
pub struct Table {
    pub folder: TempDir,
    pub model: Model,
}

impl Table {
    pub fn new(rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Table {
        let table = Table { folder: tempfile::tempdir().unwrap(), model: rows.into_iter().collect() };
        bake(&table.model, &table.db());
        table
    }

    /// Keys 1 to `rows`, each with a value that names it.
    pub fn of_rows(rows: u64) -> Table {
        Table::new((1..=rows).map(|key| (key, format!("value_content_at_key_{key}").into_bytes())))
    }

    pub fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    /// A kv_store that serves this table, and is ready.
    pub fn serve(&self) -> Server {
        Server::start(&self.db(), &self.socket())
    }
}

/// Bakes a model's rows into a file.
pub fn bake(model: &Model, output: &Path) {
    let mut csv = Vec::new();
    for (key, value) in model {
        csv.extend_from_slice(format!("{key},\"").as_bytes());
        for byte in value {
            csv.extend(std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
        }
        csv.extend_from_slice(b"\"\n");
    }
    zero_kv::bake::bake_csv(&csv[..], output, &zero_kv::bake::Options::default(), &mut |_| ()).unwrap();
}

/// A kv_store process. It is killed when it is dropped.
pub struct Server {
    pub child: Child,
    socket: PathBuf,
    log: BufReader<std::process::ChildStderr>,
}

impl Server {
    /// Starts a kv_store and waits until it says that it is ready.
    pub fn start(db: &Path, socket: &Path) -> Server {
        Server::of(kv_store(db, socket), socket)
    }

    /// Runs a command that is a kv_store, and waits until it says that it is ready.
    pub fn of(command: Command, socket: &Path) -> Server {
        let mut server = Server::spawn(command, socket);
        server.wait_for_log("ready");
        server
    }

    /// Runs a command that is a kv_store, and waits for nothing.
    pub fn spawn(mut command: Command, socket: &Path) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Server { child, socket: socket.to_path_buf(), log }
    }

    /// Waits for a line of the log that holds `text`.
    pub fn wait_for_log(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the log ended before {text:?}");
        }
        line
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Memory that the process holds and shares with no file.
    pub fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// How many file descriptors the process holds.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that serves a file, with a log that tests can read.
pub fn kv_store(db: &Path, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.arg("--db").arg(db).arg("--socket").arg(socket).env("RUST_LOG", "info");
    command
}

/// Returns how long tests that can run for any time are to run, if `ZERO_KV_FAULTS_SECONDS` says so.
pub fn asked_time() -> Option<Duration> {
    let seconds = std::env::var("ZERO_KV_FAULTS_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("ZERO_KV_FAULTS_SECONDS is a number of seconds")))
}

/// Waits until something holds, which must be within [`PATIENCE`].
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

pub const GET: u32 = 0;
pub const EXISTS: u32 = 1;

/// A request's bytes.
pub fn request(op: u32, key: u64) -> [u8; 16] {
    let mut frame = [0; 16];
    frame[..4].copy_from_slice(&op.to_be_bytes());
    frame[8..].copy_from_slice(&key.to_be_bytes());
    frame
}

/// The requests for keys, one behind the other.
pub fn gets(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(|key| request(GET, key)).collect()
}

/// What a server that serves the model must answer to a Get.
pub fn answer_to_get(model: &Model, key: u64) -> Vec<u8> {
    model.get(&key).map_or_else(|| answer(1, b""), |value| answer(0, value))
}

/// What a server that serves the model must answer to Gets, in order.
pub fn answers_to_gets(model: &Model, keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(|key| answer_to_get(model, key)).collect()
}

/// Reads as many bytes as are expected and compares them.
pub fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        panic!("byte {at} of {} is {} where {} was expected", found.len(), found[at], expected[at]);
    }
}

/// Reads to the end and compares.
pub fn expect_end(stream: &mut impl Read, expected: &[u8]) {
    expect(stream, expected);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "more came than was expected");
}

/// Numbers that look random, the same for the same seed (SplitMix64).
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
