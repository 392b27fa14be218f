//! Why a file is refused.

use thiserror::Error;

use super::checksum::BLOCK_LEN_BYTES;
use super::header::{HEADER_LEN_BYTES, SectionKind, VERSION};
use super::index::{ROW_COUNT_MAX, SEED_COUNT};
use super::record::{RECORDS_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES};

/// What is wrong with the bytes of a file, or why none can be laid out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The file is shorter than its header.
    #[error("{len_bytes} bytes, where a header alone takes {HEADER_LEN_BYTES}: not a baked file, or cut short")]
    TooShort {
        /// The file's length.
        len_bytes: u64,
    },
    /// The file does not begin with the magic bytes.
    #[error("begins with {found:02x?}, which is not a baked file: bake one with `baker input.csv`")]
    Magic {
        /// The file's first bytes.
        found: [u8; 8],
    },
    /// The file has a version that this build does not read.
    #[error(
        "format version {found}, where this build reads {VERSION}: bake the file anew, or use the build that baked it"
    )]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// The file's length is not the one in its header.
    #[error(
        "{found_bytes} bytes, where its header says {expected_bytes}: cut short or appended to; copy or bake it anew"
    )]
    FileLen {
        /// The length in the header.
        expected_bytes: u64,
        /// The file's length.
        found_bytes: u64,
    },
    /// The header's digest is not that of its bytes.
    #[error("the header's digest is {found:032x}, where its bytes give {expected:032x}: damaged; copy or bake it anew")]
    Digest {
        /// The digest of the header's bytes.
        expected: u128,
        /// The digest in the header.
        found: u128,
    },
    /// A number in the header is not one that this format allows.
    #[error("the header says {what} is {found}, where {expected} was expected: not written by a baker of this version")]
    HeaderField {
        /// The field.
        what: &'static str,
        /// What it must be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// More rows than a file holds.
    #[error("{rows} rows, where a file holds at most {ROW_COUNT_MAX}: split the table")]
    TooManyRows {
        /// How many rows there are.
        rows: u64,
    },
    /// A value longer than an answer carries.
    #[error(
        "a value of {len_bytes} bytes, where at most {VALUE_LEN_MAX_BYTES} are allowed: store a reference to it instead"
    )]
    ValueTooLong {
        /// The value's length.
        len_bytes: u64,
    },
    /// Records longer than places reach.
    #[error("more than {RECORDS_LEN_MAX_BYTES} bytes of records, which is all a file holds: split the table")]
    RecordsTooLong,
    /// The records are too short for the rows, not of whole aligned records, or there although there are no rows.
    #[error(
        "the records section has {len_bytes} bytes, where {rows} rows take {}: damaged or forged",
        if *rows == 0 { "none".to_owned() } else { format!("at least {len_min_bytes}, a multiple of {align_bytes}") }
    )]
    RecordsLen {
        /// The rows in the header.
        rows: u64,
        /// What each record is aligned to.
        align_bytes: u64,
        /// The length of as many of the shortest records.
        len_min_bytes: u64,
        /// The section's length.
        len_bytes: u64,
    },
    /// A section reaches beyond the file.
    #[error(
        "section {section} is said to take {len_bytes} bytes at offset {offset_bytes}, where the file has \
         {file_len_bytes}: damaged or forged"
    )]
    SectionBeyondFile {
        /// The section.
        section: SectionKind,
        /// Where it is said to begin.
        offset_bytes: u64,
        /// Its length as the table has it.
        len_bytes: u64,
        /// The file's length.
        file_len_bytes: u64,
    },
    /// A section begins before the one in front of it ends.
    #[error(
        "section {section} is said to begin at offset {offset_bytes}, where what precedes it ends at {previous_end_bytes}: \
         damaged or forged"
    )]
    SectionOverlap {
        /// The section.
        section: SectionKind,
        /// Where it is said to begin.
        offset_bytes: u64,
        /// Where the section in front of it ends.
        previous_end_bytes: u64,
    },
    /// A section is not where, or not as long as, the header asks for.
    #[error(
        "section {section} is said to take {len_bytes} bytes at offset {offset_bytes}, where {expected_len_bytes} \
         bytes at {expected_offset_bytes} were expected: damaged or forged"
    )]
    SectionPlace {
        /// The section.
        section: SectionKind,
        /// Where it is said to begin.
        offset_bytes: u64,
        /// Its length as the table has it.
        len_bytes: u64,
        /// Where it must begin.
        expected_offset_bytes: u64,
        /// How long it must be.
        expected_len_bytes: u64,
    },
    /// The bytes between two sections are not zero.
    #[error("the padding before offset {before_bytes} is not zero: damaged or forged")]
    Padding {
        /// Where the padding ends.
        before_bytes: u64,
    },
    /// A section's checksum is not that of its bytes.
    #[error(
        "section {section} has checksum {found:016x}, where {expected:016x} was expected: damaged; copy or bake it anew"
    )]
    SectionChecksum {
        /// The section.
        section: SectionKind,
        /// The checksum in the header.
        expected: u64,
        /// The checksum of the section's bytes.
        found: u64,
    },
    /// A block's checksum is not that of its bytes.
    #[error(
        "block {block} of the records (its {BLOCK_LEN_BYTES} bytes from file offset {offset_bytes}) has checksum {found:016x}, \
         where {expected:016x} was expected: damaged; copy or bake the file anew"
    )]
    BlockChecksum {
        /// The block's number.
        block: usize,
        /// Where it begins in the file.
        offset_bytes: u64,
        /// The checksum in the file.
        expected: u64,
        /// The checksum of the block's bytes.
        found: u64,
    },
    /// A record, or what the index says of it, is not what follows from the rows
    /// before it.
    #[error("row {row}: {what}: forged, or a fault of the baker")]
    Row {
        /// The row, counted from 0 in key order.
        row: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Slots that no key leads to hold places.
    #[error("{found} places other than 0, where {expected} were expected: forged, or a fault of the baker")]
    PlaceCount {
        /// One fewer than rows, for the first row's place is 0.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// No slots can be found for the keys.
    #[error(
        "no slots for the keys with any of {SEED_COUNT} hash seeds, which happens only to keys that were made to \
         collide: find out who made them, and leave them out, or bake shards of the table with --shard"
    )]
    Unhashable,
}
