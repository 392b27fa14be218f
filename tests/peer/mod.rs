//! A server made of bytes: it answers with what the test says, right or wrong.

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

/// After this a test fails that would otherwise wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const NOT_FOUND: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0];
pub(crate) const ERROR: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 0];
pub(crate) const EXISTS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0];
/// What a server says of how many keys are in a range; by the kind of its ends,
/// it tells what the table's keys are.
pub(crate) const COUNT_7: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7];

/// A listener that answers each connection alike, in a folder of its own.
pub(crate) struct Peer {
    folder: TempDir,
    requests: Receiver<Vec<u8>>,
    ended: Arc<AtomicBool>,
}

/// How a connection goes: one request after the other gets these bytes.
#[derive(Clone)]
pub(crate) struct Script {
    answers: Vec<Vec<u8>>,
    closes: bool,
}

impl Script {
    /// Sends nothing more then, but leaves the connection open.
    pub(crate) fn answering(answers: &[&[u8]]) -> Script {
        Script { answers: answers.iter().map(|answer| answer.to_vec()).collect(), closes: false }
    }

    /// Closes the connection then.
    pub(crate) fn closing_after(answers: &[&[u8]]) -> Script {
        Script { closes: true, ..Script::answering(answers) }
    }
}

impl Peer {
    pub(crate) fn answering(answers: &[&[u8]]) -> Peer {
        Peer::of(vec![Script::answering(answers)])
    }

    /// On a second connection, for who asks the last question again, it closes after the last answer.
    pub(crate) fn closing_after(answers: &[&[u8]]) -> Peer {
        let last = &answers[answers.len().saturating_sub(1)..];
        Peer::of(vec![Script::closing_after(answers), Script::closing_after(last)])
    }

    /// One connection after the other goes like this; those beyond the last, like the last.
    pub(crate) fn of(scripts: Vec<Script>) -> Peer {
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
                    // Until the client closes; if it waits for more, until patience ends.
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        Peer { folder, requests, ended }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("peer.sock")
    }

    /// The next request that arrived.
    pub(crate) fn request(&self) -> Vec<u8> {
        self.requests.recv_timeout(PATIENCE).expect("a whole request")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(self.socket());
    }
}

/// Ends early if the client does: the test then looks at what the client says.
fn converse(stream: &mut UnixStream, answers: &[Vec<u8>], seen: &Sender<Vec<u8>>) {
    for answer in answers {
        let mut request = vec![0; 16];
        if stream.read_exact(&mut request).is_err() {
            return;
        }
        // A long request says so in its second byte, and how long its body is behind its op.
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

/// A found value, as the wire carries it.
pub(crate) fn found(value: &[u8]) -> Vec<u8> {
    [&announced(0, value.len() as u32)[..], value].concat()
}

/// A page as the wire carries it: of numbers or of bytes, each row aligned to 8.
pub(crate) fn page<K: Row>(rows: &[(K, &str)], more: u16) -> Vec<u8> {
    let records: Vec<u8> = rows.iter().flat_map(|(key, value)| record(key.prefix(), value)).collect();
    found(&[&page_header(rows.len() as u32, K::KIND, 3, more)[..], &records].concat())
}

pub(crate) fn page_header(rows: u32, key_kind: u8, align_bits: u8, more: u16) -> [u8; 8] {
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

/// A key of a row, and how it stands there.
pub(crate) trait Row {
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

/// A header with these two numbers.
pub(crate) fn announced(status_code: u32, value_len_bytes: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&status_code.to_be_bytes());
    header[4..].copy_from_slice(&value_len_bytes.to_be_bytes());
    header
}
