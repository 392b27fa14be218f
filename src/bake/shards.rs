//! Divides a table into shards.
//!
//! In: the slots of a table, and the number of shards or the maximum length of each. Out: a contiguous range of slots
//! for each shard.
//!
//! Reasons and evidence: `docs/decisions/bake-shards.md`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::budget::Context;
use super::combine::{SortedParts, each_row};
use super::error::BakeError;
use super::old_table;
use super::report::Report;
use super::sort::Tally;
use crate::folder::{Folder, folder_of};
use crate::format::form::RecordForm;
use crate::format::header::RECORDS_OFFSET_BYTES;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::format::record::{ALIGN_BYTES, PLACE_BITS, record_len_bytes, records_len_max_bytes};
use crate::replace::TableSummary;
use crate::slots::{SLOT_COUNT, SlotRange, slot_of_typed};

/// The maximum number of shards of one bake.
pub const SHARDS_MAX: u16 = 256;
/// The maximum length of a shard, 32 GiB: longer records would need a greater alignment, which makes each of them
/// longer.
pub const SHARD_LEN_MAX_BYTES: u64 = records_len_max_bytes(ALIGN_BYTES, PLACE_BITS);

/// An upper bound on the length of a row's share of the index and of the checksums.
const INDEX_BYTES_PER_ROW: u64 = 13;
/// An upper bound on the length of a file without its records and its rows' shares of the index.
const FIXED_LEN_BYTES: u64 = 32 << 10;

/// How to divide a table into shards. Each shard gets a contiguous range of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// This number of shards, at most [`SHARDS_MAX`], with equal numbers of slots if the number of slots is divisible.
    Count(u16),
    /// As few shards as possible whose files have at most this length, at most [`SHARD_LEN_MAX_BYTES`].
    MaxLenBytes(u64),
}

/// A file of a sharded bake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardReport {
    /// The file's path.
    pub path: PathBuf,
    /// The slots of the file's keys.
    pub slots: SlotRange,
    /// The facts about the file. Facts about inputs, old tables, and stages are those of the whole bake.
    pub report: Report,
}

