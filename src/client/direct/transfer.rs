//! Receives a table from a server.
//!
//! In: a socket. Out: the table, which is opened from the descriptor that the server sent. The table's digest must
//! equal the digest in the response.

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
use super::generation::{Generation, GenerationWitness};
use crate::client::error::Phase;
use crate::client::retry::Deadline;
use crate::client::socket::{connect_within, set_timeout};
use crate::client::{ClientError, Options};
use crate::direct::{Notice, TableState};
use crate::protocol::native::{OPEN_LEN_BYTES, Op, OpenHeader, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};
use crate::protocol::reader::ResponsePart;
use crate::protocol::response::{CheckedHeader, Violation};
use crate::store::{Memory, OpenOptions, Store, Verify, has_holes_that_take_memory, is_sealed, survive_bus_errors};

/// Pause before a failed transfer is repeated. A transfer fails if the server meanwhile replaces the table or stops
/// trusting its file.
const REPEAT_PAUSE: Duration = Duration::from_millis(1);
const ATTEMPTS_MAX: u32 = 100;

/// A connection over which a server transfers its tables.
pub(super) struct TransferConnection {
    stream: UnixStream,
    call_timeout: Option<Duration>,
    /// Deadline of the current request or response.
    deadline: Deadline,
    /// The server's shared page, received with the first response. A server has only one shared page.
    notice: Option<Arc<Notice>>,
}

impl TransferConnection {
    pub(super) fn new(path: &Path, options: &DirectOptions) -> Result<TransferConnection, ClientError> {
        let Options { connect_timeout, call_timeout, server_user, .. } = &options.client;
        let stream = UnixStream::from(connect_within(path, *connect_timeout, server_user.as_deref())?);
        let call_timeout = *call_timeout;
        Ok(TransferConnection { stream, call_timeout, deadline: Deadline::after(call_timeout), notice: None })
    }

    /// Returns the socket, which becomes readable when a response arrives or the server ends.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Requests and receives the table that the server serves now.
    pub(super) fn transfer_current(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        self.restart_deadline();
        self.send_request(path, 0)?;
        self.receive_generation(path, options)
    }

    /// Requests the next table. The server responds when the state of its table differs from `state`.
    pub(super) fn request_next(&mut self, path: &Path, state: TableState) -> Result<(), ClientError> {
        self.restart_deadline();
        self.send_request(path, state.known())
    }

    /// Receives the table that was requested with [`TransferConnection::request_next`].
    pub(super) fn receive_next(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        self.restart_deadline();
        self.receive_generation(path, options)
    }

    fn restart_deadline(&mut self) {
        self.deadline = Deadline::after(self.call_timeout);
    }

    fn receive_generation(&mut self, path: &Path, options: &DirectOptions) -> Result<Generation, ClientError> {
        for attempt in 1..=ATTEMPTS_MAX {
            if attempt > 1 {
                thread::sleep(REPEAT_PAUSE);
                self.send_request(path, 0)?;
            }
            if let Some(generation) = self.receive_once(path, options)? {
                return Ok(generation);
            }
        }
        Err(direct_error(
            path,
            "the server replaced its table, or stopped trusting its file, during every transfer: see the server's log",
        ))
    }

    /// Receives a response and opens the transferred table. Returns `None` if the server now serves another generation,
    /// or no longer trusts the table's file.
    fn receive_once(&mut self, path: &Path, options: &DirectOptions) -> Result<Option<Generation>, ClientError> {
        let (header, table, page) = self.receive(path)?;
        let notice = match &self.notice {
            Some(notice) => notice,
            None => self.notice.insert(Arc::new(Notice::open(&page).map_err(|error| direct_error(path, error))?)),
        };
        let state = notice.state();
        let number = header.generation.get();
        // The server trusted the file when the server sent the response, but may have lost its lease since then.
        if !state.is_of(number) || !state.is_trusted() {
            return Ok(None);
        }
        let store = open(&table, path, options)?;
        if store.digest().to_be_bytes() != header.digest {
            return Err(direct_error(
                path,
                "the digest of the transferred file differs from the digest in the response: see the server's log",
            ));
        }
        let witness = GenerationWitness { notice: Arc::clone(notice), state };
        let generation = Generation::new(number, store, witness);
        Ok(generation.witness.notice.state().is_since(state).then_some(generation))
    }

    /// Sends a request for the table. The server responds when the state of its table differs from `known`, or at once
    /// if `known` is 0.
    fn send_request(&mut self, path: &Path, known: u64) -> Result<(), ClientError> {
        let request = Request::new(Op::Open, known);
        let sent = self.set_remaining_timeout(Timeout::Send).and_then(|()| self.stream.write_all(request.as_bytes()));
        sent.map_err(|error| transfer_error(path, Phase::Send, self.deadline.started.elapsed(), error))
    }

