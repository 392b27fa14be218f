//! A server that sends the bytes that a test specifies, whatever the requests are.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// The longest time that a test waits.
const PATIENCE: Duration = Duration::from_secs(20);

pub const NOT_FOUND: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0];
/// A response to Schema, from a server whose table is not typed.
pub const NO_SCHEMA: &[u8] = NOT_FOUND;
pub const ERROR: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 0];
pub const EXISTS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0];
/// A response to KeyType, from a server whose keys are numbers.
pub const U64_KEYS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 3, b'u', b'6', b'4'];
/// A response to KeyType, from a server whose keys are bytes.
pub const BYTE_KEYS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 5, b'b', b'y', b't', b'e', b's'];
/// A response to Count, with the count 7.
pub const COUNT_7: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7];

/// A server in a temporary folder.
pub struct ScriptedServer {
    folder: TempDir,
    requests: Receiver<Vec<u8>>,
    ended: Arc<AtomicBool>,
}

/// The responses on one connection: the first request gets the first of them, and so on.
#[derive(Clone)]
pub struct Script {
    answers: Vec<Vec<u8>>,
    closes: bool,
}

impl Script {
    /// Leaves the connection open after the last response.
    pub fn answering(answers: &[&[u8]]) -> Script {
        Script { answers: answers.iter().map(|answer| answer.to_vec()).collect(), closes: false }
    }

    /// Closes the connection after the last response.
    pub fn closing_after(answers: &[&[u8]]) -> Script {
        Script { closes: true, ..Script::answering(answers) }
    }
}

impl ScriptedServer {
    pub fn answering(answers: &[&[u8]]) -> ScriptedServer {
        ScriptedServer::with_scripts(vec![Script::answering(answers)])
    }

    /// Sends these responses on the first connection, and only the last of them on each later connection, for a client
    /// that retries its last request. Closes each connection after its last response.
    pub fn closing_after(answers: &[&[u8]]) -> ScriptedServer {
        let last = &answers[answers.len().saturating_sub(1)..];
        ScriptedServer::with_scripts(vec![Script::closing_after(answers), Script::closing_after(last)])
    }

    /// Plays one script for each connection, and the last script for all further connections.
    pub fn with_scripts(scripts: Vec<Script>) -> ScriptedServer {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("peer.sock")).unwrap();
        let (seen, requests) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        thread::spawn(move || {
            for number in 0.. {
                let (mut stream, _) = listener.accept().unwrap();
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let script = &scripts[number.min(scripts.len() - 1)];
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                converse(&mut stream, &script.answers, &seen);
                if !script.closes {
                    // Waits until the client closes the connection.
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        ScriptedServer { folder, requests, ended }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("peer.sock")
    }

    /// Returns the next request that arrived.
    pub fn request(&self) -> Vec<u8> {
        self.requests.recv_timeout(PATIENCE).expect("a whole request")
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(self.socket());
    }
}

/// Sends the response to each request. Returns early if the client closes the connection.
fn converse(stream: &mut UnixStream, answers: &[Vec<u8>], seen: &Sender<Vec<u8>>) {
    for answer in answers {
        let mut request = vec![0; 16];
        if stream.read_exact(&mut request).is_err() {
            return;
        }
        // A long request has a nonzero second byte, and the length of its body after its op.
        if request[1] > 0 {
            let body_len = u32::from_be_bytes(request[4..8].try_into().unwrap());
            request.resize((8 + body_len as usize).next_multiple_of(16), 0);
            if stream.read_exact(&mut request[16..]).is_err() {
                return;
            }
        }
        let _ = seen.send(request);
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

/// Returns the response with a value.
pub fn found(value: &[u8]) -> Vec<u8> {
    [&response_header(0, value.len() as u32)[..], value].concat()
}

/// Returns the response with a page, whose rows are aligned to 8 bytes.
pub fn page<K: Row>(rows: &[(K, &str)], more: u16) -> Vec<u8> {
    let records: Vec<u8> = rows.iter().flat_map(|(key, value)| record(key.prefix(), value)).collect();
    found(&[&page_header(rows.len() as u32, K::KIND, 3, more)[..], &records].concat())
}

pub fn page_header(rows: u32, key_kind: u8, align_bits: u8, more: u16) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&rows.to_be_bytes());
    (header[4], header[5]) = (key_kind, align_bits);
    header[6..].copy_from_slice(&more.to_be_bytes());
    header
}

fn record(mut record: Vec<u8>, value: &str) -> Vec<u8> {
    record.resize(record.len().next_multiple_of(8), 0);
    record.extend(found(value.as_bytes()));
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

/// A key in a page.
pub trait Row {
    const KIND: u8;
    fn prefix(&self) -> Vec<u8>;
}

impl Row for u64 {
    const KIND: u8 = 1;
    fn prefix(&self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Row for &str {
    const KIND: u8 = 2;
    fn prefix(&self) -> Vec<u8> {
        [&(self.len() as u16).to_le_bytes()[..], self.as_bytes()].concat()
    }
}

/// Returns a response header.
pub fn response_header(status_code: u32, value_len_bytes: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&status_code.to_be_bytes());
    header[4..].copy_from_slice(&value_len_bytes.to_be_bytes());
    header
}
