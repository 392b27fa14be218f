//! The connection of the blocking client. The calling thread waits for the socket.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::error::{ClientError, Phase};
use super::options::Options;
use super::pipeline::{Pipeline, TransferError};
use super::retry::Deadline;
use super::socket::{connect_within, is_idle, set_timeout};

/// A socket, with its unsent requests and received bytes.
#[derive(Debug)]
pub(super) struct BlockingConnection {
    socket: OwnedFd,
    pub(super) pipeline: Pipeline,
    /// The socket's receive time-out (SO_RCVTIMEO).
    receive_timeout: Option<Duration>,
}

impl BlockingConnection {
    pub(super) fn connect(path: &Path, options: &Options, deadline: Deadline) -> Result<Self, ClientError> {
        let timeout = deadline.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let socket = connect_within(path, timeout, options.server_user.as_deref())?;
        Ok(BlockingConnection { socket, pipeline: Pipeline::new(options), receive_timeout: None })
    }

    /// Returns true if the connection is open and has no unread bytes.
    pub(super) fn is_idle(&self) -> bool {
        is_idle(&self.socket)
    }

    /// Sends as many bytes of requests as the socket accepts, then waits for bytes of responses and receives them.
    pub(super) fn transfer(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        self.send()?;
        self.receive(deadline)
    }

    fn send(&mut self) -> Result<(), TransferError> {
        while !self.pipeline.unsent().is_empty() {
            match send(&self.socket, self.pipeline.unsent(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len_bytes) => self.pipeline.sent(len_bytes),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(TransferError::System(Phase::Send, error.into())),
            }
        }
        Ok(())
    }

    /// Waits for bytes and receives them. While requests are unsent, the wait also ends when the socket is writable.
    /// Waiting only for bytes, or only for room in the socket, could take forever: a server may stop reading requests
    /// until the client receives responses, and a server sends no response before it has read the whole request.
    fn receive(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        let is_all_sent = self.pipeline.unsent().is_empty();
        let flags = if is_all_sent { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let phase = self.pipeline.phase();
        loop {
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(TransferError::TimedOut(phase));
            }
            if is_all_sent {
                self.set_receive_timeout(left).map_err(|error| TransferError::System(phase, error.into()))?;
            } else {
                self.wait_until_ready(left)?;
            }
            match recv(&self.socket, self.pipeline.spare(), flags) {
                Ok((_, 0)) => return Err(TransferError::Closed),
                Ok((_, len_bytes)) => {
                    self.pipeline.received(len_bytes);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if is_all_sent => return Err(TransferError::TimedOut(phase)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(TransferError::System(phase, error.into())),
            }
        }
    }

    /// Sets the socket's receive time-out, unless the current time-out is within 1/64 of `left`. Calls that send one
    /// request therefore set the time-out once per connection instead of once per call.
    fn set_receive_timeout(&mut self, left: Option<Duration>) -> Result<(), Errno> {
        let is_close = match (self.receive_timeout, left) {
            (Some(current), Some(left)) => current.abs_diff(left) <= current / 64,
            (current, left) => current == left,
        };
        if !is_close {
            set_timeout(&self.socket, Timeout::Recv, left)?;
            self.receive_timeout = left;
        }
        Ok(())
    }

    /// Waits until the socket is readable or writable.
    fn wait_until_ready(&self, left: Option<Duration>) -> Result<(), TransferError> {
        // A time-out beyond the kernel's range counts as unlimited.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)], timeout.as_ref()) {
            Ok(0) => Err(TransferError::TimedOut(Phase::Send)),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(TransferError::System(Phase::Send, error.into())),
        }
    }
}
