//! An incomplete download: its file, and which bytes of the file are complete.
//!
//! In: the bytes that arrive, or a damaged file. Out: what is missing, even after a restart of the process.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::PublishError;
use super::limits::{self, STATE_LEN_MAX_BYTES};
use super::location::Location;
use super::manifest::Entry;
use super::transfer::{check_space, remove, with_suffix};
use crate::bake::Cancel;
use crate::folder::Folder;
use crate::format::header::{HEADER_LEN_BYTES, Layout};
use crate::store::{Pace, Unchecked, survive_bus_errors};

/// The length of a block that has a checksum.
const BLOCK_LEN_BYTES: u64 = crate::format::checksum::BLOCK_LEN_BYTES as u64;
/// The length of a copy.
const COPY_LEN_BYTES: usize = 1 << 20;

/// The names of the files of an incomplete download, next to the file that it will become.
pub(super) struct Partial<'f> {
    pub(super) folder: &'f Folder,
    pub(super) name: OsString,
    /// The name of the file with the [`DownloadState`].
    pub(super) state_name: OsString,
}

/// The bytes that a download has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct DownloadState {
    object_url: String,
    pub(super) complete: ByteRanges,
}

impl<'f> Partial<'f> {
    pub(super) fn of(folder: &'f Folder, name: &OsStr) -> Partial<'f> {
        Partial { folder, name: with_suffix(name, ".partial"), state_name: with_suffix(name, ".partial.json") }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    pub(super) fn discard(&self) -> Result<(), PublishError> {
        remove(self.folder, &self.state_name)?;
        remove(self.folder, &self.name)
    }

    /// Reads the state of an earlier download of the same object. Returns an empty state if there is none.
    pub(super) fn state(&self, location: &Location, entry: &Entry) -> DownloadState {
        let object_url = location.object_url(&entry.object);
        let json = self.folder.read(&self.state_name, STATE_LEN_MAX_BYTES).ok();
        let state = json.and_then(|json| serde_json::from_slice::<DownloadState>(&json).ok());
        let is_valid = |state: &DownloadState| state.object_url == object_url && state.complete.is_valid(entry.bytes);
        state.filter(is_valid).unwrap_or_else(|| DownloadState { object_url, ..Default::default() })
    }

    /// Writes the state. A failure only means that an interrupted download starts again.
    pub(super) fn write_state(&self, state: &DownloadState) {
        let _ = serde_json::to_vec(state).map(|json| self.folder.write(&self.state_name, &json));
    }
}

impl Partial<'_> {
    /// Makes a complete download whose verification failed an incomplete one, which lacks the blocks that do not match
    /// their checksums. Returns false if all blocks match.
    pub(super) fn keep_intact(&self, location: &Location, entry: &Entry, file: &File, cancel: &Cancel) -> bool {
        let damaged = damaged_ranges(entry, file, &self.path(), cancel);
        let mut broken = ByteRanges::default();
        damaged
            .unwrap_or_else(|| uncovered_ranges(file, entry.bytes))
            .into_iter()
            .for_each(|range| broken.insert(range));
        if broken.is_empty() {
            return false;
        }
        let mut state = DownloadState { object_url: location.object_url(&entry.object), ..Default::default() };
        broken.gaps(entry.bytes).into_iter().for_each(|intact| state.complete.insert(intact));
        self.write_state(&state);
        true
    }
}

/// Returns the ranges of a file that no checksum of a block covers: the header, the padding, and the root of the
/// checksums. As long as one of them is damaged, nothing is known about the blocks.
fn uncovered_ranges(file: &File, file_len_bytes: u64) -> Vec<Range<u64>> {
    // A root has 8 bytes for 512 blocks of 4 KiB, and is at the end of the file.
    let root_len_max_bytes = file_len_bytes / (BLOCK_LEN_BYTES * 512) * 8 + BLOCK_LEN_BYTES;
    let root_start = file_len_bytes.saturating_sub(root_len_max_bytes);
    let mut ranges = vec![0..BLOCK_LEN_BYTES.min(file_len_bytes), root_start..file_len_bytes];
    let mut start = [0; HEADER_LEN_BYTES];
    // If the header is damaged, it is fetched first.
    if file.read_exact_at(&mut start, 0).is_ok()
        && let Ok(layout) = Layout::decode_start(&start, file_len_bytes)
    {
        ranges.extend(layout.paddings());
    }
    ranges
}

/// Creates an incomplete download from a damaged file of an entry: it has the blocks that match their checksums, so
/// that only the others are downloaded. Returns the number of bytes that are missing, or `None` if the checksums
/// themselves are damaged. The file stays as it is, because it may be served.
pub(super) fn salvage(
    location: &Location,
    entry: &Entry,
    folder: &Folder,
    name: &OsStr,
    damaged: &File,
    cancel: &Cancel,
) -> Result<Option<u64>, PublishError> {
    let (partial, path) = (Partial::of(folder, name), folder.path().join(name));
    let Some(ranges) = damaged_ranges(entry, damaged, &path, cancel) else { return Ok(None) };
    let mut state = DownloadState { object_url: location.object_url(&entry.object), ..Default::default() };
    let mut broken = ByteRanges::default();
    ranges.into_iter().for_each(|range| broken.insert(range));
    broken.gaps(entry.bytes).into_iter().for_each(|intact| state.complete.insert(intact));
    let missing_bytes = broken.len_bytes();
    check_space(&partial.path(), entry.bytes)?;
    let copy = || -> io::Result<bool> {
        let new = folder.new_file()?;
        new.file().set_len(entry.bytes)?;
        let mut buffer = vec![0; COPY_LEN_BYTES];
        for intact in broken.gaps(entry.bytes) {
            for start in intact.clone().step_by(COPY_LEN_BYTES) {
                if cancel.is_set() {
                    return Ok(false);
                }
                let len_bytes = (intact.end - start).min(COPY_LEN_BYTES as u64) as usize;
                damaged.read_exact_at(&mut buffer[..len_bytes], start)?;
                new.file().write_all_at(&buffer[..len_bytes], start)?;
            }
        }
        folder.remove(&partial.name)?;
        new.create(&partial.name)?;
        Ok(true)
    };
    match copy() {
        Ok(true) => {}
        Ok(false) => return Err(PublishError::Canceled),
        // The disk cannot read the other blocks either.
        Err(_) => return Ok(None),
    }
    partial.write_state(&state);
    Ok(Some(missing_bytes))
}

/// Returns the ranges of a file that do not match their checksums. Returns `None` if the checksums themselves are
/// damaged, or if the file has another length or digest than the entry.
fn damaged_ranges(entry: &Entry, file: &File, path: &Path, cancel: &Cancel) -> Option<Vec<Range<u64>>> {
    survive_bus_errors().ok()?;
    let canceled = cancel.clone();
    let unchecked = Unchecked::of_file(file, path).ok()?;
    let is_entry = file.metadata().is_ok_and(|metadata| metadata.len() == entry.bytes)
        && format!("{:032x}", unchecked.digest()) == entry.digest;
    is_entry.then(|| unchecked.damaged_ranges(&Pace::new(move || !canceled.is_set())).ok()).flatten()
}

/// The maximum number of ranges of a set in the state of a download. Longer states are ignored.
const RANGES_MAX: usize = 1 << 20;

/// A set of bytes, as ranges in ascending order. Between two ranges, at least one byte is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ByteRanges {
    #[serde(deserialize_with = "limits::list::<_, _, RANGES_MAX>")]
    ranges: Vec<Range<u64>>,
}

