//! Sorts rows within a memory budget.
//!
//! In: the parsed rows of each piece, in the order of the input. Out: one ascending sequence without duplicate keys.
//! `parsed_piece` holds a piece's encoded rows ([`HeldRow`]). `run` sorts the rows that fit into memory,
//! and `spill` writes sorted runs to disk with a checksum for each block. `blocks` reads blocks from disk and verifies
//! them. `sorted_rows` reads sorted rows from memory or disk, and `merge` merges them.
//!
//! Reasons and evidence: `docs/decisions/bake-sorting.md`.

pub(super) mod blocks;
pub(super) mod merge;
pub(super) mod parsed_piece;
pub(super) mod run;
pub(super) mod sorted_rows;
pub(super) mod spill;

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::error::BakeError;
use crate::format::form::{RecordForm, RowKey};
use crate::format::key::Key;
use crate::format::record::{ALIGN_BYTES, record_head, record_len_bytes};
use crate::format::{FormatError, OwnedKey};
use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;
use crate::store::StoreError;

/// The origins (inputs and lines) of consecutive rows. An origin that is one greater than the previous row's origin is
/// not stored.
#[derive(Debug, Default)]
pub(in crate::bake) struct OriginJumps {
    rows: u64,
    /// Pairs of a row number, counted from 0, and the row's origin. The origin of every row without a pair is one
    /// greater than the origin of the preceding row.
    jumps: Vec<(u64, u64)>,
}

impl OriginJumps {
    pub(in crate::bake) fn push(&mut self, origin: u64) {
        if self.jumps.last().is_none_or(|(row, first)| first + (self.rows - row) != origin) {
            self.jumps.push((self.rows, origin));
        }
        self.rows += 1;
    }

    /// Returns the number of stored origins.
    pub(in crate::bake) fn len(&self) -> usize {
        self.jumps.len()
    }

    /// Returns the origin (input and line) of a row. Rows are counted from 0.
    pub(in crate::bake) fn origin(&self, row: u64) -> u64 {
        let jump = self.jumps.partition_point(|(first, _)| *first <= row) - 1;
        let (first, origin) = self.jumps[jump];
        origin + (row - first)
    }
}

/// The origin of the base's first row. The origins of all other rows are smaller.
pub(in crate::bake) const BASE_ORIGIN: u64 = 1 << 63;

/// The counts of dropped rows, and the duplicate that an error message names if duplicates are not allowed.
#[derive(Debug, Default)]
pub(in crate::bake) struct Tally {
    /// The number of rows in the inputs and merged tables that were dropped because another row with the same key was
    /// kept.
    pub(in crate::bake) duplicates_dropped: u64,
    /// The number of the base's rows that were replaced by rows of the input. In a table of ranges, also in part.
    pub(in crate::bake) base_replaced: u64,
    /// The number of the base's rows that were removed by deletions in the input. In a table of ranges, also in part.
    pub(in crate::bake) base_removed: u64,
    /// The number of deletions in the input, without dropped duplicates, of keys that the base does not have.
    pub(in crate::bake) absent_removed: u64,
    /// The duplicate to report if duplicates are errors. Among all pairs of rows with the same key that have been found
    /// so far, this is the pair whose second row is earliest in the input.
    pub(in crate::bake) duplicate: Option<Duplicate>,
    /// The overlap to report if overlaps of ranges are errors.
    pub(in crate::bake) overlap: Option<Duplicate>,
}

/// Two rows with the same key, or with ranges that overlap.
#[derive(Debug)]
pub(in crate::bake) struct Duplicate {
    /// The key by which the rows are sorted; if ranges overlap, that of one of them.
    pub(in crate::bake) key: OwnedKey,
    pub(in crate::bake) first_origin: u64,
    pub(in crate::bake) later_origin: u64,
}

