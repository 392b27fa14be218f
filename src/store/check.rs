//! Checking what a file holds against what its header and checksums say.

use std::ops::Range;

use super::Store;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::SectionKind;
use crate::format::index::{LEAF_ROWS, Leaf, NODE_KEYS, UNUSED_KEY};
use crate::format::record::{Locator, RECORD_HEADER_LEN_BYTES, record_len_bytes};
use zerocopy::little_endian::U64;

/// Checks the sections that a lookup follows: their checksums, the order of the
/// keys, that the records lie one behind the other as the locators say, and that
/// each level of the directory repeats the first keys below it.
pub(super) fn index(store: &Store) -> Result<(), FormatError> {
    let layout = &store.layout;
    for (kind, section) in layout.sections() {
        let found = match kind {
            SectionKind::Records => section_sum(block_sums(store)),
            _ => section_sum_of(store.section(&section)),
        };
        if found != section.checksum {
            return Err(FormatError::SectionChecksum { section: kind, expected: section.checksum, found });
        }
    }
    leaves(store)?;
    directory(store)
}

fn leaves(store: &Store) -> Result<(), FormatError> {
    let index = store.index();
    let records = store.section(&store.layout.records);
    let mut next_offset_bytes = 0;
    let mut previous = None;
    for row in 0..index.shape.row_count {
        let fault = || FormatError::IndexRow { row: row as u64 };
        let (key, locator) = index.row(row).ok_or_else(fault)?;
        if locator.offset_bytes() != next_offset_bytes || previous.is_some_and(|previous| previous >= key) {
            return Err(fault());
        }
        let value = locator.value_in(records).ok_or_else(fault)?;
        next_offset_bytes += record_len_bytes(value.len()) as u64;
        previous = Some(key);
    }
    let used_in_last = index.shape.row_count % LEAF_ROWS;
    let unused_are_marked = index.leaves.last().is_none_or(|Leaf { keys, locators }| {
        used_in_last == 0
            || keys[used_in_last..].iter().all(|key| *key == UNUSED_KEY)
                && locators[used_in_last..].iter().all(|locator| *locator == Locator::UNUSED)
    });
    if next_offset_bytes != records.len() as u64 || !unused_are_marked {
        return Err(FormatError::IndexRow { row: index.shape.row_count as u64 });
    }
    Ok(())
}

fn directory(store: &Store) -> Result<(), FormatError> {
    let index = store.index();
    // From the level above the leaves upwards: below is first the leaves, then each level in turn.
    let mut first_key_below: Box<dyn Fn(usize) -> U64> = Box::new(|leaf| index.leaves[leaf].keys[0]);
    for (level, shape) in index.shape.levels.iter().rev().enumerate() {
        let nodes = &index.directory[shape.nodes.clone()];
        for entry in 0..nodes.len() * NODE_KEYS {
            let expected = if entry < shape.entry_count { first_key_below(entry) } else { UNUSED_KEY };
            if nodes[entry / NODE_KEYS].keys[entry % NODE_KEYS] != expected {
                return Err(FormatError::DirectoryEntry { level, entry });
            }
        }
        first_key_below = Box::new(|node| nodes[node].keys[0]);
    }
    Ok(())
}

/// Checks the blocks that hold a range of the records section.
pub(super) fn records(store: &Store, range: Range<usize>) -> Result<(), FormatError> {
    let section = &store.layout.records;
    let records = store.section(section);
    let sums = block_sums(store);
    let (first, end) = (range.start / BLOCK_LEN_BYTES, range.end.div_ceil(BLOCK_LEN_BYTES));
    let blocks = records[first * BLOCK_LEN_BYTES..].chunks(BLOCK_LEN_BYTES);
    for (block, (bytes, expected)) in (first..end).zip(blocks.zip(&sums[first..])) {
        let found = block_sum(bytes);
        if found != *expected {
            return Err(FormatError::BlockChecksum {
                block,
                offset_bytes: section.offset_bytes + (block * BLOCK_LEN_BYTES) as u64,
                expected: expected.get(),
                found: found.get(),
            });
        }
    }
    Ok(())
}

/// Checks the block that holds the header of a record, if it lies inside the
/// records section.
pub(super) fn record_header(store: &Store, locator: Locator) -> Result<(), FormatError> {
    let len_bytes = store.layout.records.len_bytes;
    let at = |offset_bytes: u64| offset_bytes.min(len_bytes) as usize;
    let start_bytes = locator.offset_bytes();
    records(store, at(start_bytes)..at(start_bytes + RECORD_HEADER_LEN_BYTES as u64))
}

fn block_sums(store: &Store) -> &[U64] {
    super::typed(store.section(&store.layout.block_sums))
}
