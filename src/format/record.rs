//! Records: a key and, in a table of ranges, the end of the range, followed by the response header and the value as the
//! server sends them.
//!
//! Reasons and evidence: `docs/decisions/complete-responses.md`.

use super::form::{KeyForm, RecordForm, RowKey};
#[cfg(feature = "bake")]
use super::key::KEY_LEN_MAX_BYTES;
use super::key::Key;
use crate::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Status};

pub use crate::protocol::native::VALUE_LEN_MAX_BYTES;

/// The minimum alignment of records. If a table's records take more than 32 GiB at this alignment, they get a greater
/// alignment.
pub const ALIGN_BYTES: usize = 8;
/// The maximum alignment of records.
pub const RECORD_ALIGN_MAX_BYTES: usize = 4096;
/// The maximum length of the records section, 16 TiB.
pub const RECORDS_LEN_MAX_BYTES: u64 = records_len_max_bytes(RECORD_ALIGN_MAX_BYTES, PLACE_BITS);
/// The number of bits of a place. A place is a record's position in the records section, divided by the alignment.
pub(crate) const PLACE_BITS: u32 = u32::BITS;
/// The maximum length of a short response. Lookups in batches have a faster path for short responses.
pub(crate) const SHORT_MAX_BYTES: usize = 64;
/// The maximum total length of a record's encoded key, encoded end, and response header.
#[cfg(feature = "bake")]
pub(crate) const HEAD_LEN_MAX_BYTES: usize = {
    let longest = Key::Bytes(&[0; KEY_LEN_MAX_BYTES]);
    let form = RecordForm { keys: KeyForm::Bytes, has_ends: true };
    form.answer_at_bytes(RowKey { key: longest, end: Some(longest) }) + RESPONSE_HEADER_LEN_BYTES
};

// The response header of a value is the status `Ok`, followed by the value's length. The status `Ok` is zero, so the
// header, read as one big-endian number, equals the value's length.
const _: () = assert!(Status::Ok as u32 == 0);
const _: () = assert!(VALUE_LEN_MAX_BYTES < u32::MAX as usize);

/// Returns the length of a record: key, end, response header, value, and padding up to the alignment.
#[inline(always)]
pub const fn record_len_bytes(
    form: RecordForm,
    row_key: RowKey<'_>,
    value_len_bytes: usize,
    align_bytes: usize,
) -> usize {
    (form.answer_at_bytes(row_key) + RESPONSE_HEADER_LEN_BYTES + value_len_bytes).next_multiple_of(align_bytes)
}

/// Returns the length of the shortest record of a form, which has the shortest key and an empty value.
#[inline]
pub(crate) const fn record_len_min_bytes(form: RecordForm, align_bytes: usize) -> usize {
    let key = match form.keys {
        KeyForm::U64 | KeyForm::Fixed => Key::U64(0),
        KeyForm::Bytes => Key::Bytes(&[0]),
    };
    let end = if form.has_ends { Some(key) } else { None };
    record_len_bytes(form, RowKey { key, end }, 0, align_bytes)
}

/// Returns the maximum total length of records that are aligned to `align_bytes`. A place is a position divided by the
/// alignment, so a place of `place_bits` bits cannot locate a record beyond this length. In a file, `place_bits` is
/// [`PLACE_BITS`].
#[inline]
pub(crate) const fn records_len_max_bytes(align_bytes: usize, place_bits: u32) -> u64 {
    (align_bytes as u64) << place_bits
}

/// Returns a record's key and end, and the bytes that precede the record's value: the encoded key, the encoded end, and
/// the response header. Returns `None` if these bytes are incomplete.
#[cfg(feature = "bake")]
#[inline(always)]
pub(crate) fn record_head(form: RecordForm, record: &[u8]) -> Option<(RowKey<'_>, &[u8])> {
    let (row_key, header_at) = form.read(record)?;
    Some((row_key, record.get(..header_at + RESPONSE_HEADER_LEN_BYTES)?))
}

