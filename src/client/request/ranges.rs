//! Ranges of keys, and requests for their rows.
//!
//! In: a range, then the value of a response. Out: an encoded request, then checked rows.

use std::ops::Bound;

use zerocopy::{FromBytes, IntoBytes};

use super::{RequestError, Row, TypedRequest, check_bounds, check_len, decode_number};
use crate::client::error::ClientError;
use crate::format::KeyBounds;
use crate::format::form::{OrderFault, RecordForm, order_fault};
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, RECORD_ALIGN_MAX_BYTES, Record};
use crate::protocol::native::{Op, PAGE_LEN_MAX_BYTES, PageHeader, RangeHeader, push_long, range_flags};
use crate::protocol::reader::Response;
use crate::protocol::response::PageError;
use crate::store::prefix_end;

pub use crate::format::OwnedKey;

impl<'k> GetPage<'k> {
    /// Requests the first rows of a range: at most `limit_rows`, or as many as fit into a page if `limit_rows` is 0.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`] if a key is too long, and [`ClientError::MixedKeys`]. Unlike a key to look up, the key
    /// at an end of the range may be empty.
    pub fn first(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(GetPage { bounds: check_bounds(&range)?, backward: false, limit_rows })
    }

    /// Requests the last rows of a range: at most `limit_rows`, or as many as fit into a page if `limit_rows` is 0.
    ///
    /// # Errors
    /// The errors of [`GetPage::first`].
    pub fn last(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(GetPage { bounds: check_bounds(&range)?, backward: true, limit_rows })
    }

    /// Requests the first row of the table, or the last row if `backward` is true.
    fn one_of_all(backward: bool) -> GetPage<'static> {
        GetPage { bounds: Bounds::ALL, backward, limit_rows: 1 }
    }
}

impl TypedRequest for GetPage<'_> {
    type Output = RowPage;

    fn op(&self) -> Op {
        Op::Range
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_range(Op::Range, &self.bounds, self.backward, self.limit_rows, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<RowPage, RequestError> {
        match response {
            Response::Found(page) => RowPage::decode(self, page).map_err(RequestError::page),
            refused => Err(RequestError::range(&self.bounds, refused)),
        }
    }
}

/// Requests the row with the smallest key.
#[derive(Clone, Copy, Debug)]
pub struct FirstRow;

/// Requests the row with the largest key.
#[derive(Clone, Copy, Debug)]
pub struct LastRow;

macro_rules! impl_end_row {
    ($request:ident, backward: $backward:literal) => {
        impl TypedRequest for $request {
            type Output = Option<Row>;

            fn op(&self) -> Op {
                Op::Range
            }

            fn encode(&self, requests: &mut Vec<u8>) {
                GetPage::one_of_all($backward).encode(requests);
            }

            fn decode(&self, response: Response<'_>) -> Result<Option<Row>, RequestError> {
                let page = GetPage::one_of_all($backward).decode(response)?;
                Ok(page.iter().next().map(|(key, value)| (OwnedKey::from(key), value.to_vec())))
            }
        }
    };
}

impl_end_row!(FirstRow, backward: false);
impl_end_row!(LastRow, backward: true);

/// Requests the number of keys in a range.
#[derive(Clone, Copy, Debug)]
pub struct Count<'k>(Bounds<'k>);

impl<'k> Count<'k> {
    /// Creates a request for the number of keys in `range`.
    ///
    /// # Errors
    /// The errors of [`GetPage::first`].
    pub fn new(range: impl KeyBounds<'k>) -> Result<Self, ClientError> {
        Ok(Count(check_bounds(&range)?))
    }
}

