//! Responses that wait until the socket takes them.

use std::sync::Arc;

use super::sending::{Piece, Unsent, need_store};

/// The maximum memory that a connection keeps for later responses after the pending responses are sent.
const KEPT_MAX_BYTES: usize = 16 << 10;

/// Responses that wait until the socket takes them.
#[derive(Default)]
pub(super) struct PendingResponses {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    /// The reply that shared pieces are ranges of. Its memory does not belong to the connection.
    shared: Option<Arc<[u8]>>,
    sent_bytes: usize,
    total_len_bytes: usize,
    passes_descriptors: bool,
}

impl PendingResponses {
    /// Stores the unsent responses of a pass.
    pub(super) fn keep(&mut self, unsent: &Unsent<'_>) {
        debug_assert!(self.copied.is_empty() && self.pieces.is_empty(), "earlier responses are still pending");
        self.copied.extend_from_slice(unsent.copied);
        self.pieces.extend_from_slice(unsent.pieces);
        self.shared = unsent.shared.cloned();
        self.sent_bytes = unsent.sent_bytes;
        self.total_len_bytes = unsent.total_len_bytes;
        self.passes_descriptors = unsent.passes_descriptors;
    }

    /// Discards all responses, and stores one response instead.
    pub(super) fn replace(&mut self, response: &[u8]) {
        self.clear();
        self.copied.extend_from_slice(response);
        (self.sent_bytes, self.total_len_bytes, self.passes_descriptors) = (0, response.len(), false);
    }

    /// Returns the unsent responses. `stage` is a buffer for bytes that are copied just before they are sent.
    pub(super) fn unsent<'a>(&'a self, stage: &'a mut Vec<u8>) -> Unsent<'a> {
        Unsent {
            copied: &self.copied,
            pieces: &self.pieces,
            shared: self.shared.as_ref(),
            sent_bytes: self.sent_bytes,
            total_len_bytes: self.total_len_bytes,
            passes_descriptors: self.passes_descriptors,
            refusal: None,
            stage,
            is_staged: false,
        }
    }

    /// Records that the first `sent_bytes` bytes of the responses are sent. If a `refusal` was sent instead of the only
    /// response (see [`Unsent::refuse`]), stores the refusal first, and `sent_bytes` counts bytes of the refusal.
    pub(super) fn advance_to(&mut self, sent_bytes: usize, refusal: Option<&[u8]>) {
        if let Some(refusal) = refusal {
            self.replace(refusal);
        }
        self.passes_descriptors &= refusal.is_none() && sent_bytes == 0;
        self.sent_bytes = sent_bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes == self.total_len_bytes
    }

    /// Returns the number of unsent bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.total_len_bytes - self.sent_bytes
    }

    /// Returns whether the unsent responses need the generation that they were read from, because they borrow bytes
    /// from its file or pass its descriptors.
    pub(super) fn needs_generation(&self) -> bool {
        !self.is_empty() && (need_store(&self.pieces) || self.passes_descriptors)
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
        self.shared = None;
        (self.sent_bytes, self.total_len_bytes) = (0, 0);
    }
}
