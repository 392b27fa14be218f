//! Iterates over rows of a mapped file. In this module, a page is a group of consecutive rows that are copied and
//! verified together.

use std::collections::VecDeque;
use std::fmt;

use super::mapped::owned;
use super::{LookupError, MappedStore, Rows};
use crate::format::{KeyBounds, Row};

/// The number of rows of the first page. A page is a group of rows that are copied and verified together. Each page has
/// up to twice as many rows as the page before it.
const PAGE_ROWS_MIN: usize = 8;
const PAGE_ROWS_MAX: usize = 1024;
/// A page (a group of rows that are copied and verified together) ends once its values have this total length.
const PAGE_LEN_BYTES: usize = 64 << 10;

/// `FRONT` and `BACK` are the two ends of an iteration, as indexes into [`MappedRows::copied`].
const FRONT: usize = 0;
const BACK: usize = 1;

/// A double-ended iterator over rows of a [`MappedStore`], in key order.
///
/// If the file is damaged or was changed, the iterator returns [`LookupError::Damaged`] and then ends.
pub struct MappedRows<'s> {
    table: &'s MappedStore,
    /// Rows that are not copied yet.
    rows: Rows<'s>,
    /// For each end, the rows that were copied from this end and not returned yet, the outermost row first.
    copied: [VecDeque<Row>; 2],
    page_rows: usize,
    has_failed: bool,
}

/// Rows in key order.
impl MappedStore {
    /// Returns a double-ended iterator over all rows in key order.
    pub fn iter(&self) -> MappedRows<'_> {
        MappedRows::new(self, self.unverified().iter())
    }

    /// Returns a double-ended iterator over the rows whose keys are in a range, in key order.
    ///
    /// # Errors
    /// The errors of [`MappedStore::get`], for the key at either end of the range.
    pub fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<MappedRows<'_>, LookupError> {
        self.copied(|store| store.range(range.bounds())).map(|rows| MappedRows::new(self, rows))
    }

    /// Returns a double-ended iterator over the rows whose keys begin with `prefix`, in key order.
    ///
    /// # Errors
    /// The errors of [`MappedStore::get`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<MappedRows<'_>, LookupError> {
        self.copied(|store| store.prefix(&prefix)).map(|rows| MappedRows::new(self, rows))
    }

    /// Returns the number of keys in a range.
    ///
    /// # Errors
    /// The errors of [`MappedStore::range`].
    pub fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError> {
        self.copied(|store| store.count(range.bounds()))
    }

    /// Returns the result of [`MappedStore::range`] for each of many ranges, in the order of the ranges. One call is
    /// faster than calling [`MappedStore::range`] for each range.
    ///
    /// # Errors
    /// The errors of [`MappedStore::range`].
    pub fn range_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<MappedRows<'_>>, LookupError> {
        self.copied(|store| {
            let mut found = Vec::with_capacity(ranges.len());
            store.range_many(ranges, |_, rows| found.push(MappedRows::new(self, rows)))?;
            Ok(found)
        })
    }

    /// Returns the number of keys in each of many ranges, in the order of the ranges. One call is several times faster
    /// than calling [`MappedStore::count`] for each range.
    ///
    /// # Errors
    /// The errors of [`MappedStore::range`].
    pub fn count_many<'k, R: KeyBounds<'k>>(&self, ranges: &[R]) -> Result<Vec<usize>, LookupError> {
        self.copied(|store| {
            let mut counts = Vec::with_capacity(ranges.len());
            store.count_many(ranges, |_, count| counts.push(count))?;
            Ok(counts)
        })
    }
}

impl<'s> MappedRows<'s> {
    fn new(table: &'s MappedStore, rows: Rows<'s>) -> MappedRows<'s> {
        MappedRows { table, rows, copied: Default::default(), page_rows: PAGE_ROWS_MIN, has_failed: false }
    }

    /// Returns the number of remaining rows, without reading them.
    pub fn len(&self) -> usize {
        if self.has_failed { 0 } else { self.copied[FRONT].len() + self.rows.len() + self.copied[BACK].len() }
    }

    /// Returns whether no rows remain.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next page: rows that are copied and verified together. Calls `next`, which copies one row, until the
    /// page is full or no rows remain, and then verifies the copies.
    fn page(
        &mut self,
        next: fn(&mut Rows<'s>) -> Option<Result<Row, LookupError>>,
    ) -> Result<VecDeque<Row>, LookupError> {
        let (rows, page_rows) = (&mut self.rows, self.page_rows);
        self.page_rows = (2 * page_rows).min(PAGE_ROWS_MAX);
        let (begin, mut is_first) = (rows.clone(), true);
        let page = self.table.copied(|_| {
            // A page that was rejected is copied again.
            if !std::mem::take(&mut is_first) {
                rows.clone_from(&begin);
            }
            let (mut page, mut len_bytes) = (VecDeque::new(), 0);
            while page.len() < page_rows && len_bytes < PAGE_LEN_BYTES {
                let Some(row) = next(rows).transpose()? else { break };
                len_bytes += row.1.len();
                page.push_back(row);
            }
            Ok(page)
        });
        self.has_failed = page.is_err();
        page
    }

    /// Returns the next row from the front or the back (`end`) of the iteration. If no copied row is left for this end,
    /// calls `copy` for several rows, and verifies the copied rows together.
    fn next_at(
        &mut self,
        end: usize,
        copy: fn(&mut Rows<'s>) -> Option<Result<Row, LookupError>>,
    ) -> Option<Result<Row, LookupError>> {
        if self.has_failed {
            return None;
        }
        if self.copied[end].is_empty() && !self.rows.is_empty() {
            match self.page(copy) {
                Ok(page) => self.copied[end] = page,
                Err(error) => return Some(Err(error)),
            }
        }
        self.copied[end].pop_front().or_else(|| self.copied[1 - end].pop_back()).map(Ok)
    }

    /// Skips `count` rows at an end. Calls `skip` for the rows that are not copied yet.
    fn skip_at(&mut self, end: usize, count: usize, skip: fn(&mut Rows<'s>, usize)) {
        let copied = count.min(self.copied[end].len());
        self.copied[end].drain(..copied);
        let skipped = (count - copied).min(self.rows.len());
        skip(&mut self.rows, skipped);
        (0..count - copied - skipped).for_each(|_| drop(self.copied[1 - end].pop_back()));
    }
}

impl Iterator for MappedRows<'_> {
    type Item = Result<Row, LookupError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_at(FRONT, |rows| rows.next().map(|row| row.map(owned)))
    }

    /// Skips `count` rows and returns the next one. Reads at most the rows between two fences to find that row.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(FRONT, count, Rows::skip_first);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.len()))
    }
}

impl DoubleEndedIterator for MappedRows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_at(BACK, |rows| rows.next_back().map(|row| row.map(owned)))
    }

    /// Skips `count` rows from the end and returns the row before them. Reads at most the rows between two fences to
    /// find that row.
    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        self.skip_at(BACK, count, Rows::skip_last);
        self.next_back()
    }
}

impl fmt::Debug for MappedRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRows").field("left", &self.len()).finish_non_exhaustive()
    }
}