impl TypedRequest for Count<'_> {
    type Output = u64;

    fn op(&self) -> Op {
        Op::Count
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        encode_range(Op::Count, &self.0, false, 0, requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<u64, RequestError> {
        match response {
            Response::Found(count) => decode_number(Op::Count, count),
            refused => Err(RequestError::range(&self.0, refused)),
        }
    }
}

/// Returns the range of the keys that start with `prefix`.
///
/// # Errors
/// [`ClientError::KeyLen`].
pub fn prefix_range(prefix: &[u8]) -> Result<KeyRange, ClientError> {
    let start = Key::Bytes(prefix);
    check_len(start, 0)?;
    let end = prefix_end(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(OwnedKey::Bytes(end)));
    Ok(KeyRange { start: Bound::Included(OwnedKey::from(start)), end })
}

fn encode_range(op: Op, bounds: &Bounds<'_>, backward: bool, limit_rows: u32, requests: &mut Vec<u8>) {
    use range_flags::{BACKWARD, END, END_EXCLUDED, NUMBERS, START, START_EXCLUDED};

    let end_flags = |bound, present, excluded| match bound {
        Bound::Unbounded => 0,
        Bound::Included(_) => present,
        Bound::Excluded(_) => present | excluded,
    };
    let mut flags = end_flags(bounds.start, START, START_EXCLUDED) | end_flags(bounds.end, END, END_EXCLUDED);
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
    push_long(op, &[header.as_bytes(), start, end], requests);
}

/// Requests the first or the last rows of a range.
#[derive(Clone, Copy, Debug)]
pub struct GetPage<'k> {
    pub(in crate::client) bounds: Bounds<'k>,
    /// True if the last rows of the range are requested, and false if the first rows are requested.
    pub(in crate::client) backward: bool,
    /// Maximum number of rows; 0 requests as many rows as fit into a page.
    pub(in crate::client) limit_rows: u32,
}

/// Consecutive rows from the start or the end of a range.
///
/// A page has at most 64 KiB of rows, or a single longer row. A page takes 4 bytes of memory per row in addition to the
/// rows.
#[derive(Clone, Debug)]
pub struct RowPage {
    form: RecordForm,
    /// Records, encoded as in the file.
    records: Vec<u8>,
    offsets_bytes: Vec<u32>,
    rest: Option<KeyRange>,
}

impl RowPage {
    /// Decodes a page. Checks that its rows are complete, that their keys are in ascending order and of the requested
    /// kind, and that they are in the requested range.
    pub(in crate::client) fn decode(request: &GetPage<'_>, page: &[u8]) -> Result<RowPage, PageError> {
        let (header, records) = PageHeader::ref_from_prefix(page).map_err(|_| PageError::Truncated { row: 0 })?;
        let (row_count, code, bits) = (header.row_count.get(), header.record_form, header.align_bits);
        let form_error = PageError::RecordForm { code };
        let form = RecordForm::from_code(code).ok_or(form_error)?;
        if request.bounds.kinds().any(|requested| requested != form.keys.kind()) {
            return Err(form_error);
        }
        if !(ALIGN_BYTES.ilog2()..=RECORD_ALIGN_MAX_BYTES.ilog2()).contains(&bits.into()) {
            return Err(PageError::Align { bits });
        }
        if request.limit_rows > 0 && row_count > request.limit_rows {
            return Err(PageError::RowCount { rows: row_count, rows_max: request.limit_rows });
        }
        if row_count > 1 && records.len() > PAGE_LEN_MAX_BYTES {
            return Err(PageError::Len { len_bytes: records.len() });
        }
        // All rows are checked here, so iterating over them cannot fail.
        let offsets_bytes = check_rows(request, form, 1 << bits, row_count, records)?;
        let more = match header.more.get() {
            0 => false,
            // A page without rows cannot announce more rows, because it would not show where the remaining rows begin.
            1 if row_count > 0 => true,
            more => return Err(PageError::MoreFlag { more }),
        };
        let mut page = RowPage { form, records: records.to_vec(), offsets_bytes, rest: None };
        page.rest = more.then(|| page.remaining(request));
        Ok(page)
    }

    fn remaining(&self, request: &GetPage<'_>) -> KeyRange {
        let mut rest = KeyRange::from(request.bounds);
        if request.backward {
            rest.end = Bound::Excluded(OwnedKey::from(self.row(0).0));
        } else {
            rest.start = Bound::Excluded(OwnedKey::from(self.row(self.len() - 1).0));
        }
        rest
    }

    /// Returns the kind of the table's keys.
    pub fn key_kind(&self) -> KeyKind {
        self.form.keys.kind()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.offsets_bytes.len()
    }

    /// Returns true if the page has no rows, which means that the range has none.
    pub fn is_empty(&self) -> bool {
        self.offsets_bytes.is_empty()
    }

