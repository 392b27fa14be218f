//! The sockets that responses are sent on, the clients at their other ends, and the memory that the kernel holds for
//! them.

pub(super) mod memory;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

use crate::user_namespace::is_ambiguous;
use memory::has_unread_bytes;

/// The files whose descriptors are passed with one response: the table, and the shared page with the table's state.
pub(super) type Descriptors = [File; 2];

pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Sends bytes, and passes descriptors with the first byte. First waits until the client has received everything
    /// that was sent before, so that no connection has more than one response with descriptors in flight.
    fn poll_send_with(&self, cx: &mut Context<'_>, bytes: &[u8], descriptors: &Descriptors) -> Poll<io::Result<usize>>;

    fn socket(&self) -> BorrowedFd<'_>;

    /// Sends what the protocol of the stream sends at its end, if there is something. Called once, when the connection
    /// ends.
    fn announce_end(&mut self) {}

    /// Returns the number of bytes that the stream itself has allocated.
    #[inline]
    fn held_bytes(&self) -> usize {
        0
    }
}

impl ClientStream for UnixStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn poll_send_with(&self, cx: &mut Context<'_>, bytes: &[u8], descriptors: &Descriptors) -> Poll<io::Result<usize>> {
        let descriptors = descriptors.each_ref().map(File::as_fd);
        let send = || {
            if has_unread_bytes(self)? {
                // The socket becomes writable again, as the runtime sees it, when the client receives bytes.
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            let fits = rights.push(SendAncillaryMessage::ScmRights(&descriptors));
            debug_assert!(fits, "the buffer has space for two descriptors");
            Ok(sendmsg(self, &[IoSlice::new(bytes)], &mut rights, SendFlags::NOSIGNAL)?)
        };
        loop {
            ready!(self.poll_write_ready(cx))?;
            match self.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl ClientStream for TcpStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn poll_send_with(&self, _: &mut Context<'_>, _: &[u8], _: &Descriptors) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// Returns whether a send failed because the server's user has more descriptors in flight than a process may have open
/// (`RLIMIT_NOFILE`).
pub(super) fn is_too_many(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

/// Sends at most `max_bytes` bytes of pieces of memory in order, and returns the number of bytes that the socket took.
/// Passes the descriptors, if there are any, with the first byte.
pub(super) fn poll_send<S: ClientStream>(
    mut stream: Pin<&mut S>,
    cx: &mut Context<'_>,
    pieces: &[IoSlice],
    max_bytes: usize,
    descriptors: Option<&Descriptors>,
) -> Poll<io::Result<usize>> {
    let polled = match (first_pieces(pieces, max_bytes), descriptors) {
        ([piece], None) => stream.poll_write(cx, &piece[..piece.len().min(max_bytes)]),
        (pieces, None) => stream.poll_write_vectored(cx, pieces),
        (pieces, Some(descriptors)) => stream.as_mut().poll_send_with(cx, &pieces[0], descriptors),
    };
    match polled {
        Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        polled => polled,
    }
}

/// Returns the first pieces that have at most `max_bytes` bytes together, or the first piece that is not empty if it is
/// longer.
#[inline]
fn first_pieces<'a, 'b>(pieces: &'a [IoSlice<'b>], max_bytes: usize) -> &'a [IoSlice<'b>] {
    if let [_] = pieces {
        return pieces;
    }
    let empty_count = pieces.iter().take_while(|piece| piece.is_empty()).count();
    let pieces = &pieces[empty_count..];
    let mut left_bytes = max_bytes;
    let fitting = |piece: &&IoSlice<'_>| match left_bytes.checked_sub(piece.len()) {
        Some(rest) => {
            left_bytes = rest;
            true
        }
        None => false,
    };
    let count = pieces.iter().take_while(fitting).count();
    &pieces[..count.max(1).min(pieces.len())]
}

/// The client at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A TCP client, and its address.
    Tcp(SocketAddr),
    /// A client of the Unix socket, and its process if the system reports it.
    Unix(Option<Process>),
}

/// A client's process and the user of that process, as they were when the client connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The process ID, or 0 if the process is not visible, for example because it is in another container.
    pid: i32,
    uid: u32,
}

impl Peer {
    pub(super) fn from_stream(stream: &UnixStream) -> Peer {
        let process = |cred: tokio::net::unix::UCred| Process { pid: cred.pid().unwrap_or_default(), uid: cred.uid() };
        Peer::Unix(stream.peer_cred().ok().map(process))
    }

    /// Returns the address of a TCP client, or `None` for a client of the Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Peer::Tcp(address) => Some(*address),
            Peer::Unix(_) => None,
        }
    }

    /// Returns whether the client uses the Unix socket, over which it can receive descriptors.
    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Peer::Unix(_))
    }

    /// Returns whether the client may change which generation is served: its user must be root or the user that the
    /// server runs as. Returns false if the ID of the client's user is the overflow ID of a user namespace, and may
    /// therefore also represent other users.
    pub(super) fn is_admin(&self) -> bool {
        let ours = rustix::process::geteuid().as_raw();
        matches!(self, Peer::Unix(Some(Process { uid, .. })) if [0, ours].contains(uid) && !is_ambiguous(*uid))
    }
}

impl Default for Peer {
    fn default() -> Self {
        Peer::Unix(None)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => write!(f, "{address}"),
            Peer::Unix(Some(Process { pid, uid })) => write!(f, "pid {pid} uid {uid}"),
            Peer::Unix(None) => write!(f, "unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_maximum_is_sent_at_once() {
        let lengths = |lengths: &[usize], max_bytes: usize| -> Vec<usize> {
            let bytes = [0; 100];
            let pieces: Vec<IoSlice<'_>> = lengths.iter().map(|len| IoSlice::new(&bytes[..*len])).collect();
            first_pieces(&pieces, max_bytes).iter().map(|piece| piece.len()).collect()
        };
        assert_eq!(lengths(&[10, 20, 30], 100), [10, 20, 30]);
        assert_eq!(lengths(&[10, 20, 30], 59), [10, 20]);
        assert_eq!(lengths(&[10, 20, 30], 10), [10]);
        assert_eq!(lengths(&[10, 20, 30], 9), [10]);
        assert_eq!(lengths(&[0, 20, 30], 9), [20]);
        assert_eq!(lengths(&[0, 20, 0, 30], 20), [20, 0]);
        assert_eq!(lengths(&[50], 9), [50]);
    }
}
