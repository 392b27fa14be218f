//! Memory for the rows of a batch.
//!
//! Rows are fetched from all over memory when they are written in key order, so
//! it is in huge pages where the system has them: for 10 million rows of 100
//! bytes, writing them is two and a half times as fast. It goes back to the system as soon as it is
//! dropped, so that a bake takes what its budget says.

use memmap2::{Advice, MmapMut};

/// Memory comes in multiples of this, the length of a huge page on x86-64.
pub(in crate::bake) const PAGE_LEN_BYTES: usize = 2 << 20;
/// As long as there is less, it comes in small pages.
const SMALL_LEN_BYTES: usize = 64 << 10;

/// Bytes that are appended to.
#[derive(Default)]
pub(in crate::bake) struct Arena {
    memory: Option<MmapMut>,
    len_bytes: usize,
    /// The most that was appended: the system has given so much.
    most_bytes: usize,
}

/// There is no memory.
#[derive(Debug)]
pub(in crate::bake) struct Full;

impl Arena {
    /// Forgets what was appended. Memory is kept for so much, if it is not far more.
    pub(in crate::bake) fn clear(&mut self, wanted_bytes: usize) {
        const FAR_MORE: usize = 2;
        if self.taken_bytes() > FAR_MORE * wanted_bytes + PAGE_LEN_BYTES {
            *self = Arena::default();
        }
        self.len_bytes = 0;
    }

    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What the system has given.
    pub(in crate::bake) fn taken_bytes(&self) -> usize {
        let page_len_bytes = if self.capacity_bytes() < PAGE_LEN_BYTES { 4096 } else { PAGE_LEN_BYTES };
        self.most_bytes.next_multiple_of(page_len_bytes)
    }

    pub(in crate::bake) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len_bytes])
    }

    fn capacity_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    /// Has room for so many bytes in all. Memory that is not used costs nothing.
    pub(in crate::bake) fn reserve(&mut self, wanted_bytes: usize) -> Result<(), Full> {
        if wanted_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        let unit = if wanted_bytes < PAGE_LEN_BYTES { SMALL_LEN_BYTES } else { PAGE_LEN_BYTES };
        let mut memory = MmapMut::map_anon(wanted_bytes.next_multiple_of(unit)).map_err(|_| Full)?;
        if unit == PAGE_LEN_BYTES {
            // A system without huge pages refuses, and gives small ones.
            let _ = memory.advise(Advice::HugePage);
        }
        memory[..self.len_bytes].copy_from_slice(self.bytes());
        self.memory = Some(memory);
        self.most_bytes = self.len_bytes;
        Ok(())
    }

    /// Appends so many bytes, which have any value.
    #[inline]
    pub(in crate::bake) fn append(&mut self, len_bytes: usize) -> Result<&mut [u8], Full> {
        let (start, end) = (self.len_bytes, self.len_bytes + len_bytes);
        if end > self.capacity_bytes() {
            self.reserve(end.max(2 * self.capacity_bytes()))?;
        }
        self.len_bytes = end;
        self.most_bytes = self.most_bytes.max(end);
        self.memory.as_mut().and_then(|memory| memory.get_mut(start..end)).ok_or(Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_stays_when_memory_grows() {
        let mut arena = Arena::default();
        for round in 0..2 {
            arena.clear(4_000_000);
            for number in 0..1_000_000_u32 {
                arena.append(4).unwrap().copy_from_slice(&number.to_le_bytes());
            }
            let numbers = arena.bytes().chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
            assert!(numbers.eq(0..1_000_000), "round {round}");
        }
        assert_eq!(arena.len_bytes(), 4_000_000);
        assert!(arena.taken_bytes() >= 4_000_000);
    }

    #[test]
    fn memory_that_was_used_counts_until_it_is_given_back() {
        let mut arena = Arena::default();
        arena.append(40 << 20).unwrap().fill(1);
        arena.clear(20 << 20);
        assert_eq!((arena.len_bytes(), arena.taken_bytes()), (0, 40 << 20), "kept for more of the same");
        arena.clear(1 << 20);
        assert_eq!(arena.taken_bytes(), 0, "too much for what comes");
    }
}