impl Shards {
    /// Rejects numbers and lengths beyond the limits.
    pub(super) fn check(self, slots: SlotRange) -> Result<(), BakeError> {
        let slot_count = slots.slot_count();
        match self {
            Shards::Count(shards) if !(1..=SHARDS_MAX.min(slot_count)).contains(&shards) => {
                Err(BakeError::ShardCount { shards, shards_max: SHARDS_MAX.min(slot_count) })
            }
            Shards::MaxLenBytes(len_bytes) if !(FIXED_LEN_BYTES..=SHARD_LEN_MAX_BYTES).contains(&len_bytes) => {
                Err(BakeError::ShardLen { len_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Returns the ranges of slots into which these slots are divided. Counts the rows of each slot if the division
    /// depends on them.
    pub(super) fn ranges(
        self,
        slots: SlotRange,
        parts: &SortedParts,
        context: &Context<'_>,
    ) -> Result<Vec<SlotRange>, BakeError> {
        match self {
            Shards::Count(shards) => Ok(slots.divide(shards)),
            Shards::MaxLenBytes(len_max_bytes) => ranges_within(slots, len_max_bytes, &slot_lens(parts, context)?.0),
        }
    }
}

pub(super) fn path_of(folder: &Path, slots: SlotRange) -> PathBuf {
    folder.join(format!("{slots}.db"))
}

/// Returns the paths of the shards in a folder that an earlier bake of these slots wrote.
pub(super) fn existing(folder: &Path, slots: SlotRange) -> Result<Vec<PathBuf>, BakeError> {
    let names = Folder::open(folder).and_then(|folder| folder.names());
    let mut paths: Vec<_> =
        names.map_err(|error| BakeError::output(folder, error))?.iter().map(|name| folder.join(name)).collect();
    paths.retain(|path| is_shard(path, slots));
    paths.sort();
    Ok(paths)
}

/// Returns whether a path has the name of a shard of some of these slots, and a table.
fn is_shard(path: &Path, slots: SlotRange) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".db"));
    let shard = name.and_then(|name| name.parse::<SlotRange>().ok().filter(|shard| shard.to_string() == name));
    let is_within = |shard: SlotRange| shard.first_slot >= slots.first_slot && shard.last_slot <= slots.last_slot;
    shard.is_some_and(is_within) && matches!(old_table::summary(path), Ok(Some(_)))
}

/// Returns the properties of the table whose shards of these slots are in a folder, or `None` if it has none.
pub(super) fn summary(folder: &Path, slots: SlotRange) -> Result<Option<TableSummary>, BakeError> {
    let mut all: Option<TableSummary> = None;
    for path in existing(folder, slots)? {
        let Some(shard) = old_table::summary(&path)? else { continue };
        all = Some(TableSummary { rows: shard.rows + all.map_or(0, |all| all.rows), ..shard });
    }
    Ok(all)
}

/// Creates the folder unless it exists, and runs a bake of these slots into it. If the bake fails, removes a new folder
/// again.
///
/// # Errors
/// The folder has other files than shards of an earlier bake of these slots, or cannot be created. The error of the
/// bake.
pub(super) fn in_shard_folder<T>(
    folder: &Path,
    slots: SlotRange,
    bake: impl FnOnce() -> Result<T, BakeError>,
) -> Result<T, BakeError> {
    let failed = |error| BakeError::output(folder, error);
    // The folder above it must exist.
    let above = Folder::open(folder_of(folder)).map_err(failed)?;
    let is_new = fs::symlink_metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // The next bake removes the hidden files of killed bakes.
    let is_visible = |name: &OsString| !name.as_encoded_bytes().starts_with(b".");
    let names = Folder::create_all(folder).and_then(|folder| folder.names()).map_err(failed)?;
    let is_other = |name: &OsString| is_visible(name) && !is_shard(&folder.join(name), slots);
    if let Some(name) = names.into_iter().find(is_other) {
        return Err(BakeError::ShardFolder { folder: folder.to_path_buf(), name });
    }
    let baked = bake();
    match &baked {
        // The name of a new folder must also survive a power loss.
        Ok(_) if is_new => above.sync().map_err(failed)?,
        // The bake has failed already, so an error here changes nothing.
        Err(_) if is_new => drop(fs::remove_dir(folder)),
        _ => {}
    }
    baked
}

/// Upper bounds on the lengths that the rows of each slot add to a file. An engine that bakes shards in many processes
/// adds the rows that each process has, and divides the slots by the sums.
#[derive(Clone, Debug)]
pub struct SlotLens(Vec<u64>);

impl SlotLens {
    /// Adds a row with a stored key of this type and a value of `value_len_bytes` bytes.
    pub fn add(&mut self, key_type: KeyType, key: Key<'_>, value_len_bytes: usize) {
        let form = RecordForm::from(key.kind());
        let record_len_bytes = record_len_bytes(form, key.into(), value_len_bytes, ALIGN_BYTES) as u64;
        self.0[usize::from(slot_of_typed(key_type, key))] += record_len_bytes + INDEX_BYTES_PER_ROW;
    }

    /// Adds the rows of another process.
    pub fn add_all(&mut self, other: &SlotLens) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, len_bytes)| *sum = sum.saturating_add(*len_bytes));
    }

    /// Returns the length of the rows of each slot.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// Returns the lengths that [`SlotLens::as_slice`] returned, or `None` if there is not one for each slot.
    pub fn from_slice(lens: &[u64]) -> Option<SlotLens> {
        (lens.len() == usize::from(SLOT_COUNT)).then(|| SlotLens(lens.to_vec()))
    }

    /// Divides all slots into as few shards as possible whose files have at most `len_max_bytes`.
    ///
    /// # Errors
    /// [`BakeError::ShardLen`], [`BakeError::ShardSlot`], [`BakeError::ShardsTooMany`].
    pub fn ranges(&self, len_max_bytes: u64) -> Result<Vec<SlotRange>, BakeError> {
        Shards::MaxLenBytes(len_max_bytes).check(SlotRange::ALL)?;
        ranges_within(SlotRange::ALL, len_max_bytes, &self.0)
    }
}

