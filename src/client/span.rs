//! What is left of a range that is asked for page by page, from either end.
//!
//! In: a range, then its pages. Out: rows, and which page is to be asked for next.
//! It does not ask itself.

use std::ops::Range;

use super::key::{Bounds, KeyRange, OwnedKey};
use super::page::Page;
use super::question::{PageOf, Row};

/// What is left of a range.
#[derive(Debug)]
pub(super) struct Span {
    /// The rows between the two pages, if there may be any.
    between: Option<KeyRange>,
    front: Option<RowsLeft>,
    back: Option<RowsLeft>,
    pub(super) limit_rows: u32,
}

/// What is left of a page.
#[derive(Debug)]
struct RowsLeft {
    page: Page,
    left: Range<usize>,
}

impl RowsLeft {
    fn next(&mut self, backward: bool) -> Option<Row> {
        let row = if backward { self.left.next_back() } else { self.left.next() }?;
        let (key, value) = self.page.row(row);
        Some((OwnedKey::from(key), value.to_vec()))
    }
}

impl Span {
    pub(super) fn new(range: KeyRange) -> Self {
        Span { between: Some(range), front: None, back: None, limit_rows: 0 }
    }

    /// The next row from an end. Without a page in between, rows are taken from what
    /// the other end has left.
    pub(super) fn next(&mut self, backward: bool) -> Option<Row> {
        let [near, far] = if backward { [&mut self.back, &mut self.front] } else { [&mut self.front, &mut self.back] };
        let row = near.as_mut().and_then(|rows| rows.next(backward));
        match self.between {
            None => row.or_else(|| far.as_mut()?.next(backward)),
            Some(_) => row,
        }
    }

    /// Where the next row is asked for if there is none left at this end.
    pub(super) fn between(&self) -> Option<&KeyRange> {
        self.between.as_ref()
    }

    /// The page that holds the next rows of a range.
    pub(super) fn page_of<'r>(&self, range: &'r KeyRange, backward: bool) -> PageOf<'r> {
        let (start, end) = range.bounds();
        PageOf { bounds: Bounds { start, end }, backward, limit_rows: self.limit_rows }
    }

    /// The page has come.
    pub(super) fn put(&mut self, mut page: Page, backward: bool) {
        self.between = page.take_rest();
        let rows = RowsLeft { left: 0..page.len(), page };
        *(if backward { &mut self.back } else { &mut self.front }) = Some(rows);
    }

    /// There are no more rows.
    pub(super) fn end(&mut self) {
        (self.between, self.front, self.back) = (None, None, None);
    }
}
