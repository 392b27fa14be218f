//! The rows of a table one after the other, from either end.

use super::Store;
use crate::format::index::FENCE_ROWS;
use crate::format::record::Record;

/// All rows in key order: see [`Store::iter`].
#[derive(Clone)]
pub struct Rows<'s> {
    places: Places<'s>,
}

impl<'s> Rows<'s> {
    pub(super) fn new(store: &'s Store) -> Self {
        Rows { places: Places::of(store) }
    }
}

impl<'s> Iterator for Rows<'s> {
    type Item = (u64, &'s [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.places.next_record().map(|(record, _)| (record.key(), record.value()))
    }

    /// Skips rows without reading more than [`FENCE_ROWS`] of them.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.places.skip_rows(count);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.places.end - self.places.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Rows<'_> {}

impl DoubleEndedIterator for Rows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Places { store, next, end, .. } = &mut self.places;
        if next == end {
            return None;
        }
        *end -= 1;
        store.row(*end)
    }
}

/// Each row's key, and the offset of its record.
#[derive(Clone)]
pub(super) struct Places<'s> {
    store: &'s Store,
    next: usize,
    end: usize,
    offset_bytes: u64,
}

impl<'s> Places<'s> {
    pub(super) fn of(store: &'s Store) -> Self {
        Places { store, next: 0, end: store.len(), offset_bytes: 0 }
    }

    /// Goes on behind so many rows, from the last fence on.
    fn skip_rows(&mut self, count: usize) {
        let row = self.next.saturating_add(count).min(self.end);
        let fences = self.store.fences();
        // No fence stands behind the last row.
        let number = (row / FENCE_ROWS).min(fences.len().saturating_sub(1));
        if number * FENCE_ROWS > self.next
            && let Some(fence) = fences.get(number)
        {
            (self.next, self.offset_bytes) = (number * FENCE_ROWS, fence.offset_bytes.get());
        }
        while self.next < row && self.next_record().is_some() {}
    }

    fn next_record(&mut self) -> Option<(Record<'s>, u64)> {
        if self.next == self.end {
            return None;
        }
        let offset_bytes = self.offset_bytes;
        let record = Record::at(self.store.records(), self.offset_bytes)?;
        self.offset_bytes += record.len_bytes(self.store.record_align_bytes()) as u64;
        self.next += 1;
        Some((record, offset_bytes))
    }
}

impl Iterator for Places<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().map(|(record, offset_bytes)| (record.key(), offset_bytes))
    }
}

/// The record of a row.
pub(super) fn record_of_row(store: &Store, row: usize) -> Option<Record<'_>> {
    let mut places = Places::of(store);
    places.skip_rows(row);
    places.next_record().map(|(record, _)| record)
}
