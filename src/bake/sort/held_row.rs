//! Rows in memory and in temporary files, before they become records.
//!
//! A row is encoded like a record in the file, except for the status in the response header. In the file, the status is
//! always 0, because every record has a value. Here, the status contains the row's line, and whether the row removes
//! its key.

use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, record_head, record_len_bytes};
use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;

/// The exclusive upper limit of relative lines, which have 31 bits. A relative line is a row's line minus the first
/// line of the row's piece or run.
pub(in crate::bake) const LINES_MAX: u64 = 1 << 31;
const DELETED: u32 = 1 << 31;

/// A row in memory or in a temporary file.
#[derive(Clone, Copy, Debug)]
pub(in crate::bake) struct HeldRow<'a> {
    pub(in crate::bake) key: Key<'a>,
    pub(in crate::bake) value: &'a [u8],
    /// The row's line minus the first line of the row's piece or run. This number is less than [`LINES_MAX`].
    pub(in crate::bake) line: u32,
    /// Whether the row has no value and removes its key.
    pub(in crate::bake) deleted: bool,
}

impl<'a> HeldRow<'a> {
    /// Decodes the row at the start of `bytes`. Returns the row, and its length rounded up to a multiple of
    /// `align_bytes`. Returns `None` if the row is incomplete.
    #[inline]
    pub(in crate::bake) fn decode(kind: KeyKind, bytes: &'a [u8], align_bytes: usize) -> Option<(HeldRow<'a>, usize)> {
        let (key, head) = record_head(kind, bytes)?;
        let header = u64::from_be_bytes(*head.last_chunk()?);
        let (status, value_len_bytes) = ((header >> 32) as u32, header as u32 as usize);
        let value = bytes[head.len()..].get(..value_len_bytes)?;
        let row = HeldRow { key, value, line: status & !DELETED, deleted: status & DELETED != 0 };
        let len_bytes = record_len_bytes(key, value_len_bytes, align_bytes);
        (len_bytes <= bytes.len()).then_some((row, len_bytes))
    }

    /// Returns the length of the encoded row.
    #[inline]
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        record_len_bytes(self.key, self.value.len(), ALIGN_BYTES)
    }

    /// Encodes the row into exactly [`HeldRow::len_bytes`] bytes.
    #[inline]
    pub(in crate::bake) fn write_into(&self, bytes: &mut [u8]) {
        let (key, response) = bytes.split_at_mut(self.key.prefix_len_bytes());
        let (header, rest) = response.split_at_mut(RESPONSE_HEADER_LEN_BYTES);
        let (value, padding) = rest.split_at_mut(self.value.len());
        self.key.write_into(key);
        let status = self.line | if self.deleted { DELETED } else { 0 };
        header.copy_from_slice(&(u64::from(status) << 32 | self.value.len() as u64).to_be_bytes());
        value.copy_from_slice(self.value);
        padding.fill(0);
    }

    /// Appends the encoded row to `bytes`.
    #[inline]
    pub(in crate::bake) fn write_to(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.len_bytes(), 0);
        self.write_into(&mut bytes[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let rows = [
            HeldRow { key: Key::U64(7), value: b"seven", line: 0, deleted: false },
            HeldRow { key: Key::U64(u64::MAX), value: b"", line: (LINES_MAX - 1) as u32, deleted: true },
        ];
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.write_to(&mut bytes));
        let mut at = 0;
        for row in rows {
            let (found, len_bytes) = HeldRow::decode(KeyKind::U64, &bytes[at..], ALIGN_BYTES).unwrap();
            assert_eq!(format!("{found:?}"), format!("{row:?}"));
            let truncated = &bytes[at..at + len_bytes - 1];
            assert!(HeldRow::decode(KeyKind::U64, truncated, ALIGN_BYTES).is_none(), "a truncated row");
            at += len_bytes;
        }
        assert_eq!(at, bytes.len());
    }
}
