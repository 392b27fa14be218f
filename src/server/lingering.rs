//! Sockets of ended connections whose clients have not received all responses.
//!
//! In: the socket of a connection that ends. Out: the end of the socket, once the kernel holds no more responses for it.
//!
//! After the server has closed a socket, the kernel keeps the responses that the client has not received, and counts
//! them as memory of the server's control group. A client could connect, request a long response, and end the
//! connection without receiving it, again and again. So the server keeps such a socket open, and counts its responses as
//! client memory. The client sees no difference: it receives its responses, and then the end of the stream.
//!
//! Lingering sockets use the descriptors that connections leave. If a new connection finds no descriptor, it replaces the
//! socket that has lingered for the longest time. What the kernel still holds for that socket is not counted any more.
//! While lingering sockets hold as much memory as the limit on client memory, users of the Unix socket to whom much of it
//! belongs cannot open other connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, socket_peercred};
use rustix::net::{Shutdown, shutdown};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::limits::Limits;
use super::newest_tasks::Place;
use super::socket_memory::SocketMemory;
use super::state::ServerState;

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

/// Ends the stream of a socket, but keeps the socket open while the kernel holds responses for it. The caller closes its
/// own descriptor of the socket.
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
