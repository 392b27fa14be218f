//! Iterates over the rows of a table in key order, from the start or the end.

use std::fmt;
use std::iter::FusedIterator;
#[cfg(feature = "server")]
use std::ops::Range;

use super::{LookupError, Store};
use crate::Lookup;
use crate::format::fence::FENCE_ROWS;
#[cfg(feature = "server")]
use crate::format::form::RowKey;
use crate::format::key::Key;
use crate::format::record::Record;
#[cfg(feature = "server")]
use crate::format::record::{ALIGN_BYTES, record_len_bytes, record_len_min_bytes};

/// A position between two rows, or at either end of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number of rows before this position.
    pub(crate) row: usize,
    /// The offset of the next row's record in the records section.
    pub(crate) offset_bytes: u64,
}

impl Position {
    /// The position before the first row.
    pub(super) const START: Position = Position { row: 0, offset_bytes: 0 };
}

/// The rows that an iterator has left, without a reference to their table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    next: Position,
    end: Position,
    /// Whether a row is damaged, which was not returned as an error yet.
    is_damaged: bool,
}

impl Span {
    pub(super) fn len(&self) -> usize {
        self.end.row.saturating_sub(self.next.row)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A double-ended iterator over rows in key order: of a [`Store`].
///
/// The iterator reads the rows that it returns and, in addition, at most as many rows as there are between two fences.
/// If it reaches a damaged row, it returns [`LookupError::Damaged`] and then ends, so the remaining rows are missing.
#[derive(Clone)]
pub struct Rows<'s> {
    store: &'s Store,
    next: Position,
    end: Position,
    /// The positions of the rows from the last fence before `end` up to `end`. With these positions, backward iteration
    /// does not read the rows after the fence again for each row that it returns.
    group: Group,
    /// The offset from which on the next rows must be read ahead, or `u64::MAX` if the system does that.
    read_ahead_at_bytes: u64,
    /// Whether a row is damaged, which was not returned as an error yet.
    is_damaged: bool,
}

/// The number of bytes that are read ahead of the next row. They are read in two halves.
const READ_AHEAD_LEN_BYTES: u64 = 2 << 20;

/// The offsets of the records from one fence to the next.
#[derive(Clone, Copy)]
struct Group {
    first_row: usize,
    count: usize,
    offsets_bytes: [u64; FENCE_ROWS],
}

impl Group {
    const NONE: Group = Group { first_row: 0, count: 0, offsets_bytes: [0; FENCE_ROWS] };
}

impl<'s> Rows<'s> {
    pub(super) fn all(store: &'s Store) -> Self {
        Rows::between(store, Position::START, store.end())
    }

    /// Returns the rows between two positions, or no rows if `end` is not after `start`.
    pub(super) fn between(store: &'s Store, start: Position, end: Position) -> Self {
        let next = if start.row < end.row { start } else { end };
        let read_ahead_at_bytes = if store.may_be_cold() { next.offset_bytes } else { u64::MAX };
        Rows { store, next, end, group: Group::NONE, read_ahead_at_bytes, is_damaged: false }
    }

    /// Returns the rows of a span, which must be of this table.
    pub(super) fn of(store: &'s Store, span: Span) -> Self {
        Rows { is_damaged: span.is_damaged, ..Rows::between(store, span.next, span.end) }
    }

    /// Returns the remaining rows, without a reference to their table.
    pub(crate) fn span(&self) -> Span {
        Span { next: self.next, end: self.end, is_damaged: self.is_damaged }
    }

    /// Returns the number of remaining rows, without reading them.
    pub fn len(&self) -> usize {
        self.end.row.saturating_sub(self.next.row)
    }

    /// Returns whether no rows remain.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `found`. If it is `None`, records that the iterator reached a damaged row.
    fn or_damaged<T>(&mut self, found: Option<T>) -> Option<T> {
        self.is_damaged |= found.is_none();
        found
    }

