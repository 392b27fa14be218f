//! Pipelines of Gets in both protocols.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use super::frames;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Native,
    Redis,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Value(Vec<u8>),
    Missing,
    /// Status 2 of the native protocol, or an error reply.
    Error,
}

/// A connection that sends Gets for many keys at once.
pub struct PipelinedConnection {
    pub protocol: Protocol,
    stream: BufReader<UnixStream>,
}

impl PipelinedConnection {
    pub fn new(protocol: Protocol, stream: UnixStream) -> PipelinedConnection {
        PipelinedConnection { protocol, stream: BufReader::with_capacity(64 << 10, stream) }
    }

    /// Sends a Get for each key in one write.
    pub fn ask(&mut self, keys: &[u64]) {
        self.send(keys).unwrap();
    }

    /// Sends a Get for each key and reads the responses. Fails if the connection has ended.
    pub fn get_all(&mut self, keys: &[u64]) -> io::Result<Vec<Answer>> {
        self.send(keys)?;
        self.answers(keys.len())
    }

    fn send(&mut self, keys: &[u64]) -> io::Result<()> {
        let requests = match self.protocol {
            Protocol::Native => frames::gets(keys.iter().copied()),
            Protocol::Redis => keys.iter().flat_map(|key| redis_get(*key)).collect(),
        };
        self.stream.get_mut().write_all(&requests)
    }

    /// Reads `count` responses.
    pub fn answers(&mut self, count: usize) -> io::Result<Vec<Answer>> {
        (0..count).map(|_| self.answer()).collect()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        match self.protocol {
            Protocol::Native => self.native(),
            Protocol::Redis => self.redis(),
        }
    }

    fn native(&mut self) -> io::Result<Answer> {
        let mut header = [0; 8];
        self.stream.read_exact(&mut header)?;
        let [status, len] = [&header[..4], &header[4..]].map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        let mut value = vec![0; len as usize];
        self.stream.read_exact(&mut value)?;
        assert!(status == 0 || len == 0, "an answer with status {status} and a value: {value:?}");
        Ok(match status {
            0 => Answer::Value(value),
            1 => Answer::Missing,
            2 => Answer::Error,
            _ => panic!("status {status}"),
        })
    }

    fn redis(&mut self) -> io::Result<Answer> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\r\n") else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let text = std::str::from_utf8(text).unwrap();
        if text.starts_with('-') {
            return Ok(Answer::Error);
        }
        let len = text.strip_prefix('$').unwrap_or_else(|| panic!("{text:?} is not a reply to GET"));
        if len == "-1" {
            return Ok(Answer::Missing);
        }
        let mut value = vec![0; len.parse::<usize>().unwrap() + 2];
        self.stream.read_exact(&mut value)?;
        assert!(value.ends_with(b"\r\n"), "a value without its terminator");
        value.truncate(value.len() - 2);
        Ok(Answer::Value(value))
    }
}

/// Returns a GET command of the Redis protocol.
fn redis_get(key: u64) -> Vec<u8> {
    let key = key.to_string();
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
}
