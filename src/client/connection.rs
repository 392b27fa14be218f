//! A socket, and what is under way on it, for a thread that waits.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::batch::{Batch, Put, Take};
use super::error::{ClientError, Phase};
use super::link::{Fault, Link};
use super::options::Options;
use super::retry::Deadline;
use super::socket::{connect_within, is_quiet, set_timeout};

/// A socket, and what is under way on it.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    link: Link,
    /// How long the system waits for bytes, as it was last told.
    receive_timeout: Option<Duration>,
}

impl Connection {
    pub(super) fn new(path: &Path, options: &Options, deadline: Deadline) -> Result<Self, ClientError> {
        let timeout = deadline.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let socket = connect_within(path, timeout, options.server_user.as_deref())?;
        Ok(Connection { socket, link: Link::new(options), receive_timeout: None })
    }

    /// Whether nothing has come that was not asked for, the end included.
    pub(super) fn is_quiet(&self) -> bool {
        is_quiet(&self.socket)
    }

    pub(super) fn exchange<P: Put, R: Take>(
        &mut self,
        path: &Path,
        batch: &mut Batch<P, R>,
        deadline: Deadline,
    ) -> Result<(), ClientError> {
        while !self.link.turn(batch).map_err(|violation| ClientError::violation(path, violation))? {
            let moved = self.send().and_then(|()| self.receive(deadline));
            moved.map_err(|fault| self.link.failed(path, fault, deadline))?;
        }
        Ok(())
    }

    /// Sends what the socket takes at once.
    fn send(&mut self) -> Result<(), Fault> {
        while !self.link.unsent().is_empty() {
            match send(&self.socket, self.link.unsent(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len_bytes) => self.link.sent(len_bytes),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::System(Phase::Send, error.into())),
            }
        }
        Ok(())
    }

    /// Receives what has come, or waits for it. As long as something is unsent, room
    /// to send it ends the wait as well: the server may read nothing before its
    /// answers are taken, and send nothing before it has read.
    fn receive(&mut self, deadline: Deadline) -> Result<(), Fault> {
        let is_all_sent = self.link.unsent().is_empty();
        let flags = if is_all_sent { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let phase = self.link.phase();
        loop {
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Fault::TimedOut(phase));
            }
            if is_all_sent {
                self.wait_at_most(left).map_err(|error| Fault::System(phase, error.into()))?;
            } else {
                self.wait_for_either(left)?;
            }
            match recv(&self.socket, self.link.room(), flags) {
                Ok((_, 0)) => return Err(Fault::Closed),
                Ok((_, len_bytes)) => {
                    self.link.received(len_bytes);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if is_all_sent => return Err(Fault::TimedOut(phase)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(Fault::System(phase, error.into())),
            }
        }
    }

    /// Tells the system how long to wait for bytes, if what it was told last is off by
    /// more than a sixty-fourth. For a lone question it is not.
    fn wait_at_most(&mut self, left: Option<Duration>) -> Result<(), Errno> {
        let is_close = match (self.receive_timeout, left) {
            (Some(told), Some(left)) => told.abs_diff(left) <= told / 64,
            (told, left) => told == left,
        };
        if !is_close {
            set_timeout(&self.socket, Timeout::Recv, left)?;
            self.receive_timeout = left;
        }
        Ok(())
    }

    fn wait_for_either(&self, left: Option<Duration>) -> Result<(), Fault> {
        // What is too long for the system to wait is not waited for to the end.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)], timeout.as_ref()) {
            Ok(0) => Err(Fault::TimedOut(Phase::Send)),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Fault::System(Phase::Send, error.into())),
        }
    }
}