impl Default for SlotLens {
    fn default() -> SlotLens {
        SlotLens(vec![0; usize::from(SLOT_COUNT)])
    }
}

/// Returns upper bounds on the lengths that the rows of each slot add to a file.
fn slot_lens(parts: &SortedParts, context: &Context<'_>) -> Result<SlotLens, BakeError> {
    // One more merge: the lengths of slots are known only after duplicates and deletions are dropped.
    let mut lens = SlotLens::default();
    let mut rows = 0_u64;
    each_row(parts, context, &mut Tally::default(), |row, _| {
        rows += 1;
        if rows.is_multiple_of(1 << 16) {
            context.check_canceled()?;
        }
        if !row.deleted {
            lens.add(parts.key_type, row.key, row.value.len());
        }
        Ok(())
    })?;
    Ok(lens)
}

fn ranges_within(slots: SlotRange, len_max_bytes: u64, lens: &[u64]) -> Result<Vec<SlotRange>, BakeError> {
    // The checksums of blocks take one byte of 512, which `FIXED_LEN_BYTES` does not cover in long files.
    let len_of = |len_bytes: u64| RECORDS_OFFSET_BYTES + FIXED_LEN_BYTES + len_bytes + len_bytes / 256;
    let mut ranges = Vec::new();
    let (mut first_slot, mut len_bytes) = (slots.first_slot, 0);
    for slot in slots.first_slot..=slots.last_slot {
        let slot_len_bytes = lens[usize::from(slot)];
        if len_of(slot_len_bytes) > len_max_bytes {
            return Err(BakeError::ShardSlot { slot, len_bytes: len_of(slot_len_bytes), len_max_bytes });
        }
        if len_of(len_bytes + slot_len_bytes) > len_max_bytes {
            ranges.push(SlotRange { first_slot, last_slot: slot - 1 });
            (first_slot, len_bytes) = (slot, 0);
        }
        len_bytes += slot_len_bytes;
    }
    ranges.push(SlotRange { first_slot, last_slot: slots.last_slot });
    match ranges.len() {
        shards if shards > usize::from(SHARDS_MAX) => Err(BakeError::ShardsTooMany { shards, len_max_bytes }),
        _ => Ok(ranges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_cover(ranges: &[SlotRange], slots: SlotRange) {
        assert_eq!(ranges[0].first_slot, slots.first_slot);
        assert_eq!(ranges[ranges.len() - 1].last_slot, slots.last_slot);
        assert!(ranges.windows(2).all(|pair| pair[0].last_slot + 1 == pair[1].first_slot), "{ranges:?}");
        assert!(ranges.iter().all(|range| range.is_valid()), "{ranges:?}");
    }

    #[test]
    fn equal_ranges_cover_all_slots_once() {
        for slots in [SlotRange::ALL, SlotRange { first_slot: 16000, last_slot: 16383 }] {
            for shards in 1..=SHARDS_MAX {
                let ranges = slots.divide(shards);
                check_cover(&ranges, slots);
                let counts = ranges.iter().map(|range| range.last_slot - range.first_slot);
                assert!(ranges.len() == usize::from(shards) && counts.clone().max() <= counts.min().map(|min| min + 1));
            }
        }
        assert_eq!(SlotRange::ALL.divide(4)[1].to_string(), "4096-8191");
    }

    #[test]
    fn ranges_within_a_length_are_as_few_as_possible() {
        let mut lens = vec![10_000; usize::from(SLOT_COUNT)];
        let ranges = ranges_within(SlotRange::ALL, 10 << 20, &lens).unwrap();
        check_cover(&ranges, SlotRange::ALL);
        assert_eq!(ranges.len(), 16);
        lens[5] = 20 << 20;
        let slot = ranges_within(SlotRange::ALL, 10 << 20, &lens);
        assert!(matches!(slot, Err(BakeError::ShardSlot { slot: 5, .. })), "{slot:?}");
        let many = ranges_within(SlotRange { first_slot: 6, last_slot: 16383 }, 100_000, &lens);
        assert!(matches!(many, Err(BakeError::ShardsTooMany { .. })), "{many:?}");
    }
}
