//! A connection without its socket: what is to be sent, and what has come.

use std::io::{self, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset};
use std::path::{Path, PathBuf};

use super::batch::{Batch, Put, Take};
use super::error::{ClientError, Phase, Refusal};
use super::options::Options;
use super::retry::Deadline;
use crate::protocol::answer::Violation;
use crate::protocol::reader::{AnswerReader, Part};

/// What is to be sent on a connection, and what has come.
#[derive(Debug)]
pub(super) struct Link {
    requests: Vec<u8>,
    sent: usize,
    reader: AnswerReader,
    /// Whether a byte has ever come.
    has_heard: bool,
}

impl Link {
    pub(super) fn new(options: &Options) -> Self {
        let reader = AnswerReader::new(options.value_len_max_bytes);
        Link { requests: Vec::new(), sent: 0, reader, has_heard: false }
    }

    /// Hands on what has come, and puts more questions if there is room for them.
    /// Whether the batch is over.
    #[inline]
    pub(super) fn turn<P: Put, R: Take>(&mut self, batch: &mut Batch<P, R>) -> Result<bool, Violation> {
        batch.take(&mut self.reader)?;
        if batch.is_answered() {
            self.reader.finish()?;
            if !self.unsent().is_empty() {
                return Err(Violation::Early);
            }
            if batch.is_asked() {
                return Ok(true);
            }
        }
        if self.unsent().is_empty() {
            self.requests.clear();
            self.sent = 0;
            batch.fill(&mut self.requests);
        }
        Ok(false)
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.requests[self.sent..]
    }

    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.sent += len_bytes;
    }

    /// Where to receive to.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.reader.room()
    }

    pub(super) fn received(&mut self, len_bytes: usize) {
        self.has_heard = true;
        self.reader.received(len_bytes);
    }

    /// What it means that bytes cannot be sent or received.
    #[cold]
    pub(super) fn failed(&self, path: &Path, fault: Fault, deadline: Deadline) -> ClientError {
        let path = path.to_path_buf();
        match fault {
            Fault::TimedOut(phase) => ClientError::TimedOut { path, phase, after: deadline.started.elapsed() },
            // A peer that closes before it has read everything is seen so.
            Fault::System(_, error) if [ConnectionReset, BrokenPipe].contains(&error.kind()) => self.closed(path),
            Fault::System(phase, error) => ClientError::Io { path, phase, error },
            Fault::Closed => self.closed(path),
        }
    }

    /// What is under way: something to be sent, or nothing but answers.
    pub(super) fn phase(&self) -> Phase {
        match self.unsent().is_empty() {
            true => Phase::Receive,
            false => Phase::Send,
        }
    }

    fn closed(&self, path: PathBuf) -> ClientError {
        match self.has_heard {
            false => ClientError::Refused { path, reason: Refusal::Closed },
            true => {
                let Part { part, arrived_bytes, expected_bytes } = self.reader.part();
                ClientError::Closed { path, part, arrived_bytes, expected_bytes }
            }
        }
    }
}

/// Why bytes cannot be sent or received.
#[derive(Debug)]
pub(super) enum Fault {
    TimedOut(Phase),
    Closed,
    System(Phase, io::Error),
}
