//! The state of a connection without its socket: unsent requests and received bytes.

use std::io::{self, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset};
use std::sync::Arc;

use super::address::Address;
use super::batch::{Batch, EncodeRequest, VisitResponse};
use super::columns::SelectedColumns;
use super::error::{ClientError, Phase};
use super::options::Options;
use super::retry::Deadline;
use crate::protocol::reader::{PartialResponse, ResponseReader};
use crate::protocol::response::Violation;

/// Encoded requests and received bytes of one connection.
#[derive(Debug)]
pub(super) struct Pipeline {
    requests: Vec<u8>,
    sent_bytes: usize,
    reader: ResponseReader,
    has_received: bool,
    /// The columns that were selected on the connection.
    pub(super) selected: Option<Arc<SelectedColumns>>,
}

impl Pipeline {
    pub(super) fn new(options: &Options) -> Self {
        let reader = ResponseReader::new(options.value_len_max_bytes);
        Pipeline { requests: Vec::new(), sent_bytes: 0, reader, has_received: false, selected: None }
    }

    /// Visits the responses that have arrived, and encodes more requests once the earlier ones are sent. Returns
    /// whether the batch is complete.
    #[inline]
    pub(super) fn advance<E: EncodeRequest, V: VisitResponse>(
        &mut self,
        batch: &mut Batch<E, V>,
    ) -> Result<bool, Violation> {
        batch.visit_responses(&mut self.reader)?;
        if batch.is_all_received() {
            self.reader.finish()?;
            if !self.unsent().is_empty() {
                return Err(Violation::ResponseBeforeRequest);
            }
            if batch.is_all_sent() {
                return Ok(true);
            }
        }
        if self.unsent().is_empty() {
            self.requests.clear();
            self.sent_bytes = 0;
            batch.fill(&mut self.requests);
        }
        Ok(false)
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.requests[self.sent_bytes..]
    }

    /// Marks the first `len_bytes` of [`Pipeline::unsent`] as sent.
    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
    }

    /// Returns the buffer to receive bytes into.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.reader.spare()
    }

    /// Marks the first `len_bytes` of [`Pipeline::spare`] as received.
    pub(super) fn received(&mut self, len_bytes: usize) {
        self.has_received = true;
        self.reader.received(len_bytes);
    }

    /// Returns [`Phase::Send`] if the connection has unsent requests, and [`Phase::Receive`] if it only waits for
    /// responses.
    pub(super) fn phase(&self) -> Phase {
        match self.unsent().is_empty() {
            true => Phase::Receive,
            false => Phase::Send,
        }
    }

    /// Returns the error of a call whose requests could not be sent, or whose responses could not be received.
    #[cold]
    pub(super) fn error(&self, server: &Address, error: TransferError, deadline: Deadline) -> ClientError {
        let server = server.clone();
        match error {
            TransferError::TimedOut(phase) => {
                ClientError::TimedOut { server, phase, after: deadline.started.elapsed() }
            }
            // The kernel reports these errors if the peer closed the connection before it read every request.
            TransferError::System(_, error) if [ConnectionReset, BrokenPipe].contains(&error.kind()) => {
                self.closed(server)
            }
            TransferError::System(phase, error) => ClientError::Io { server, phase, error },
            TransferError::Closed => self.closed(server),
            TransferError::Tls(problem) => ClientError::Tls { server, problem },
        }
    }

    fn closed(&self, server: Address) -> ClientError {
        match self.has_received {
            false => ClientError::Refused { server },
            true => {
                let PartialResponse { part, arrived_bytes, expected_bytes } = self.reader.partial();
                ClientError::Closed { server, part, arrived_bytes, expected_bytes }
            }
        }
    }
}

/// The reason why requests could not be sent, or responses could not be received.
#[derive(Debug)]
pub(super) enum TransferError {
    TimedOut(Phase),
    Closed,
    System(Phase, io::Error),
    /// The encryption failed: the reason, and what to do.
    Tls(String),
}

impl TransferError {
    /// Replaces the error's phase by [`Phase::Connect`], for an error that occurred before the connection was usable.
    pub(super) fn while_connecting(self) -> Self {
        match self {
            TransferError::TimedOut(_) => TransferError::TimedOut(Phase::Connect),
            TransferError::System(_, error) => TransferError::System(Phase::Connect, error),
            error => error,
        }
    }
}
