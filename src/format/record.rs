//! Records: a value behind its ready-made response header; and locators, which
//! say where a record is.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::protocol::native::VALUE_LEN_MAX_BYTES;
use crate::protocol::native::{RESPONSE_HEADER_LEN_BYTES, Status};

/// Everything in the file is aligned to this.
pub const ALIGN_BYTES: usize = 8;
/// Length of the header before a value.
pub const RECORD_HEADER_LEN_BYTES: usize = RESPONSE_HEADER_LEN_BYTES;
/// The records of one file may take up this much, just under 8 TiB.
pub const RECORDS_LEN_MAX_BYTES: u64 = ((1 << OFFSET_BITS) - 1) * ALIGN_BYTES as u64;

const LEN_BITS: u32 = 24;
const OFFSET_BITS: u32 = 64 - LEN_BITS;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;

// The header of a value, read as one big-endian number, is the value's length:
// its upper half is the status, and Ok is zero.
const _: () = assert!(Status::Ok as u32 == 0);
const _: () = assert!(VALUE_LEN_MAX_BYTES < u32::MAX as usize);

/// Bytes that a record takes up: header, value, and zeros up to the alignment.
#[inline]
pub const fn record_len_bytes(value_len_bytes: usize) -> usize {
    (RECORD_HEADER_LEN_BYTES + value_len_bytes).next_multiple_of(ALIGN_BYTES)
}

/// The value length that the record header at the start of `bytes` announces;
/// `None` if there is no room for a header, or it is not that of a value.
#[inline]
pub fn announced_len_bytes(bytes: &[u8]) -> Option<usize> {
    let header = u64::from_be_bytes(*bytes.first_chunk()?);
    usize::try_from(header).ok().filter(|len| *len <= VALUE_LEN_MAX_BYTES)
}

/// Where a record is: its offset in the records section, in units of
/// [`ALIGN_BYTES`], in the upper 40 bits, and the value's length in the lower 24.
///
/// A length that does not fit is stored as all ones, and then stands only in
/// the record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Locator(U64);

impl Locator {
    /// Not in the table. No record is here: see [`RECORDS_LEN_MAX_BYTES`].
    pub const MISSING: Locator = Locator(U64::MAX_VALUE);
    /// What fills the unused rows of the last leaf.
    pub const UNUSED: Locator = Locator(U64::ZERO);
    /// From this length on, a locator does not tell the value's length.
    pub const LEN_LIMIT_BYTES: usize = LEN_MASK as usize;

    /// The locator of a record; `None` if it lies beyond [`RECORDS_LEN_MAX_BYTES`].
    pub fn new(offset_bytes: u64, value_len_bytes: usize) -> Option<Self> {
        debug_assert!(offset_bytes.is_multiple_of(ALIGN_BYTES as u64));
        if offset_bytes >= RECORDS_LEN_MAX_BYTES {
            return None;
        }
        let len = value_len_bytes.min(Self::LEN_LIMIT_BYTES) as u64;
        Some(Locator(U64::new((offset_bytes / ALIGN_BYTES as u64) << LEN_BITS | len)))
    }

    /// Where the record begins in the records section.
    #[inline]
    pub fn offset_bytes(self) -> u64 {
        (self.0.get() >> LEN_BITS) * ALIGN_BYTES as u64
    }

    /// The value's length, or `None` if only the record's header tells it.
    #[inline]
    pub fn value_len_bytes(self) -> Option<usize> {
        let len = (self.0.get() & LEN_MASK) as usize;
        (len < Self::LEN_LIMIT_BYTES).then_some(len)
    }

    /// The value in the records section, as long as this locator says: the
    /// record's header is asked only where the locator does not know.
    ///
    /// `None` if it does not lie inside the section.
    #[inline]
    pub fn value_in(self, records: &[u8]) -> Option<&[u8]> {
        let from_header = records.get(usize::try_from(self.offset_bytes()).ok()?..)?;
        let len = match self.value_len_bytes() {
            Some(len) => len,
            None => announced_len_bytes(from_header).filter(|len| *len >= Self::LEN_LIMIT_BYTES)?,
        };
        from_header.get(RECORD_HEADER_LEN_BYTES..RECORD_HEADER_LEN_BYTES + len)
    }

