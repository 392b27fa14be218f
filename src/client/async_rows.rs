//! The rows of a range, asked for page by page, on tokio.

use super::key::KeyRange;
use super::question::Row;
use super::span::Span;
use super::{AsyncClient, ClientError};

/// The rows of a range, in key order, from either end. Asks the server for a page
/// whenever it has none left, and holds no more than a page for each end.
///
/// After an error there are no more rows.
///
/// # Example
/// ```no_run
/// # async fn example(client: &mut zero_kv::client::AsyncClient) -> Result<(), zero_kv::client::ClientError> {
/// let mut rows = client.range("ant".."cat")?;
/// while let Some((key, value)) = rows.next().await? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncRows<'c> {
    client: &'c mut AsyncClient,
    span: Span,
}

impl<'c> AsyncRows<'c> {
    pub(super) fn new(client: &'c mut AsyncClient, range: KeyRange) -> Self {
        AsyncRows { client, span: Span::new(range) }
    }

    /// Asks for so many rows at a time, at most, rather than for as many as a page
    /// holds. For those who want only a few. 0 asks for whole pages.
    #[must_use]
    pub fn page_rows(mut self, limit_rows: u32) -> Self {
        self.span.limit_rows = limit_rows;
        self
    }

    /// The next row, `None` if there are no more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<Row>, ClientError> {
        self.take(false).await
    }

    /// The next row from the end, `None` if there are no more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next_back(&mut self) -> Result<Option<Row>, ClientError> {
        self.take(true).await
    }

    async fn take(&mut self, backward: bool) -> Result<Option<Row>, ClientError> {
        loop {
            if let Some(row) = self.span.next(backward) {
                return Ok(Some(row));
            }
            // Taken when the page has come: who drops the future has lost nothing.
            let Some(range) = self.span.between().cloned() else { return Ok(None) };
            match self.client.ask(self.span.page_of(&range, backward)).await {
                Ok(page) => self.span.put(page, backward),
                Err(error) => {
                    self.span.end();
                    return Err(error);
                }
            }
        }
    }
}
