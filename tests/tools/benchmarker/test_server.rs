//! A table, a simple server inside the test, and runs of the benchmarker. The server uses threads and a
//! `BTreeMap`, can misbehave on purpose, and records its requests.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use zero_kv::bake::Keys;

use crate::helpers::rows::{bake_text, csv_row};

pub(crate) const OK: u32 = 0;
pub(crate) const NOT_FOUND: u32 = 1;
/// Flag in the op of a native request whose key is bytes.
const LONG: u32 = 1 << 16;

pub(crate) type Rows = BTreeMap<u64, Vec<u8>>;
/// Returns the response to the request with this number on its connection, op and key. `None` closes the connection.
pub(crate) type Respond = fn(rows: &Rows, number: usize, op: u32, key: u64) -> Option<Vec<u8>>;

pub(crate) fn frame(status: u32, value: &[u8]) -> Vec<u8> {
    [&status.to_be_bytes()[..], &(value.len() as u32).to_be_bytes(), value].concat()
}

pub(crate) fn correct_response(rows: &Rows, _: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    Some(match (rows.get(&key), op) {
        (Some(value), 0) => frame(OK, value),
        (Some(_), _) => frame(OK, b""),
        (None, _) => frame(NOT_FOUND, b""),
    })
}

/// Op and key of every received request.
type Seen = Arc<Mutex<Vec<(u32, u64)>>>;

/// Recorded for a key that is bytes but not decimal text, so that no row can have it.
pub(crate) const NO_NUMBER: u64 = u64::MAX;

/// A baked table and its server.
pub(crate) struct TestServer {
    folder: TempDir,
    seen: Seen,
}

impl TestServer {
    /// `respond` has the parameters and the result of [`Respond`].
    pub(crate) fn new(
        rows: Rows,
        respond: impl Fn(&Rows, usize, u32, u64) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> TestServer {
        TestServer::with(rows, Keys::U64, respond)
    }

    /// Bakes the rows with the decimal text of the numbers as keys.
    pub(crate) fn with_keys_of_bytes(rows: Rows, respond: Respond) -> TestServer {
        TestServer::with(rows, Keys::BYTES, respond)
    }

    fn with(
        rows: Rows,
        keys: Keys,
        respond: impl Fn(&Rows, usize, u32, u64) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> TestServer {
        let served = TestServer { folder: tempfile::tempdir().unwrap(), seen: Seen::default() };
        let text = rows.iter().flat_map(|(key, value)| csv_row(key, value));
        bake_text(&served.path("storage.db"), keys, text.collect::<Vec<u8>>());
        let listener = UnixListener::bind(served.path("kv.sock")).unwrap();
        let (state, seen) = (Arc::new((rows, respond)), Arc::clone(&served.seen));
        // The thread runs until the test process exits.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state, seen) = (stream.unwrap(), Arc::clone(&state), Arc::clone(&seen));
                thread::spawn(move || serve(stream, &state.0, &state.1, &seen));
            }
        });
        served
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Takes the requests received since the last call.
    pub(crate) fn take_requests(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Runs the benchmarker with these arguments, and with short defaults for the others.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the benchmarker for longer and longer until it sends this many requests, and returns them, after a check
    /// that all were counted. On a busy machine, that can take seconds.
    #[track_caller]
    pub(crate) fn requests(&self, min_requests: usize, args: &[&str]) -> Vec<(u32, u64)> {
        let runs_ms = (0..10).map(|run| 200_u64 << run);
        for run_ms in runs_ms {
            let seconds = format!("--seconds={}", run_ms as f64 / 1000.0);
            let output = self.run(&[args, &["--json", &seconds]].concat());
            assert_good(&output);
            let (json, seen) = (stdout(&output), self.take_requests());
            assert_eq!(number(&json, "requests"), seen.len() as f64);
            assert_eq!(number(&json, "hits") + number(&json, "misses"), seen.len() as f64);
            if seen.len() >= min_requests {
                return seen;
            }
        }
        panic!("the benchmarker sends fewer than {min_requests} requests in 102 s");
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

/// Responds to each request before it reads the next, so that a client that writes all requests before it reads would
/// block forever.
fn serve(
    stream: UnixStream,
    rows: &Rows,
    respond: &impl Fn(&Rows, usize, u32, u64) -> Option<Vec<u8>>,
    seen: &Seen,
) -> io::Result<()> {
    // The buffer is as short as a native request, so that the server reads almost nothing ahead.
    let mut requests = BufReader::with_capacity(16, &stream);
    for number in 0.. {
        let (op, key) = match requests.fill_buf()?.first() {
            Some(b'*') => read_resp_request(&mut requests)?,
            _ => read_native_request(&mut requests)?,
        };
        seen.lock().unwrap().push((op, key));
        match respond(rows, number, op, key) {
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
    if op < LONG {
        return Ok((op, u64::from_be_bytes(request[8..].try_into().unwrap())));
    }
    let key_len_bytes = u32::from_be_bytes(request[4..8].try_into().unwrap()) as usize;
    let mut key = request[8..].to_vec();
    key.resize((8 + key_len_bytes).next_multiple_of(16) - 8, 0);
    requests.read_exact(&mut key[8..])?;
    let padding = key.split_off(key_len_bytes);
    assert!(padding.iter().all(|byte| *byte == 0), "{padding:?}");
    Ok((op - LONG, row_number(&key)))
}

/// Parses a key that is decimal text.
fn row_number(key: &[u8]) -> u64 {
    let number = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok());
    number.filter(|number: &u64| number.to_string().as_bytes() == key).unwrap_or(NO_NUMBER)
}

/// Reads a request in the Redis protocol, which must be written as Redis clients write it.
fn read_resp_request(requests: &mut impl BufRead) -> io::Result<(u32, u64)> {
    assert_eq!(read_resp_line(requests)?, "*2");
    let command = read_resp_word(requests)?;
    let op = match &command[..] {
        b"GET" => 0,
        b"EXISTS" => 1,
        _ => panic!("{} is not an expected command", command.escape_ascii()),
    };
    Ok((op, row_number(&read_resp_word(requests)?)))
}

fn read_resp_word(requests: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let line = read_resp_line(requests)?;
    let len_bytes: usize = line.strip_prefix('$').and_then(|len| len.parse().ok()).expect("a length");
    assert_eq!(line, format!("${len_bytes}"));
    let mut word = vec![0; len_bytes + 2];
    requests.read_exact(&mut word)?;
    assert_eq!(word.split_off(len_bytes), b"\r\n");
    Ok(word)
}

fn read_resp_line(requests: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if requests.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    assert_eq!(line.pop().zip(line.pop()), Some(('\n', '\r')), "{line:?}");
    Ok(line)
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

/// Returns the value of a number in a line of JSON.
pub(crate) fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
}

#[track_caller]
pub(crate) fn assert_good(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
    assert_eq!(stderr(output), "");
}

/// Checks that the exit status is 1, that the reason is printed, and that the results are printed nevertheless.
#[track_caller]
pub(crate) fn assert_bad(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(output), stderr(output));
    assert!(stderr(output).contains(reason), "{reason:?} is not in {}", stderr(output));
    assert!(number(&stdout(output), "errors") >= 1.0);
}