    /// Sets the socket's time-out for sending or receiving to the remaining time. Fails if no time is left.
    fn set_remaining_timeout(&self, which: Timeout) -> io::Result<()> {
        let left = self.deadline.left();
        match left.is_some_and(|left| left.is_zero()) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(set_timeout(&self.stream, which, left)?),
        }
    }

    fn receive(&mut self, path: &Path) -> Result<(OpenHeader, File, File), ClientError> {
        let failed = |error| transfer_error(path, Phase::Receive, self.deadline.started.elapsed(), error);
        let mut descriptors = Vec::new();
        let mut response = [0; RESPONSE_HEADER_LEN_BYTES + OPEN_LEN_BYTES];
        let (mut arrived_bytes, mut has_header) = (0, false);
        while arrived_bytes < response.len() {
            let spare = &mut response[arrived_bytes..];
            self.set_remaining_timeout(Timeout::Recv).map_err(failed)?;
            let (len_bytes, is_truncated) = receive_some(&self.stream, spare, &mut descriptors).map_err(failed)?;
            if is_truncated {
                return Err(direct_error(
                    path,
                    "this process has no free descriptors, or the server sent more than two: raise the limit \
                     (ulimit -n)",
                ));
            }
            if len_bytes == 0 {
                let (part, before_bytes, expected_bytes) = match has_header {
                    true => (ResponsePart::Value, RESPONSE_HEADER_LEN_BYTES, OPEN_LEN_BYTES),
                    false => (ResponsePart::Header, 0, RESPONSE_HEADER_LEN_BYTES),
                };
                let (server, arrived_bytes) = (path.into(), arrived_bytes - before_bytes);
                return Err(ClientError::Closed { server, part, arrived_bytes, expected_bytes });
            }
            arrived_bytes += len_bytes;
            if !has_header && arrived_bytes >= RESPONSE_HEADER_LEN_BYTES {
                check_header(path, &response)?;
                has_header = true;
            }
        }
        let (header, _) =
            OpenHeader::read_from_prefix(&response[RESPONSE_HEADER_LEN_BYTES..]).expect("a checked length");
        match <[OwnedFd; 2]>::try_from(descriptors) {
            Ok([table, page]) => Ok((header, table.into(), page.into())),
            Err(_) => Err(direct_error(path, "the response came without its two descriptors")),
        }
    }
}

/// Checks that a response header announces a table.
fn check_header(path: &Path, response: &[u8]) -> Result<(), ClientError> {
    let violation = |error: Violation| ClientError::Protocol { server: path.into(), error };
    let (header, _) = ResponseHeader::read_from_prefix(response).expect("at least the length of a header");
    match CheckedHeader::new(Op::Open, &header).map_err(violation)? {
        CheckedHeader::Found { .. } => Ok(()),
        _ => Err(direct_error(
            path,
            "the server does not transfer its table: its direct mode is off, its memory is a copy (choose map or \
             sealed), its file was changed in place, or too many transfers wait for clients that do not receive them: \
             see the server's log",
        )),
    }
}

/// Receives bytes, and the descriptors that come with them. Returns the number of bytes, and whether the kernel dropped
/// descriptors, for example because this process has too many open files.
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
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
}

fn open(table: &File, path: &Path, options: &DirectOptions) -> Result<Store, ClientError> {
    let open_failed =
        |error: crate::StoreError| direct_error(path, format!("the transferred table cannot be opened: {error}"));
    if options.memory == Memory::Map && !is_sealed(table) {
        if !options.survive_bus_errors {
            return Err(direct_error(
                path,
                "the server's file can be truncated, and DirectOptions::survive_bus_errors disables the handler that \
                 turns a truncation into a lookup error: enable the handler, copy the table (Memory::Copy), \
                 or start the server with sealed memory",
            ));
        }
        // The handler is installed before any byte is read, and again for each generation, because other code may have
        // replaced it.
        survive_bus_errors()
            .map_err(|error| direct_error(path, format!("a handler for SIGBUS cannot be installed: {error}")))?;
    }
    if has_holes_that_take_memory(table)
        .map_err(|error| direct_error(path, format!("the transferred table cannot be examined: {error}")))?
    {
        return Err(direct_error(
            path,
            "the transferred table has holes, and reading them would take memory that the server did not fill: replace \
             the server's file with a copy without holes, or serve it from a disk",
        ));
    }
    let open = OpenOptions { verify: Verify::Touch, ..options.open.clone() };
    Store::from_file(table, path, options.memory, &open, &mut |_| ()).map_err(open_failed)
}

fn transfer_error(path: &Path, phase: Phase, after: Duration, error: io::Error) -> ClientError {
    let server = path.into();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::TimedOut { server, phase, after },
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            let (part, expected_bytes) = (ResponsePart::Header, RESPONSE_HEADER_LEN_BYTES);
            ClientError::Closed { server, part, arrived_bytes: 0, expected_bytes }
        }
        _ => ClientError::Io { server, phase, error },
    }
}

fn direct_error(path: &Path, problem: impl ToString) -> ClientError {
    ClientError::Direct { server: path.into(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// Reading a hole of a memfd allocates memory. If clients did not check for holes, a server could fill a client's
    /// memory with a table of holes, which takes no memory until it is read.
    #[test]
    fn a_table_in_memory_with_holes_is_rejected_before_it_is_read() {
        const LEN_BYTES: u64 = 1 << 30;
        let table = File::from(memfd_create("table", MemfdFlags::CLOEXEC).unwrap());
        table.set_len(LEN_BYTES).unwrap();
        let error = open(&table, Path::new("s.sock"), &DirectOptions::default()).unwrap_err();
        assert!(error.to_string().contains("has holes"), "{error}");
        assert_eq!(table.metadata().unwrap().len(), LEN_BYTES);
        assert!(!has_memory(&table), "nothing was read");
    }

    fn has_memory(file: &File) -> bool {
        use std::os::unix::fs::MetadataExt;
        file.metadata().unwrap().blocks() > 0
    }
}