impl ByteRanges {
    /// Returns whether the set is in its form and has no bytes after a length. A set from a file may have any numbers.
    pub(super) fn is_valid(&self, len_bytes: u64) -> bool {
        let mut before = None;
        self.ranges.iter().all(|range| {
            let is_after = before.is_none_or(|end| end < range.start);
            before = Some(range.end);
            is_after && range.start < range.end && range.end <= len_bytes
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn insert(&mut self, added: Range<u64>) {
        if added.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let end = self.ranges.partition_point(|range| range.start <= added.end);
        let merged = self.ranges[first..end]
            .iter()
            .fold(added, |merged, range| merged.start.min(range.start)..merged.end.max(range.end));
        self.ranges.splice(first..end, [merged]);
    }

    /// Returns the ranges of the bytes that are missing, up to a length.
    pub(super) fn gaps(&self, len_bytes: u64) -> Vec<Range<u64>> {
        let ends = self.ranges.iter().map(|range| range.end);
        let starts = self.ranges.iter().map(|range| range.start).chain([len_bytes]);
        let gaps = [0].into_iter().chain(ends).zip(starts).map(|(start, end)| start..end);
        gaps.filter(|gap| !gap.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn a_set_has_the_bytes_of_its_ranges_and_no_others() {
        const LEN_BYTES: u64 = 60;
        let mut random = SmallRng::seed_from_u64(7);
        for _ in 0..300 {
            let (mut set, mut model) = (ByteRanges::default(), [false; LEN_BYTES as usize]);
            for _ in 0..12 {
                let start = random.random_range(0..=LEN_BYTES);
                let end = (start + random.random_range(0..9)).min(LEN_BYTES);
                set.insert(start..end);
                (start..end).for_each(|at| model[at as usize] = true);
                assert!(set.is_valid(LEN_BYTES), "{set:?}");
                assert_eq!(set.len_bytes(), model.iter().filter(|has| **has).count() as u64);
                let missing: Vec<u64> = set.gaps(LEN_BYTES).into_iter().flatten().collect();
                let expected = (0..LEN_BYTES).filter(|at| !model[*at as usize]);
                assert_eq!(missing, expected.collect::<Vec<u64>>(), "{set:?}");
            }
        }
    }

    #[test]
    fn a_set_of_impossible_ranges_is_invalid() {
        let parse = |json: &str| serde_json::from_str::<ByteRanges>(json).unwrap();
        for ranges in ["1,0", "0,0", "0,11", "0,5},{\"start\":5,\"end\":6", "4,5},{\"start\":0,\"end\":2"] {
            let json = format!("{{\"ranges\":[{{\"start\":{}}}]}}", ranges.replacen(',', ",\"end\":", 1));
            assert!(!parse(&json).is_valid(10), "{json}");
        }
        assert!(parse("{\"ranges\":[{\"start\":0,\"end\":5},{\"start\":6,\"end\":10}]}").is_valid(10));
    }
}
