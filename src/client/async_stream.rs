//! A nonblocking socket, and its TLS session if it has one.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

use super::tls::TlsSession;

/// A connection to a server as a stream of bytes, for programs that encode requests themselves.
///
/// With TLS, a write may leave encrypted bytes in a buffer. Every later write, flush, or read sends as many of these
/// bytes as the socket accepts.
#[derive(Debug)]
pub struct AsyncStream {
    pub(super) socket: AsyncSocket,
    pub(super) tls: Option<Box<TlsSession>>,
}

/// A socket that is registered with the tokio runtime.
#[derive(Debug)]
pub(super) enum AsyncSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsyncSocket {
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            AsyncSocket::Unix(stream) => stream.ready(interest).await,
            AsyncSocket::Tcp(stream) => stream.ready(interest).await,
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            AsyncSocket::Unix(stream) => stream.poll_read_ready(cx),
            AsyncSocket::Tcp(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            AsyncSocket::Unix(stream) => stream.poll_write_ready(cx),
            AsyncSocket::Tcp(stream) => stream.poll_write_ready(cx),
        }
    }
}

impl AsFd for AsyncSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            AsyncSocket::Unix(stream) => stream.as_fd(),
            AsyncSocket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &AsyncSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            AsyncSocket::Unix(stream) => stream.try_read(buffer),
            AsyncSocket::Tcp(stream) => stream.try_read(buffer),
        }
    }
}

impl Write for &AsyncSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            AsyncSocket::Unix(stream) => stream.try_write(bytes),
            AsyncSocket::Tcp(stream) => stream.try_write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends all encrypted records.
fn poll_send(socket: &AsyncSocket, session: &mut TlsSession, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        match session.send(&mut &*socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(socket.poll_write_ready(cx))?,
            sent => return Poll::Ready(sent),
        }
    }
}

impl AsyncRead for AsyncStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let AsyncStream { socket, tls } = self.get_mut();
        let Some(session) = tls else {
            return match socket {
                AsyncSocket::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
                AsyncSocket::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            };
        };
        // An error is ignored, because reading reports errors of the connection, too.
        let _ = poll_send(socket, session, cx);
        loop {
            match session.decrypt(buffer.initialize_unfilled()) {
                Ok(None) => {}
                Ok(Some(len_bytes)) => {
                    buffer.advance(len_bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(problem) => {
                    let _ = session.send(&mut &*socket);
                    return Poll::Ready(Err(io::Error::other(problem)));
                }
            }
            ready!(socket.poll_read_ready(cx))?;
            match session.receive(&mut &*socket) {
                Ok(0) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let AsyncStream { socket, tls } = self.get_mut();
        let Some(session) = tls else {
            return match socket {
                AsyncSocket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
                AsyncSocket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            };
        };
        ready!(poll_send(socket, session, cx))?;
        let len_bytes = session.encrypt(bytes);
        let _ = poll_send(socket, session, cx)?;
        Poll::Ready(Ok(len_bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let AsyncStream { socket, tls } = self.get_mut();
        tls.as_mut().map_or(Poll::Ready(Ok(())), |session| poll_send(socket, session, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            AsyncSocket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            AsyncSocket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
