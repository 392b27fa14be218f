//! Responses that are not sent yet, from the current pass or from an earlier one.

use std::io::{self, IoSlice};

use crate::server::pending::PendingResponses;
use crate::server::responses::Responses;
use crate::server::sending::Stage;
use crate::store::Store;

/// Responses that are not sent yet.
pub(super) trait Unsent {
    /// Returns whether all responses are sent.
    fn is_empty(&self) -> bool;

    /// Returns whether descriptors must be passed with the next byte.
    fn passes_descriptors(&self) -> bool;

    /// Calls `send` with the unsent bytes, or with the first of them.
    ///
    /// # Errors
    /// If the file was changed since the lookup.
    fn with<T>(&mut self, store: &Store, send: impl FnOnce(&[IoSlice]) -> T) -> io::Result<T>;

    /// Discards the only response, which would pass descriptors, and stores `response` instead, which passes none.
    fn replace(&mut self, response: &[u8]);

    /// Records that the next `len_bytes` bytes were sent.
    fn advance(&mut self, len_bytes: usize);
}

/// The responses of the current pass, of which the first `sent_bytes` bytes are sent.
pub(super) struct UnsentOfPass<'a> {
    pub(super) responses: &'a mut Responses,
    pub(super) sent_bytes: usize,
}

impl Unsent for UnsentOfPass<'_> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.sent_bytes >= self.responses.total_len_bytes()
    }

    #[inline]
    fn passes_descriptors(&self) -> bool {
        self.responses.passes_descriptors(self.sent_bytes)
    }

    #[inline]
    fn with<T>(&mut self, store: &Store, send: impl FnOnce(&[IoSlice]) -> T) -> io::Result<T> {
        self.responses.with_unsent(store, self.sent_bytes, send)
    }

    fn replace(&mut self, response: &[u8]) {
        self.responses.replace(response);
    }

    #[inline]
    fn advance(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
    }
}

/// The pending responses of an earlier pass.
pub(super) struct UnsentOfEarlierPass<'a> {
    pub(super) pending: &'a mut PendingResponses,
    pub(super) stage: &'a mut Stage,
}

impl Unsent for UnsentOfEarlierPass<'_> {
    fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn passes_descriptors(&self) -> bool {
        self.pending.passes_descriptors()
    }

    fn with<T>(&mut self, store: &Store, send: impl FnOnce(&[IoSlice]) -> T) -> io::Result<T> {
        self.pending.with(store, self.stage, send)
    }

    fn replace(&mut self, response: &[u8]) {
        self.pending.replace(response);
    }

    fn advance(&mut self, len_bytes: usize) {
        self.pending.advance(len_bytes);
    }
}
