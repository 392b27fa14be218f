//! Records: a key, and its value behind the response header that will precede
//! it on the wire.

use crate::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Status};

pub use crate::protocol::native::VALUE_LEN_MAX_BYTES;

/// Everything in the file is aligned to this; records may be to more.
pub const ALIGN_BYTES: usize = 8;
/// The largest alignment of records.
pub const RECORD_ALIGN_MAX_BYTES: usize = 4096;
/// What precedes a value: the key and the response header.
pub const PREFIX_LEN_BYTES: usize = KEY_LEN_BYTES + RESPONSE_HEADER_LEN_BYTES;
/// The records of one file may take up this much, 16 TiB.
pub const RECORDS_LEN_MAX_BYTES: u64 = (RECORD_ALIGN_MAX_BYTES as u64) << 32;

/// What precedes an answer.
pub(crate) const KEY_LEN_BYTES: usize = size_of::<u64>();

// The header of a value, read as one big-endian number, is the value's length: its upper half is the status, and Ok
// is zero.
const _: () = assert!(Status::Ok as u32 == 0);
const _: () = assert!(VALUE_LEN_MAX_BYTES < u32::MAX as usize);

/// Bytes that a record takes up: key, header, value, and zeros up to the
/// alignment.
#[inline]
pub const fn record_len_bytes(value_len_bytes: usize, align_bytes: usize) -> usize {
    (PREFIX_LEN_BYTES + value_len_bytes).next_multiple_of(align_bytes)
}

/// The alignment of records that take up so much: the smallest power of two by
/// which 32 bits can count to their end. `None` beyond [`RECORDS_LEN_MAX_BYTES`].
///
/// `records_len_bytes` gives their length at each alignment.
pub fn record_align_bytes(mut records_len_bytes: impl FnMut(usize) -> u64) -> Option<usize> {
    let mut aligns = (ALIGN_BYTES.ilog2()..=RECORD_ALIGN_MAX_BYTES.ilog2()).map(|bits| 1_usize << bits);
    aligns.find(|align_bytes| records_len_bytes(*align_bytes) <= (*align_bytes as u64) << 32)
}

/// A key and its answer, in the records section.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// From the key to the end of the section.
    rest: &'a [u8],
    used_len_bytes: usize,
}

impl<'a> Record<'a> {
    /// The record at an offset.
    ///
    /// `None` if it does not lie inside the section, or its header is not that
    /// of a value: whatever a file holds, an answer taken from here keeps its
    /// stream in step.
    #[inline(always)]
    pub fn at(records: &'a [u8], offset_bytes: u64) -> Option<Record<'a>> {
        let (_, header) = Self::head(records, offset_bytes)?;
        let rest = &records[offset_bytes as usize..];
        // Wraps only where the header is not that of a value.
        let used_len_bytes = PREFIX_LEN_BYTES.wrapping_add(header as usize);
        let fits = header <= VALUE_LEN_MAX_BYTES as u64 && used_len_bytes <= rest.len();
        fits.then_some(Record { rest, used_len_bytes })
    }

    /// The key and the response header, as one number, at an offset. `None`
    /// outside the section; whether it is a record's is not looked at.
    #[inline(always)]
    pub(crate) fn head(records: &[u8], offset_bytes: u64) -> Option<(u64, u64)> {
        let head = records.get(offset_bytes as usize..)?.first_chunk::<PREFIX_LEN_BYTES>()?;
        let (key, header) = head.split_at(KEY_LEN_BYTES);
        Some((u64::from_le_bytes(*key.first_chunk()?), u64::from_be_bytes(*header.first_chunk()?)))
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> u64 {
        // There is one: `at` has seen what is behind it.
        self.rest.first_chunk().map_or(0, |key| u64::from_le_bytes(*key))
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.rest[PREFIX_LEN_BYTES..self.used_len_bytes]
    }

    /// Response header and value, as they go out.
    #[inline]
    pub fn answer(&self) -> &'a [u8] {
        &self.rest[KEY_LEN_BYTES..self.used_len_bytes]
    }

    /// The length of response header and value.
    #[inline]
    pub fn answer_len_bytes(&self) -> usize {
        self.used_len_bytes - KEY_LEN_BYTES
    }

    /// Key, response header and value.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        &self.rest[..self.used_len_bytes]
    }

    /// What the record takes up, with the zeros behind it.
    #[inline]
    pub fn len_bytes(&self, align_bytes: usize) -> usize {
        self.used_len_bytes.next_multiple_of(align_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_lies() {
        let mut records = vec![0; 40];
        records[0] = 7;
        records[15] = 5; // a five-byte value under 7, and an empty one under 0 at 24
        records[16..21].copy_from_slice(b"seven");
        let record = Record::at(&records, 0).unwrap();
        assert_eq!((record.key(), record.value(), record.answer()), (7, &b"seven"[..], &records[8..21]));
        assert_eq!((record.len_bytes(8), record.len_bytes(64)), (24, 64));
        assert_eq!(Record::at(&records, 24).unwrap().value(), b"");
    }

    #[test]
    fn an_offset_that_leads_astray_finds_no_record() {
        let mut records = vec![0; 40];
        for offset_bytes in [25, 32, 40, 41, 1 << 40, u64::MAX] {
            assert!(Record::at(&records, offset_bytes).is_none(), "{offset_bytes}");
        }
        records[15] = 25; // one byte beyond the end
        assert!(Record::at(&records, 0).is_none());
        records[15] = 24;
        assert!(Record::at(&records, 0).is_some());
        records[11] = 1; // a status that is not Ok
        assert!(Record::at(&records, 0).is_none());
        for header in [u64::MAX, u64::MAX - 15, u64::MAX - 16] {
            records[8..16].copy_from_slice(&header.to_be_bytes());
            assert!(Record::at(&records, 0).is_none(), "{header:x}");
        }
    }

    #[test]
    fn records_are_aligned_to_what_32_bits_can_count() {
        let len = |rows: u64| move |align: usize| rows * record_len_bytes(1, align) as u64;
        assert_eq!(record_align_bytes(len(0)), Some(8));
        assert_eq!(record_align_bytes(len((8 << 32) / 24)), Some(8));
        assert_eq!(record_align_bytes(len((8 << 32) / 24 + 1)), Some(16));
        assert_eq!(record_align_bytes(|_| RECORDS_LEN_MAX_BYTES), Some(4096));
        assert_eq!(record_align_bytes(|_| RECORDS_LEN_MAX_BYTES + 1), None);
    }
}
