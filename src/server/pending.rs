//! Responses that wait until the socket takes them.

use std::io::{self, IoSlice};

use super::sending::{Piece, Sending, Stage};
use crate::store::Store;

/// The maximum memory that a connection keeps for later responses after the pending responses are sent.
const KEPT_MAX_BYTES: usize = 16 << 10;

/// Responses that wait until the socket takes them.
#[derive(Default)]
pub(super) struct PendingResponses {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    sent_bytes: usize,
    total_len_bytes: usize,
    passes_descriptors: bool,
}

impl PendingResponses {
    /// Stores the responses of a pass. The first `sent_bytes` bytes of the responses are already sent.
    pub(super) fn keep(&mut self, copied: &[u8], pieces: &[Piece], sent_bytes: usize, passes_descriptors: bool) {
        debug_assert!(self.copied.is_empty() && self.pieces.is_empty(), "earlier responses are still pending");
        self.copied.extend_from_slice(copied);
        self.pieces.extend_from_slice(pieces);
        self.sent_bytes = sent_bytes;
        self.total_len_bytes = copied.len() + pieces.iter().map(|piece| piece.len_bytes).sum::<usize>();
        self.passes_descriptors = passes_descriptors;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes == self.total_len_bytes
    }

    /// Returns the number of unsent bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.total_len_bytes - self.sent_bytes
    }

    /// Returns whether descriptors must be passed with the next byte.
    pub(super) fn passes_descriptors(&self) -> bool {
        self.passes_descriptors
    }

    /// Returns whether the unsent responses need the generation that they were read from, because they borrow bytes
    /// from its file or pass its descriptors.
    pub(super) fn needs_generation(&self) -> bool {
        !self.is_empty() && (!self.pieces.is_empty() || self.passes_descriptors)
    }

    /// Returns the number of bytes that are allocated for the pending responses.
    pub(super) fn capacity_bytes(&self) -> usize {
        size_of::<PendingResponses>() + self.copied.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Discards all responses. Keeps some of the memory, so that a client that often receives slowly does not cause an
    /// allocation each time.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.copied.shrink_to(KEPT_MAX_BYTES);
        self.pieces.clear();
    }

    /// Discards the only response, which would pass descriptors, and stores `response` instead, which passes none.
    pub(super) fn replace(&mut self, response: &[u8]) {
        self.clear();
        self.keep(response, &[], 0, false);
    }

    /// Records that the next `len_bytes` bytes were sent.
    pub(super) fn advance(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
        self.passes_descriptors = false;
    }

    /// Calls `send` with the unsent bytes, or with the first of them: see [`Sending::with`].
    ///
    /// # Errors
    /// If the file was changed since the lookup.
    pub(super) fn with<T>(
        &self,
        store: &Store,
        stage: &mut Stage,
        send: impl FnOnce(&[IoSlice]) -> T,
    ) -> io::Result<T> {
        Sending { copied: &self.copied, pieces: &self.pieces, sent_bytes: self.sent_bytes }.with(store, stage, send)
    }
}
