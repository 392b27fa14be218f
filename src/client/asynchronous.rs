//! The client for tasks on tokio, and its connection. A task that waits for the socket does not block its thread.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout_at};

use super::address::Address;
use super::columns::ColumnsCache;
use super::error::{ClientError, Phase};
use super::login::Login;
use super::options::Options;
use super::retry::Deadline;
use super::socket::{self, connect_now};
use super::target::Target;
use super::tls::TlsSession;
use super::transport::{
    self, Pipeline, Socket, TransferError, decrypt, has_unsent_records, receive_responses, send_requests,
};
use crate::format::key_type::KeyType;

/// A connection to a server, for tasks on tokio.
///
/// This client has the methods, time-outs, retries, and errors of [`Client`](super::Client). A client processes one
/// call at a time; concurrent tasks share an [`AsyncPool`](super::AsyncPool). A client works only on the runtime on
/// which it connected. If the future of a call is dropped before the call ends, the connection is closed and the next
/// call reconnects.
///
/// # Panics
/// All calls panic unless they run in a tokio runtime with I/O and time enabled.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), zero_kv::client::ClientError> {
/// use zero_kv::client::AsyncClient;
///
/// let mut client = AsyncClient::connect("/tmp/zero-kv.sock").await?;
/// let value = client.get(7).await?;
/// let values = client.get_many(&[7, 8, 9]).await?;
/// let mut rows = client.range("ant".."cat")?;
/// while let Some((key, value)) = rows.next().await? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncClient {
    pub(super) target: Arc<Target>,
    /// The login of the last successful call of `authenticate`. It replaces the login of the target.
    pub(super) login: Option<Login>,
    /// The schema of the table, and the columns that were requested last.
    pub(super) columns: ColumnsCache,
    /// The type that the keys of calls are encoded for. With `None`, they are stored keys.
    pub(super) key_type: Option<KeyType>,
    /// The end of all calls, if they are parts of a call to a cluster.
    pub(super) call_end: Option<Deadline>,
    /// The open connection, if any. Each call takes the connection out and puts it back only after success.
    pub(super) connection: Option<AsyncConnection>,
}

impl AsyncStream {
    /// Connects like [`AsyncClient::connect_with`], and logs in if the address or the options name a user. A login uses
    /// the native protocol, so a connection that has logged in can be used only with this protocol.
    ///
    /// # Errors
    /// The errors of [`AsyncClient::connect_with`].
    pub async fn connect_with(address: impl AsRef<OsStr>, options: &Options) -> Result<AsyncStream, ClientError> {
        let client = AsyncClient::connect_with(address, options).await?;
        Ok(client.connection.expect("a client that has just connected").into_stream())
    }
}

/// Pause between attempts to connect to a server whose queue of new connections is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// A nonblocking socket, with its unsent requests and received bytes.
#[derive(Debug)]
pub(super) struct AsyncConnection {
    stream: AsyncStream,
    pub(super) pipeline: Pipeline,
}

impl AsyncConnection {
    /// Connects, and completes the TLS handshake if the connection uses TLS.
    pub(super) async fn connect(target: &Target, call: Deadline) -> Result<Self, ClientError> {
        let (options, server) = (&target.options, &target.address);
        let timeout = call.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let deadline = Deadline::after(Some(timeout));
        let tls = target.start_tls()?;
        let socket = match server {
            Address::Unix(path) => AsyncSocket::Unix(connect_unix(path, options, deadline).await?),
            Address::Tcp(tcp) => AsyncSocket::Tcp(socket::connect_tcp_task(server, tcp, deadline).await?),
        };
        let stream = AsyncStream { socket, tls };
        let mut connection = AsyncConnection { stream, pipeline: Pipeline::new(server, options) };
        match connection.shake_hands(deadline).await {
            Ok(()) => Ok(connection),
            Err(error) => Err(connection.pipeline.error(server, error.while_connecting(), deadline)),
        }
    }

