//! A row while it is sorted: a record as it will stand in the file, but for the
//! status in front of its value. There is no row without a value in a file, so
//! the status is always 0; here it has the row's line, and whether the row deletes its key.

use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, record_len_bytes};
use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;

/// Lines are counted from some line before, in 31 bits.
pub(in crate::bake) const LINES_MAX: u64 = 1 << 31;
const DELETED: u32 = 1 << 31;

/// A row that is held.
#[derive(Clone, Copy, Debug)]
pub(in crate::bake) struct Held<'a> {
    pub(in crate::bake) key: Key<'a>,
    pub(in crate::bake) value: &'a [u8],
    /// From the first line of the batch or the run; below [`LINES_MAX`].
    pub(in crate::bake) line: u32,
    /// The row has no value: it removes its key.
    pub(in crate::bake) deleted: bool,
}

impl<'a> Held<'a> {
    /// The row at an offset, and what it takes up. `None` if it is not there whole.
    #[inline]
    pub(in crate::bake) fn at(kind: KeyKind, bytes: &'a [u8], at: usize) -> Option<(Held<'a>, usize)> {
        let rest = bytes.get(at..)?;
        let (key, answer_at) = Key::of_record(kind, rest)?;
        let (header, values) = rest.get(answer_at..)?.split_first_chunk::<RESPONSE_HEADER_LEN_BYTES>()?;
        let header = u64::from_be_bytes(*header);
        let (status, len_bytes) = ((header >> 32) as u32, header as u32 as usize);
        let value = values.get(..len_bytes)?;
        let row = Held { key, value, line: status & !DELETED, deleted: status & DELETED != 0 };
        let row_len_bytes = row.len_bytes();
        (row_len_bytes <= rest.len()).then_some((row, row_len_bytes))
    }

    /// What the row takes up.
    #[inline]
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        record_len_bytes(self.key, self.value.len(), ALIGN_BYTES)
    }

    /// Writes the row into as many bytes as it takes up.
    #[inline]
    pub(in crate::bake) fn write_into(&self, bytes: &mut [u8]) {
        let (key, answer) = bytes.split_at_mut(self.key.prefix_len_bytes());
        let (header, rest) = answer.split_at_mut(RESPONSE_HEADER_LEN_BYTES);
        let (value, padding) = rest.split_at_mut(self.value.len());
        self.key.write_into(key);
        let status = self.line | if self.deleted { DELETED } else { 0 };
        header.copy_from_slice(&(u64::from(status) << 32 | self.value.len() as u64).to_be_bytes());
        value.copy_from_slice(self.value);
        padding.fill(0);
    }

    /// Appends the row.
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
            Held { key: Key::U64(7), value: b"seven", line: 0, deleted: false },
            Held { key: Key::U64(u64::MAX), value: b"", line: (LINES_MAX - 1) as u32, deleted: true },
        ];
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.write_to(&mut bytes));
        let mut at = 0;
        for row in rows {
            let (found, len_bytes) = Held::at(KeyKind::U64, &bytes, at).unwrap();
            assert_eq!(format!("{found:?}"), format!("{row:?}"));
            assert!(Held::at(KeyKind::U64, &bytes[..at + len_bytes - 1], at).is_none(), "a row that is cut short");
            at += len_bytes;
        }
        assert_eq!(at, bytes.len());
    }
}
