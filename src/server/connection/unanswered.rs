//! The bytes that a client sent and that are not answered yet.

use crate::server::pass::READ_LEN_BYTES;

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

    /// Returns the number of bytes that are allocated.
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