    /// Returns the connection as a stream of bytes. Unsent requests are dropped.
    pub(super) fn into_stream(self) -> AsyncStream {
        self.stream
    }

    async fn shake_hands(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        loop {
            self.send()?;
            if self.stream.tls.as_ref().is_none_or(|session| !session.is_handshaking()) {
                return Ok(());
            }
            self.receive(deadline).await?;
        }
    }

    /// Reads the notices that have arrived, without waiting. The runtime may not know yet that the socket is readable, so
    /// this method reads from the socket itself.
    pub(super) fn read_notices(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        let AsyncStream { socket, tls } = &mut self.stream;
        transport::read_notices(tls, &mut self.pipeline, &mut Socket::nonblocking(&*socket), deadline)
    }

    /// Returns true if the connection is open and has no unread bytes, apart from notices.
    pub(super) fn is_idle(&mut self, deadline: Deadline) -> bool {
        if self.pipeline.cache().is_some() {
            return self.read_notices(deadline).is_ok();
        }
        transport::is_idle(&mut self.stream.tls, &self.stream.socket)
    }

    /// Sends as many bytes of requests as the socket accepts, then waits for bytes of responses and receives them.
    pub(super) async fn transfer(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        self.send()?;
        self.receive(deadline).await
    }

    fn send(&mut self) -> Result<(), TransferError> {
        send_requests(&mut self.stream.tls, &mut self.pipeline, &mut &self.stream.socket)
    }

    /// Waits for bytes and receives them. While requests are unsent, the wait also ends when the socket is writable.
    async fn receive(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        let phase = self.pipeline.phase();
        // This check is necessary if the peer sends byte by byte: the socket is then always ready, so the wait below
        // never times out.
        if deadline.left().is_some_and(|left| left.is_zero()) {
            return Err(TransferError::TimedOut(phase));
        }
        if decrypt(&mut self.stream.tls, &mut self.pipeline, &mut &self.stream.socket)? {
            return Ok(());
        }
        let interest = match phase {
            Phase::Send => Interest::READABLE | Interest::WRITABLE,
            _ if has_unsent_records(&self.stream.tls) => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let ready = match deadline.at() {
            Some(at) => timeout_at(at.into(), self.stream.socket.ready(interest)).await,
            None => Ok(self.stream.socket.ready(interest).await),
        };
        match ready {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(TransferError::System(phase, error)),
            Err(_) => return Err(TransferError::TimedOut(phase)),
        }
        receive_responses(&mut self.stream.tls, &mut self.pipeline, &mut &self.stream.socket)?;
        Ok(())
    }
}

async fn connect_unix(path: &Path, options: &Options, deadline: Deadline) -> Result<UnixStream, ClientError> {
    loop {
        if let Some(socket) = connect_now(path, options.server_user.as_deref())? {
            return UnixStream::from_std(socket.into()).map_err(|error| ClientError::connect(&path.into(), error));
        }
        // The kernel does not report when the server's queue has room again, so the client polls.
        match deadline.left() {
            Some(left) if left.is_zero() => {
                let after = deadline.started.elapsed();
                return Err(ClientError::TimedOut { server: path.into(), phase: Phase::Connect, after });
            }
            left => sleep(left.map_or(FULL_QUEUE_PAUSE, |left| left.min(FULL_QUEUE_PAUSE))).await,
        }
    }
}

/// A connection to a server as a stream of bytes, for programs that encode requests themselves.
///
/// With TLS, a write may leave encrypted bytes in a buffer. Every later write, flush, or read sends as many of these
/// bytes as the socket accepts.
#[derive(Debug)]
pub struct AsyncStream {
    socket: AsyncSocket,
    tls: Option<Box<TlsSession>>,
}

/// A socket that is registered with the tokio runtime.
#[derive(Debug)]
enum AsyncSocket {
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
