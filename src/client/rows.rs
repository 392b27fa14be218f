//! Iteration over the rows of a range.

use std::iter::FusedIterator;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::key::KeyRange;
use super::range_cursor::RangeCursor;
use super::request::Row;
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
