//! Asking a server for its file.
//!
//! In: a socket. Out: the table that was handed over, opened and held against what
//! the server says of it.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::Timeout;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use zerocopy::{FromBytes, IntoBytes};

use super::DirectOptions;
use super::generation::{Generation, Word};
use crate::client::error::Phase;
use crate::client::retry::Deadline;
use crate::client::socket::{connect_within, set_timeout};
use crate::client::{ClientError, Options};
use crate::direct::{Notice, Standing, State};
use crate::protocol::answer::{Announced, Violation};
use crate::protocol::native::{OPEN_LEN_BYTES, Op, OpenHeader, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};
use crate::protocol::reader::AnswerPart;
use crate::store::{Memory, Store, is_sealed, survive_bus_errors};

/// A server that is about to serve another generation says so a moment later.
const AGAIN_AFTER: Duration = Duration::from_millis(1);
const TRIES: u32 = 100;

/// A connection over which tables are handed over.
pub(super) struct Connection {
    stream: UnixStream,
    call_timeout: Option<Duration>,
    /// Of what is being asked or taken.
    deadline: Deadline,
    /// The page that the server handed over first: it has only one.
    notice: Option<Arc<Notice>>,
}

impl Connection {
    pub(super) fn new(path: &Path, options: &DirectOptions) -> Result<Connection, ClientError> {
        let Options { connect_timeout, call_timeout, server_user, .. } = &options.client;
        let stream = UnixStream::from(connect_within(path, *connect_timeout, server_user.as_deref())?);
        let call_timeout = *call_timeout;
        Ok(Connection { stream, call_timeout, deadline: Deadline::after(call_timeout), notice: None })
    }

    /// Where an answer comes, or the end of the server is seen.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Has the table handed over that is served now.
    pub(super) fn ask(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        self.begin();
        self.put(path, 0)?;
        self.take_in_time(path, options)
    }

    /// Asks for the table that comes after a state.
    pub(super) fn ask_for_next(&mut self, path: &Path, state: State) -> Result<(), ClientError> {
        self.begin();
        self.put(path, state.known())
    }

    /// Takes the table that was asked for.
    pub(super) fn take(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        self.begin();
        self.take_in_time(path, options)
    }

    fn begin(&mut self) {
        self.deadline = Deadline::after(self.call_timeout);
    }

    fn take_in_time(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        for _ in 1..TRIES {
            if let Some(generation) = self.try_once(path, options)? {
                return Ok(generation);
            }
            thread::sleep(AGAIN_AFTER);
            self.put(path, 0)?;
        }
        Err(refused(path, "the server hands over another generation than it says it serves, again and again"))
    }

    /// Returns `None` if the server serves another generation by now, or no longer trusts its file.
    fn try_once(&mut self, path: &Path, options: &DirectOptions) -> Result<Option<Generation>, ClientError> {
        let (header, table, page) = self.receive(path)?;
        let notice = match &self.notice {
            Some(notice) => notice,
            None => self.notice.insert(Arc::new(Notice::open(&page).map_err(|error| refused(path, error))?)),
        };
        let state = notice.state();
        let number = header.generation.get();
        // The server transfers no file that it does not trust, but may have lost its lease meanwhile.
        if !state.is_of(number) || !state.is_trusted() {
            return Ok(None);
        }
        let store = open(&table, path, options, || notice.standing_since(state) == Standing::Unchanged)?;
        if store.digest().to_be_bytes() != header.digest {
            return Err(refused(path, "the file that was handed over is not the one that is served"));
        }
        let word = Word { notice: Arc::clone(notice), state };
        let generation = Generation::new(number, store, word);
        Ok(generation.word.notice.state().is_since(state).then_some(generation))
    }

    /// Asks for what is served when that is another state than the one known; 0 is none.
    fn put(&mut self, path: &Path, known: u64) -> Result<(), ClientError> {
        let request = Request::new(Op::Open, known);
        let sent = self.wait_at_most(Timeout::Send).and_then(|()| self.stream.write_all(request.as_bytes()));
        sent.map_err(|error| failed(path, Phase::Send, self.deadline.started.elapsed(), error))
    }

