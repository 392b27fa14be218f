//! A connection with several lookups in flight.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rand::RngExt;
use rand::rngs::SmallRng;
use zero_kv::format::record::{ALIGN_BYTES, record_len_bytes};
use zero_kv::protocol::native::{Op, PAGE_HEADER_LEN_BYTES, RESPONSE_HEADER_LEN_BYTES, Request};
use zero_kv::{Key, KeyKind};
use zerocopy::IntoBytes;

use super::table::{VALUE_LEN_BYTES, push_value};

const RECORD_ALIGN_BYTES: usize = 8;

/// How a client looks keys up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    Get,
    RedisGet,
    Floor,
}

impl Lookup {
    /// Returns the name in the tables of the documents.
    #[allow(dead_code, reason = "the bench of published tables has one lookup")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lookup::Get => "Get",
            Lookup::RedisGet => "GET of Redis",
            Lookup::Floor => "Floor",
        }
    }

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
        let record_head_len_bytes = record_len_bytes(KeyKind::U64.into(), Key::U64(0).into(), 0, ALIGN_BYTES);
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

/// A connection that sends its next requests when all responses have arrived.
pub(crate) struct Pipeline {
    pub(crate) stream: UnixStream,
    lookup: Lookup,
    depth: usize,
    keys: Vec<u64>,
    requests: Vec<u8>,
    responses: Vec<u8>,
    received_bytes: usize,
    expected: Vec<u8>,
}

impl Pipeline {
    pub(crate) fn connect(socket: &Path, lookup: Lookup, depth: usize) -> io::Result<Pipeline> {
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

    pub(crate) fn send(&mut self, keys_end: u64, random: &mut SmallRng) -> io::Result<()> {
        self.keys.clear();
        self.keys.extend((0..self.depth).map(|_| random.random_range(0..keys_end)));
        self.requests.clear();
        self.keys.iter().for_each(|key| self.lookup.push_request(*key, &mut self.requests));
        self.received_bytes = 0;
        self.stream.write_all(&self.requests)
    }

    /// Receives bytes. Returns whether all responses have arrived, and are correct.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
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
