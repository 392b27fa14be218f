//! Verifies the bytes of a file against their checksums, and the index of the file against the records.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use zerocopy::little_endian::{U32, U64};

use super::check_plan::{Plan, WINDOW_LEN_BYTES, check_cells, on_threads, ranges, release};
use super::fences::Fences;
use super::group_check;
use super::search::Found;
use super::{Pace, Store};
use crate::Lookup;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, SectionSum, block_sum, section_sum, section_sum_of};
use crate::format::fence::{FENCE_ROWS, Fence, NODE_HEADS, Node};
use crate::format::form::{RowKey, order_fault};
use crate::format::header::{Section, SectionKind};
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::format::record::{Record, record_len_min_bytes};
use crate::typed::{Schema, SchemaError};

/// The number of heads in a window of [`WINDOW_LEN_BYTES`]. A head is 8 bytes of a key.
const WINDOW_HEADS: usize = WINDOW_LEN_BYTES / size_of::<u64>();
/// The number of keys per batch of lookups.
const BATCH_KEYS: usize = 256;
/// The number of keys that are looked up together if only a sample of the keys is looked up. After each such batch, the
/// pages of the pilots and places sections are released, because each lookup makes the system map at least 64 KiB of
/// each section.
const SAMPLE_BATCH_KEYS: usize = 8;

/// The maximum number of threads that verify the records of a table that was copied into memory.
const CHECK_THREADS_MAX: usize = 16;

/// Checks everything that lookups rely on: all checksums match, the records are in key order, the fences match their
/// rows, the fence tree matches the fences, each key is found, unused slots contain 0, and the values of a typed table
/// are rows of its schema. After this check, a key is found if and only if a row has the key.
pub(super) fn all(store: &mut Store, plan: &Plan, progress: &mut dyn FnMut(u64)) -> Result<(), FormatError> {
    sections(store, plan)?;
    schema(store)?;
    blocks(store, plan)?;
    // An error is ignored here: if the first or last record cannot be read, `rows` returns an error with the number of
    // the first wrong row.
    store.common = common(store).unwrap_or_default();
    if store.is_compact() {
        group_check::rows(store, plan, progress)?;
        return fence_tree(store, plan);
    }
    rows(store, plan, progress)?;
    fence_tree(store, plan)?;
    unused_slots(store, plan)
}

/// Verifies every block of the records against its checksum, on several threads.
pub(super) fn records(store: &Store, pace: &Pace) -> Result<(), FormatError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(CHECK_THREADS_MAX);
    blocks(store, &Plan { threads, pace: pace.clone(), ..Plan::default() })
}

/// Verifies the checksums of all sections except the records, and checks the fences without reading records.
pub(super) fn index(store: &Store, pace: &Pace) -> Result<(), FormatError> {
    let plan = Plan { pace: pace.clone(), ..Plan::default() };
    sections(store, &plan)?;
    match store.is_compact() {
        true => group_check::groups(store, &plan)?,
        false => fences(store, &plan)?,
    }
    fence_tree(store, &plan)
}

/// Checks the fences without reading records. The records of the fences' first rows must be inside the records section,
/// and far enough apart for the rows of a fence. The heads of the fences (8 bytes of a key) must not decrease.
fn fences(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    let align_bytes = store.record_align_bytes();
    let fence_len_min_bytes = (FENCE_ROWS * record_len_min_bytes(store.form, align_bytes)) as u64;
    let section = &store.layout.fences;
    let (mut number, mut least_offset_bytes, mut least_head) = (0, 0, 0);
    for window in windows(store, plan, section, 0..section.len_bytes as usize) {
        for fence in super::typed::<Fence>(window) {
            let (offset_bytes, head) = (u64::from(fence.place.get()) * align_bytes as u64, fence.head.get());
            let is_possible = (least_offset_bytes..store.layout.records.len_bytes).contains(&offset_bytes)
                && (number > 0 || offset_bytes == 0)
                && head >= least_head;
            if !is_possible {
                return Err(wrong_fence(number));
            }
            number += 1;
            (least_offset_bytes, least_head) = (offset_bytes + fence_len_min_bytes, head);
        }
    }
    Ok(())
}

fn wrong_fence(number: usize) -> FormatError {
    FormatError::Row { row: (number * FENCE_ROWS) as u64, what: "the fence does not match it" }
}