    /// Returns a record as an item. Without a record, ends the iteration, with an error if a row is damaged.
    pub(super) fn item(&mut self, record: Option<Record<'s>>) -> Option<Result<Record<'s>, LookupError>> {
        if let Some(record) = record {
            return Some(Ok(record));
        }
        self.next = self.end;
        std::mem::take(&mut self.is_damaged).then_some(Err(LookupError::Damaged))
    }

    /// Skips rows at the start. If the skipped rows are damaged, the next item is an error.
    pub(crate) fn skip_first(&mut self, count: usize) {
        let row = self.next.row.saturating_add(count).min(self.end.row);
        if row.saturating_sub(self.next.row) < FENCE_ROWS {
            while self.next.row < row && self.next_record().is_some() {}
            return;
        }
        let next = self.store.position(row);
        if let Some(next) = self.or_damaged(next) {
            self.next = next;
        }
    }

    /// Skips rows at the end. If the skipped rows are damaged, the next item is an error.
    pub(super) fn skip_last(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let row = self.end.row.saturating_sub(count).max(self.next.row);
        let end = if row > self.next.row { self.store.position(row) } else { Some(self.next) };
        if let Some(end) = self.or_damaged(end) {
            self.end = end;
        }
    }

    /// Returns the positions before and after the remaining rows.
    #[cfg(feature = "server")]
    pub(crate) fn ends(&self) -> (Position, Position) {
        (self.next, self.end)
    }

    /// Returns the next row's record, and its offset in the records section.
    pub(crate) fn next_record(&mut self) -> Option<(Record<'s>, u64)> {
        if self.next.row >= self.end.row || self.is_damaged {
            return None;
        }
        let offset_bytes = self.next.offset_bytes;
        if offset_bytes >= self.read_ahead_at_bytes {
            self.read_ahead();
        }
        let record = self.store.record_of_row(self.next);
        let record = self.or_damaged(record)?;
        self.next.offset_bytes += record.len_bytes(self.store.record_align_bytes()) as u64;
        self.next.row += 1;
        Some((record, offset_bytes))
    }

    /// Begins to read the next rows from the disk, because the system is advised not to read ahead.
    #[cold]
    fn read_ahead(&mut self) {
        let start = self.next.offset_bytes;
        self.read_ahead_at_bytes = start.saturating_add(READ_AHEAD_LEN_BYTES / 2);
        let end = self.end.offset_bytes.min(start.saturating_add(READ_AHEAD_LEN_BYTES));
        self.store.begin_read(start as usize..end.max(start) as usize);
    }

    /// Returns the record of the last remaining row, and its offset in the records section.
    pub(crate) fn previous_record(&mut self) -> Option<(Record<'s>, u64)> {
        if self.next.row >= self.end.row || self.is_damaged {
            return None;
        }
        let row = self.end.row - 1;
        if self.store.is_compact() {
            let record = self.store.groups().record(row);
            let (record, offset_bytes) = self.or_damaged(record)?;
            self.end = Position { row, offset_bytes };
            return Some((record, offset_bytes));
        }
        if !(self.group.first_row..self.group.first_row + self.group.count).contains(&row) {
            let group = self.store.group_with_row(row, self.end.row);
            self.group = self.or_damaged(group)?;
        }
        let offset_bytes = self.group.offsets_bytes[row - self.group.first_row];
        let record = self.store.record_at(offset_bytes);
        let record = self.or_damaged(record)?;
        self.end = Position { row, offset_bytes };
        Some((record, offset_bytes))
    }
}

/// A page: consecutive rows of a range, which one response carries.
#[cfg(feature = "server")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// The offsets, in the records section, where the records of the page's rows begin and end.
    pub(crate) offset_bytes: Range<u64>,
    pub(crate) row_count: usize,
    /// Whether the requested range has rows that are not in this page.
    pub(crate) more: bool,
}

#[cfg(feature = "server")]
impl PageRange {
    /// Returns a page with all rows between two positions.
    pub(super) fn between(start: Position, end: Position) -> PageRange {
        let offset_bytes = start.offset_bytes..end.offset_bytes;
        PageRange { offset_bytes, row_count: end.row.saturating_sub(start.row), more: false }
    }
}

/// A page of rows of a table with the compact layout, whose records are written when they are sent.
#[cfg(feature = "server")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValuesPage {
    /// The numbers of the rows.
    pub(crate) rows: Range<usize>,
    /// The length of the records.
    pub(crate) len_bytes: usize,
    /// Whether the requested range has rows that are not in this page.
    pub(crate) more: bool,
}

