//! The parsed rows of one piece of an input.

use memmap2::{Advice, MmapMut};

use super::HeldRow;
use crate::bake::bad_rows::BadRow;
use crate::bake::error::RowFault;
use crate::bake::keys::canonical_decimal;
use crate::format::FormatError;
use crate::format::form::RecordForm;
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, VALUE_LEN_MAX_BYTES};
use crate::machine_memory::{SHORT_HUGE_PAGE_LEN_BYTES, huge_page_len_bytes, page_len_bytes};

/// The parsed rows of one piece of an input, in their order, and the piece's bad rows.
pub(in crate::bake) struct ParsedPiece {
    kind: KeyKind,
    arena: Arena,
    /// The position of each row in the arena, in units of [`ALIGN_BYTES`].
    positions: Vec<u32>,
    /// The number of the piece's first line. The piece's rows store their lines relative to this line.
    first_line: u64,
    /// The origin of the piece's first line.
    origin: u64,
    /// The line of the last row, relative to `first_line`.
    last_line: u32,
    /// The line, relative to `first_line`, of the first row whose key is text. A key is text unless it is a 64-bit
    /// decimal without leading zeros.
    first_text_line: Option<u32>,
    /// Whether the rows are sorted by key. Adjacent rows can have the same key.
    pub(in crate::bake) is_ascending: bool,
    /// Whether any row removes its key.
    pub(in crate::bake) has_deleted: bool,
    pub(in crate::bake) bad: Vec<BadRow>,
    /// The number of rows with a quoted field whose lines look like rows.
    pub(in crate::bake) rows_in_quotes: u64,
    /// The origin (input and line) of the first of these rows.
    pub(in crate::bake) first_origin_in_quotes: Option<u64>,
}

impl ParsedPiece {
    pub(in crate::bake) fn new() -> ParsedPiece {
        ParsedPiece {
            kind: KeyKind::U64,
            arena: Arena::default(),
            positions: Vec::new(),
            first_line: 0,
            origin: 0,
            last_line: 0,
            first_text_line: None,
            is_ascending: true,
            has_deleted: false,
            bad: Vec::new(),
            rows_in_quotes: 0,
            first_origin_in_quotes: None,
        }
    }

    /// Prepares for the rows of a new piece, and reuses the memory of the previous piece. `text_len_bytes` is the
    /// length of the new piece's text. `first_line` is the number of its first line, and `origin` is the origin of this
    /// line.
    pub(in crate::bake) fn begin(&mut self, kind: KeyKind, text_len_bytes: usize, first_line: u64, origin: u64) {
        // This is an estimate that only short rows exceed. If the memory cannot be reserved, `push` returns the error.
        let wanted_bytes = text_len_bytes * 2;
        self.arena.clear(wanted_bytes);
        let _ = self.arena.reserve(wanted_bytes);
        self.positions.clear();
        self.bad.clear();
        (self.kind, self.first_line, self.origin, self.last_line) = (kind, first_line, origin, 0);
        (self.rows_in_quotes, self.first_origin_in_quotes) = (0, None);
        (self.first_text_line, self.is_ascending, self.has_deleted) = (None, true, false);
    }

    /// Adds a row. Its line must not precede the first line of the piece.
    #[inline]
    pub(in crate::bake) fn push(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        line: u64,
        deleted: bool,
    ) -> Result<(), RowFault> {
        if value.len() > VALUE_LEN_MAX_BYTES {
            return Err(RowFault::Value(FormatError::ValueTooLong { len_bytes: value.len() as u64 }));
        }
        let line = u32::try_from(line - self.first_line).map_err(|_| RowFault::OutOfMemory)?;
        let row = HeldRow { key, end: None, value, line, deleted };
        self.positions.try_reserve(1).map_err(|_| RowFault::OutOfMemory)?;
        let position = u32::try_from(self.arena.len_bytes() / ALIGN_BYTES).map_err(|_| RowFault::OutOfMemory)?;
        if self.first_text_line.is_none()
            && let Key::Bytes(key) = key
        {
            self.first_text_line = canonical_decimal(key).is_none().then_some(line);
        }
        if self.is_ascending
            && let Some(last) = self.positions.last()
        {
            self.is_ascending = self.key_at(*last) <= key;
        }
        row.write_into(self.arena.append(row.len_bytes()).map_err(|_| RowFault::OutOfMemory)?);
        self.positions.push(position);
        self.last_line = line;
        self.has_deleted |= deleted;
        Ok(())
    }

