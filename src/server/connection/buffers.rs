//! What a connection keeps between its turns: requests that are not answered yet, and responses that the socket has not
//! taken.

use std::sync::Arc;

use crate::server::responses::{Piece, Unsent, need_store};
use crate::server::turns::READ_LEN_BYTES;

/// The maximum capacity that an empty buffer keeps, so that a client that often sends requests in pieces does not cause
/// an allocation each time.
const KEPT_MAX_BYTES: usize = 2 * READ_LEN_BYTES;

/// Bytes that were read from a client and that are not answered yet.
#[derive(Default)]
pub(super) struct Unanswered {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that are already answered. They are removed when they take at least
    /// half of `bytes`, so that every byte is moved only a few times, however long the pipeline is.
    answered_bytes: usize,
}

impl Unanswered {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.answered_bytes..]
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.bytes.len() - self.answered_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends bytes that the client sent.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the first `len_bytes` bytes, which are answered.
    ///
    /// # Panics
    /// If `len_bytes` exceeds the number of unanswered bytes.
    pub(super) fn remove(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.len_bytes(), "answered bytes that were not read");
        self.answered_bytes += len_bytes;
        if self.answered_bytes < self.len_bytes() {
            return;
        }
        self.bytes.drain(..self.answered_bytes);
        self.answered_bytes = 0;
        if self.bytes.capacity() > KEPT_MAX_BYTES.max(4 * self.bytes.len()) {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

/// The maximum memory that a connection keeps for later responses after the pending responses are sent.
const PENDING_KEPT_MAX_BYTES: usize = 16 << 10;

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

    pub(super) fn len_bytes(&self) -> usize {
        self.total_len_bytes - self.sent_bytes
    }

    /// Returns whether the unsent responses need the generation that they were read from, because they borrow bytes
    /// from its file or pass its descriptors.
    pub(super) fn needs_generation(&self) -> bool {
        !self.is_empty() && (need_store(&self.pieces) || self.passes_descriptors)
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        size_of::<PendingResponses>() + self.copied.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Discards all responses. Keeps some of the memory, so that a client that often receives slowly does not cause an
    /// allocation each time.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.copied.shrink_to(PENDING_KEPT_MAX_BYTES);
        self.pieces.clear();
        self.shared = None;
        (self.sent_bytes, self.total_len_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_removed_in_the_order_in_which_they_were_added() {
        let (mut unanswered, mut expected) = (Unanswered::default(), std::collections::VecDeque::<u8>::new());
        for round in 0_usize..2000 {
            let added: Vec<u8> = (0..round * 37 % 101).map(|i| (round + i) as u8).collect();
            unanswered.push(&added);
            expected.extend(&added);
            let removed = round * 53 % 97;
            let removed = removed.min(expected.len());
            unanswered.remove(removed);
            expected.drain(..removed);
            assert_eq!(unanswered.len_bytes(), expected.len());
            assert!(expected.iter().eq(unanswered.bytes()));
        }
    }

    #[test]
    fn memory_is_released_as_a_long_pipeline_is_answered() {
        let mut unanswered = Unanswered::default();
        let mut moved_bytes = 0;
        unanswered.push(&vec![0; 8 << 20]);
        while !unanswered.is_empty() {
            let before = unanswered.answered_bytes;
            unanswered.remove(1024);
            if unanswered.answered_bytes < before {
                moved_bytes += unanswered.len_bytes();
            }
            assert!(unanswered.capacity_bytes() <= KEPT_MAX_BYTES.max(8 * unanswered.len_bytes()));
        }
        assert!(moved_bytes <= 8 << 20, "{moved_bytes} bytes were moved");
        assert!(unanswered.capacity_bytes() <= KEPT_MAX_BYTES);
    }
}