/// Checks the fence tree: the lowest level must have the heads of all fences, every level above must have the first
/// head of each node of the level below, and the last node of each level must be filled with `u64::MAX`.
fn fence_tree(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    let (Fences { fences, nodes, levels }, groups) = match store.is_compact() {
        true => (store.tree(), Some(store.groups())),
        false => (store.fences(), None),
    };
    let (mut below, mut head_count): (&[Node], usize) = (&[], store.layout.dimensions.head_count());
    for (level, start) in levels.starts().iter().enumerate() {
        let expected = |i: usize| match level {
            _ if i >= head_count => u64::MAX,
            0 => match &groups {
                Some(groups) => groups.verified_group(i).map_or(0, |group| group.key(0)),
                None => fences[i].head.get(),
            },
            _ => below[i][0].get(),
        };
        let of_level = &nodes[*start..start + head_count.div_ceil(NODE_HEADS)];
        let heads = of_level.as_flattened().iter().enumerate();
        let checked = heads.take_while(|(i, _)| !i.is_multiple_of(WINDOW_HEADS) || plan.pace.goes_on());
        for (i, head) in checked {
            if head.get() != expected(i) {
                return Err(FormatError::FenceTree { level, entry: i, expected: expected(i), found: head.get() });
            }
        }
        (below, head_count) = (of_level, of_level.len());
    }
    Ok(())
}

/// Verifies the schema section, and stores the schema of a typed table.
pub(super) fn schema(store: &mut Store) -> Result<(), FormatError> {
    let place = store.layout.schema;
    let bytes = store.section(&place);
    expect_sum(SectionKind::Schema, place.checksum, section_sum_of(bytes))?;
    let schema = match bytes {
        [] => None,
        bytes => {
            let invalid = |error: SchemaError| FormatError::Schema { problem: error.to_string() };
            Some(Arc::new(Schema::decode(bytes).map_err(invalid)?))
        }
    };
    store.layout.blocks(SectionKind::Schema).for_each(|block| store.blocks.mark_verified(block));
    store.schema = schema;
    Ok(())
}

/// Checks the first and the last record, and stores the common prefix of their keys, which ordered lookups use.
pub(super) fn ends(store: &mut Store) -> Result<(), FormatError> {
    store.common = common(store)?;
    Ok(())
}

/// Returns the common prefix of all keys. The prefix is empty if the keys are numbers.
fn common(store: &Store) -> Result<Box<[u8]>, FormatError> {
    let Some(last_row) = store.len().checked_sub(1) else { return Ok(Box::default()) };
    let end = |row: usize, block: usize| match store.record_after_walk(row) {
        Some(record) => Ok(record.key()),
        None => {
            // Names the damaged section or block, if there is one.
            sections(store, &Plan::default())?;
            // The values of the compact layout can all be empty.
            if let Some(bytes) = store.records().get(block * BLOCK_LEN_BYTES..).filter(|bytes| !bytes.is_empty()) {
                check_block(store, block, bytes)?;
            }
            Err(FormatError::Row { row: row as u64, what: "the record is missing or malformed" })
        }
    };
    let (first, last) = (end(0, 0)?, end(last_row, store.layout.blocks(SectionKind::Records).len().saturating_sub(1))?);
    let first_bytes = first.as_bytes().unwrap_or_default();
    Ok(first_bytes[..first.common_len_bytes(&last)].into())
}

/// Verifies all sections except the records against the header, and the checksums of the records against the header.
fn sections(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    block_sums(store, plan)?;
    let section_bytes = &store.layout.block_sums;
    for (section, place) in store.layout.sections() {
        let blocks = store.layout.blocks(section);
        if section == SectionKind::BlockSums {
            blocks.for_each(|block| store.blocks.mark_verified(block));
            continue;
        }
        let (mut stored, mut sum) = (SectionSum::new(), SectionSum::new());
        let sums_at = blocks.start * size_of::<U64>()..blocks.end * size_of::<U64>();
        windows(store, plan, section_bytes, sums_at).for_each(|window| stored.add_block_sums(super::typed(window)));
        expect_sum(section, place.checksum, stored.finish())?;
        // The records are verified later, block by block.
        if section != SectionKind::Records {
            windows(store, plan, &place, 0..place.len_bytes as usize).for_each(|window| sum.add_bytes(window));
            expect_sum(section, place.checksum, sum.finish())?;
            blocks.for_each(|block| store.blocks.mark_verified(block));
        }
    }
    Ok(())
}

