//! Checking what a file holds against what its header and checksums say.

use std::ops::ControlFlow;

use zerocopy::little_endian::U64;

use super::Store;
use super::rows::Rows;
use super::search::Found;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::SectionKind;
use crate::format::index::FENCE_ROWS;
use crate::format::key::{Key, KeyKind, LookupKey};
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
    let align_bytes = store.record_align_bytes();
    let (mut offset_bytes, mut previous) = (0, None);
    for row in 0..store.len() {
        let fault = |what| FormatError::Row { row: row as u64, what };
        let record = store.record_at(offset_bytes).ok_or_else(|| fault("the record does not fit"))?;
        if record.key().as_bytes().is_some_and(<[u8]>::is_empty) {
            return Err(fault("the key is empty"));
        }
        if previous.is_some_and(|previous| previous >= record.key()) {
            return Err(fault("the key is not above the one before"));
        }
        if row % FENCE_ROWS == 0 {
            let fence = store.fences().get(row / FENCE_ROWS);
            if fence.is_none_or(|fence| {
                fence.head.get() != record.key().head(store.common_len_bytes) || fence.offset_bytes != offset_bytes
            }) {
                return Err(fault("the fence does not lead to it"));
            }
        }
        let len_bytes = record.len_bytes(align_bytes);
        if !is_padded(store.records(), &record, offset_bytes as usize, len_bytes) {
            return Err(fault("the padding is not zero, or not there"));
        }
        previous = Some(record.key());
        offset_bytes += len_bytes as u64;
    }
    if offset_bytes != store.records().len() as u64 {
        return Err(FormatError::Row { row: store.len() as u64, what: "there are records beyond the last row" });
    }
    Ok(())
}

/// Zeros stand behind a record, and between a key of bytes and its answer.
fn is_padded(records: &[u8], record: &Record<'_>, start: usize, len_bytes: usize) -> bool {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let behind = records.get(start + record.bytes().len()..start + len_bytes);
    let answer_at = record.key().prefix_len_bytes();
    let key_end = match record.key() {
        Key::U64(_) => answer_at,
        Key::Bytes(key) => size_of::<u16>() + key.len(),
    };
    behind.is_some_and(is_zero) && is_zero(&record.bytes()[key_end..answer_at])
}

/// Looks each key up.
fn keys(store: &Store) -> Result<(), FormatError> {
    match store.key_kind() {
        KeyKind::U64 => keys_of(store, |key| key.as_u64()),
        KeyKind::Bytes => keys_of(store, |key| key.as_bytes()),
    }
}

fn keys_of<'s, K: LookupKey>(store: &'s Store, typed: impl Fn(Key<'s>) -> Option<K>) -> Result<(), FormatError> {
    const BATCH_KEYS: usize = 256;
    let mut rows = Rows::all(store);
    let (mut keys, mut answers_at_bytes) = (Vec::with_capacity(BATCH_KEYS), Vec::with_capacity(BATCH_KEYS));
    for first_row in (0..store.len()).step_by(BATCH_KEYS) {
        keys.clear();
        answers_at_bytes.clear();
        while keys.len() < BATCH_KEYS
            && let Some((record, offset_bytes)) = rows.next_record()
        {
            keys.extend(typed(record.key()));
            answers_at_bytes.push(offset_bytes + record.key().prefix_len_bytes() as u64);
        }
        let mut lost = None;
        store.find_each(
            keys.len(),
            |i| keys[i],
            |i, found| {
                if matches!(found, Found::Answer(_, at_bytes) if at_bytes == answers_at_bytes[i]) {
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
