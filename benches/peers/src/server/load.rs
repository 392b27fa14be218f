//! Puts a server under load. Many clients run on one thread, each with a fixed number of requests in flight.
//!
//! In: a socket, a protocol, and rows. Out: responses per second, and the time per pipeline. Requests are encoded
//! before the measurement. A client sends a pipeline, waits for all responses, checks the status and length of each
//! response, and sends the next pipeline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};

use super::wire::{Frame, Protocol};
use crate::measure::median;
use crate::rows::{Random, Rows};

/// Minimum number of encoded requests per client. After the last of these requests, the client begins again with the
/// first.
const CLIENT_REQUESTS: usize = 4096;
/// Number of rows that are sent to a server before the responses to them are read.
const STORE_ROWS: u64 = 500;

/// The parameters of a load.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) depth: usize,
    pub(crate) warm_up: Duration,
    pub(crate) timed: Duration,
    pub(crate) seed: u64,
}

/// The results of a load.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rate {
    pub(crate) responses_per_second: f64,
    /// The median time from the start of sending a pipeline until its last response is read.
    pub(crate) pipeline_us: f64,
}

struct Client {
    stream: UnixStream,
    /// The encoded requests of all pipelines.
    requests: Vec<u8>,
    /// The offset in `requests` at which each pipeline ends.
    ends: Vec<usize>,
    pipeline: usize,
    responses: Vec<u8>,
    read_bytes: usize,
    sent_at: Instant,
}

impl Client {
    fn connect(path: &Path, protocol: Protocol, rows: &Rows, depth: usize, random: &mut Random) -> Result<Client> {
        let (mut requests, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..CLIENT_REQUESTS.div_ceil(depth) {
            (0..depth).for_each(|_| protocol.get(rows, random.below(rows.count), &mut requests));
            ends.push(requests.len());
        }
        let responses = vec![0; depth * protocol.frame(rows.value_len_bytes).len_bytes()];
        let stream = UnixStream::connect(path)?;
        Ok(Client { stream, requests, ends, pipeline: 0, responses, read_bytes: 0, sent_at: Instant::now() })
    }

    fn send(&mut self) -> Result<()> {
        let start = self.pipeline.checked_sub(1).map_or(0, |before| self.ends[before]);
        let requests = &self.requests[start..self.ends[self.pipeline]];
        self.pipeline = (self.pipeline + 1) % self.ends.len();
        (self.sent_at, self.read_bytes) = (Instant::now(), 0);
        // No responses are pending, so the socket's buffer is empty and has room for a pipeline.
        let sent_bytes = self.stream.write(requests)?;
        ensure!(sent_bytes == requests.len(), "the socket took {sent_bytes} of {} bytes", requests.len());
        Ok(())
    }

    /// Reads responses, and returns whether all have arrived.
    fn receive(&mut self) -> Result<bool> {
        match self.stream.read(&mut self.responses[self.read_bytes..]) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(read_bytes) => self.read_bytes += read_bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.read_bytes == self.responses.len())
    }
}

/// Runs the load for the specified time, and returns the rate.
pub(crate) fn run(path: &Path, protocol: Protocol, rows: &Rows, load: Load) -> Result<Rate> {
    let mut random = Random::seeded(load.seed);
    let frame = protocol.frame(rows.value_len_bytes);
    let mut poll = Poll::new()?;
    let mut clients = Vec::new();
    for token in 0..load.clients {
        let mut client = Client::connect(path, protocol, rows, load.depth, &mut random)?;
        poll.registry().register(&mut client.stream, Token(token), Interest::READABLE)?;
        clients.push(client);
    }
    clients.iter_mut().try_for_each(Client::send)?;

    let mut events = Events::with_capacity(load.clients);
    let mut pipelines_us = Vec::new();
    let timed_from = Instant::now() + load.warm_up;
    let mut now = Instant::now();
    while now < timed_from + load.timed {
        poll_some(&mut poll, &mut events)?;
        ensure!(!events.is_empty(), "no response for {} seconds", RESPONSE_TIME_MAX.as_secs());
        now = Instant::now();
        for event in &events {
            let client = &mut clients[event.token().0];
            if client.receive()? {
                check(&frame, &client.responses)?;
                if now >= timed_from {
                    pipelines_us.push(client.sent_at.elapsed().as_secs_f64() * 1e6);
                }
                client.send()?;
            }
        }
    }
    let seconds = (now - timed_from).as_secs_f64();
    let responses = pipelines_us.len() * load.depth;
    let pipeline_us = median(&pipelines_us).context("no pipeline was completed in time")?;
    Ok(Rate { responses_per_second: responses as f64 / seconds, pipeline_us })
}

/// If no response arrives for this time, the run fails.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);

fn poll_some(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    match poll.poll(events, Some(RESPONSE_TIME_MAX)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

fn check(frame: &Frame, responses: &[u8]) -> Result<()> {
    for response in responses.chunks_exact(frame.len_bytes()) {
        if frame.value(response).is_none() {
            bail!("invalid response: \"{}\"", response.escape_ascii());
        }
    }
    Ok(())
}

/// Sends all rows to a server that stores them.
pub(crate) fn store(path: &Path, protocol: Protocol, rows: &Rows) -> Result<()> {
    let mut stream = connect(path)?;
    let (mut value, mut requests, mut responses) = (Vec::new(), Vec::new(), Vec::new());
    for piece in rows.pieces(STORE_ROWS) {
        let stored = protocol.stored().repeat((piece.end - piece.start) as usize);
        requests.clear();
        for row in piece {
            protocol.set(row, rows.value(rows.key(row), &mut value), &mut requests);
        }
        stream.write_all(&requests)?;
        responses.resize(stored.len(), 0);
        stream.read_exact(&mut responses)?;
        ensure!(responses == stored, "not stored: \"{}\"", responses.escape_ascii());
    }
    Ok(stream.shutdown(Shutdown::Both)?)
}

/// Checks the values of random rows byte by byte.
pub(crate) fn compare(path: &Path, protocol: Protocol, rows: &Rows, count: usize) -> Result<()> {
    let mut stream = connect(path)?;
    let frame = protocol.frame(rows.value_len_bytes);
    let (mut request, mut response) = (Vec::new(), vec![0; frame.len_bytes()]);
    let mut expected = Vec::new();
    let mut random = Random::seeded(u64::MAX);
    for _ in 0..count {
        let row = random.below(rows.count);
        request.clear();
        protocol.get(rows, row, &mut request);
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        let right = frame.value(&response) == Some(rows.value(rows.key(row), &mut expected));
        ensure!(right, "row {row}: wrong response: \"{}\"", response.escape_ascii());
    }
    Ok(())
}

fn connect(path: &Path) -> Result<BlockingStream> {
    let stream = BlockingStream::connect(path)?;
    stream.set_read_timeout(Some(RESPONSE_TIME_MAX))?;
    stream.set_write_timeout(Some(RESPONSE_TIME_MAX))?;
    Ok(stream)
}