impl Duplicate {
    pub(in crate::bake) fn new(key: Key<'_>, one: u64, other: u64) -> Duplicate {
        Duplicate { key: key.into(), first_origin: one.min(other), later_origin: one.max(other) }
    }
}

impl Tally {
    /// Adds the counts of another tally, and keeps the duplicate whose second row is earlier in the input. Only one of the
    /// tallies of a bake has an overlap, because overlaps are found when all rows are merged.
    pub(in crate::bake) fn add(&mut self, other: Tally) {
        self.duplicates_dropped += other.duplicates_dropped;
        self.base_replaced += other.base_replaced;
        self.base_removed += other.base_removed;
        self.absent_removed += other.absent_removed;
        if let Some(duplicate) = other.duplicate {
            let later_origin = duplicate.later_origin;
            self.note(|| duplicate, later_origin);
        }
        self.overlap = self.overlap.take().or(other.overlap);
    }

    /// Stores a duplicate (two rows with the same key), unless the second row of the stored duplicate is earlier in the
    /// input. `later_origin` is the origin (input and line) of the new duplicate's second row.
    pub(in crate::bake) fn note(&mut self, duplicate: impl FnOnce() -> Duplicate, later_origin: u64) {
        if self.duplicate.as_ref().is_none_or(|noted| later_origin < noted.later_origin) {
            self.duplicate = Some(duplicate());
        }
    }
}

/// The file that contains an extent (a range of a file). Error messages name this file or its folder.
#[derive(Clone, Debug)]
pub(in crate::bake) enum ExtentOwner {
    /// An unnamed file in this folder.
    Temporary(Arc<Path>),
    /// The records of the table at this path.
    Table(Arc<Path>),
    /// New records for the output at this path.
    Output(Arc<Path>),
}

impl ExtentOwner {
    pub(in crate::bake) fn failed(&self, error: io::Error) -> BakeError {
        match self {
            ExtentOwner::Temporary(folder) => BakeError::temporary(folder, error),
            ExtentOwner::Output(path) => BakeError::output(path, error),
            ExtentOwner::Table(path) => {
                let error = match error.kind() {
                    io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "was truncated while it was read"),
                    _ => error,
                };
                BakeError::OldTable(StoreError::Io { path: path.to_path_buf(), error })
            }
        }
    }

    /// Returns the error for a row of a table that is damaged or was changed while it was read.
    pub(in crate::bake) fn changed(&self, row: u64) -> BakeError {
        let what = "it is damaged, or the file was changed while it was read: copy or bake the file again";
        self.failed(io::Error::new(io::ErrorKind::InvalidData, format!("row {row}: {what}")))
    }

    pub(in crate::bake) fn damaged(&self, error: FormatError) -> BakeError {
        match (self, error) {
            (ExtentOwner::Table(path), error) => {
                BakeError::OldTable(StoreError::Format { path: path.to_path_buf(), error })
            }
            (ExtentOwner::Temporary(folder), FormatError::BlockChecksum { offset_bytes, .. }) => {
                BakeError::TemporaryDamaged { folder: folder.to_path_buf(), offset_bytes }
            }
            (ExtentOwner::Output(path), FormatError::BlockChecksum { offset_bytes, .. }) => {
                BakeError::Damaged { path: path.to_path_buf(), offset_bytes }
            }
            (ExtentOwner::Output(path), error) => BakeError::output(path, io::Error::other(error)),
            (ExtentOwner::Temporary(folder), error) => BakeError::temporary(folder, io::Error::other(error)),
        }
    }
}

/// The exclusive upper limit of relative lines, which have 31 bits. A relative line is a row's line minus the first
/// line of the row's piece or run.
pub(in crate::bake) const LINES_MAX: u64 = 1 << 31;
const DELETED: u32 = 1 << 31;

