//! Canned responses, and the server of `--ceiling`, which sends them without lookups.
//!
//! In: the mean length of responses. Out: the bytes of many consecutive responses, and the header of each response.
//! Server and clients compute the same pattern of 16 responses, and the server repeats the pattern on every connection.
//! The lengths of these responses differ by at most one byte, so the mean length is exact to a sixteenth of a byte. The
//! pattern also gives a client the expected length of each response.
//!
//! The benchmarker runs the server as a child process. One thread counts the requests that arrive, and sends an equal
//! number of canned responses from one buffer.

use std::io::{self, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Context;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use zero_kv::protocol::native::{REQUEST_LEN_BYTES, RESPONSE_HEADER_LEN_BYTES, ResponseHeader, VALUE_LEN_MAX_BYTES};
use zerocopy::IntoBytes;

/// Number of canned responses in the pattern, which the server repeats on every connection. The lengths of these
/// responses differ by at most one byte.
const PATTERN_RESPONSES: usize = 16;
/// If the mean length of responses is at least this many bytes, the pattern has only one response: its length is the
/// mean length rounded to whole bytes, and the rounding error is negligible.
const LONG_RESPONSE_LEN_BYTES: f64 = 65536.0;
/// Minimum length of the buffer that contains copies of the pattern of responses. One `send` can send many responses
/// from this buffer.
const BYTES_LEN_MIN: usize = 256 << 10;

const _: () = assert!(PATTERN_RESPONSES.is_power_of_two());

pub(crate) struct Canned {
    headers: Vec<ResponseHeader>,
    /// The offset of each response in the pattern of responses, followed by the pattern's length.
    starts: Vec<usize>,
}

impl Canned {
    pub(crate) fn with_mean_len(response_len_bytes: f64) -> Self {
        let responses = if response_len_bytes < LONG_RESPONSE_LEN_BYTES { PATTERN_RESPONSES } else { 1 };
        let end_of = |response: usize| (response_len_bytes * response as f64).round() as usize;
        let (mut headers, mut starts) = (Vec::new(), vec![0]);
        for response in 0..responses {
            let len_bytes = end_of(response + 1) - end_of(response);
            let value_len_bytes = len_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES).min(VALUE_LEN_MAX_BYTES);
            headers.push(ResponseHeader::of_value(value_len_bytes).expect("no more than the longest value"));
            starts.push(starts[response] + RESPONSE_HEADER_LEN_BYTES + value_len_bytes);
        }
        Canned { headers, starts }
    }

    /// Returns the header of the response with this number. The responses of a connection are numbered from 0.
    #[inline]
    pub(crate) fn header(&self, number: usize) -> ResponseHeader {
        // The number of headers is a power of two, so a mask replaces a slower division.
        self.headers[number & (self.headers.len() - 1)]
    }

    /// Returns copies of the pattern of responses, at least 256 KiB in total.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(self.pattern_len_bytes());
        for (header, start) in self.headers.iter().zip(&self.starts) {
            pattern.extend_from_slice(header.as_bytes());
            pattern.resize(start + RESPONSE_HEADER_LEN_BYTES + header.value_len_bytes(), b'v');
        }
        pattern.repeat(BYTES_LEN_MIN.div_ceil(pattern.len()))
    }

    fn pattern_len_bytes(&self) -> usize {
        self.starts[self.headers.len()]
    }

    /// Returns the total length of `responses` consecutive responses of a connection, beginning with response `number`.
    #[inline]
    pub(crate) fn len_bytes(&self, number: usize, responses: usize) -> usize {
        let end = number % self.headers.len() + responses;
        let whole_bytes = end / self.headers.len() * self.pattern_len_bytes();
        whole_bytes + self.starts[end % self.headers.len()] - self.starts[number % self.headers.len()]
    }
}

const EVENTS_MAX: usize = 256;
const READ_BUFFER_LEN_BYTES: usize = 64 << 10;
/// Event token of the listener. A connection's token is its index.
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

/// Prints the path of the server's socket on standard output, and serves until standard input is closed. The server
/// therefore removes its socket and folder even if the benchmarker is killed.
pub(crate) fn serve_until_stdin_closes(response_len_bytes: f64) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("zkv-ceiling-")
        .tempdir()
        .context("cannot create a folder for the socket of --ceiling")?;
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    listener.set_nonblocking(true)?;
    let printed = io::stdout().write_all(&[socket.as_os_str().as_bytes(), b"\n"].concat());
    if printed.and_then(|()| io::stdout().flush()).is_err() {
        // The benchmarker has already exited.
        return Ok(());
    }
    serve(&listener, &Canned::with_mean_len(response_len_bytes)).context("the server of --ceiling failed")
}

struct CannedConnection {
    stream: UnixStream,
    /// Number of responses sent or pending on this connection. This number selects the next response in the repeated
    /// pattern of responses.
    next_response: usize,
    /// Number of received bytes of an incomplete request.
    request_len_bytes: usize,
    pending_bytes: usize,
    /// Offset of the pending responses in the buffer of canned responses.
    at_bytes: usize,
    /// True if epoll is set to report that the socket is writable.
    awaits_room: bool,
}

