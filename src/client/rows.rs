//! The rows of a range, asked for page by page.

use std::iter::FusedIterator;

use super::key::KeyRange;
use super::question::Row;
use super::span::Span;
use super::{Client, ClientError};

/// The rows of a range, in key order, from either end. Asks the server for a page
/// whenever it has none left, and holds no more than a page for each end.
///
/// After an error there are no more rows.
pub struct Rows<'c> {
    client: &'c mut Client,
    span: Span,
}

impl<'c> Rows<'c> {
    pub(super) fn new(client: &'c mut Client, range: KeyRange) -> Self {
        Rows { client, span: Span::new(range) }
    }

    /// Asks for so many rows at a time, at most, rather than for as many as a page
    /// holds. For those who want only a few. 0 asks for whole pages.
    #[must_use]
    pub fn page_rows(mut self, limit_rows: u32) -> Self {
        self.span.limit_rows = limit_rows;
        self
    }

    fn take(&mut self, backward: bool) -> Option<Result<Row, ClientError>> {
        loop {
            if let Some(row) = self.span.next(backward) {
                return Some(Ok(row));
            }
            let range = self.span.between()?.clone();
            match self.client.ask(self.span.page_of(&range, backward)) {
                Ok(page) => self.span.put(page, backward),
                Err(error) => {
                    self.span.end();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl DoubleEndedIterator for Rows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl FusedIterator for Rows<'_> {}
