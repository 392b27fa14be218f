//! Derives choices from bytes. Zeros follow the last byte, so any input is a complete case.

use zero_kv::slots::{SLOT_COUNT, SlotRange};

/// The bytes that were not yet used.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Draws a range of slots.
    pub(crate) fn slots(&mut self) -> SlotRange {
        let first = self.below(usize::from(SLOT_COUNT));
        let last = first + self.below(usize::from(SLOT_COUNT) - first);
        SlotRange { first_slot: first as u16, last_slot: last as u16 }
    }

    /// Returns a number below a limit, which is at most 65,536.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let high = if limit > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (high + usize::from(self.byte())) % limit
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn bytes(&mut self, len_bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len_bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