/// Returns the value of a response, and the value's offset in the records section. `offset_bytes` is the response's
/// offset in that section.
#[inline]
pub(crate) fn value_of_response(response: &[u8], offset_bytes: u64) -> (&[u8], u64) {
    let value = response.get(RESPONSE_HEADER_LEN_BYTES..).unwrap_or_default();
    (value, offset_bytes + RESPONSE_HEADER_LEN_BYTES as u64)
}

/// Returns the alignment for a table's records: the smallest power of two, at least [`ALIGN_BYTES`], with which a
/// 32-bit place can locate every record. Returns `None` if the length of the records exceeds [`RECORDS_LEN_MAX_BYTES`].
///
/// `records_len_bytes` returns the total length of the records for a given alignment.
pub fn record_align_bytes(mut records_len_bytes: impl FnMut(usize) -> u64) -> Option<usize> {
    let mut aligns = (ALIGN_BYTES.ilog2()..=RECORD_ALIGN_MAX_BYTES.ilog2()).map(|bits| 1_usize << bits);
    aligns.find(|align_bytes| records_len_bytes(*align_bytes) <= records_len_max_bytes(*align_bytes, PLACE_BITS))
}

/// Returns the response at the start of `bytes`: its header and its value.
///
/// Returns `None` if the response is incomplete, if its status is not `Ok`, or if the length in its header exceeds
/// [`VALUE_LEN_MAX_BYTES`]. Even in a damaged file, a returned response therefore has the length that its header
/// states.
#[inline(always)]
pub(crate) fn answer(bytes: &[u8]) -> Option<&[u8]> {
    let header = u64::from_be_bytes(*bytes.first_chunk::<RESPONSE_HEADER_LEN_BYTES>()?);
    // If this addition wraps, the status is not `Ok`, and `is_whole` is false.
    let len_bytes = RESPONSE_HEADER_LEN_BYTES.wrapping_add(header as usize);
    let is_whole = header <= VALUE_LEN_MAX_BYTES as u64 && len_bytes <= bytes.len();
    is_whole.then(|| &bytes[..len_bytes])
}

/// A record of the records section: a key, the end of its range, and its response.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    row_key: RowKey<'a>,
    /// The encoded key, the encoded end, the response header, and the value. In the compact layout, only the value.
    bytes: &'a [u8],
    /// The offset of the value in `bytes`.
    value_at_bytes: usize,
}

impl<'a> Record<'a> {
    /// Returns the record at an offset in the records section.
    ///
    /// Returns `None` if the record is not inside the section, or if its response header is invalid.
    #[inline(always)]
    pub fn at(form: RecordForm, records: &'a [u8], offset_bytes: u64) -> Option<Record<'a>> {
        let rest = records.get(offset_bytes as usize..)?;
        let (row_key, answer_at_bytes) = form.read(rest)?;
        let answer = answer(rest.get(answer_at_bytes..)?)?;
        let value_at_bytes = answer_at_bytes + RESPONSE_HEADER_LEN_BYTES;
        Some(Record { row_key, bytes: &rest[..answer_at_bytes + answer.len()], value_at_bytes })
    }

    /// Returns the record of a row of the compact layout, which stores only the value.
    #[inline(always)]
    pub(crate) fn of_value(row_key: RowKey<'a>, value: &'a [u8]) -> Record<'a> {
        Record { row_key, bytes: value, value_at_bytes: 0 }
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> Key<'a> {
        self.row_key.key
    }

