//! Readers that send many requests and read little, and so pin the generation of their responses.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::helpers::frames::gets;
use crate::helpers::generations::{Shape, named};
use crate::helpers::servers::Server;

/// The number of bytes that a reader takes in each round.
const TRICKLE_LEN_BYTES: usize = 8;

pub(crate) struct Pinned {
    stream: UnixStream,
    shape: Shape,
    newest: Arc<AtomicU64>,
    received: Vec<u8>,
    /// Whether the server has closed the connection, which it may do.
    has_ended: bool,
}

impl Pinned {
    /// Requests every key. The responses do not fit into a socket.
    pub(crate) fn start(served: &Server, shape: Shape, newest: &Arc<AtomicU64>) -> Pinned {
        let mut stream = served.connect();
        stream.write_all(&gets(1..=shape.rows)).unwrap();
        let newest = Arc::clone(newest);
        let mut pinned = Pinned { stream, shape, newest, received: Vec::new(), has_ended: false };
        pinned.trickle();
        pinned
    }

    pub(crate) fn trickle(&mut self) {
        let mut part = [0; TRICKLE_LEN_BYTES];
        self.take(&mut part);
    }

    /// Reads all remaining responses, and checks everything that was received.
    pub(crate) fn finish(mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        let mut part = vec![0; 64 << 10];
        while !self.has_ended {
            self.take(&mut part);
        }
        self.check();
    }

    fn take(&mut self, part: &mut [u8]) {
        match self.stream.read(part) {
            Ok(0) => self.has_ended = true,
            Ok(len_bytes) => self.received.extend_from_slice(&part[..len_bytes]),
            Err(error) if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()) => {
                self.has_ended = true;
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that every response is the value of its key, and that generations never go back.
    fn check(&self) {
        let (mut rest, mut key, mut generation) = (&self.received[..], 1, 1);
        let newest = self.newest.load(Ordering::SeqCst);
        while let Some((header, behind)) = rest.split_first_chunk::<8>() {
            let [status, len_bytes] = [0, 4].map(|at| u32::from_be_bytes(header[at..at + 4].try_into().unwrap()));
            let Some((value, behind)) = behind.split_at_checked(len_bytes as usize) else { break };
            assert_eq!(status, 0, "key {key}");
            let found = named(value).unwrap_or_else(|| panic!("key {key}: {value:?} names no generation"));
            assert!((generation..=newest).contains(&found), "generation {found} after {generation}, up to {newest}");
            assert!(self.shape.value(found, key).as_deref() == Some(value), "key {key} of generation {found}");
            (rest, key, generation) = (behind, key + 1, found);
        }
        assert!(self.received.len() >= TRICKLE_LEN_BYTES, "no response arrived");
    }
}
