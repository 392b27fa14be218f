//! Iterates over rows of a mapped file. In this module, a page is a group of consecutive rows that are copied and
//! verified together.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

use super::mapped::owned;
use super::rows::Span;
use super::{LookupError, MappedStore, Rows};
use crate::format::Row;

/// The number of rows of the first page. A page is a group of rows that are copied and verified together. Each page has
/// up to twice as many rows as the page before it.
const PAGE_ROWS_MIN: usize = 8;
const PAGE_ROWS_MAX: usize = 1024;
/// A page (a group of rows that are copied and verified together) ends once its values have this total length.
const PAGE_LEN_BYTES: usize = 64 << 10;

/// `FRONT` and `BACK` are the two ends of an iteration, as indexes into [`MappedRows::copied`].
const FRONT: usize = 0;
const BACK: usize = 1;

/// A double-ended iterator over rows of a [`MappedStore`], in key order. `T` is a pointer to the table.
///
/// If the file is damaged or was changed, the iterator returns [`LookupError::Damaged`] and then ends.
pub struct MappedRows<T> {
    table: T,
    /// Rows that are not copied yet.
    left: Span,
    /// For each end, the rows that were copied from this end and not returned yet, the outermost row first.
    copied: [VecDeque<Row>; 2],
    page_rows: usize,
    has_failed: bool,
}

impl<T: Deref<Target = MappedStore>> MappedRows<T> {
    pub(crate) fn new(table: T, left: Span) -> MappedRows<T> {
        MappedRows { table, left, copied: Default::default(), page_rows: PAGE_ROWS_MIN, has_failed: false }
    }

    /// Returns the number of remaining rows, without reading them.
    pub fn len(&self) -> usize {
        if self.has_failed { 0 } else { self.copied[FRONT].len() + self.left.len() + self.copied[BACK].len() }
    }

    /// Returns whether no rows remain.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next page: rows that are copied and verified together. Calls `next`, which copies one row, until the
    /// page is full or no rows remain, and then verifies the copies.
    fn page(
        &mut self,
        next: fn(&mut Rows<'_>) -> Option<Result<Row, LookupError>>,
    ) -> Result<VecDeque<Row>, LookupError> {
        let (left, page_rows) = (self.left, self.page_rows);
        self.page_rows = (2 * page_rows).min(PAGE_ROWS_MAX);
        let page = self.table.copied(|store| {
            // A page that was rejected is copied again, from the same rows.
            let mut rows = Rows::of(store, left);
            let (mut page, mut len_bytes) = (VecDeque::new(), 0);
            while page.len() < page_rows && len_bytes < PAGE_LEN_BYTES {
                let Some(row) = next(&mut rows).transpose()? else { break };
                len_bytes += row.1.len();
                page.push_back(row);
            }
            Ok((page, rows.span()))
        });
        self.has_failed = page.is_err();
        let (page, left) = page?;
        self.left = left;
        Ok(page)
    }

    /// Returns the next row from the front or the back (`end`) of the iteration. If no copied row is left for this end,
    /// calls `copy` for several rows, and verifies the copied rows together.
    fn next_at(
        &mut self,
        end: usize,
        copy: fn(&mut Rows<'_>) -> Option<Result<Row, LookupError>>,
    ) -> Option<Result<Row, LookupError>> {
        if self.has_failed {
            return None;
        }
        if self.copied[end].is_empty() && !self.left.is_empty() {
            match self.page(copy) {
                Ok(page) => self.copied[end] = page,
                Err(error) => return Some(Err(error)),
            }
        }
        self.copied[end].pop_front().or_else(|| self.copied[1 - end].pop_back()).map(Ok)
    }

    /// Skips `count` rows at an end. Calls `skip` for the rows that are not copied yet.
    fn skip_at(&mut self, end: usize, count: usize, skip: fn(&mut Rows<'_>, usize)) {
        let copied = count.min(self.copied[end].len());
        self.copied[end].drain(..copied);
        let skipped = (count - copied).min(self.left.len());
        let mut rows = Rows::of(self.table.unverified(), self.left);
        skip(&mut rows, skipped);
        self.left = rows.span();
        (0..count - copied - skipped).for_each(|_| drop(self.copied[1 - end].pop_back()));
    }
}

impl<T: Deref<Target = MappedStore>> Iterator for MappedRows<T> {
    type Item = Result<Row, LookupError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_at(FRONT, |rows| rows.next().map(|row| row.map(owned)))
    }

    /// Skips `count` rows and returns the next one. Reads at most the rows between two fences to find that row.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(FRONT, count, |rows, count| rows.skip_first(count));
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.len()))
    }
}

impl<T: Deref<Target = MappedStore>> DoubleEndedIterator for MappedRows<T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_at(BACK, |rows| rows.next_back().map(|row| row.map(owned)))
    }

    /// Skips `count` rows from the end and returns the row before them. Reads at most the rows between two fences to
    /// find that row.
    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(BACK, count, |rows, count| rows.skip_last(count));
        self.next_back()
    }
}

impl<T: Deref<Target = MappedStore>> fmt::Debug for MappedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRows").field("left", &self.len()).finish_non_exhaustive()
    }
}