    /// Returns the last key of the range that begins with the key, in a table of ranges.
    #[inline]
    pub fn end(&self) -> Option<Key<'a>> {
        self.row_key.end
    }

    /// Returns the key and the end.
    #[inline]
    pub fn row_key(&self) -> RowKey<'a> {
        self.row_key
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[self.value_at_bytes..]
    }

    /// Returns the response header and the value. In the compact layout, which stores no response headers, returns the
    /// value.
    #[inline]
    pub fn answer(&self) -> &'a [u8] {
        &self.bytes[self.answer_at_bytes()..]
    }

    /// Returns the offset of the response header in the record.
    #[inline]
    pub fn answer_at_bytes(&self) -> usize {
        self.value_at_bytes.saturating_sub(RESPONSE_HEADER_LEN_BYTES)
    }

    /// Returns the offset of the value in the record.
    #[inline]
    pub fn value_at_bytes(&self) -> usize {
        self.value_at_bytes
    }

    /// Returns the bytes of the encoded key, the encoded end, the response header, and the value. In the compact layout,
    /// returns the value.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether all padding of this record is zero: the padding after the key, after the end, and at the end of
    /// the record. `records` is the records section, which contains this record at `offset_bytes`.
    pub(crate) fn is_padded_with_zeros(
        &self,
        form: RecordForm,
        records: &[u8],
        offset_bytes: u64,
        align_bytes: usize,
    ) -> bool {
        let start = offset_bytes as usize;
        let padding = records.get(start + self.bytes.len()..start + self.len_bytes(align_bytes));
        padding.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
            && form.is_padded_with_zeros(self.row_key, self.bytes)
    }

    /// Returns the length of the record, including its padding.
    #[inline]
    pub fn len_bytes(&self, align_bytes: usize) -> usize {
        self.bytes.len().next_multiple_of(align_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::key::KeyKind;

    #[test]
    fn a_record_with_a_number_is_read_at_its_offset() {
        let mut records = vec![0; 40];
        records[0] = 7;
        records[15] = 5; // key 7 has a value of 5 bytes; key 0, at offset 24, has an empty value
        records[16..21].copy_from_slice(b"seven");
        let record = Record::at(KeyKind::U64.into(), &records, 0).unwrap();
        assert_eq!((record.key(), record.value(), record.answer()), (Key::U64(7), &b"seven"[..], &records[8..21]));
        assert_eq!((record.len_bytes(8), record.len_bytes(64)), (24, 64));
        assert_eq!(Record::at(KeyKind::U64.into(), &records, 24).unwrap().value(), b"");
    }

    #[test]
    fn a_record_with_a_key_of_bytes_is_read_at_its_offset() {
        let mut records = vec![0; 40];
        records[..9].copy_from_slice(b"\x07\0seventh");
        records[23] = 1;
        records[24] = b'7';
        let record = Record::at(KeyKind::Bytes.into(), &records, 0).unwrap();
        assert_eq!(
            (record.key(), record.value(), record.answer()),
            (Key::from("seventh"), &b"7"[..], &records[16..25])
        );
        assert_eq!(record.len_bytes(8), 32);
        records[0] = 31; // the key extends to the end, so the record has no response
        assert!(Record::at(KeyKind::Bytes.into(), &records, 0).is_none());
    }

    #[test]
    fn no_record_is_found_at_a_wrong_offset() {
        let mut records = vec![0; 40];
        let at = |records: &[u8], offset_bytes| Record::at(KeyKind::U64.into(), records, offset_bytes).is_some();
        for offset_bytes in [25, 32, 40, 41, 1 << 40, u64::MAX] {
            assert!(!at(&records, offset_bytes), "{offset_bytes}");
        }
        records[15] = 25; // one byte beyond the end
        assert!(!at(&records, 0));
        records[15] = 24;
        assert!(at(&records, 0));
        records[11] = 1; // a status that is not Ok
        assert!(!at(&records, 0));
        for header in [u64::MAX, u64::MAX - 7, u64::MAX - 8, u64::MAX - 15, u64::MAX - 16] {
            records[8..16].copy_from_slice(&header.to_be_bytes());
            assert!(!at(&records, 0), "{header:x}");
        }
    }

    #[test]
    fn records_are_aligned_so_that_32_bits_address_them_all() {
        let len = |rows: u64| {
            let form = RecordForm::from(KeyKind::U64);
            move |align: usize| rows * record_len_bytes(form, Key::U64(0).into(), 1, align) as u64
        };
        assert_eq!(record_align_bytes(len(0)), Some(8));
        assert_eq!(record_align_bytes(len((8 << 32) / 24)), Some(8));
        assert_eq!(record_align_bytes(len((8 << 32) / 24 + 1)), Some(16));
        assert_eq!(record_align_bytes(|_| RECORDS_LEN_MAX_BYTES), Some(4096));
        assert_eq!(record_align_bytes(|_| RECORDS_LEN_MAX_BYTES + 1), None);
    }
}
