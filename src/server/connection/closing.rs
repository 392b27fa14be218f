//! The end of a connection: its last response, and its socket, which stays open while the kernel holds responses.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, socket_peercred};
use rustix::net::{Shutdown, shutdown};
use tokio::io::ReadBuf;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tracing::{error, warn};

use super::{Connection, End, Input};
use crate::server::limits::Limits;
use crate::server::process::newest_tasks::Place;
use crate::server::sockets::ClientStream;
use crate::server::sockets::memory::SocketMemory;
use crate::server::state::ServerState;
use crate::server::turns::Then;
use crate::setting::Setting;

/// The maximum number of bytes that the server reads and discards from a client that was refused.
const DISCARDED_MAX_BYTES: usize = 256 << 20;

impl<S: ClientStream> Connection<S> {
    /// Discards what the client still sends, and closes the connection when it has received its responses.
    #[cold]
    pub(super) fn discard_rest(&mut self) {
        if self.input == Input::Open {
            self.input = Input::Discarded;
        }
        self.then = Then::Close;
    }

    /// Counts discarded bytes. Returns whether the client has sent so many that the connection ends at once.
    pub(super) fn discard(&mut self, len_bytes: usize) -> bool {
        self.discarded_bytes += len_bytes;
        self.discarded_bytes > DISCARDED_MAX_BYTES
    }

    /// Ends a connection whose last response is sent. If the input is [`Input::Discarded`], first reads and discards
    /// the bytes that the client still sends, at most [`DISCARDED_MAX_BYTES`], until the stall time-out. Otherwise, the
    /// kernel would discard the last responses before the client could read them.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<End>> {
        if self.input == Input::Discarded && !self.context.worker.is_stopping() {
            self.end_pending();
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            loop {
                let mut buffer = ReadBuf::new(input);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
                let read_len_bytes = buffer.filled().len();
                if read_len_bytes == 0 || self.discard(read_len_bytes) {
                    break;
                }
            }
        }
        Poll::Ready(Ok(End::Connection))
    }

    /// Stores an error as the last pending response of a client whose input is [`Input::Discarded`]. The caller must
    /// already have answered all complete requests that arrived before the discarded bytes.
    #[cold]
    pub(super) fn refuse_excess(&mut self) {
        let server = &self.context.worker.server;
        let max_bytes = self.protocol.unanswered_max_bytes(server.settings.limits.buffer_max_bytes);
        server.statistics.totals.cut_buffer.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = server.excess_log.line() {
            warn!(
                peer = %self.context.peer,
                left_out,
                "disconnected: the client sent more than {max_bytes} bytes of requests without receiving the \
                 responses ({})",
                Setting::BufferMax
            );
        }
        let error = self.protocol.error(&format!(
            "more than {max_bytes} bytes of commands wait for their replies to be received ({}): the rest of the \
             pipeline was not executed; receive replies while sending, or send shorter pipelines",
            Setting::BufferMax
        ));
        self.unanswered = Default::default();
        self.pending.get_or_insert_default().replace(&error);
        self.begin_pending();
        self.then = Then::Close;
    }

    /// Answers the unfinished request of an evicted connection with an error, if the socket takes the error at once.
    /// Sends no error if a response is partly sent, because the client would mistake the error for the rest of the
    /// response.
    pub(super) fn refuse_unfinished(&mut self, cx: &mut Context<'_>) {
        let is_pending = self.pending.as_ref().is_some_and(|pending| !pending.is_empty());
        if self.unanswered.is_empty() || is_pending || self.then != Then::Read {
            return;
        }
        let max_bytes = self.context.worker.server.client_memory.max_bytes;
        let error = self.protocol.error(&format!(
            "all connections together hold more than {max_bytes} bytes ({}), and this one is among those that hold the \
             most: send shorter commands, or try again later",
            Setting::ClientMemoryMax
        ));
        // The connection ends, whether or not the client learns the reason.
        let _ = Pin::new(&mut self.stream).poll_write(cx, &error);
    }

    pub(super) fn report_panic(&self, panic: &str) {
        let server = &self.context.worker.server;
        server.statistics.totals.panics.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = server.panic_log.line() {
            error!(peer = %self.context.peer, left_out, "a bug in the server ended a connection: panic at {panic}");
        }
    }
}

/// The pause before the first check of a lingering socket. Each pause is twice as long as the one before. Most clients
/// receive their last response at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The first number of a duplicated descriptor, so that the duplicate never becomes a standard stream.
const DESCRIPTOR_MIN: i32 = 3;

/// A socket whose connection has ended.
struct Lingering {
    server: Arc<ServerState>,
    /// The place of the socket among the lingering sockets.
    _place: Place,
    socket: OwnedFd,
    /// The user of the client, if the socket is a Unix socket.
    user: Option<u32>,
    /// The memory that is counted for the socket.
    held_bytes: u64,
}

/// Ends the stream of a socket, but keeps the socket open while the kernel holds responses for it. The caller closes
/// its own descriptor of the socket.
///
/// With `resets`, discards the responses of a TCP socket instead, and the client gets a reset. The responses of a Unix
/// socket cannot be discarded.
pub(super) fn linger(server: &Arc<ServerState>, socket: BorrowedFd<'_>, is_unix: bool, resets: bool) {
    if !is_unix && resets {
        reset(socket);
        return;
    }
    let held_bytes = SocketMemory::of(socket).send_bytes;
    if held_bytes == 0 {
        return;
    }
    // Without a runtime, the process is ending. Without a descriptor, the kernel keeps the responses uncounted.
    if Handle::try_current().is_err() {
        return;
    }
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, DESCRIPTOR_MIN) else { return };
    // Fails only if the client has closed the connection.
    let _ = shutdown(&socket, Shutdown::Both);
    let user = if is_unix { socket_peercred(&socket).ok().map(|peer| peer.uid.as_raw()) } else { None };
    server.client_memory.replace_lingering(user, 0, held_bytes);
    server
        .lingering
        .spawn(|place| Lingering { server: Arc::clone(server), _place: place, socket, user, held_bytes }.run(is_unix));
}

/// Makes the kernel discard the responses of a TCP socket when the socket is closed.
fn reset(socket: BorrowedFd<'_>) {
    // If this fails, the kernel keeps the responses for some minutes.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

impl Lingering {
    /// Waits until the client has received everything. A TCP client that receives nothing for the stall time-out gets a
    /// reset.
    async fn run(mut self, is_unix: bool) {
        let stall_timeout = match self.server.settings.limits.stall_timeout {
            Duration::ZERO => Limits::STALL_TIMEOUT,
            timeout => timeout,
        };
        let (mut pause, mut stalled) = (PAUSE_MIN, Duration::ZERO);
        while self.held_bytes > 0 {
            sleep(pause).await;
            let held_bytes = SocketMemory::of(self.socket.as_fd()).send_bytes;
            stalled = if held_bytes < self.held_bytes { Duration::ZERO } else { stalled + pause };
            self.server.client_memory.replace_lingering(self.user, self.held_bytes, held_bytes);
            self.held_bytes = held_bytes;
            if !is_unix && stalled >= stall_timeout {
                return reset(self.socket.as_fd());
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.server.client_memory.replace_lingering(self.user, self.held_bytes, 0);
    }
}
