//! Questions about the order of keys.

use std::ops::Bound;

use zerocopy::IntoBytes;

use super::key::{Bounds, KeyRange, OwnedKey, key_at};
use super::page::{Page, PageQuestion};
use super::rows::Rows;
use super::{Answer, Client, ClientError, check_len, quoted};
use crate::format::KeyBounds;
use crate::format::key::{Key, KeyKind};
use crate::protocol::answer::PageFault;
use crate::protocol::native::{Op, RangeHeader, push_long, range_flags};
use crate::store::prefix_end;

/// A key and its value.
pub type Row = (OwnedKey, Vec<u8>);

impl Client {
    /// The row with the largest key that is not above `key`.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn floor<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        let key = key.into();
        self.neighbour(Op::Floor, key, Bounds { start: Bound::Unbounded, end: Bound::Included(key) })
    }

    /// The row with the smallest key that is not below `key`.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn ceiling<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        let key = key.into();
        self.neighbour(Op::Ceiling, key, Bounds { start: Bound::Included(key), end: Bound::Unbounded })
    }

    /// The row with the smallest key.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn first(&mut self) -> Result<Option<Row>, ClientError> {
        self.outermost(false)
    }

    /// The row with the largest key.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn last(&mut self) -> Result<Option<Row>, ClientError> {
        self.outermost(true)
    }

    /// All rows, in key order, from either end.
    pub fn rows(&mut self) -> Rows<'_> {
        Rows::new(self, KeyRange::from(Bounds::ALL))
    }

    /// The rows whose keys lie in a range, in key order, from either end. Nothing
    /// is asked before the first is wanted; then the server is asked for a page at
    /// a time. A range that ends before it begins has none.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`], [`ClientError::MixedKeys`]; an end may be empty.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// for row in client.range("ant".."cat")?.rev() {
    ///     let (key, value) = row?;
    ///     println!("{key}: {} bytes", value.len());
    /// }
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn range<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<Rows<'_>, ClientError> {
        let range = KeyRange::from(self.bounds(&range)?);
        Ok(Rows::new(self, range))
    }

    /// The rows whose keys begin with these bytes, in key order, from either end.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`].
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<Rows<'_>, ClientError> {
        let prefix = prefix.as_ref();
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, |end| Bound::Excluded(Key::Bytes(end)));
        self.range((Bound::Included(Key::Bytes(prefix)), end))
    }

    /// The first rows of a range: at most so many, or as many as a page holds if
    /// that is 0. [`Page::rest`] is what to ask for next, on this connection or
    /// another.
    ///
    /// # Errors
    /// Those of [`Client::get`], [`ClientError::MixedKeys`]; an end may be empty.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let mut page = client.first_page(1000_u64.., 100)?;
    /// while let Some(rest) = page.rest() {
    ///     page = client.first_page(rest.bounds(), 100)?;
    /// }
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn first_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        let bounds = self.bounds(&range)?;
        self.ask_page(&PageQuestion { bounds, backward: false, limit_rows })
    }

    /// The last rows of a range, in key order all the same.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn last_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        let bounds = self.bounds(&range)?;
        self.ask_page(&PageQuestion { bounds, backward: true, limit_rows })
    }

    /// How many keys lie in a range. No row is sent.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn count<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<u64, ClientError> {
        let bounds = self.bounds(&range)?;
        match self.count_or_refusal(&bounds)? {
            Some(count) => Ok(count),
            None => Err(self.refused(range_name(&bounds))),
        }
    }

    /// How many keys begin with these bytes.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        let prefix = prefix.as_ref();
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, |end| Bound::Excluded(Key::Bytes(end)));
        self.count((Bound::Included(Key::Bytes(prefix)), end))
    }

    /// What the keys of the table are. Asks for the number of keys from 0 on, and
    /// then of those from the least of bytes on: one of them is an error.
    ///
    /// # Errors
    /// [`ClientError`], but not [`ClientError::Connect`].
    pub fn key_kind(&mut self) -> Result<KeyKind, ClientError> {
        for least in [Key::U64(0), Key::Bytes(b"")] {
            let all = Bounds { start: Bound::Included(least), end: Bound::Unbounded };
            if self.count_or_refusal(&all)?.is_some() {
                return Ok(least.kind());
            }
        }
        Err(self.refused("the question what its keys are".to_owned()))
    }

    fn neighbour(&mut self, op: Op, key: Key<'_>, bounds: Bounds<'_>) -> Result<Option<Row>, ClientError> {
        match self.ask_key(op, key)? {
            Some(page) => {
                let page = self.page(&PageQuestion { bounds, backward: false, limit_rows: 1 }, page)?;
                match (page.iter().next(), page.rest()) {
                    (Some((key, value)), None) => Ok(Some((OwnedKey::from(key), value.to_vec()))),
                    (None, _) => Err(self.page_fault(PageFault::RowCount { rows: 0, rows_max: 1 })),
                    (_, Some(_)) => Err(self.page_fault(PageFault::More { more: 1 })),
                }
            }
            None => Ok(None),
        }
    }

    fn outermost(&mut self, backward: bool) -> Result<Option<Row>, ClientError> {
        let page = self.ask_page(&PageQuestion { bounds: Bounds::ALL, backward, limit_rows: 1 })?;
        Ok(page.iter().next().map(|(key, value)| (OwnedKey::from(key), value.to_vec())))
    }

    /// One page of a range that was checked.
    pub(super) fn ask_page(&mut self, question: &PageQuestion<'_>) -> Result<Page, ClientError> {
        let request = range_request(Op::Range, &question.bounds, question.backward, question.limit_rows);
        match self.ask(Op::Range, &request)? {
            Answer::Value(page) => self.page(question, page),
            _ => Err(self.refused(range_name(&question.bounds))),
        }
    }

    fn page(&mut self, question: &PageQuestion<'_>, page: Vec<u8>) -> Result<Page, ClientError> {
        Page::check(question, page).map_err(|fault| self.page_fault(fault))
    }

    /// How many keys lie in a range, unless the server answers with an error.
    fn count_or_refusal(&mut self, bounds: &Bounds<'_>) -> Result<Option<u64>, ClientError> {
        match self.ask(Op::Count, &range_request(Op::Count, bounds, false, 0))? {
            Answer::Value(count) => Ok(count.first_chunk().map(|count| u64::from_be_bytes(*count))),
            _ => Ok(None),
        }
    }

    /// The ends of a range, if they can be asked for.
    fn bounds<'k>(&self, range: &impl KeyBounds<'k>) -> Result<Bounds<'k>, ClientError> {
        let (start, end) = range.bounds();
        for key in [start, end].into_iter().filter_map(key_at) {
            check_len(key, 0)?;
        }
        match (key_at(start), key_at(end)) {
            (Some(start), Some(end)) if start.kind() != end.kind() => {
                Err(ClientError::MixedKeys { start: start.kind(), end: end.kind() })
            }
            _ => Ok(Bounds { start, end }),
        }
    }
}

