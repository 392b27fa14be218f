//! Memory for the parsed rows of one piece of an input.
//!
//! When rows are written in key order, this memory is read in random order, so it uses huge pages if the system has
//! them. With huge pages, 10 million rows of 100 bytes are written 2.5 times as fast. An arena returns its memory to
//! the system when it is dropped, so that the bake stays within its budget.

use memmap2::{Advice, MmapMut};

/// The allocation unit of large arenas: the length of a huge page on x86-64.
pub(in crate::bake) const PAGE_LEN_BYTES: usize = 2 << 20;
/// The allocation unit of small arenas.
const SMALL_LEN_BYTES: usize = 64 << 10;

/// A growing array of bytes.
#[derive(Default)]
pub(in crate::bake) struct Arena {
    memory: Option<MmapMut>,
    len_bytes: usize,
    /// The greatest `len_bytes` so far. The system has allocated pages up to this length.
    most_bytes: usize,
}

/// The system cannot allocate more memory.
#[derive(Debug)]
pub(in crate::bake) struct AllocationFailed;

impl Arena {
    /// Empties the arena. Keeps the memory, unless it is much larger than `wanted_bytes`.
    pub(in crate::bake) fn clear(&mut self, wanted_bytes: usize) {
        const EXCESS_FACTOR: usize = 2;
        if self.taken_bytes() > EXCESS_FACTOR * wanted_bytes + PAGE_LEN_BYTES {
            *self = Arena::default();
        }
        self.len_bytes = 0;
    }

    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the number of bytes that the system has allocated, rounded up to whole pages.
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

    /// Reserves address space for `wanted_bytes` in total. The system allocates pages when they are first written.
    pub(in crate::bake) fn reserve(&mut self, wanted_bytes: usize) -> Result<(), AllocationFailed> {
        if wanted_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        let unit = if wanted_bytes < PAGE_LEN_BYTES { SMALL_LEN_BYTES } else { PAGE_LEN_BYTES };
        let mut memory = MmapMut::map_anon(wanted_bytes.next_multiple_of(unit)).map_err(|_| AllocationFailed)?;
        if unit == PAGE_LEN_BYTES {
            // A system without huge pages returns an error and uses small pages.
            let _ = memory.advise(Advice::HugePage);
        }
        memory[..self.len_bytes].copy_from_slice(self.bytes());
        self.memory = Some(memory);
        self.most_bytes = self.len_bytes;
        Ok(())
    }

    /// Appends `len_bytes` bytes of unspecified content, and returns them for the caller to fill.
    #[inline]
    pub(in crate::bake) fn append(&mut self, len_bytes: usize) -> Result<&mut [u8], AllocationFailed> {
        let (start, end) = (self.len_bytes, self.len_bytes + len_bytes);
        if end > self.capacity_bytes() {
            self.reserve(end.max(2 * self.capacity_bytes()))?;
        }
        self.len_bytes = end;
        self.most_bytes = self.most_bytes.max(end);
        self.memory.as_mut().and_then(|memory| memory.get_mut(start..end)).ok_or(AllocationFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_survive_growth() {
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
    fn allocated_memory_counts_until_it_is_released() {
        let mut arena = Arena::default();
        arena.append(40 << 20).unwrap().fill(1);
        arena.clear(20 << 20);
        assert_eq!(
            (arena.len_bytes(), arena.taken_bytes()),
            (0, 40 << 20),
            "the memory is kept for a piece of similar length"
        );
        arena.clear(1 << 20);
        assert_eq!(arena.taken_bytes(), 0, "the memory is released for a much shorter piece");
    }
}