    /// Counts a row with a quoted field whose lines look like rows.
    pub(in crate::bake) fn add_row_in_quotes(&mut self, line: u64) {
        self.rows_in_quotes += 1;
        self.first_origin_in_quotes.get_or_insert(self.origin + (line - self.first_line));
    }

    pub(in crate::bake) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns the key of the first row.
    pub(in crate::bake) fn first_key(&self) -> Option<Key<'_>> {
        self.positions.first().map(|position| self.key_at(*position))
    }

    /// Returns the position of each row in the arena, in units of [`ALIGN_BYTES`].
    pub(in crate::bake) fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Returns the number of bytes allocated for rows and positions.
    pub(in crate::bake) fn taken_bytes(&self) -> usize {
        self.arena.taken_bytes() + self.positions.capacity() * size_of::<u32>()
    }

    /// Returns the length of all encoded rows.
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.arena.len_bytes()
    }

    /// Returns the row at one of the positions that [`ParsedPiece::positions`] returns.
    #[inline]
    pub(in crate::bake) fn at(&self, position: u32) -> HeldRow<'_> {
        HeldRow::decode(self.kind.into(), self.bytes_from(position), ALIGN_BYTES).expect("a row that push wrote").0
    }

    /// Returns the key of the row at one of the positions that [`ParsedPiece::positions`] returns. The key is of the
    /// kind that was passed to [`ParsedPiece::begin`].
    #[inline]
    pub(in crate::bake) fn key_at(&self, position: u32) -> Key<'_> {
        RecordForm::from(self.kind).read(self.bytes_from(position)).expect("a row that push wrote").0.key
    }

    #[inline]
    fn bytes_from(&self, position: u32) -> &[u8] {
        &self.arena.bytes()[position as usize * ALIGN_BYTES..]
    }

    /// Prefetches the first two cache lines of the row at a position.
    #[inline(always)]
    pub(in crate::bake) fn prefetch(&self, position: u32) {
        let at = position as usize * ALIGN_BYTES;
        crate::store::prefetch(self.arena.bytes(), at);
        crate::store::prefetch(self.arena.bytes(), at + 64);
    }

    /// Returns the origin (input and line) of the first row whose key is text. A key is text unless it is a 64-bit
    /// decimal without leading zeros.
    pub(in crate::bake) fn first_text_origin(&self) -> Option<u64> {
        self.first_text_line.map(|line| self.origin + u64::from(line))
    }

    /// Returns the origin (input and line) of the last row.
    pub(in crate::bake) fn last_origin(&self) -> u64 {
        self.origin + u64::from(self.last_line)
    }

    /// Returns the origin (input and line) of the piece's first line.
    pub(in crate::bake) fn origin(&self) -> u64 {
        self.origin
    }
}

/// The allocation unit of large arenas: the length of the shortest huge page of any system.
pub(in crate::bake) const LARGE_LEN_BYTES: usize = SHORT_HUGE_PAGE_LEN_BYTES;
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
        if self.taken_bytes() > EXCESS_FACTOR * wanted_bytes + LARGE_LEN_BYTES {
            *self = Arena::default();
        }
        self.len_bytes = 0;
    }

    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the number of bytes that the system has allocated, rounded up to whole pages.
    pub(in crate::bake) fn taken_bytes(&self) -> usize {
        let page_len_bytes = if wants_huge_pages(self.capacity_bytes()) { LARGE_LEN_BYTES } else { page_len_bytes() };
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
        let unit = if wanted_bytes < LARGE_LEN_BYTES { SMALL_LEN_BYTES } else { LARGE_LEN_BYTES };
        let capacity_bytes = wanted_bytes.next_multiple_of(unit);
        let mut memory = MmapMut::map_anon(capacity_bytes).map_err(|_| AllocationFailed)?;
        // A system without huge pages returns an error and uses small pages.
        let _ = memory.advise(if wants_huge_pages(capacity_bytes) { Advice::HugePage } else { Advice::NoHugePage });
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

/// Returns whether an arena of this length asks for huge pages. It never asks for longer ones than [`LARGE_LEN_BYTES`]:
/// with a page of 32 or 512 MiB in each arena, a bake would exceed its memory limit.
fn wants_huge_pages(capacity_bytes: usize) -> bool {
    capacity_bytes >= LARGE_LEN_BYTES && huge_page_len_bytes() <= LARGE_LEN_BYTES
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
