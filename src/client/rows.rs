//! The rows of a range, asked for page by page.

use std::iter::FusedIterator;
use std::ops::Range;

use super::key::{Bounds, KeyRange, OwnedKey};
use super::page::{Page, PageQuestion};
use super::{Client, ClientError, Row};

/// The rows of a range, in key order, from either end. Asks the server for a page
/// whenever it has none left, and holds no more than a page for each end.
///
/// After an error there are no more rows.
pub struct Rows<'c> {
    client: &'c mut Client,
    /// The rows between the two pages, if there may be any.
    between: Option<KeyRange>,
    front: Option<RowsLeft>,
    back: Option<RowsLeft>,
    limit_rows: u32,
}

/// What is left of a page.
struct RowsLeft {
    page: Page,
    left: Range<usize>,
}

impl RowsLeft {
    fn next(&mut self) -> Option<Row> {
        self.left.next().map(|row| self.row(row))
    }

    fn next_back(&mut self) -> Option<Row> {
        self.left.next_back().map(|row| self.row(row))
    }

    fn row(&self, row: usize) -> Row {
        let (key, value) = self.page.row(row);
        (OwnedKey::from(key), value.to_vec())
    }
}

impl<'c> Rows<'c> {
    pub(super) fn new(client: &'c mut Client, range: KeyRange) -> Self {
        Rows { client, between: Some(range), front: None, back: None, limit_rows: 0 }
    }

    /// Asks for so many rows at a time, at most, rather than for as many as a page
    /// holds. For those who want only a few. 0 asks for whole pages.
    #[must_use]
    pub fn page_rows(mut self, limit_rows: u32) -> Self {
        self.limit_rows = limit_rows;
        self
    }

    /// The next page of the rows between, if there are any.
    fn ask(&mut self, backward: bool) -> Result<Option<RowsLeft>, ClientError> {
        let Some(range) = self.between.take() else { return Ok(None) };
        let (start, end) = range.bounds();
        let question = PageQuestion { bounds: Bounds { start, end }, backward, limit_rows: self.limit_rows };
        let mut page = self.client.ask_page(&question).inspect_err(|_| (self.front, self.back) = (None, None))?;
        self.between = page.take_rest();
        Ok(Some(RowsLeft { left: 0..page.len(), page }))
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.front.as_mut().and_then(RowsLeft::next) {
            return Some(Ok(row));
        }
        match self.ask(false) {
            Ok(Some(page)) => self.front = Some(page),
            Ok(None) => {}
            Err(error) => return Some(Err(error)),
        }
        let row = self.front.as_mut().and_then(RowsLeft::next);
        row.or_else(|| self.back.as_mut()?.next()).map(Ok)
    }
}

impl DoubleEndedIterator for Rows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.back.as_mut().and_then(RowsLeft::next_back) {
            return Some(Ok(row));
        }
        match self.ask(true) {
            Ok(Some(page)) => self.back = Some(page),
            Ok(None) => {}
            Err(error) => return Some(Err(error)),
        }
        let row = self.back.as_mut().and_then(RowsLeft::next_back);
        row.or_else(|| self.front.as_mut()?.next_back()).map(Ok)
    }
}

impl FusedIterator for Rows<'_> {}
