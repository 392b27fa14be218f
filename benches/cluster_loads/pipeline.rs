//! A connection with pipelines of requests whose responses are known.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{VALUE_LEN_MIN_BYTES, push_value};

/// How requests are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Native,
    Redis,
}

/// A connection, and pipelines that take turns. Each pipeline is encoded once.
pub(crate) struct Connection {
    stream: TcpStream,
    pipelines: Vec<Pipeline>,
    next: usize,
    received: Vec<u8>,
}

struct Pipeline {
    requests: Vec<u8>,
    responses: Vec<u8>,
}

impl Connection {
    /// Connects, and encodes a pipeline for each chunk of `depth` keys. `rows` is the number of rows of the table, whose
    /// keys are the numbers below it.
    pub(crate) fn new(
        port: u16,
        protocol: Protocol,
        keys: &[u64],
        depth: usize,
        rows: u64,
    ) -> Result<Connection, Box<dyn Error>> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut pipelines = Vec::new();
        for keys in keys.chunks_exact(depth) {
            let (mut requests, mut responses) = (Vec::new(), Vec::new());
            for key in keys {
                encode(protocol, *key, *key < rows, &mut requests, &mut responses)?;
            }
            pipelines.push(Pipeline { requests, responses });
        }
        if pipelines.is_empty() {
            return Err(format!("{} keys are not enough for a pipeline of {depth}", keys.len()).into());
        }
        Ok(Connection { stream, pipelines, next: 0, received: Vec::new() })
    }

    /// Sends the next pipeline.
    pub(crate) fn send(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.stream.write_all(&self.pipelines[self.next].requests)?)
    }

    /// Reads the responses to the pipeline that was sent, and compares them with the expected ones.
    pub(crate) fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        let expected = &self.pipelines[self.next].responses;
        self.received.resize(expected.len(), 0);
        self.stream.read_exact(&mut self.received)?;
        if self.received != *expected {
            let at = self.received.iter().zip(expected).position(|(found, expected)| found != expected);
            return Err(format!("byte {at:?} of the responses is wrong").into());
        }
        self.next = (self.next + 1) % self.pipelines.len();
        Ok(())
    }
}

/// Encodes a Get and its response.
fn encode(
    protocol: Protocol,
    key: u64,
    is_found: bool,
    requests: &mut Vec<u8>,
    responses: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    match protocol {
        Protocol::Native => {
            requests.extend_from_slice(&[0; 8]);
            requests.extend_from_slice(&key.to_be_bytes());
            // The status, Ok or Not found, and the length of the value.
            let (status, len) = if is_found { (0, VALUE_LEN_MIN_BYTES as u32) } else { (1_u32, 0) };
            responses.extend_from_slice(&status.to_be_bytes());
            responses.extend_from_slice(&len.to_be_bytes());
            if is_found {
                push_value(responses, key, VALUE_LEN_MIN_BYTES);
            }
        }
        Protocol::Redis => {
            let text = key.to_string();
            write!(requests, "*2\r\n$3\r\nGET\r\n${}\r\n{text}\r\n", text.len())?;
            if is_found {
                write!(responses, "${VALUE_LEN_MIN_BYTES}\r\n")?;
                push_value(responses, key, VALUE_LEN_MIN_BYTES);
                responses.extend_from_slice(b"\r\n");
            } else {
                responses.extend_from_slice(b"$-1\r\n");
            }
        }
    }
    Ok(())
}