#[cfg(feature = "server")]
impl Rows<'_> {
    /// Returns the page that [`Rows::page`] returns, in a table with the compact layout.
    pub(crate) fn page_of_values(&self, backward: bool, rows_max: usize, len_max_bytes: usize) -> Option<ValuesPage> {
        let (groups, all) = (self.store.groups(), self.next.row..self.end.row);
        // All numbers take as much.
        let row_key = RowKey { key: Key::U64(0), end: self.store.form.has_ends.then_some(Key::U64(0)) };
        let mut rows = if backward { all.end..all.end } else { all.start..all.start };
        let mut len_bytes = 0;
        while rows.len() < all.len().min(rows_max) {
            let row = if backward { rows.start - 1 } else { rows.end };
            let value = groups.value_range(row)?;
            let value_len_bytes = (value.end - value.start) as usize;
            let row_len_bytes = record_len_bytes(self.store.form, row_key, value_len_bytes, ALIGN_BYTES);
            if !rows.is_empty() && len_bytes + row_len_bytes > len_max_bytes {
                break;
            }
            len_bytes += row_len_bytes;
            rows = if backward { row..rows.end } else { rows.start..row + 1 };
        }
        Some(ValuesPage { more: rows.len() < all.len(), rows, len_bytes })
    }

    /// Returns a page with the first rows of the range, or with the last rows if `backward` is set. The page has at
    /// most `rows_max` rows, and the total length of their records is at most `len_max_bytes`. A row whose record is
    /// longer than `len_max_bytes` is a page of its own. In the compact layout, rows count as long as their records in the
    /// fast layout. Returns `None` if the file is damaged where the page would
    /// begin or end.
    pub(crate) fn page(&self, backward: bool, rows_max: usize, len_max_bytes: usize) -> Option<PageRange> {
        let (store, mut next, mut end, rows) = (self.store, self.next, self.end, self.len());
        if store.is_compact() {
            let page = self.page_of_values(backward, rows_max, len_max_bytes)?;
            let (start, end) = (store.position(page.rows.start)?, store.position(page.rows.end)?);
            return Some(PageRange { more: page.more, ..PageRange::between(start, end) });
        }
        // A page has at most this many rows and one more, so the search for its end reads only the fences near it.
        let fit_rows = len_max_bytes / record_len_min_bytes(store.form, store.record_align_bytes()) + 1;
        // The offsets wrap, here and below, only if the file was changed since it was opened.
        let len_bytes = |next: Position, end: Position| end.offset_bytes.wrapping_sub(next.offset_bytes);
        if rows > rows_max {
            match backward {
                false => end = store.position(next.row + rows_max)?,
                true => next = store.position(end.row - rows_max)?,
            }
        }
        if next.row < end.row && len_bytes(next, end) > len_max_bytes as u64 {
            match backward {
                false => {
                    let near = next.row..end.row.min(next.row + fit_rows);
                    let (last_fit, _) =
                        store.positions_at(next.offset_bytes.wrapping_add(len_max_bytes as u64), near)?;
                    end = if last_fit.row > next.row { last_fit } else { store.position(next.row + 1)? };
                }
                true => {
                    let near = next.row.max(end.row.saturating_sub(fit_rows))..end.row;
                    let (_, first_fit) =
                        store.positions_at(end.offset_bytes.wrapping_sub(len_max_bytes as u64), near)?;
                    next = if first_fit.row < end.row { first_fit } else { store.position(end.row - 1)? };
                }
            }
        }
        let page = PageRange::between(next, end);
        Some(PageRange { more: page.row_count < rows, ..page })
    }
}

fn row(record: Result<Record<'_>, LookupError>) -> Result<(Key<'_>, &[u8]), LookupError> {
    record.map(|record| (record.key(), record.value()))
}

impl<'s> Iterator for Rows<'s> {
    type Item = Result<(Key<'s>, &'s [u8]), LookupError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record().map(|(record, _)| record);
        self.item(record).map(row)
    }

    /// Skips `count` rows and returns the next one. Reads at most the rows between two fences to find that row.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_first(count);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error takes the place of the remaining rows.
        (self.len().min(1), Some(self.len()))
    }

    fn last(mut self) -> Option<Self::Item> {
        self.next_back()
    }
}

impl FusedIterator for Rows<'_> {}

