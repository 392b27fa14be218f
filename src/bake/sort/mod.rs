//! Sorts rows within a memory budget.
//!
//! In: the parsed rows of each piece, in the order of the input. Out: one ascending sequence without duplicate keys.
//! `parsed_piece` holds a piece's encoded rows (`held_row`) in an `arena`. `run` sorts the rows that fit into memory,
//! and `spill` writes sorted runs to disk with a checksum for each block. `blocks` reads blocks from disk and verifies
//! them. `sorted_rows` reads sorted rows from memory or disk, `merge` merges them, and `tally` counts dropped rows.
//!
//! Reasons and evidence: `docs/decisions/bake-sorting.md`.

pub(super) mod block_sums;
pub(super) mod blocks;
pub(super) mod held_row;
pub(super) mod merge;
pub(super) mod parsed_piece;
pub(super) mod run;
pub(super) mod sorted_rows;
pub(super) mod spill;

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::error::BakeError;
use super::row_fault::display_key;
use crate::format::FormatError;
use crate::format::key::Key;
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

/// The counts of dropped rows, and the duplicate that an error message names if duplicates are not allowed.
#[derive(Debug, Default)]
pub(in crate::bake) struct Tally {
    /// The number of rows in the inputs and merged tables that were dropped because another row with the same key was
    /// kept.
    pub(in crate::bake) duplicates_dropped: u64,
    /// The number of the base's rows that were replaced by rows of the input.
    pub(in crate::bake) base_replaced: u64,
    /// The number of the base's rows that were removed by deletions in the input.
    pub(in crate::bake) base_removed: u64,
    /// The duplicate to report if duplicates are errors. Among all pairs of rows with the same key that have been found
    /// so far, this is the pair whose second row is earliest in the input.
    pub(in crate::bake) duplicate: Option<Duplicate>,
}

/// Two rows with the same key.
#[derive(Debug)]
pub(in crate::bake) struct Duplicate {
    pub(in crate::bake) key: String,
    pub(in crate::bake) first_origin: u64,
    pub(in crate::bake) later_origin: u64,
}

impl Duplicate {
    pub(in crate::bake) fn new(key: Key<'_>, one: u64, other: u64) -> Duplicate {
        Duplicate { key: display_key(key), first_origin: one.min(other), later_origin: one.max(other) }
    }
}

impl Tally {
    /// Adds the counts of another tally, and keeps the duplicate whose second row is earlier in the input.
    pub(in crate::bake) fn add(&mut self, other: Tally) {
        self.duplicates_dropped += other.duplicates_dropped;
        self.base_replaced += other.base_replaced;
        self.base_removed += other.base_removed;
        if let Some(duplicate) = other.duplicate {
            let later_origin = duplicate.later_origin;
            self.note(|| duplicate, later_origin);
        }
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
