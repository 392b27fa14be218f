//! The connection of the tokio client. A task that waits for the socket does not block its thread.

use std::path::Path;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout_at};

use super::address::Address;
use super::async_stream::{AsyncSocket, AsyncStream};
use super::error::{ClientError, Phase};
use super::options::Options;
use super::pipeline::{Pipeline, TransferError};
use super::retry::Deadline;
use super::socket::connect_now;
use super::target::Target;
use super::tcp;
use super::transport::{self, decrypt, has_unsent_records, receive_responses, send_requests};

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
            Address::Tcp(tcp) => AsyncSocket::Tcp(tcp::connect_task(server, tcp, deadline).await?),
        };
        let stream = AsyncStream { socket, tls };
        let mut connection = AsyncConnection { stream, pipeline: Pipeline::new(options) };
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

    /// Returns true if the connection is open and has no unread bytes.
    pub(super) fn is_idle(&mut self) -> bool {
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
