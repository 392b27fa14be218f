//! A server made of bytes: it answers with what the test says, right or wrong.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// After this a test fails that would otherwise wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const NOT_FOUND: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0];
pub(crate) const ERROR: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 0];
pub(crate) const EXISTS: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0];

/// A listener that takes one connection, in a folder of its own.
pub(crate) struct Peer {
    folder: TempDir,
    requests: Receiver<[u8; 16]>,
}

#[derive(Clone, Copy, PartialEq)]
enum AtTheEnd {
    Close,
    WaitForTheClient,
}

impl Peer {
    /// Answers one request after the other with these bytes, then sends nothing
    /// more but leaves the connection open.
    pub(crate) fn answering(answers: &[&[u8]]) -> Peer {
        Peer::start(answers, AtTheEnd::WaitForTheClient)
    }

    /// The same, but closes the connection after the last answer.
    pub(crate) fn closing_after(answers: &[&[u8]]) -> Peer {
        Peer::start(answers, AtTheEnd::Close)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("peer.sock")
    }

    /// The next request that arrived.
    pub(crate) fn request(&self) -> [u8; 16] {
        self.requests.recv_timeout(PATIENCE).expect("a whole request")
    }

    fn start(answers: &[&[u8]], at_the_end: AtTheEnd) -> Peer {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("peer.sock")).unwrap();
        let answers: Vec<_> = answers.iter().map(|answer| answer.to_vec()).collect();
        let (seen, requests) = mpsc::channel();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            converse(&mut stream, &answers, &seen);
            if at_the_end == AtTheEnd::WaitForTheClient {
                // Until the client closes; if it waits for more, until patience ends.
                let _ = stream.read(&mut [0]);
            }
        });
        Peer { folder, requests }
    }
}

/// Ends early if the client does: the test then looks at what the client says.
fn converse(stream: &mut UnixStream, answers: &[Vec<u8>], seen: &Sender<[u8; 16]>) {
    for answer in answers {
        let mut request = [0; 16];
        if stream.read_exact(&mut request).is_err() {
            return;
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

/// A header with these two numbers.
pub(crate) fn announced(status_code: u32, value_len_bytes: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&status_code.to_be_bytes());
    header[4..].copy_from_slice(&value_len_bytes.to_be_bytes());
    header
}
