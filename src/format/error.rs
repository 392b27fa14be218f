//! Errors of the file format: reasons to reject a file.

use thiserror::Error;

use super::checksum::BLOCK_LEN_BYTES;
use super::group::GROUPS_LEN_MAX_BYTES;
use super::header::{HEADER_LEN_BYTES, SectionKind, VERSION};
use super::index::{ROW_COUNT_MAX, SEED_COUNT};
use super::record::VALUE_LEN_MAX_BYTES;

/// The reason why a file is rejected, or why a table cannot be stored in a file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The file is shorter than its header.
    #[error("{len_bytes} bytes, where a header alone takes {HEADER_LEN_BYTES}: not a baked file, or truncated")]
    TooShort { len_bytes: u64 },
    /// The file does not begin with the magic bytes.
    #[error("begins with {found:02x?}, which is not a baked file: bake one with `baker input.csv`")]
    Magic { found: [u8; 8] },
    /// The file has a format version that this build cannot read.
    #[error(
        "format version {found}, where this build reads {VERSION}: bake the file again, or use the build that baked it"
    )]
    Version { found: u32 },
    /// The file's length differs from the length in its header.
    #[error(
        "{found_bytes} bytes, where its header says {expected_bytes}: truncated or extended; copy or bake it again"
    )]
    FileLen { expected_bytes: u64, found_bytes: u64 },
    /// The digest in the header does not match the header's bytes.
    #[error(
        "the header's digest is {found:032x}, where its bytes give {expected:032x}: damaged; copy or bake it again"
    )]
    Digest { expected: u128, found: u128 },
    /// A header field has an invalid value.
    #[error("the header says {what} is {found}, where {expected} was expected: not written by a baker of this version")]
    HeaderField {
        what: &'static str,
        /// A value that is valid for the field.
        expected: u64,
        found: u64,
    },
    /// The table has more rows than a file can hold.
    #[error("{rows} rows, where a file holds at most {ROW_COUNT_MAX}: split the table")]
    TooManyRows { rows: u64 },
    /// A value is longer than a response can carry.
    #[error(
        "a value of {len_bytes} bytes, where at most {VALUE_LEN_MAX_BYTES} are allowed: store a reference to it instead"
    )]
    ValueTooLong { len_bytes: u64 },
    /// The records section is longer than places can address.
    #[error("more than {len_max_bytes} bytes of records, the maximum at this record alignment: split the table")]
    RecordsTooLong {
        /// The maximum length of a records section with this table's record alignment.
        len_max_bytes: u64,
    },
    /// The groups of a table with the compact layout are longer than places can address.
    #[error(
        "{len_bytes} bytes of groups, where a file holds at most {GROUPS_LEN_MAX_BYTES}: split the table, or use the \
         fast layout"
    )]
    GroupsTooLong { len_bytes: u64 },
    /// The length of the records section does not fit the number of rows. The section is too short, its length is not a
    /// multiple of the alignment, or the section is not empty although the table has no rows.
    #[error(
        "the records section has {len_bytes} bytes, where {rows} rows take {}: damaged or forged",
        if *rows == 0 { "none".to_owned() } else { format!("at least {len_min_bytes}, a multiple of {align_bytes}") }
    )]
    RecordsLen {
        rows: u64,
        align_bytes: u64,
        /// The minimum length of a records section with this number of rows.
        len_min_bytes: u64,
        len_bytes: u64,
    },
    /// The schema of a typed table is not valid.
    #[error("{problem}")]
    Schema { problem: String },
    /// A section extends beyond the end of the file.
    #[error(
        "section {section} has {len_bytes} bytes at offset {offset_bytes}, where the file has \
         {file_len_bytes}: damaged or forged"
    )]
    SectionBeyondFile {
        section: SectionKind,
        /// The section's offset in the file, according to the header.
        offset_bytes: u64,
        /// The section's length, according to the header.
        len_bytes: u64,
        file_len_bytes: u64,
    },
    /// A section begins before the preceding section ends.
    #[error(
        "section {section} begins at offset {offset_bytes}, where the preceding section ends at {previous_end_bytes}: \
         damaged or forged"
    )]
    SectionOverlap {
        section: SectionKind,
        /// The section's offset in the file, according to the header.
        offset_bytes: u64,
        previous_end_bytes: u64,
    },
    /// The offset or length of a section differs from what the header's other fields require.
    #[error(
        "section {section} has {len_bytes} bytes at offset {offset_bytes}, where {expected_len_bytes} \
         bytes at {expected_offset_bytes} were expected: damaged or forged"
    )]
    SectionPlace {
        section: SectionKind,
        /// The section's offset in the file, according to the header.
        offset_bytes: u64,
        /// The section's length, according to the header.
        len_bytes: u64,
        /// The required offset.
        expected_offset_bytes: u64,
        /// The required length.
        expected_len_bytes: u64,
    },
    /// The bytes between two sections are not zero.
    #[error("the padding before offset {before_bytes} is not zero: damaged or forged")]
    Padding { before_bytes: u64 },
    /// The checksum of a section does not match its bytes.
    #[error(
        "section {section} has checksum {found:016x}, where {expected:016x} was expected: damaged; copy or bake it \
         again"
    )]
    SectionChecksum { section: SectionKind, expected: u64, found: u64 },
    /// The checksum of a block does not match its bytes.
    #[error(
        "block {block} of the records (its {BLOCK_LEN_BYTES} bytes from file offset {offset_bytes}) has checksum \
         {found:016x}, where {expected:016x} was expected: damaged; copy or bake the file again"
    )]
    BlockChecksum {
        /// The block's number, counted from 0.
        block: usize,
        offset_bytes: u64,
        expected: u64,
        found: u64,
    },
    /// A row is invalid: its record is malformed, its key is not greater than the preceding key, or its entry in the
    /// index is wrong. This error also reports records after the last row.
    #[error("row {row}: {what}: forged, or a bug of the baker")]
    Row {
        /// The number of the row, counted from 0 in key order.
        row: u64,
        what: &'static str,
    },
    /// The value of a row of a typed table is not a row of the table's schema.
    #[error("row {row} (key {key}): the value is not a row of the schema ({what}): forged, or a bug of the baker")]
    Cells {
        /// The number of the row, counted from 0 in key order.
        row: u64,
        /// The key of the row. Byte keys are quoted and escaped, and truncated if they are long.
        key: String,
        what: &'static str,
    },
    /// The tree above the fences does not match the fences.
    #[error(
        "entry {entry} of level {level} of the fence tree is {found:016x}, where {expected:016x} was expected: \
         damaged or forged"
    )]
    FenceTree {
        /// The level, counted from 0, the lowest level first.
        level: usize,
        entry: usize,
        /// The expected entry: the first 8 bytes of a key after the common prefix, or a number that is a key.
        expected: u64,
        found: u64,
    },
    /// Too many slots contain a place other than 0. At least one of these slots is unused, and should contain 0.
    #[error("{found} places other than 0, where {expected} were expected: forged, or a bug of the baker")]
    PlaceCount {
        /// The expected number of places other than 0: one less than the number of rows, because the first row has
        /// place 0.
        expected: u64,
        found: u64,
    },
    /// No hash seed gives every key its own slot.
    #[error(
        "none of {SEED_COUNT} hash seeds gives every key its own slot, which happens only if keys were made to \
         collide: find out who made these keys, and leave them out, or bake the table in shards"
    )]
    Unhashable,
}

