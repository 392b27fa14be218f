//! The rows that one response contains.
//!
//! In: a request, and the value of its response. Out: checked rows.

use std::ops::Bound;

use zerocopy::FromBytes;

use super::key::{Bounds, KeyRange, OwnedKey};
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, RECORD_ALIGN_MAX_BYTES, Record};
use crate::protocol::native::{PAGE_LEN_MAX_BYTES, PageHeader};
use crate::protocol::response::PageError;

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
    kind: KeyKind,
    /// Records, encoded as in the file.
    records: Vec<u8>,
    offsets_bytes: Vec<u32>,
    rest: Option<KeyRange>,
}

impl RowPage {
    /// Decodes a page. Checks that its rows are complete, that their keys are in ascending order and of the requested
    /// kind, and that they are in the requested range.
    pub(super) fn decode(request: &GetPage<'_>, page: &[u8]) -> Result<RowPage, PageError> {
        let (header, records) = PageHeader::ref_from_prefix(page).map_err(|_| PageError::Truncated { row: 0 })?;
        let (row_count, code, bits) = (header.row_count.get(), header.key_kind, header.align_bits);
        let kind_error = PageError::KeyKind { code };
        let kind = KeyKind::from_code(code.into()).ok_or(kind_error)?;
        if request.bounds.kinds().any(|requested| requested != kind) {
            return Err(kind_error);
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
        let offsets_bytes = check_rows(request, kind, 1 << bits, row_count, records)?;
        let more = match header.more.get() {
            0 => false,
            // A page without rows cannot announce more rows, because it would not show where the remaining rows begin.
            1 if row_count > 0 => true,
            more => return Err(PageError::MoreFlag { more }),
        };
        let mut page = RowPage { kind, records: records.to_vec(), offsets_bytes, rest: None };
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
        self.kind
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

    pub(super) fn take_rest(&mut self) -> Option<KeyRange> {
        self.rest.take()
    }

    pub(super) fn row(&self, row: usize) -> (Key<'_>, &[u8]) {
        let record = Record::at(self.kind, &self.records, self.offsets_bytes[row].into());
        let record = record.expect("a record that was checked when the page was decoded");
        (record.key(), record.value())
    }
}

/// Checks all rows of a page, and returns the offset of each row in `records`.
fn check_rows(
    request: &GetPage<'_>,
    kind: KeyKind,
    align_bytes: usize,
    row_count: u32,
    records: &[u8],
) -> Result<Vec<u32>, PageError> {
    // The vector gets no initial capacity, because the announced number of rows is untrusted.
    let mut offsets_bytes = Vec::new();
    let (mut at_bytes, mut previous) = (0, None);
    for row in 0..row_count {
        let record = Record::at(kind, records, at_bytes as u64).ok_or(PageError::Truncated { row })?;
        let key = record.key();
        if key.as_bytes().is_some_and(<[u8]>::is_empty) {
            return Err(PageError::EmptyKey { row });
        }
        if previous.is_some_and(|previous| key <= previous) {
            return Err(PageError::KeyOrder { row });
        }
        if !request.bounds.contains(key) {
            return Err(PageError::OutOfRange { row });
        }
        offsets_bytes.push(at_bytes as u32);
        at_bytes += record.len_bytes(align_bytes);
        if at_bytes > records.len() {
            return Err(PageError::Truncated { row });
        }
        previous = Some(key);
    }
    match records.len() - at_bytes {
        0 => Ok(offsets_bytes),
        len_bytes => Err(PageError::TrailingBytes { len_bytes }),
    }
}