/// A row in memory or in a temporary file.
#[derive(Clone, Copy, Debug)]
pub(in crate::bake) struct HeldRow<'a> {
    pub(in crate::bake) key: Key<'a>,
    /// The end of the range, for a row of a table of ranges.
    pub(in crate::bake) end: Option<Key<'a>>,
    pub(in crate::bake) value: &'a [u8],
    /// The row's line minus the first line of the row's piece or run. This number is less than [`LINES_MAX`].
    pub(in crate::bake) line: u32,
    /// Whether the row has no value and removes its key.
    pub(in crate::bake) deleted: bool,
}

impl<'a> HeldRow<'a> {
    /// Decodes the row at the start of `bytes`, whose key and end have the form of records. Returns the row, and its
    /// length rounded up to a multiple of `align_bytes`. Returns `None` if the row is incomplete.
    #[inline]
    pub(in crate::bake) fn decode(
        form: RecordForm,
        bytes: &'a [u8],
        align_bytes: usize,
    ) -> Option<(HeldRow<'a>, usize)> {
        let (row_key, head) = record_head(form, bytes)?;
        let header = u64::from_be_bytes(*head.last_chunk()?);
        let (status, value_len_bytes) = ((header >> 32) as u32, header as u32 as usize);
        let value = bytes[head.len()..].get(..value_len_bytes)?;
        let RowKey { key, end } = row_key;
        let row = HeldRow { key, end, value, line: status & !DELETED, deleted: status & DELETED != 0 };
        let len_bytes = record_len_bytes(form, row_key, value_len_bytes, align_bytes);
        (len_bytes <= bytes.len()).then_some((row, len_bytes))
    }

    /// Returns the key, and the end of the range.
    #[inline]
    pub(in crate::bake) fn row_key(&self) -> RowKey<'a> {
        RowKey { key: self.key, end: self.end }
    }

    /// Returns the form in which the row is encoded. Rows that a bake holds have keys of any length.
    #[inline]
    fn form(&self) -> RecordForm {
        RecordForm { has_ends: self.end.is_some(), ..self.key.kind().into() }
    }

    /// Returns the length of the encoded row.
    #[inline]
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        record_len_bytes(self.form(), self.row_key(), self.value.len(), ALIGN_BYTES)
    }

    /// Encodes the row into exactly [`HeldRow::len_bytes`] bytes.
    #[inline]
    pub(in crate::bake) fn write_into(&self, bytes: &mut [u8]) {
        let (form, row_key) = (self.form(), self.row_key());
        let (head, response) = bytes.split_at_mut(form.answer_at_bytes(row_key));
        let (header, rest) = response.split_at_mut(RESPONSE_HEADER_LEN_BYTES);
        let (value, padding) = rest.split_at_mut(self.value.len());
        form.write_into(row_key, head);
        // An error about duplicate keys can name both lines, although rows take no additional bytes for it.
        let status = self.line | if self.deleted { DELETED } else { 0 };
        header.copy_from_slice(&(u64::from(status) << 32 | self.value.len() as u64).to_be_bytes());
        value.copy_from_slice(self.value);
        padding.fill(0);
    }

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
        for end in [None, Some(Key::U64(u64::MAX))] {
            let rows = [
                HeldRow { key: Key::U64(7), end, value: b"seven", line: 0, deleted: false },
                HeldRow { key: Key::U64(u64::MAX), end, value: b"", line: (LINES_MAX - 1) as u32, deleted: true },
            ];
            let mut bytes = Vec::new();
            rows.iter().for_each(|row| row.write_to(&mut bytes));
            let (mut at, form) = (0, rows[0].form());
            for row in rows {
                let (found, len_bytes) = HeldRow::decode(form, &bytes[at..], ALIGN_BYTES).unwrap();
                assert_eq!(format!("{found:?}"), format!("{row:?}"));
                let truncated = &bytes[at..at + len_bytes - 1];
                assert!(HeldRow::decode(form, truncated, ALIGN_BYTES).is_none(), "a truncated row");
                at += len_bytes;
            }
            assert_eq!(at, bytes.len());
        }
    }
}
