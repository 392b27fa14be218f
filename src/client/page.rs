//! A page of rows, as a server sends it.
//!
//! In: the value of an answer, and what was asked. Out: rows, after all of them
//! were checked.

use std::ops::Bound;

use zerocopy::FromBytes;

use super::key::{KeyRange, OwnedKey};
use super::question::PageOf;
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, RECORD_ALIGN_MAX_BYTES, Record};
use crate::protocol::answer::PageFault;
use crate::protocol::native::{PAGE_LEN_MAX_BYTES, PageHeader};

/// Some of the rows of a range, side by side: the first of them, or the last.
///
/// Takes as much memory as its rows, which are 64 KiB at most unless it is one
/// row alone, and 4 bytes for each.
#[derive(Clone, Debug)]
pub struct Page {
    kind: KeyKind,
    /// Records, as they stand in a file.
    records: Vec<u8>,
    offsets_bytes: Vec<u32>,
    rest: Option<KeyRange>,
}

impl Page {
    /// Checks a page as a whole: that its rows fit, are of one kind, ascend, and
    /// are in the range that was asked for.
    pub(super) fn check(question: &PageOf<'_>, page: &[u8]) -> Result<Page, PageFault> {
        let (header, records) = PageHeader::ref_from_prefix(page).map_err(|_| PageFault::CutShort { row: 0 })?;
        let (row_count, code, bits) = (header.row_count.get(), header.key_kind, header.align_bits);
        let wrong_kind = PageFault::KeyKind { code };
        let kind = KeyKind::from_code(code.into()).ok_or(wrong_kind)?;
        if question.bounds.kinds().any(|asked| asked != kind) {
            return Err(wrong_kind);
        }
        if !(ALIGN_BYTES.ilog2()..=RECORD_ALIGN_MAX_BYTES.ilog2()).contains(&bits.into()) {
            return Err(PageFault::Align { bits });
        }
        if question.limit_rows > 0 && row_count > question.limit_rows {
            return Err(PageFault::RowCount { rows: row_count, rows_max: question.limit_rows });
        }
        if row_count > 1 && records.len() > PAGE_LEN_MAX_BYTES {
            return Err(PageFault::Len { len_bytes: records.len() });
        }
        let offsets_bytes = check_rows(question, kind, 1 << bits, row_count, records)?;
        let more = match header.more.get() {
            0 => false,
            // A page without rows says nothing of where the others are.
            1 if row_count > 0 => true,
            more => return Err(PageFault::More { more }),
        };
        let mut page = Page { kind, records: records.to_vec(), offsets_bytes, rest: None };
        page.rest = more.then(|| page.rest_of(question));
        Ok(page)
    }

    fn rest_of(&self, question: &PageOf<'_>) -> KeyRange {
        let mut rest = KeyRange::from(question.bounds);
        if question.backward {
            rest.end = Bound::Excluded(OwnedKey::from(self.row(0).0));
        } else {
            rest.start = Bound::Excluded(OwnedKey::from(self.row(self.len() - 1).0));
        }
        rest
    }

    /// What the keys of the table are.
    pub fn key_kind(&self) -> KeyKind {
        self.kind
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.offsets_bytes.len()
    }

    /// Whether it has none: the range has none then.
    pub fn is_empty(&self) -> bool {
        self.offsets_bytes.is_empty()
    }

    /// The rows in key order, whichever end of the range they are from.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Key<'_>, &[u8])> + ExactSizeIterator {
        (0..self.len()).map(|row| self.row(row))
    }

    /// What is left of the range, if there are more rows: ask for it next.
    pub fn rest(&self) -> Option<&KeyRange> {
        self.rest.as_ref()
    }

    pub(super) fn take_rest(&mut self) -> Option<KeyRange> {
        self.rest.take()
    }

    pub(super) fn row(&self, row: usize) -> (Key<'_>, &[u8]) {
        let record = Record::at(self.kind, &self.records, self.offsets_bytes[row].into());
        let record = record.expect("a record that was checked");
        (record.key(), record.value())
    }
}

/// Where each row is.
fn check_rows(
    question: &PageOf<'_>,
    kind: KeyKind,
    align_bytes: usize,
    row_count: u32,
    records: &[u8],
) -> Result<Vec<u32>, PageFault> {
    // Not with room for as many as are announced: they are believed as they are seen.
    let mut offsets_bytes = Vec::new();
    let (mut at_bytes, mut before) = (0, None);
    for row in 0..row_count {
        let record = Record::at(kind, records, at_bytes as u64).ok_or(PageFault::CutShort { row })?;
        let key = record.key();
        if key.as_bytes().is_some_and(<[u8]>::is_empty) {
            return Err(PageFault::EmptyKey { row });
        }
        if before.is_some_and(|before| key <= before) {
            return Err(PageFault::Order { row });
        }
        if !question.bounds.contains(key) {
            return Err(PageFault::OutOfRange { row });
        }
        offsets_bytes.push(at_bytes as u32);
        at_bytes += record.len_bytes(align_bytes);
        if at_bytes > records.len() {
            return Err(PageFault::CutShort { row });
        }
        before = Some(key);
    }
    match records.len() - at_bytes {
        0 => Ok(offsets_bytes),
        len_bytes => Err(PageFault::Rest { len_bytes }),
    }
}
