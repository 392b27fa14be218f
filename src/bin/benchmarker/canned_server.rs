//! The server that `--ceiling` measures. It sends canned responses without lookups.
//!
//! One thread counts the requests that arrive, and sends an equal number of canned responses from one buffer. The
//! benchmarker runs this server as a child process. The server prints its socket's path on standard output, and exits
//! when its standard input is closed. The server therefore removes its socket and folder even if the benchmarker is
//! killed.

use std::io::{self, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Context;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use zero_kv::protocol::native::REQUEST_LEN_BYTES;

use crate::canned::Canned;

const EVENTS_MAX: usize = 256;
const READ_BUFFER_LEN_BYTES: usize = 64 << 10;
/// Event token of the listener. A connection's token is its index.
const LISTENER: u64 = u64::MAX;
/// Event token of standard input.
const STDIN: u64 = u64::MAX - 1;

/// Runs the server until standard input is closed.
pub(crate) fn run(response_len_bytes: f64) -> anyhow::Result<()> {
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

/// A connection and its pending responses.
struct Connection {
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
    let mut connections: Vec<Option<Connection>> = Vec::new();
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
    connections: &mut Vec<Option<Connection>>,
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
    connections[index] = Some(Connection {
        stream,
        next_response: 0,
        request_len_bytes: 0,
        pending_bytes: 0,
        at_bytes: 0,
        awaits_room: false,
    });
    Ok(())
}

impl Connection {
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