enum Next {
    WaitForRequests,
    /// Wait until the socket is writable.
    WaitForRoom,
    Close,
}

fn serve(listener: &UnixListener, canned: &Canned) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    epoll::add(&epoll, io::stdin(), EventData::new_u64(STDIN), EventFlags::IN)?;
    let bytes = canned.bytes();
    let mut buffer = vec![0; READ_BUFFER_LEN_BYTES];
    let mut connections: Vec<Option<CannedConnection>> = Vec::new();
    let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
    loop {
        let events = match epoll::wait(&epoll, &mut events, None) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let index = match event.data.u64() {
                STDIN => return Ok(()),
                LISTENER => {
                    accept(listener, &epoll, &mut connections)?;
                    continue;
                }
                index => index,
            };
            let slot = &mut connections[index as usize];
            let Some(connection) = slot else { continue };
            let next = connection.advance(canned, &bytes, &mut buffer);
            let awaits_room = matches!(next, Next::WaitForRoom);
            if matches!(next, Next::Close) {
                *slot = None;
            } else if awaits_room != connection.awaits_room {
                // `OUT` events are requested only for a full socket. Otherwise, every read by the client would wake
                // this thread.
                let room = if awaits_room { EventFlags::OUT } else { EventFlags::empty() };
                let data = EventData::new_u64(index);
                epoll::modify(&epoll, &connection.stream, data, EventFlags::IN | EventFlags::ET | room)?;
                connection.awaits_room = awaits_room;
            }
        }
    }
}

fn accept(
    listener: &UnixListener,
    epoll: &rustix::fd::OwnedFd,
    connections: &mut Vec<Option<CannedConnection>>,
) -> io::Result<()> {
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
        Err(error) => return Err(error),
    };
    stream.set_nonblocking(true)?;
    let index = connections.iter().position(Option::is_none).unwrap_or_else(|| {
        connections.push(None);
        connections.len() - 1
    });
    epoll::add(epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN | EventFlags::ET)?;
    connections[index] = Some(CannedConnection {
        stream,
        next_response: 0,
        request_len_bytes: 0,
        pending_bytes: 0,
        at_bytes: 0,
        awaits_room: false,
    });
    Ok(())
}

impl CannedConnection {
    /// Reads requests and sends responses until the socket has no more requests or no room for responses.
    #[inline]
    fn advance(&mut self, canned: &Canned, bytes: &[u8], buffer: &mut [u8]) -> Next {
        let mut is_drained = false;
        loop {
            while self.pending_bytes > 0 {
                let piece = &bytes[self.at_bytes..][..self.pending_bytes.min(bytes.len() - self.at_bytes)];
                match send(&self.stream, piece, SendFlags::NOSIGNAL) {
                    Ok(sent_bytes) => {
                        self.pending_bytes -= sent_bytes;
                        self.at_bytes += sent_bytes;
                        if self.at_bytes == bytes.len() {
                            self.at_bytes = 0;
                        }
                    }
                    Err(Errno::AGAIN) => return Next::WaitForRoom,
                    Err(Errno::INTR) => {}
                    Err(_) => return Next::Close,
                }
            }
            if is_drained {
                return Next::WaitForRequests;
            }
            match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Next::Close,
                Ok((read_bytes, _)) => {
                    // A read that does not fill the buffer has emptied the socket. Events are edge-triggered, so the
                    // socket must be empty before this thread waits for the next event.
                    is_drained = read_bytes < buffer.len();
                    let request_bytes = self.request_len_bytes + read_bytes;
                    let requests = request_bytes / REQUEST_LEN_BYTES;
                    self.request_len_bytes = request_bytes % REQUEST_LEN_BYTES;
                    // The next responses come from the first copy of the pattern, which is in the processor's cache.
                    self.at_bytes %= canned.pattern_len_bytes();
                    self.pending_bytes = canned.len_bytes(self.next_response, requests);
                    self.next_response = self.next_response.wrapping_add(requests);
                }
                Err(Errno::AGAIN) => return Next::WaitForRequests,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Close,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_have_the_requested_mean_length() {
        for mean_len_bytes in [8.0, 8.4, 33.9, 34.0, 1000.06, 70_000.3] {
            let canned = Canned::with_mean_len(mean_len_bytes);
            let found = canned.len_bytes(0, 1600) as f64 / 1600.0;
            assert!((found - mean_len_bytes).abs() <= (1.0 / 32.0f64).max(mean_len_bytes * 1e-5), "{mean_len_bytes}");
        }
    }

    #[test]
    fn the_bytes_contain_consecutive_responses() {
        let canned = Canned::with_mean_len(12.3);
        let bytes = canned.bytes();
        let mut at = 0;
        for number in 0..100 {
            let header = canned.header(number);
            assert_eq!(&bytes[at..at + RESPONSE_HEADER_LEN_BYTES], header.as_bytes());
            let len_bytes = RESPONSE_HEADER_LEN_BYTES + header.value_len_bytes();
            assert_eq!(canned.len_bytes(number, 1), len_bytes);
            at += len_bytes;
            assert_eq!(canned.len_bytes(0, number + 1), at);
        }
        assert_eq!(bytes.len() % canned.pattern_len_bytes(), 0);
    }
}
