//! The position of an iteration over a range. The client requests the rows page by page, from either end.
//!
//! In: a range, then its pages. Out: rows, and the next page to request. This module does no I/O.

use std::ops::Range;

use super::key::{Bounds, KeyRange, OwnedKey};
use super::request::{GetPage, Row};
use super::row_page::RowPage;

/// The remaining rows of a range, which the iterator has not returned yet.
#[derive(Debug)]
pub(super) struct RangeCursor {
    /// The part of the range that has not been received yet, between the pages `front` and `back`. `None` if all rows
    /// have been received.
    unread: Option<KeyRange>,
    front: Option<PageRows>,
    back: Option<PageRows>,
    pub(super) limit_rows: u32,
}

/// A received page, and which of its rows the iterator has not returned yet.
#[derive(Debug)]
struct PageRows {
    page: RowPage,
    rows: Range<usize>,
}

impl PageRows {
    fn next(&mut self, backward: bool) -> Option<Row> {
        let row = if backward { self.rows.next_back() } else { self.rows.next() }?;
        let (key, value) = self.page.row(row);
        Some((OwnedKey::from(key), value.to_vec()))
    }
}

impl RangeCursor {
    pub(super) fn new(range: KeyRange) -> Self {
        RangeCursor { unread: Some(range), front: None, back: None, limit_rows: 0 }
    }

    /// Returns the next received row from the start of the range, or from its end if `backward` is true. After all rows
    /// have been received, the row may come from the page that was received at the opposite end.
    pub(super) fn next(&mut self, backward: bool) -> Option<Row> {
        let [near, far] = if backward { [&mut self.back, &mut self.front] } else { [&mut self.front, &mut self.back] };
        let row = near.as_mut().and_then(|rows| rows.next(backward));
        match self.unread {
            None => row.or_else(|| far.as_mut()?.next(backward)),
            Some(_) => row,
        }
    }

    /// Returns the part of the range whose rows have not been received yet, or `None` if all rows have been received.
    pub(super) fn unread(&self) -> Option<&KeyRange> {
        self.unread.as_ref()
    }

    /// Returns the request for the next page of a range.
    pub(super) fn page_request<'r>(&self, range: &'r KeyRange, backward: bool) -> GetPage<'r> {
        let (start, end) = range.bounds();
        GetPage { bounds: Bounds { start, end }, backward, limit_rows: self.limit_rows }
    }

    /// Adds a received page: the next page from the start of the range, or from its end if `backward` is true.
    pub(super) fn add_page(&mut self, mut page: RowPage, backward: bool) {
        self.unread = page.take_rest();
        let rows = PageRows { rows: 0..page.len(), page };
        *(if backward { &mut self.back } else { &mut self.front }) = Some(rows);
    }

    /// Drops all remaining rows.
    pub(super) fn end(&mut self) {
        (self.unread, self.front, self.back) = (None, None, None);
    }
}