/// The remedies for a file on this machine, with which messages about damage end.
#[cfg(feature = "object-store")]
const REMEDIES: [&str; 3] =
    ["; copy or bake it again", "; copy or bake the file again", ": bake one with `baker input.csv`"];

#[cfg(feature = "object-store")]
impl FormatError {
    /// Returns the message without the remedy for a file on this machine, for files that are repaired in another way.
    pub(crate) fn without_remedy(&self) -> String {
        let text = self.to_string();
        let shortened = REMEDIES.iter().find_map(|remedy| text.strip_suffix(remedy));
        shortened.map(str::to_owned).unwrap_or(text)
    }
}

#[cfg(all(test, feature = "object-store"))]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_removed_from_the_end_of_a_message() {
        let damaged = [
            FormatError::Magic { found: [0; 8] },
            FormatError::FileLen { expected_bytes: 2, found_bytes: 1 },
            FormatError::Digest { expected: 2, found: 1 },
            FormatError::BlockChecksum { block: 0, offset_bytes: 4096, expected: 2, found: 1 },
        ];
        for error in damaged {
            let text = error.without_remedy();
            assert!(
                !text.contains("; copy") && !text.contains("`baker") && error.to_string().starts_with(&text),
                "{text}"
            );
        }
        let short = FormatError::TooShort { len_bytes: 1 };
        assert_eq!(short.without_remedy(), short.to_string());
    }
}