/// Verifies the section of block sums: the root against the header, and the checksums of all blocks against the root.
pub(super) fn block_sums(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    let section = &store.layout.block_sums;
    let root_at = section.len_bytes as usize - size_of_val(store.block_data().root);
    let (mut sum, mut is_root_intact) = (SectionSum::new(), true);
    let mut sums = store.block_data().root.iter();
    for window in windows(store, plan, section, 0..root_at) {
        for block in window.chunks(BLOCK_LEN_BYTES) {
            let found = block_sum(block);
            is_root_intact &= sums.next() == Some(&found);
            sum.add_block_sums(&[found]);
        }
    }
    expect_sum(SectionKind::BlockSums, section.checksum, sum.finish())?;
    if is_root_intact { Ok(()) } else { root(store) }
}

/// Verifies the root of the block sums against the header that the file had when it was opened. The root leads to the
/// checksum of every block.
pub(super) fn root(store: &Store) -> Result<(), FormatError> {
    let found = section_sum(store.block_data().root);
    expect_sum(SectionKind::BlockSums, store.layout.block_sums.checksum, found)
}

/// Returns the error of a root that cannot be read.
pub(super) fn damaged_root(store: &Store) -> FormatError {
    let expected = store.layout.block_sums.checksum;
    FormatError::SectionChecksum { section: SectionKind::BlockSums, expected, found: !expected }
}

fn expect_sum(section: SectionKind, expected: u64, found: u64) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::SectionChecksum { section, expected, found }) }
}

fn blocks(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    let section = &store.layout.records;
    let check = |range: Range<usize>, _: &mut dyn FnMut()| {
        let end = (range.end * BLOCK_LEN_BYTES).min(section.len_bytes as usize);
        let blocks = windows(store, plan, section, range.start * BLOCK_LEN_BYTES..end)
            .flat_map(|window| window.chunks(BLOCK_LEN_BYTES));
        range.clone().zip(blocks).try_for_each(|(block, bytes)| {
            check_block(store, block, bytes)?;
            // Lookups need not verify the block again.
            store.blocks.mark_verified(block);
            Ok(())
        })
    };
    let ranges =
        ranges(store.layout.blocks(SectionKind::Records).len(), WINDOW_LEN_BYTES / BLOCK_LEN_BYTES, plan.threads);
    on_threads(ranges, check, &mut || ()).into_iter().collect()
}

/// Verifies the block at the start of `bytes` against its checksum.
fn check_block(store: &Store, block: usize, bytes: &[u8]) -> Result<(), FormatError> {
    let (found, expected) = (block_sum(&bytes[..bytes.len().min(BLOCK_LEN_BYTES)]), store.block_data().sums[block]);
    if found == expected {
        return Ok(());
    }
    let offset_bytes = store.layout.records.offset_bytes + (block * BLOCK_LEN_BYTES) as u64;
    Err(FormatError::BlockChecksum { block, offset_bytes, expected: expected.get(), found: found.get() })
}

/// Returns an iterator over a range of a section, in windows of [`WINDOW_LEN_BYTES`]. The iterator ends early if the
/// check is canceled. After a window is returned, each of the next two calls of the iterator releases the window's
/// pages. The second release is necessary, because reading the start of the next window can make the system map the
/// last pages of the released window again.
fn windows<'s>(
    store: &'s Store,
    plan: &'s Plan,
    section: &'s Section,
    part: Range<usize>,
) -> impl Iterator<Item = &'s [u8]> {
    let end = part.end;
    part.step_by(WINDOW_LEN_BYTES).take_while(|_| plan.pace.goes_on()).map(move |start| {
        release(store, plan, section, start.saturating_sub(2 * WINDOW_LEN_BYTES)..start);
        &store.section(section)[start..end.min(start + WINDOW_LEN_BYTES)]
    })
}

/// Reads the records in order, compares them with the fences, and looks keys up.
fn rows(store: &Store, plan: &Plan, progress: &mut dyn FnMut(u64)) -> Result<(), FormatError> {
    let done = AtomicU64::new(0);
    let check = |range: Range<usize>, report: &mut dyn FnMut()| match store.key_kind() {
        KeyKind::U64 => rows_in_range(store, plan, range, |key| key.as_u64(), &done, report),
        KeyKind::Bytes => rows_in_range(store, plan, range, |key| key.as_bytes(), &done, report),
    };
    let ranges = ranges(store.len(), FENCE_ROWS, plan.threads);
    let mut missing = None;
    for missing_in_range in on_threads(ranges, check, &mut || progress(done.load(Ordering::Relaxed))) {
        missing = missing.or(missing_in_range?);
    }
    match missing {
        Some(row) => Err(FormatError::Row { row, what: "the index does not find it" }),
        None => Ok(()),
    }
}

