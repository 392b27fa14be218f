//! The sockets that responses are sent on.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

use super::memory::has_unread_bytes;

/// The files whose descriptors are passed with one response: the table, and the shared page with the table's state.
pub(in crate::server) type Descriptors = [File; 2];

/// The socket of a connection.
pub(in crate::server) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Sends bytes, and passes descriptors with the first byte. First waits until the client has received everything that
    /// was sent before, so that no connection has more than one response with descriptors in flight.
    fn poll_send_with(&self, cx: &mut Context<'_>, bytes: &[u8], descriptors: &Descriptors) -> Poll<io::Result<usize>>;

    /// Returns the socket.
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
pub(in crate::server) fn is_too_many(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

/// Sends at most `max_bytes` bytes of pieces of memory in order, and returns the number of bytes that the socket took.
/// Passes the descriptors, if there are any, with the first byte.
pub(in crate::server) fn poll_send<S: ClientStream>(
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
