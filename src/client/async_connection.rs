//! The connection of the tokio client. A task that waits for the socket does not block its thread.

use std::io::ErrorKind::WouldBlock;
use std::path::Path;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout_at};

use super::error::{ClientError, Phase};
use super::options::Options;
use super::pipeline::{Pipeline, TransferError};
use super::retry::Deadline;
use super::socket::{connect_now, is_idle};

/// Pause between attempts to connect to a server whose queue of new connections is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// A nonblocking socket, with its unsent requests and received bytes.
#[derive(Debug)]
pub(super) struct AsyncConnection {
    stream: UnixStream,
    pub(super) pipeline: Pipeline,
}

impl AsyncConnection {
    pub(super) async fn connect(path: &Path, options: &Options, call: Deadline) -> Result<Self, ClientError> {
        let timeout = call.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let deadline = Deadline::after(Some(timeout));
        loop {
            if let Some(socket) = connect_now(path, options.server_user.as_deref())? {
                let stream = UnixStream::from_std(socket.into());
                let stream = stream.map_err(|error| ClientError::connect(path, error))?;
                return Ok(AsyncConnection { stream, pipeline: Pipeline::new(options) });
            }
            // The kernel does not report when the server's queue has room again, so the client polls.
            match deadline.left() {
                Some(left) if left.is_zero() => {
                    let after = deadline.started.elapsed();
                    return Err(ClientError::TimedOut { path: path.to_path_buf(), phase: Phase::Connect, after });
                }
                left => sleep(left.map_or(FULL_QUEUE_PAUSE, |left| left.min(FULL_QUEUE_PAUSE))).await,
            }
        }
    }

    /// Returns true if the connection is open and has no unread bytes.
    pub(super) fn is_idle(&self) -> bool {
        is_idle(&self.stream)
    }

    /// Sends as many bytes of requests as the socket accepts, then waits for bytes of responses and receives them.
    pub(super) async fn transfer(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        self.send()?;
        self.receive(deadline).await
    }

    fn send(&mut self) -> Result<(), TransferError> {
        while !self.pipeline.unsent().is_empty() {
            match self.stream.try_write(self.pipeline.unsent()) {
                Ok(len_bytes) => self.pipeline.sent(len_bytes),
                Err(error) if error.kind() == WouldBlock => break,
                Err(error) => return Err(TransferError::System(Phase::Send, error)),
            }
        }
        Ok(())
    }

    /// Waits for bytes and receives them. While requests are unsent, the wait also ends when the socket is writable.
    async fn receive(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        let phase = self.pipeline.phase();
        // This check is necessary if the peer sends byte by byte: the socket is then always ready, so the wait below
        // never times out.
        if deadline.left().is_some_and(|left| left.is_zero()) {
            return Err(TransferError::TimedOut(phase));
        }
        let interest = match phase {
            Phase::Send => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let ready = match deadline.at() {
            Some(at) => timeout_at(at.into(), self.stream.ready(interest)).await,
            None => Ok(self.stream.ready(interest).await),
        };
        match ready {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(TransferError::System(phase, error)),
            Err(_) => return Err(TransferError::TimedOut(phase)),
        }
        match self.stream.try_read(self.pipeline.spare()) {
            Ok(0) => Err(TransferError::Closed),
            Ok(len_bytes) => {
                self.pipeline.received(len_bytes);
                Ok(())
            }
            Err(error) if error.kind() == WouldBlock => Ok(()),
            Err(error) => Err(TransferError::System(phase, error)),
        }
    }
}