/// Reads a range of rows in order, beginning at a fence, and looks up their keys. Returns the first row whose key is
/// not found.
///
/// Also checks the row after the range, if there is one: its key must be greater than the last key of the range, and
/// its fence must have the offset at which the record of the range's last row ends. The thread that checks the next
/// range begins at the offset in this fence, and therefore cannot detect that the fence is wrong.
fn rows_in_range<'s, K: LookupKey>(
    store: &'s Store,
    plan: &Plan,
    range: Range<usize>,
    typed: impl Fn(Key<'s>) -> Option<K>,
    done: &AtomicU64,
    report: &mut dyn FnMut(),
) -> Result<Option<u64>, FormatError> {
    let align_bytes = store.record_align_bytes();
    let mut offset_bytes = match store.fence_entries().get(range.start / FENCE_ROWS) {
        Some(fence) if range.start > 0 => u64::from(fence.place.get()) * align_bytes as u64,
        _ => 0,
    };
    let (mut fence, align_bits) = (FenceRows::default(), align_bytes.trailing_zeros());
    let (mut released_bytes, mut reported_row) = (offset_bytes, range.start);
    let (mut lookups, mut missing) = (Lookups::new(store, plan), None);
    let mut previous = None;
    for row in range.start..store.len().min(range.end + 1) {
        if row.is_multiple_of(FENCE_ROWS) {
            fence.compare(store, row)?;
        }
        let record = check_row(store, row, offset_bytes, previous)?;
        if row == range.end {
            break;
        }
        if let Some(schema) = &store.schema {
            check_cells(schema, row, &record)?;
        }
        fence.push(store.heads().of(record.key()), (offset_bytes >> align_bits) as u32);
        if (plan.lookup_rows == 1 || row.is_multiple_of(plan.lookup_rows))
            && let Some(key) = typed(record.key())
        {
            lookups.add(row, key, offset_bytes + record.answer_at_bytes() as u64, &mut missing);
        }
        previous = Some(record.row_key());
        offset_bytes += record.len_bytes(align_bytes) as u64;
        if offset_bytes - released_bytes >= WINDOW_LEN_BYTES as u64 {
            if !plan.pace.goes_on() {
                return Ok(None);
            }
            lookups.find(&mut missing);
            let from_bytes = (released_bytes as usize).saturating_sub(WINDOW_LEN_BYTES);
            release(store, plan, &store.layout.records, from_bytes..offset_bytes as usize);
            let fence_at = |row: usize| row / FENCE_ROWS * size_of::<Fence>();
            release(store, plan, &store.layout.fences, fence_at(reported_row)..fence_at(row));
            done.fetch_add((row + 1 - reported_row) as u64, Ordering::Relaxed);
            report();
            (released_bytes, reported_row) = (offset_bytes, row + 1);
        }
    }
    lookups.find(&mut missing);
    if range.end == store.len() {
        if offset_bytes != store.records().len() as u64 {
            return Err(FormatError::Row { row: store.len() as u64, what: "there are records beyond the last row" });
        }
        fence.compare(store, range.end)?;
    }
    done.fetch_add((range.end - reported_row) as u64, Ordering::Relaxed);
    report();
    Ok(missing)
}

/// Checks a row: its key, the end of its range, its padding, and, if the row is the first one of a fence, the place in this fence. Returns
/// the record of the row.
#[inline(always)]
fn check_row<'s>(
    store: &'s Store,
    row: usize,
    offset_bytes: u64,
    previous: Option<RowKey<'_>>,
) -> Result<Record<'s>, FormatError> {
    let fault = |what| FormatError::Row { row: row as u64, what };
    let record = store.record_at(offset_bytes).ok_or_else(|| fault("the record is missing or malformed"))?;
    if let Some(found) = order_fault(previous, record.row_key()) {
        return Err(fault(found.what()));
    }
    if row.is_multiple_of(FENCE_ROWS) {
        let fence = store.fence_entries().get(row / FENCE_ROWS);
        let align_bytes = store.record_align_bytes() as u64;
        if fence.is_none_or(|fence| u64::from(fence.place.get()) * align_bytes != offset_bytes) {
            return Err(wrong_fence(row / FENCE_ROWS));
        }
    }
    if !record.is_padded_with_zeros(store.form, store.records(), offset_bytes, store.record_align_bytes()) {
        return Err(fault("the padding is missing or not zero"));
    }
    Ok(record)
}

