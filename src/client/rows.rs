//! Iterators over the rows of a range, which request the rows page by page, from either end.

use std::iter::FusedIterator;
use std::ops::Range;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::request::{Bounds, GetPage, KeyRange, OwnedKey, Row, RowPage};
use super::{Client, ClientError};

/// The rows of a range in key order, from either end: an iterator for a [`Client`], and a stream for an `AsyncClient`.
///
/// The client requests the next page of rows when all rows of the previous page have been returned. At most one page is
/// held for each end. After an error, no more rows are returned.
#[derive(Debug)]
pub struct ClientRows<'c, C = Client> {
    client: &'c mut C,
    cursor: RangeCursor,
}

impl<'c, C> ClientRows<'c, C> {
    pub(super) fn new(client: &'c mut C, range: KeyRange) -> Self {
        ClientRows { client, cursor: RangeCursor::new(range) }
    }

    /// Sets the maximum number of rows that each request returns. Set this limit if you need only a few rows. With 0,
    /// the default, each response contains as many rows as fit into a page.
    #[must_use]
    pub fn page_rows(mut self, limit_rows: u32) -> Self {
        self.cursor.limit_rows = limit_rows;
        self
    }
}

impl Iterator for ClientRows<'_> {
    type Item = Result<Row, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.client.next_row(&mut self.cursor, false).transpose()
    }
}

impl DoubleEndedIterator for ClientRows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.client.next_row(&mut self.cursor, true).transpose()
    }
}

impl FusedIterator for ClientRows<'_> {}

#[cfg(feature = "tokio")]
impl ClientRows<'_, AsyncClient> {
    /// Returns the first remaining row of the range, or `None` if all rows were returned.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<Row>, ClientError> {
        self.client.next_row(&mut self.cursor, false).await
    }

    /// Returns the last remaining row of the range, or `None` if all rows were returned.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next_back(&mut self) -> Result<Option<Row>, ClientError> {
        self.client.next_row(&mut self.cursor, true).await
    }
}

/// The rows of a range that the iterator has not returned yet.
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