    /// Returns the rows in ascending key order, even if the last rows of a range were requested.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Key<'_>, &[u8])> + ExactSizeIterator {
        (0..self.len()).map(|row| self.row(row))
    }

    /// Returns the range to request next, which contains the remaining rows. Returns `None` if no rows remain.
    pub fn rest(&self) -> Option<&KeyRange> {
        self.rest.as_ref()
    }

    pub(in crate::client) fn take_rest(&mut self) -> Option<KeyRange> {
        self.rest.take()
    }

    pub(in crate::client) fn row(&self, row: usize) -> (Key<'_>, &[u8]) {
        let record = self.record(row);
        (record.key(), record.value())
    }

    /// Returns the last key of the range of a row, in a page of a table of ranges.
    pub(in crate::client) fn end(&self, row: usize) -> Option<Key<'_>> {
        self.record(row).end()
    }

    fn record(&self, row: usize) -> Record<'_> {
        let record = Record::at(self.form, &self.records, self.offsets_bytes[row].into());
        record.expect("a record that was checked when the page was decoded")
    }
}

/// Checks all rows of a page, and returns the offset of each row in `records`.
fn check_rows(
    request: &GetPage<'_>,
    form: RecordForm,
    align_bytes: usize,
    row_count: u32,
    records: &[u8],
) -> Result<Vec<u32>, PageError> {
    // The vector gets no initial capacity, because the announced number of rows is untrusted.
    let mut offsets_bytes = Vec::new();
    let (mut at_bytes, mut previous) = (0, None);
    for row in 0..row_count {
        let record = Record::at(form, records, at_bytes as u64).ok_or(PageError::Truncated { row })?;
        let key = record.key();
        if let Some(fault) = order_fault(previous, record.row_key()) {
            return Err(match fault {
                OrderFault::EmptyKey => PageError::EmptyKey { row },
                OrderFault::Key => PageError::KeyOrder { row },
                OrderFault::End | OrderFault::Overlap => PageError::RangeOrder { row },
            });
        }
        if !request.bounds.contains(key) {
            return Err(PageError::OutOfRange { row });
        }
        offsets_bytes.push(at_bytes as u32);
        at_bytes += record.len_bytes(align_bytes);
        if at_bytes > records.len() {
            return Err(PageError::Truncated { row });
        }
        previous = Some(record.row_key());
    }
    match records.len() - at_bytes {
        0 => Ok(offsets_bytes),
        len_bytes => Err(PageError::TrailingBytes { len_bytes }),
    }
}

/// A range of keys that owns its ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    pub(in crate::client) start: Bound<OwnedKey>,
    pub(in crate::client) end: Bound<OwnedKey>,
}

impl KeyRange {
    /// Creates a range from its ends.
    pub fn new(start: Bound<OwnedKey>, end: Bound<OwnedKey>) -> Self {
        KeyRange { start, end }
    }

    /// Returns the two ends, borrowed. Methods that take a range accept this pair.
    pub fn bounds(&self) -> (Bound<Key<'_>>, Bound<Key<'_>>) {
        (self.start.as_ref().map(OwnedKey::as_key), self.end.as_ref().map(OwnedKey::as_key))
    }
}

impl From<Bounds<'_>> for KeyRange {
    fn from(bounds: Bounds<'_>) -> Self {
        KeyRange { start: bounds.start.map(OwnedKey::from), end: bounds.end.map(OwnedKey::from) }
    }
}

/// A range of keys that borrows its ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Bounds<'k> {
    pub(in crate::client) start: Bound<Key<'k>>,
    pub(in crate::client) end: Bound<Key<'k>>,
}

impl Bounds<'_> {
    pub(in crate::client) const ALL: Bounds<'static> = Bounds { start: Bound::Unbounded, end: Bound::Unbounded };

    /// Returns the kinds of the keys at the ends.
    pub(in crate::client) fn kinds(&self) -> impl Iterator<Item = KeyKind> {
        [self.start, self.end].into_iter().filter_map(key_at).map(|key| key.kind())
    }

    pub(in crate::client) fn contains(&self, key: Key<'_>) -> bool {
        let is_after_start = match self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        is_after_start
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            }
    }
}

/// Returns the key at an end of a range, or `None` if the end is unbounded.
pub(in crate::client) fn key_at(bound: Bound<Key<'_>>) -> Option<Key<'_>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}
