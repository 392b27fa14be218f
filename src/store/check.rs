//! Checking what a file holds against what its header and checksums say.

use std::ops::ControlFlow;

use zerocopy::little_endian::U64;

use super::Store;
use super::rows::Places;
use super::search::Found;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::SectionKind;
use crate::format::index::FENCE_ROWS;
use crate::format::record::Record;

/// Checks all that lookups rely on: every byte against its checksum, that
/// records follow each other in key order, that each fence names its row, that
/// each key is found, and that no other slot leads anywhere. After it, a key is
/// found if and only if a row has it.
pub(super) fn all(store: &Store) -> Result<(), FormatError> {
    sections(store)?;
    blocks(store)?;
    rows(store)?;
    keys(store)?;
    unused_slots(store)
}

fn sections(store: &Store) -> Result<(), FormatError> {
    for (section, place) in store.layout.sections() {
        let found = match section {
            SectionKind::Records => section_sum(block_sums(store)),
            _ => section_sum_of(store.section(&place)),
        };
        if found != place.checksum {
            return Err(FormatError::SectionChecksum { section, expected: place.checksum, found });
        }
    }
    Ok(())
}

fn blocks(store: &Store) -> Result<(), FormatError> {
    let section = &store.layout.records;
    let blocks = store.section(section).chunks(BLOCK_LEN_BYTES);
    for (block, (bytes, expected)) in blocks.zip(block_sums(store)).enumerate() {
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

/// Walks along the records and holds the fences against them.
fn rows(store: &Store) -> Result<(), FormatError> {
    let (records, align_bytes) = (store.records(), store.record_align_bytes());
    let (mut offset_bytes, mut previous) = (0, None);
    for row in 0..store.len() {
        let fault = |what| FormatError::Row { row: row as u64, what };
        let record = Record::at(records, offset_bytes).ok_or_else(|| fault("the record does not fit"))?;
        if previous.is_some_and(|previous| previous >= record.key()) {
            return Err(fault("the key is not above the one before"));
        }
        if row % FENCE_ROWS == 0 {
            let fence = store.fences().get(row / FENCE_ROWS);
            if fence.is_none_or(|fence| fence.key != record.key() || fence.offset_bytes != offset_bytes) {
                return Err(fault("the fence does not lead to it"));
            }
        }
        let (used, len_bytes) = (record.answer_len_bytes() + size_of::<u64>(), record.len_bytes(align_bytes));
        let start = offset_bytes as usize;
        let padding = records.get(start + used..start + len_bytes);
        if padding.is_none_or(|padding| padding.iter().any(|byte| *byte != 0)) {
            return Err(fault("the padding is not zero, or not there"));
        }
        previous = Some(record.key());
        offset_bytes += len_bytes as u64;
    }
    if offset_bytes != records.len() as u64 {
        return Err(FormatError::Row { row: store.len() as u64, what: "there are records beyond the last row" });
    }
    Ok(())
}

/// Looks each key up.
fn keys(store: &Store) -> Result<(), FormatError> {
    const BATCH_KEYS: usize = 256;
    let index = store.index();
    let mut rows = Places::of(store);
    let (mut keys, mut offsets_bytes) = (Vec::with_capacity(BATCH_KEYS), Vec::with_capacity(BATCH_KEYS));
    for first_row in (0..store.len()).step_by(BATCH_KEYS) {
        keys.clear();
        offsets_bytes.clear();
        for (key, offset_bytes) in rows.by_ref().take(BATCH_KEYS) {
            keys.push(key);
            offsets_bytes.push(offset_bytes);
        }
        let mut lost = None;
        index.find_each(
            keys.len(),
            |i| keys[i],
            |i, found| {
                if matches!(found, Found::Record(_, offset_bytes) if offset_bytes == offsets_bytes[i]) {
                    return ControlFlow::Continue(());
                }
                lost = Some((first_row + i) as u64);
                ControlFlow::Break(())
            },
        );
        if let Some(row) = lost {
            return Err(FormatError::Row { row, what: "the index does not lead to it" });
        }
    }
    Ok(())
}

/// Slots that no key leads to hold 0, the place of the first row: another could
/// lead a key that no row has into a value that looks like its record.
///
/// Each key has led to its own record, so as many slots are used as there are
/// rows, and the places in all but one of them are not 0.
fn unused_slots(store: &Store) -> Result<(), FormatError> {
    let expected = store.len().saturating_sub(1) as u64;
    let found = store.index().places.iter().filter(|place| place.get() != 0).count() as u64;
    if expected == found { Ok(()) } else { Err(FormatError::PlaceCount { expected, found }) }
}

fn block_sums(store: &Store) -> &[U64] {
    super::typed(store.section(&store.layout.block_sums))
}