    /// The record in the records section.
    ///
    /// `None` if it does not lie inside the section, or if its header is not
    /// that of a value of this length: whatever a file holds, an answer taken
    /// from here keeps its stream in step.
    #[inline]
    pub fn record_in(self, records: &[u8]) -> Option<Record<'_>> {
        let rest = records.get(usize::try_from(self.offset_bytes()).ok()?..)?;
        let value_len_bytes = announced_len_bytes(rest)?;
        let len_bytes = RECORD_HEADER_LEN_BYTES + value_len_bytes;
        let as_located = value_len_bytes.min(Self::LEN_LIMIT_BYTES) as u64 == self.0.get() & LEN_MASK;
        (as_located && len_bytes <= rest.len()).then_some(Record { rest, len_bytes })
    }
}

/// A value behind its response header: an answer as it goes out.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// From the header to the end of the records section.
    rest: &'a [u8],
    len_bytes: usize,
}

impl<'a> Record<'a> {
    /// Length of header and value.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Header and value, without padding.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        &self.rest[..self.len_bytes]
    }

    /// The record and what follows it in the section, `N` bytes in all, if there
    /// are as many: a copy of a fixed length is one of the fastest there is.
    #[inline]
    pub fn wide<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.rest.first_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locator_gives_back_what_it_was_made_of() {
        for offset in [0, 8, 4096, RECORDS_LEN_MAX_BYTES - 8] {
            for len in [0, 1, 8, Locator::LEN_LIMIT_BYTES - 1] {
                let locator = Locator::new(offset, len).unwrap();
                assert_eq!((locator.offset_bytes(), locator.value_len_bytes()), (offset, Some(len)));
            }
            for len in [Locator::LEN_LIMIT_BYTES, VALUE_LEN_MAX_BYTES] {
                assert_eq!(Locator::new(offset, len).unwrap().value_len_bytes(), None);
            }
        }
    }

    #[test]
    fn no_record_has_the_locator_that_means_missing() {
        assert_eq!(Locator::new(RECORDS_LEN_MAX_BYTES, 0), None);
        assert_eq!(Locator::MISSING.offset_bytes(), RECORDS_LEN_MAX_BYTES);
    }

    #[test]
    fn a_locator_that_leads_astray_finds_no_record() {
        let mut records = vec![0; 24];
        records[7] = 5; // a five-byte value at 0, and an empty one at 16
        let record = Locator::new(0, 5).unwrap().record_in(&records).unwrap();
        assert_eq!((record.bytes(), record.wide::<24>().is_some(), record.wide::<25>()), (&records[..13], true, None));
        assert_eq!(Locator::new(16, 0).unwrap().record_in(&records).unwrap().bytes(), &records[16..24]);
        for astray in [Locator::new(0, 4), Locator::new(24, 0), Locator::new(1 << 42, 0), Some(Locator::MISSING)] {
            assert!(astray.unwrap().record_in(&records).is_none());
        }
        records[7] = 25; // beyond the end
        assert!(Locator::new(0, 25).unwrap().record_in(&records).is_none());
        records[0] = 1; // a status that is not Ok
        assert!(Locator::new(0, 25).unwrap().record_in(&records).is_none());
    }

    #[test]
    fn a_length_too_long_for_a_locator_is_taken_from_the_header() {
        let len = Locator::LEN_LIMIT_BYTES + 3;
        let mut records = vec![0; record_len_bytes(len)];
        records[4..8].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        let locator = Locator::new(0, len).unwrap();
        assert_eq!(locator.record_in(&records).unwrap().len_bytes(), 8 + len);
        records[4..8].copy_from_slice(&9_u32.to_be_bytes());
        assert!(locator.record_in(&records).is_none());
    }
}