impl DoubleEndedIterator for Rows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let record = self.previous_record().map(|(record, _)| record);
        self.item(record).map(row)
    }

    /// Skips `count` rows from the end and returns the row before them. Reads at most the rows between two fences to
    /// find that row.
    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_last(count);
        self.next_back()
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("next_row", &self.next.row).field("end_row", &self.end.row).finish()
    }
}

impl Store {
    /// Returns the position after the last row.
    pub(super) fn end(&self) -> Position {
        Position { row: self.len(), offset_bytes: self.records().len() as u64 }
    }

    /// Returns the position before the row with the number `row`, or after the last row if the table has no such row.
    /// If the row's record is too far from the first record of its fence, reads records before the position, and
    /// returns `None` if these records are damaged.
    #[inline]
    pub(crate) fn position(&self, row: usize) -> Option<Position> {
        if row >= self.len() {
            return Some(self.end());
        }
        if self.is_compact() {
            return self.groups().position(row);
        }
        self.fence(row / FENCE_ROWS)?;
        let (known_row, place) = self.fences().last_place(row)?;
        let known = Position { row: known_row, offset_bytes: place * self.record_align_bytes() as u64 };
        if known_row == row { Some(known) } else { self.walk(known, row) }
    }

    /// Returns the record of a row. Uses only the place of the fence, and reads the records from there up to the row,
    /// so that a wrong distance in the fence has no effect.
    pub(super) fn record_after_walk(&self, row: usize) -> Option<Record<'_>> {
        if self.is_compact() {
            return self.groups().record(row).map(|(record, _)| record);
        }
        let fence = self.fence(row / FENCE_ROWS)?;
        let offset_bytes = u64::from(fence.place.get()) * self.record_align_bytes() as u64;
        let position = self.walk(Position { row: row - row % FENCE_ROWS, offset_bytes }, row)?;
        self.record_at(position.offset_bytes)
    }

    /// Reads records from one position up to the position before `row`.
    #[cold]
    fn walk(&self, from: Position, row: usize) -> Option<Position> {
        let mut rows = Rows::between(self, from, self.end());
        while rows.next.row < row {
            rows.next_record()?;
        }
        Some(rows.next)
    }

    /// Returns the last position at or before an offset of the records section, and the first position at or after the
    /// offset. The offset must be inside the records of `near`, or at their end. Returns `None` if the file is damaged
    /// near the offset.
    #[cfg(feature = "server")]
    fn positions_at(&self, offset_bytes: u64, near: Range<usize>) -> Option<(Position, Position)> {
        let align_bytes = self.record_align_bytes() as u64;
        let (mut fence, mut end_fence) = (near.start / FENCE_ROWS, near.end.div_ceil(FENCE_ROWS));
        while fence + 1 < end_fence {
            let middle = fence.midpoint(end_fence);
            match u64::from(self.fence(middle)?.place.get()) * align_bytes <= offset_bytes {
                true => fence = middle,
                false => end_fence = middle,
            }
        }
        let mut rows = Rows::between(self, self.position(fence * FENCE_ROWS)?, self.end());
        loop {
            let before = rows.next;
            if before.offset_bytes == offset_bytes || rows.next.row == rows.end.row {
                return Some((before, before));
            }
            rows.next_record()?;
            if rows.next.offset_bytes > offset_bytes {
                return Some((before, rows.next));
            }
        }
    }

    /// Returns the positions of the rows from the last fence at or before `row` up to the next fence, but not beyond
    /// `end_row`. Returns `None` if a record is too far from the first record of its fence, and the record before it is
    /// damaged.
    fn group_with_row(&self, row: usize, end_row: usize) -> Option<Group> {
        let first_row = row - row % FENCE_ROWS;
        let fence = self.fence(first_row / FENCE_ROWS)?;
        let align_bytes = self.record_align_bytes();
        let mut group = Group { first_row, ..Group::NONE };
        for i in 0..(end_row - first_row).min(FENCE_ROWS) {
            group.offsets_bytes[i] = match fence.distance(i) {
                Some(distance) => (u64::from(fence.place.get()) + u64::from(distance)) * align_bytes as u64,
                None => {
                    let previous_bytes = group.offsets_bytes[i - 1];
                    previous_bytes + self.record_at(previous_bytes)?.len_bytes(align_bytes) as u64
                }
            };
            group.count += 1;
        }
        Some(group)
    }
}