    /// Tells the system how much time is left.
    fn wait_at_most(&self, which: Timeout) -> io::Result<()> {
        let left = self.deadline.left();
        match left.is_some_and(|left| left.is_zero()) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(set_timeout(&self.stream, which, left)?),
        }
    }

    fn receive(&mut self, path: &Path) -> Result<(OpenHeader, File, File), ClientError> {
        let failed = |error| failed(path, Phase::Receive, self.deadline.started.elapsed(), error);
        let mut descriptors = Vec::new();
        let mut answer = [0; RESPONSE_HEADER_LEN_BYTES + OPEN_LEN_BYTES];
        let (mut arrived_bytes, mut is_announced) = (0, false);
        while arrived_bytes < answer.len() {
            let room = &mut answer[arrived_bytes..];
            self.wait_at_most(Timeout::Recv).map_err(failed)?;
            let (len_bytes, is_cut) = receive_some(&self.stream, room, &mut descriptors).map_err(failed)?;
            if is_cut {
                return Err(refused(path, "this process has no descriptors left: raise the limit (ulimit -n)"));
            }
            if len_bytes == 0 {
                let (part, before_bytes, expected_bytes) = match is_announced {
                    true => (AnswerPart::Value, RESPONSE_HEADER_LEN_BYTES, OPEN_LEN_BYTES),
                    false => (AnswerPart::Header, 0, RESPONSE_HEADER_LEN_BYTES),
                };
                let (path, arrived_bytes) = (path.to_path_buf(), arrived_bytes - before_bytes);
                return Err(ClientError::Closed { path, part, arrived_bytes, expected_bytes });
            }
            arrived_bytes += len_bytes;
            if !is_announced && arrived_bytes >= RESPONSE_HEADER_LEN_BYTES {
                check_announced(path, &answer)?;
                is_announced = true;
            }
        }
        let (header, _) = OpenHeader::read_from_prefix(&answer[RESPONSE_HEADER_LEN_BYTES..]).expect("a checked length");
        match <[OwnedFd; 2]>::try_from(descriptors) {
            Ok([table, page]) => Ok((header, table.into(), page.into())),
            Err(_) => Err(refused(path, "the server's answer came without the two descriptors that belong to it")),
        }
    }
}

/// Whether a header announces the table.
fn check_announced(path: &Path, answer: &[u8]) -> Result<(), ClientError> {
    let violation = |error: Violation| ClientError::Protocol { path: path.to_path_buf(), error };
    let (header, _) = ResponseHeader::read_from_prefix(answer).expect("as long as a header");
    match Announced::check(Op::Open, &header).map_err(violation)? {
        Announced::Found { .. } => Ok(()),
        _ => Err(refused(
            path,
            "the server does not hand its file over: it runs with --no-direct or --memory copy (--memory sealed is one \
             that it hands over), its file was changed in place, or too much is handed over that nobody takes: see its log",
        )),
    }
}

/// Receives bytes, and descriptors if they come with them; tells how many bytes, and
/// whether descriptors were lost.
fn receive_some(stream: &UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<(usize, bool)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(handed_over) = message {
            descriptors.extend(handed_over);
        }
    }
    Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
}

fn open(
    table: &File,
    path: &Path,
    options: &DirectOptions,
    is_leased: impl FnOnce() -> bool,
) -> Result<Store, ClientError> {
    let handed_over = |error: crate::StoreError| refused(path, format!("what was handed over: {error}"));
    if options.memory == Memory::Map && !is_sealed(table) {
        if !options.survive_bus_errors {
            return Err(refused(
                path,
                "the server's file can be truncated, and DirectOptions::survive_bus_errors forbids the handler that \
                 makes this an error of a lookup: allow it, copy the table (Memory::Copy), or start the server with \
                 --memory sealed",
            ));
        }
        // Before any of it is read, and again for each generation: other code may have replaced the handler.
        survive_bus_errors().map_err(|error| refused(path, format!("handling SIGBUS: {error}")))?;
    }
    Store::of_handed_over(table, path, options.memory, &options.open, is_leased).map_err(handed_over)
}

fn failed(path: &Path, phase: Phase, after: Duration, error: io::Error) -> ClientError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::TimedOut { path, phase, after },
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            let (part, expected_bytes) = (AnswerPart::Header, RESPONSE_HEADER_LEN_BYTES);
            ClientError::Closed { path, part, arrived_bytes: 0, expected_bytes }
        }
        _ => ClientError::Io { path, phase, error },
    }
}

fn refused(path: &Path, problem: impl ToString) -> ClientError {
    ClientError::Direct { path: path.to_path_buf(), problem: problem.to_string() }
}
