//! A table, a server that the test runs itself, and runs against it. The server is a
//! dull one, of threads and a `BTreeMap`; it can misbehave on purpose, and remembers
//! what it was asked.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use zero_kv::bake::{Options, bake_csv};

pub(crate) const OK: u32 = 0;
pub(crate) const NOT_FOUND: u32 = 1;

pub(crate) type Rows = BTreeMap<u64, Vec<u8>>;
/// The whole answer to the request with this number on its connection, op and
/// key; `None` closes the connection.
pub(crate) type Answer = fn(rows: &Rows, number: usize, op: u32, key: u64) -> Option<Vec<u8>>;

pub(crate) fn frame(status: u32, value: &[u8]) -> Vec<u8> {
    [&status.to_be_bytes()[..], &(value.len() as u32).to_be_bytes(), value].concat()
}

pub(crate) fn honest(rows: &Rows, _: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    Some(match (rows.get(&key), op) {
        (Some(value), 0) => frame(OK, value),
        (Some(_), _) => frame(OK, b""),
        (None, _) => frame(NOT_FOUND, b""),
    })
}

/// Every request that came, op and key.
type Seen = Arc<Mutex<Vec<(u32, u64)>>>;

/// One table, baked and served.
pub(crate) struct Served {
    folder: TempDir,
    seen: Seen,
}

impl Served {
    pub(crate) fn new(rows: Rows, answer: Answer) -> Served {
        let served = Served { folder: tempfile::tempdir().unwrap(), seen: Seen::default() };
        let line = |(key, value): (&u64, &Vec<u8>)| [format!("{key},").as_bytes(), value, b"\n"].concat();
        let csv: Vec<u8> = rows.iter().flat_map(line).collect();
        bake_csv(&csv[..], &served.path("storage.db"), &Options::default(), &mut |_| ()).unwrap();
        let listener = UnixListener::bind(served.path("kv.sock")).unwrap();
        let (rows, seen) = (Arc::new(rows), Arc::clone(&served.seen));
        // It lives as long as the test's process; nobody waits for it.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, rows, seen) = (stream.unwrap(), Arc::clone(&rows), Arc::clone(&seen));
                thread::spawn(move || serve(stream, &rows, answer, &seen));
            }
        });
        served
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The requests that have come since this was asked before.
    pub(crate) fn seen(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Runs with these arguments, and with short defaults for those not among them.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_benchmarker"));
        command.args(args);
        let (socket, db) = (self.path("kv.sock"), self.path("storage.db"));
        for (name, default) in [
            ("--socket", socket.to_str().unwrap()),
            ("--db", db.to_str().unwrap()),
            ("--seconds", "0.2"),
            ("--warmup", "0"),
            ("--clients", "4"),
            ("--pipeline", "16"),
        ] {
            if !args.iter().any(|arg| arg.starts_with(name)) {
                command.args([name, default]);
            }
        }
        command
    }
}

/// Answers each request before it reads the next, so that a client which writes
/// everything before it reads anything gets stuck.
fn serve(stream: UnixStream, rows: &Rows, answer: Answer, seen: &Seen) -> io::Result<()> {
    // No longer than a native request: what it has read ahead is nothing to a long pipeline.
    let mut requests = BufReader::with_capacity(16, &stream);
    for number in 0.. {
        let (op, key) = match requests.fill_buf()?.first() {
            Some(b'*') => read_resp_request(&mut requests)?,
            _ => read_native_request(&mut requests)?,
        };
        seen.lock().unwrap().push((op, key));
        match answer(rows, number, op, key) {
            Some(bytes) => (&stream).write_all(&bytes)?,
            None => break,
        }
    }
    Ok(())
}

fn read_native_request(requests: &mut impl Read) -> io::Result<(u32, u64)> {
    let mut request = [0; 16];
    requests.read_exact(&mut request)?;
    let op = u32::from_be_bytes(request[..4].try_into().unwrap());
    Ok((op, u64::from_be_bytes(request[8..].try_into().unwrap())))
}

/// A request in Redis's protocol, which must be as Redis's own clients write it.
fn read_resp_request(requests: &mut impl BufRead) -> io::Result<(u32, u64)> {
    let mut lines = [(); 5].map(|()| String::new());
    for line in &mut lines {
        if requests.read_line(line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        assert_eq!(line.pop().zip(line.pop()), Some(('\n', '\r')), "{line:?}");
    }
    let [words, command_len, command, key_len, key] = &lines;
    assert_eq!(words, "*2");
    assert_eq!((command_len, key_len), (&format!("${}", command.len()), &format!("${}", key.len())));
    let op = match &command[..] {
        "GET" => 0,
        "EXISTS" => 1,
        _ => panic!("{command} was not to be asked"),
    };
    let number = key.parse().unwrap();
    assert_eq!(format!("{number}"), *key);
    Ok((op, number))
}

pub(crate) fn small_rows() -> Rows {
    (1..=1_000).map(|key| (key, format!("value_content_at_key_{key}").into_bytes())).collect()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The number that a line of JSON gives a name.
pub(crate) fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
}

#[track_caller]
pub(crate) fn assert_good(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
    assert_eq!(stderr(output), "");
}

/// Exit code 1, the reason told, and the numbers printed all the same.
#[track_caller]
pub(crate) fn assert_bad(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(output), stderr(output));
    assert!(stderr(output).contains(reason), "{reason:?} is not in {}", stderr(output));
    assert!(number(&stdout(output), "errors") >= 1.0);
}
