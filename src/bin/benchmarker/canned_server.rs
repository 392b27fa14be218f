//! The ceiling: a server that looks nothing up.
//!
//! One thread counts request frames and sends as many canned answers, out of one
//! buffer. It runs as a process of its own, which the benchmarker starts: it tells
//! its socket's path on standard output, and ends when its standard input does. So
//! it goes, with its socket and folder, however the benchmarker went.

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
/// What an event is about; other numbers are a connection's place.
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

/// Serves until standard input ends.
pub(crate) fn run(answer_len_bytes: f64) -> anyhow::Result<()> {
    let folder =
        tempfile::Builder::new().prefix("zkv-ceiling-").tempdir().context("a folder for the ceiling's socket")?;
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    listener.set_nonblocking(true)?;
    let told = io::stdout().write_all(&[socket.as_os_str().as_bytes(), b"\n"].concat());
    if told.and_then(|()| io::stdout().flush()).is_err() {
        // The benchmarker has gone already.
        return Ok(());
    }
    serve(&listener, &Canned::of_mean_len(answer_len_bytes)).context("epoll")
}

/// A client, and what it is owed.
struct Connection {
    stream: UnixStream,
    /// The number of the next answer.
    answers: usize,
    /// Bytes of a request that has come in part.
    request_len_bytes: usize,
    owed_bytes: usize,
    /// Where in the canned bytes what is owed begins.
    at_bytes: usize,
    awaits_room: bool,
}

enum Next {
    Wait,
    /// Until the socket takes bytes again.
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
            let place = match event.data.u64() {
                STDIN => return Ok(()),
                LISTENER => {
                    accept(listener, &epoll, &mut connections)?;
                    continue;
                }
                place => place,
            };
            let slot = &mut connections[place as usize];
            let Some(connection) = slot else { continue };
            let next = connection.go_on(canned, &bytes, &mut buffer);
            let awaits_room = matches!(next, Next::WaitForRoom);
            if matches!(next, Next::Close) {
                *slot = None;
            } else if awaits_room != connection.awaits_room {
                // Room is asked for only when there is none: each read of the client would wake this thread.
                let room = if awaits_room { EventFlags::OUT } else { EventFlags::empty() };
                let data = EventData::new_u64(place);
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
    let place = connections.iter().position(Option::is_none).unwrap_or_else(|| {
        connections.push(None);
        connections.len() - 1
    });
    epoll::add(epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN | EventFlags::ET)?;
    connections[place] =
        Some(Connection { stream, answers: 0, request_len_bytes: 0, owed_bytes: 0, at_bytes: 0, awaits_room: false });
    Ok(())
}

impl Connection {
    /// Answers what has come, until nothing more has or the socket is full.
    #[inline]
    fn go_on(&mut self, canned: &Canned, bytes: &[u8], buffer: &mut [u8]) -> Next {
        let mut drained = false;
        loop {
            while self.owed_bytes > 0 {
                let piece = &bytes[self.at_bytes..][..self.owed_bytes.min(bytes.len() - self.at_bytes)];
                match send(&self.stream, piece, SendFlags::NOSIGNAL) {
                    Ok(sent_bytes) => {
                        self.owed_bytes -= sent_bytes;
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
            if drained {
                return Next::Wait;
            }
            match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Next::Close,
                Ok((read_bytes, _)) => {
                    // With edges alone, a read that did not fill the buffer has emptied the socket.
                    drained = read_bytes < buffer.len();
                    let unanswered_bytes = self.request_len_bytes + read_bytes;
                    let requests = unanswered_bytes / REQUEST_LEN_BYTES;
                    self.request_len_bytes = unanswered_bytes % REQUEST_LEN_BYTES;
                    // From the beginning of the buffer as often as can be: it is in the cache.
                    self.at_bytes %= canned.pattern_len_bytes();
                    self.owed_bytes = canned.len_bytes(self.answers, requests);
                    self.answers = self.answers.wrapping_add(requests);
                }
                Err(Errno::AGAIN) => return Next::Wait,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Close,
            }
        }
    }
}