/// The rows of a fence that were read so far.
#[derive(Default)]
struct FenceRows {
    heads: [u64; FENCE_ROWS],
    places: [u32; FENCE_ROWS],
    count: usize,
}

impl FenceRows {
    fn push(&mut self, head: u64, place: u32) {
        (self.heads[self.count], self.places[self.count]) = (head, place);
        self.count += 1;
    }

    /// Compares the fence before `end_row` with the rows that were read, and forgets these rows.
    fn compare(&mut self, store: &Store, end_row: usize) -> Result<(), FormatError> {
        let Some(last_row) = end_row.checked_sub(1).filter(|_| self.count > 0) else { return Ok(()) };
        let number = last_row / FENCE_ROWS;
        let expected = Fence::of_rows(&self.heads[..self.count], &self.places[..self.count]);
        self.count = 0;
        if store.fence_entries().get(number) == Some(&expected) { Ok(()) } else { Err(wrong_fence(number)) }
    }
}

/// A batch of keys to look up.
struct Lookups<'s, K> {
    store: &'s Store,
    plan: &'s Plan,
    /// The number of keys per batch.
    batch_keys: usize,
    rows: Vec<usize>,
    keys: Vec<K>,
    answers_at_bytes: Vec<u64>,
}

impl<'s, K: LookupKey> Lookups<'s, K> {
    fn new(store: &'s Store, plan: &'s Plan) -> Self {
        let batch_keys = if plan.lookup_rows > 1 { SAMPLE_BATCH_KEYS } else { BATCH_KEYS };
        let (rows, keys) = (Vec::with_capacity(batch_keys), Vec::with_capacity(batch_keys));
        Lookups { store, plan, batch_keys, rows, keys, answers_at_bytes: Vec::with_capacity(batch_keys) }
    }

    #[inline(always)]
    fn add(&mut self, row: usize, key: K, answer_at_bytes: u64, missing: &mut Option<u64>) {
        self.rows.push(row);
        self.keys.push(key);
        self.answers_at_bytes.push(answer_at_bytes);
        if self.keys.len() == self.batch_keys {
            self.find(missing);
        }
    }

    /// Looks up the collected keys, and discards them. Sets `missing` to the first row whose key is not found, unless
    /// `missing` already has a row.
    fn find(&mut self, missing: &mut Option<u64>) {
        if missing.is_none() {
            let mut expected = self.rows.iter().zip(&self.answers_at_bytes);
            self.store.find_each(
                &self.keys,
                |key| *key,
                |_: &K, found: Found<'_>| {
                    let Some((row, at_bytes)) = expected.next() else { return ControlFlow::Break(()) };
                    if matches!(found, Found::Answer(_, found_bytes) if found_bytes == *at_bytes) {
                        return ControlFlow::Continue(());
                    }
                    *missing = Some(*row as u64);
                    ControlFlow::Break(())
                },
            );
        }
        self.rows.clear();
        self.keys.clear();
        self.answers_at_bytes.clear();
        if self.plan.lookup_rows > 1 {
            // The pages that the lookups touched are released, because the pages of all lookups together may not fit
            // into memory.
            for section in [&self.store.layout.pilots, &self.store.layout.places] {
                release(self.store, self.plan, section, 0..section.len_bytes as usize);
            }
        }
    }
}

/// Checks that unused slots contain 0, the place of the first row. Any other place could lead the lookup of a missing
/// key into a value whose bytes look like a record with that key.
///
/// Each key has its own slot, and only the first row has place 0. The number of slots with another place must therefore
/// be one less than the number of rows.
fn unused_slots(store: &Store, plan: &Plan) -> Result<(), FormatError> {
    let expected = store.len().saturating_sub(1) as u64;
    let section = &store.layout.places;
    let used = |window: &[u8]| super::typed::<U32>(window).iter().filter(|place| place.get() != 0).count() as u64;
    let found = windows(store, plan, section, 0..section.len_bytes as usize).map(used).sum();
    if expected == found { Ok(()) } else { Err(FormatError::PlaceCount { expected, found }) }
}
