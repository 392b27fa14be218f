//! The parsed rows of one piece of an input.

use super::arena::Arena;
use super::held_row::HeldRow;
use crate::bake::bad_row::BadRow;
use crate::bake::keys::canonical_decimal;
use crate::bake::row_fault::RowFault;
use crate::format::FormatError;
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, VALUE_LEN_MAX_BYTES};

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
        let row = HeldRow { key, value, line, deleted };
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
        HeldRow::decode(self.kind, self.bytes_from(position), ALIGN_BYTES).expect("a row that push wrote").0
    }

    /// Returns the key of the row at one of the positions that [`ParsedPiece::positions`] returns. The key is of the
    /// kind that was passed to [`ParsedPiece::begin`].
    #[inline]
    pub(in crate::bake) fn key_at(&self, position: u32) -> Key<'_> {
        Key::from_record(self.kind, self.bytes_from(position)).expect("a row that push wrote").0
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