fn range_request(op: Op, bounds: &Bounds<'_>, backward: bool, limit_rows: u32) -> Vec<u8> {
    use range_flags::{BACKWARD, END, END_EXCLUDED, NUMBERS, START, START_EXCLUDED};

    let given = |bound, given, excluded| match bound {
        Bound::Unbounded => 0,
        Bound::Included(_) => given,
        Bound::Excluded(_) => given | excluded,
    };
    let mut flags = given(bounds.start, START, START_EXCLUDED) | given(bounds.end, END, END_EXCLUDED);
    if backward {
        flags |= BACKWARD;
    }
    if bounds.kinds().any(|kind| kind == KeyKind::U64) {
        flags |= NUMBERS;
    }
    let numbers = [bounds.start, bounds.end].map(|bound| match key_at(bound) {
        Some(Key::U64(key)) => key.to_be_bytes(),
        _ => [0; 8],
    });
    let key = |bound, number| match key_at(bound) {
        Some(Key::U64(_)) => number,
        Some(Key::Bytes(key)) => key,
        None => &[],
    };
    let (start, end) = (key(bounds.start, &numbers[0][..]), key(bounds.end, &numbers[1][..]));
    let header = RangeHeader {
        flags: flags.into(),
        limit_rows: limit_rows.into(),
        start_len_bytes: (start.len() as u32).into(),
        end_len_bytes: (end.len() as u32).into(),
    };
    let mut request = Vec::new();
    push_long(op, &[header.as_bytes(), start, end], &mut request);
    request
}

/// What error messages call a range.
fn range_name(bounds: &Bounds<'_>) -> String {
    let from = key_at(bounds.start).map_or(String::new(), |start| format!(" from {}", quoted(start)));
    let to = key_at(bounds.end).map_or(String::new(), |end| format!(" to {}", quoted(end)));
    match (&*from, &*to) {
        ("", "") => "the range of all keys".to_owned(),
        _ => format!("the range{from}{to}"),
    }
}
