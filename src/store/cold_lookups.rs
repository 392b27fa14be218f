//! Lookups in a cold table, which may have to wait for the disk.
//!
//! In: a lookup. Out: whether the pages that it reads are in memory and verified; otherwise, a thread that may wait
//! reads them from the disk. A lookup whose pages were read then does not wait.

use std::ops::Range;

use super::Store;
use super::cold::RecordOffset;
use super::epoch::Epoch;
use super::fences::{Gate, Lane};
use super::groups::{Damaged, GroupGate};
use super::neighbors::{Side, is_before};
use super::ranges::{Prefetched, RangeEnd, RangeLookup, UNDETERMINED};
use crate::Lookup;
use crate::format::OwnedKey;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::fence::{FENCE_ROWS, Fence, Node};
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::format::record::{ALIGN_BYTES, Record, record_len_min_bytes};
use crate::machine_memory::PAGE_LEN_BYTES;

/// The maximum number of rows, and the maximum total length of rows of typical length, that a lookup by numbers reads.
const ROWS_MAX: usize = 1024;
const ROWS_LEN_MAX_BYTES: usize = 256 << 10;

/// A lookup, as it was requested, or the record to which the index led it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ColdLookup<K> {
    Record(RecordOffset),
    Point(K),
    Neighbor(K, Side),
    /// A range of keys. If it prefetches a row, the lookup also reads a page of rows within these limits, beginning
    /// with this row.
    Range(RangeLookup<K>, PageLimits),
    /// Rows by their numbers.
    Rows {
        first: usize,
        count: usize,
    },
}

/// The limits of a page of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    pub(crate) rows_max: usize,
    pub(crate) len_max_bytes: usize,
}

impl ColdLookup<Key<'_>> {
    pub(crate) fn to_owned(self) -> ColdLookup<OwnedKey> {
        match self {
            ColdLookup::Record(offset) => ColdLookup::Record(offset),
            ColdLookup::Point(key) => ColdLookup::Point(key.into()),
            ColdLookup::Neighbor(key, side) => ColdLookup::Neighbor(key.into(), side),
            ColdLookup::Range(lookup, limits) => ColdLookup::Range(lookup.map(OwnedKey::from), limits),
            ColdLookup::Rows { first, count } => ColdLookup::Rows { first, count },
        }
    }
}

impl RangeEnd<OwnedKey> {
    fn as_end(&self) -> RangeEnd<Key<'_>> {
        match self {
            RangeEnd::BeforeAll => RangeEnd::BeforeAll,
            RangeEnd::Beside(key, side) => RangeEnd::Beside(key.as_key(), *side),
            RangeEnd::AfterAll => RangeEnd::AfterAll,
        }
    }
}

impl ColdLookup<OwnedKey> {
    fn borrowed(&self) -> ColdLookup<Key<'_>> {
        match self {
            ColdLookup::Record(offset) => ColdLookup::Record(*offset),
            ColdLookup::Point(key) => ColdLookup::Point(key.as_key()),
            ColdLookup::Neighbor(key, side) => ColdLookup::Neighbor(key.as_key(), *side),
            ColdLookup::Range(lookup, limits) => {
                let (start, end) = (lookup.start.as_end(), lookup.end.as_end());
                ColdLookup::Range(RangeLookup { start, end, prefetched: lookup.prefetched }, *limits)
            }
            ColdLookup::Rows { first, count } => ColdLookup::Rows { first: *first, count: *count },
        }
    }

    /// Returns the total length of the byte keys.
    pub(crate) fn keys_len_bytes(&self) -> usize {
        let of_key = |key: &OwnedKey| key.as_key().as_bytes().map_or(0, <[u8]>::len);
        let of_end = |end: &RangeEnd<OwnedKey>| if let RangeEnd::Beside(key, _) = end { of_key(key) } else { 0 };
        match self {
            ColdLookup::Record(_) | ColdLookup::Rows { .. } => 0,
            ColdLookup::Point(key) | ColdLookup::Neighbor(key, _) => of_key(key),
            ColdLookup::Range(lookup, _) => of_end(&lookup.start) + of_end(&lookup.end),
        }
    }
}

/// Admits a search to the blocks of the index that are verified and in memory. If `reads` is set, first reads and
/// verifies the other blocks, and admits the search to intact blocks.
#[derive(Clone, Copy)]
struct InMemory<'s> {
    store: &'s Store,
    epoch: Epoch,
    reads: bool,
}

impl InMemory<'_> {
    /// Returns whether the block of an item of the index, which is stored in `range` of the file, can be read.
    fn admits(self, block: usize, range: Range<usize>) -> bool {
        let store = self.store;
        if store.blocks.is_verified(self.epoch, block) && store.is_index_in_memory(range.clone()) {
            return true;
        }
        if !self.reads {
            return false;
        }
        // Without this advice, the system would read around the page.
        store.map.begin_read(range);
        store.is_block_intact(self.epoch, block)
    }
}

impl Gate for InMemory<'_> {
    const IS_OPEN: bool = false;

    fn admits_node(self, node: usize) -> bool {
        let start = self.store.layout.fence_tree.offset_bytes as usize + node * size_of::<Node>();
        node >= self.store.tree_levels.node_count()
            || self.admits(self.store.block_of_node(node), start..start + size_of::<Node>())
    }

    fn admits_fence(self, fence: usize) -> bool {
        if fence >= self.store.fence_entries().len() {
            return true;
        }
        let start = self.store.layout.fences.offset_bytes as usize + fence * size_of::<Fence>();
        self.admits(self.store.block_of_fence(fence), start..start + size_of::<Fence>())
    }
}

impl GroupGate for InMemory<'_> {
    fn admits_place(self, group: usize) -> bool {
        let start = self.store.layout.places.offset_bytes as usize + group * size_of::<u32>();
        self.admits(self.store.block_of_place(group), start..start + size_of::<u32>())
    }

    fn admits_groups(self, range: Range<usize>) -> bool {
        let (section, first_block) = (&self.store.layout.fences, self.store.blocks.numbers().fences.start);
        let end = range.end.min(section.len_bytes as usize);
        // A group can be in two blocks.
        (range.start..end).step_by(BLOCK_LEN_BYTES).chain(end.checked_sub(1)).all(|at| {
            let start = section.offset_bytes as usize + at;
            self.admits(first_block + at / BLOCK_LEN_BYTES, start..start + 1)
        })
    }
}

/// Determines whether lookups must wait for the disk.
impl Store {
    /// Returns the lookup of a key. If the pilot and the place of the key are in memory and verified, this is a lookup
    /// of the record to which they lead.
    pub(crate) fn point_lookup<'k, K: LookupKey + Into<Key<'k>>>(&self, key: K) -> ColdLookup<Key<'k>> {
        if self.is_compact() {
            return ColdLookup::Point(key.into());
        }
        match self.record_of(key, false) {
            Some(offset) => ColdLookup::Record(offset),
            None => ColdLookup::Point(key.into()),
        }
    }

    /// Returns whether a lookup finds everything that it reads in memory and verified.
    pub(crate) fn is_ready(&self, lookup: &ColdLookup<Key<'_>>) -> bool {
        match *lookup {
            _ if self.assumes_cold => false,
            lookup if self.is_compact() => {
                let gate = InMemory { store: self, epoch: self.epoch(), reads: false };
                self.values_of_lookup(&lookup, gate).is_ok_and(|values| self.are_records_ready(values))
            }
            ColdLookup::Record(offset) => self.is_record_ready(offset),
            ColdLookup::Point(_) => false,
            ColdLookup::Neighbor(key, side) => self.is_neighbor_ready(key, side),
            ColdLookup::Range(lookup, limits) => self.is_range_ready(&lookup, limits),
            ColdLookup::Rows { first, count } => {
                let gate = InMemory { store: self, epoch: self.epoch(), reads: false };
                let records = self.records_of_rows(first, count, gate);
                records.is_some_and(|records| self.are_records_ready(records))
            }
        }
    }

    /// Returns the offset of the only record that can have a key. Returns `None` if the pilot or the place of the key
    /// is not in memory, or damaged. If `reads` is set, waits until they are in memory.
    fn record_of<K: LookupKey>(&self, key: K, reads: bool) -> Option<RecordOffset> {
        let gate = InMemory { store: self, epoch: self.epoch(), reads };
        self.index().offset_if(
            key,
            |pilot| {
                let start = self.layout.pilots.offset_bytes as usize + pilot;
                gate.admits(self.block_of_pilot(pilot), start..start + 1)
            },
            |slot| {
                let start = self.layout.places.offset_bytes as usize + slot * size_of::<u32>();
                gate.admits(self.block_of_place(slot), start..start + size_of::<u32>())
            },
        )
    }

    /// Returns whether a range of the index is in memory. The range is within two pages.
    pub(super) fn is_index_in_memory(&self, range: Range<usize>) -> bool {
        let is_one_page = range.start / PAGE_LEN_BYTES == (range.end - 1) / PAGE_LEN_BYTES;
        match is_one_page {
            true => self.recent_pages.contains_or(range.start, || self.map.is_in_memory(range)),
            false => self.map.is_in_memory(range),
        }
    }

    /// Returns whether all pages of a record are in memory and verified. There is nothing to read at an offset that no
    /// record has.
    pub(super) fn is_record_ready(&self, offset: RecordOffset) -> bool {
        let (typical, records) = (self.typical_range(offset), self.records());
        if !self.are_records_ready(typical.clone()) {
            return false;
        }
        let len_bytes = Record::at(self.form, records, offset).map_or(0, |record| record.bytes().len());
        let end = records.len().min(typical.start + len_bytes);
        end <= typical.end || self.are_records_ready(typical.end..end)
    }

    /// Returns whether all pages of a range of the records are in memory and verified.
    fn are_records_ready(&self, range: Range<usize>) -> bool {
        let (epoch, start) = (self.epoch(), self.layout.records.offset_bytes as usize);
        let mut blocks = range.start / BLOCK_LEN_BYTES..range.end.div_ceil(BLOCK_LEN_BYTES);
        range.is_empty()
            || blocks.all(|block| {
                let page = start + (block * BLOCK_LEN_BYTES).max(range.start);
                self.blocks.is_verified(epoch, block) && self.map.is_in_memory(page..page + 1)
            })
    }

    fn is_neighbor_ready(&self, key: Key<'_>, side: Side) -> bool {
        let gate = InMemory { store: self, epoch: self.epoch(), reads: false };
        let lane = self.found_fence(self.lane_of_neighbor(key, side), gate);
        let offset = self.likely_neighbor(self.fence_entries(), &lane, side, gate);
        let record = offset.filter(|offset| self.is_record_ready(*offset));
        let record = record.and_then(|offset| Record::at(self.form, self.records(), offset));
        // Otherwise, the lookup compares the keys of other records.
        record.is_some_and(|record| is_before(record.key(), key, side) == (side == Side::After))
    }

    /// Returns a lane after the search for its fence.
    fn found_fence(&self, lane: Lane, gate: InMemory<'_>) -> Lane {
        let mut lanes = [lane];
        if lane.bound > 0 {
            self.fences().search_upper_levels(&mut lanes, gate);
            self.fences().search_lowest_level(&mut lanes, gate);
        }
        lanes[0]
    }

    fn is_range_ready(&self, lookup: &RangeLookup<Key<'_>>, limits: PageLimits) -> bool {
        let row = |end: RangeEnd<Key<'_>>| match self.key_kind() {
            KeyKind::U64 => self.ready_end_row(end.map(|key| key.as_u64().unwrap_or_default())),
            KeyKind::Bytes => self.ready_end_row(end.map(|key| key.as_bytes().unwrap_or_default())),
        };
        let (Some(start), Some(end)) = (row(lookup.start), row(lookup.end)) else { return false };
        match lookup.prefetched {
            Prefetched::Nothing => true,
            prefetched => {
                let gate = InMemory { store: self, epoch: self.epoch(), reads: false };
                let records = self.records_of_page(start.min(end)..end, prefetched == Prefetched::Last, limits, gate);
                records.is_some_and(|records| self.are_records_ready(records))
            }
        }
    }

    /// Returns the number of rows before an end of a range. Returns `None` if the search must wait for the disk.
    fn ready_end_row<'k, K: LookupKey + Into<Key<'k>>>(&self, end: RangeEnd<K>) -> Option<usize> {
        let gate = InMemory { store: self, epoch: self.epoch(), reads: false };
        let mut lane = self.found_fence(self.lane_of_end(end), gate);
        self.search_fence(self.fence_entries(), end, &mut lane, gate);
        let tied = lane.at as usize..lane.at as usize + lane.tied_rows();
        let is_ready = lane.at != UNDETERMINED && tied.into_iter().all(|row| self.is_row_ready(row));
        if is_ready { self.end_row(end, &lane).ok() } else { None }
    }

    /// Returns whether a row, whose fence is in memory, is in memory and verified.
    fn is_row_ready(&self, row: usize) -> bool {
        let fence = self.fence_entries().get(row / FENCE_ROWS);
        let place = fence.and_then(|fence| Some((fence, fence.distance(row % FENCE_ROWS)?)));
        place.is_some_and(|(fence, distance)| self.is_record_ready(self.offset_bytes_in_fence(fence, distance)))
    }

    /// Returns the bytes of the records section that a page of rows reads. `rows` are the rows of the range. Returns
    /// `None` if `gate` does not admit the page to a fence that it needs.
    fn records_of_page(
        &self,
        rows: Range<usize>,
        is_backward: bool,
        limits: PageLimits,
        gate: InMemory<'_>,
    ) -> Option<Range<usize>> {
        if rows.is_empty() {
            return Some(0..0);
        }
        // A page ends at most one row after this number of rows.
        let rows_max =
            limits.rows_max.min(limits.len_max_bytes / record_len_min_bytes(self.form, self.record_align_bytes()) + 1);
        let near = match is_backward {
            false => rows.start..rows.end.min(rows.start.saturating_add(rows_max)),
            true => rows.start.max(rows.end.saturating_sub(rows_max))..rows.end,
        };
        let ends = [rows.start / FENCE_ROWS, rows.end / FENCE_ROWS];
        let mut fences = (near.start / FENCE_ROWS..=near.end / FENCE_ROWS).chain(ends);
        if !fences.all(|fence| gate.admits_fence(fence)) {
            return None;
        }
        // The search for the end of a full page reads the rows of the fence at this end. A row that is longer than a
        // page is a page of its own.
        let read_max_bytes = (limits.len_max_bytes + FENCE_ROWS * self.typical_len_bytes) as u64;
        let offset = |row: usize| self.position(row).map(|position| position.offset_bytes);
        let (start, end) = (offset(near.start)?, offset(near.end)?);
        let range = match is_backward {
            false => start..end.min(start.saturating_add(read_max_bytes).max(offset(near.start + 1)?)),
            true => start.max(end.saturating_sub(read_max_bytes).min(offset(near.end.saturating_sub(1))?))..end,
        };
        Some(range.start as usize..range.end as usize)
    }
}

/// Reads what lookups need, on threads that may wait for the disk.
impl Store {
    /// Reads everything that lookups need from the disk, waits for it, and verifies it. The lookups then do not wait.
    pub(crate) fn read_for(&self, lookups: &[ColdLookup<OwnedKey>]) {
        if self.is_compact() {
            return self.read_values_for(lookups);
        }
        let point = |lookup: &ColdLookup<OwnedKey>| match lookup {
            ColdLookup::Record(offset) => Some(*offset),
            ColdLookup::Point(key) => match key.as_key() {
                Key::U64(key) => self.record_of(key, true),
                Key::Bytes(key) => self.record_of(key, true),
            },
            ColdLookup::Neighbor(..) | ColdLookup::Range(..) | ColdLookup::Rows { .. } => None,
        };
        if lookups.len() > 1 {
            let points =
                lookups.iter().filter_map(|lookup| if let ColdLookup::Point(key) = lookup { Some(key) } else { None });
            self.begin_index_reads(points.map(OwnedKey::as_key));
        }
        let offsets: Vec<RecordOffset> = lookups.iter().filter_map(point).collect();
        if offsets.len() > 1 {
            self.begin_reads(&offsets);
        }
        if lookups.len() > 1 {
            let neighbors = lookups.iter().filter_map(|lookup| match lookup {
                ColdLookup::Neighbor(key, side) => Some((key.as_key(), *side)),
                _ => None,
            });
            self.begin_neighbor_reads(neighbors, InMemory { store: self, epoch: self.epoch(), reads: true });
        }
        offsets.iter().for_each(|offset| self.read_record(*offset));
        for lookup in lookups {
            match lookup {
                ColdLookup::Record(_) | ColdLookup::Point(_) => {}
                ColdLookup::Neighbor(key, side) => self.read_neighbor(key.as_key(), *side),
                ColdLookup::Range(lookup, limits) => self.read_range(lookup, *limits),
                ColdLookup::Rows { first, count } => {
                    let gate = InMemory { store: self, epoch: self.epoch(), reads: true };
                    if let Some(records) = self.records_of_rows(*first, *count, gate) {
                        self.read_records(records);
                    }
                }
            }
        }
    }

    /// Implements [`Store::read_for`] for the compact layout.
    fn read_values_for(&self, lookups: &[ColdLookup<OwnedKey>]) {
        let gate = InMemory { store: self, epoch: self.epoch(), reads: true };
        // A damaged block is recorded, and is an error for the lookup.
        let values = lookups.iter().filter_map(|lookup| self.values_of_lookup(&lookup.borrowed(), gate).ok());
        let values: Vec<Range<usize>> = values.collect();
        values.iter().for_each(|values| self.begin_read(values.clone()));
        values.into_iter().for_each(|values| self.read_records(values));
    }

    /// Returns the bytes of the records section that a lookup in a table with the compact layout reads.
    fn values_of_lookup(&self, lookup: &ColdLookup<Key<'_>>, gate: InMemory<'_>) -> Result<Range<usize>, Damaged> {
        let groups = self.groups();
        // A key of another kind is in no row.
        let value = |key: Key<'_>, side| key.as_u64().map_or(Ok(None), |key| groups.value_with(key, side, gate));
        let values = match *lookup {
            ColdLookup::Record(_) => None,
            ColdLookup::Point(key) => value(key, None)?,
            ColdLookup::Neighbor(key, side) => value(key, Some(side))?,
            ColdLookup::Range(lookup, limits) => {
                let row = |end: RangeEnd<Key<'_>>| match end {
                    RangeEnd::BeforeAll => Ok(0),
                    RangeEnd::Beside(key, side) => groups.rows_before_with(key.as_u64().unwrap_or(0), side, gate),
                    RangeEnd::AfterAll => Ok(self.len()),
                };
                let (start, end) = (row(lookup.start)?, row(lookup.end)?);
                let rows_max =
                    limits.rows_max.min(limits.len_max_bytes / record_len_min_bytes(self.form, ALIGN_BYTES) + 1);
                let rows = match lookup.prefetched {
                    Prefetched::Nothing => 0..0,
                    Prefetched::First => start..end.min(start.saturating_add(rows_max)),
                    Prefetched::Last => start.max(end.saturating_sub(rows_max))..end,
                };
                let is_backward = lookup.prefetched == Prefetched::Last;
                Some(self.values_of_page(rows, is_backward, limits.len_max_bytes, gate)?)
            }
            ColdLookup::Rows { first, count } => {
                let rows = first.min(self.len())..first.saturating_add(count).min(self.len());
                Some(self.values_of_page(rows, false, ROWS_LEN_MAX_BYTES, gate)?)
            }
        };
        let values = values.unwrap_or_default();
        Ok(values.start as usize..values.end as usize)
    }

    /// Returns the bytes of the records section that a page of rows reads in a table with the compact layout. A row that
    /// is longer than a page is a page of its own.
    fn values_of_page(
        &self,
        rows: Range<usize>,
        is_backward: bool,
        len_max_bytes: usize,
        gate: InMemory<'_>,
    ) -> Result<Range<u64>, Damaged> {
        if rows.is_empty() {
            return Ok(0..0);
        }
        let (groups, len_max_bytes) = (self.groups(), len_max_bytes as u64);
        let Range { start, end } = groups.values_of_rows(rows.clone(), gate)?;
        Ok(match is_backward {
            false => {
                let first = groups.values_of_rows(rows.start..rows.start + 1, gate)?;
                start..end.min(first.end.max(start.saturating_add(len_max_bytes)))
            }
            true => {
                let last = groups.values_of_rows(rows.end - 1..rows.end, gate)?;
                start.max(last.start.min(end.saturating_sub(len_max_bytes)))..end
            }
        })
    }

    /// Returns the bytes of the records section that rows with these numbers take. Numbers beyond the last row are left
    /// out. Returns `None` if `gate` does not admit a fence of the rows.
    fn records_of_rows(&self, first: usize, count: usize, gate: InMemory<'_>) -> Option<Range<usize>> {
        let rows = first.min(self.len())..first.saturating_add(count).min(self.len());
        let limits = PageLimits { rows_max: count, len_max_bytes: ROWS_LEN_MAX_BYTES };
        self.records_of_page(rows, false, limits, gate)
    }

    /// Returns the number of rows from `first` on, at most `count`, whose records are read together.
    pub(crate) fn rows_at_once(&self, first: usize, count: usize) -> usize {
        let rows_max = ROWS_LEN_MAX_BYTES / self.typical_len_bytes.max(1);
        count.min(rows_max.clamp(1, ROWS_MAX)).min(self.len().saturating_sub(first))
    }

    fn read_neighbor(&self, key: Key<'_>, side: Side) {
        // Reads the blocks of the index one page at a time.
        let gate = InMemory { store: self, epoch: self.epoch(), reads: true };
        let lane = self.found_fence(self.lane_of_neighbor(key, side), gate);
        if let Some(offset) = self.likely_neighbor(self.fence_entries(), &lane, side, gate) {
            self.read_record(offset);
        }
        // If several rows have the code of the key, the neighbor is another row.
        if let Ok(Some((_, offset))) = self.neighbor(key, side) {
            self.read_record(offset);
        }
    }

    fn read_range(&self, lookup: &RangeLookup<OwnedKey>, limits: PageLimits) {
        let gate = InMemory { store: self, epoch: self.epoch(), reads: true };
        for end in [&lookup.start, &lookup.end] {
            if let RangeEnd::Beside(key, _) = end {
                let lane = self.found_fence(self.lane_of_neighbor(key.as_key(), Side::After), gate);
                gate.admits_fence(lane.at as usize);
            }
        }
        let rows = self.row_numbers_between(lookup.start.as_end(), lookup.end.as_end());
        // A damaged block is recorded, and is an error for the lookup.
        if let Ok(rows) = rows
            && lookup.prefetched != Prefetched::Nothing
            && let Some(records) = self.records_of_page(rows, lookup.prefetched == Prefetched::Last, limits, gate)
        {
            self.read_records(records);
        }
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use std::fs::File;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::bake::{Keys, Options, TableLayout, bake_csv};
    use crate::store::{MappedStore, OpenOptions, Verify};

    const LIMITS: PageLimits = PageLimits { rows_max: 40, len_max_bytes: 20_000 };

    /// Returns lookups of all kinds around a key.
    fn lookups<'k>(store: &Store, key: Key<'k>, other: Key<'k>) -> Vec<ColdLookup<Key<'k>>> {
        let point = match key {
            Key::U64(key) => store.point_lookup(key),
            Key::Bytes(key) => store.point_lookup(key),
        };
        let range = |prefetched| {
            let (start, end) = (RangeEnd::Beside(key, Side::Before), RangeEnd::Beside(other, Side::After));
            ColdLookup::Range(RangeLookup { start, end, prefetched }, LIMITS)
        };
        let neighbors = [Side::Before, Side::After].map(|side| ColdLookup::Neighbor(key, side));
        let ranges = [Prefetched::Nothing, Prefetched::First, Prefetched::Last].map(range);
        [point].into_iter().chain(neighbors).chain(ranges).collect()
    }

    #[test]
    fn a_lookup_of_any_kind_is_ready_after_its_pages_were_read() {
        for (keys, layout) in
            [(Keys::U64, TableLayout::Fast), (Keys::BYTES, TableLayout::Fast), (Keys::U64, TableLayout::Compact)]
        {
            let folder = tempfile::tempdir().unwrap();
            let db = folder.path().join("storage.db");
            let value = |row: u64| "v".repeat(20 + (row % 900) as usize);
            let csv: String = (0..60_000_u64).map(|row| format!("{:08},{}\n", row * 7, value(row))).collect();
            bake_csv(csv.as_bytes(), &db, &Options { keys, layout, ..Options::default() }).unwrap();
            let options = OpenOptions { verify: Verify::Touch, ..OpenOptions::default() };
            let table = MappedStore::open_with(&db, &options).unwrap();
            let store = table.unverified();
            store.map.read_randomly(0..store.map.bytes().len(), true);
            store.map.release(0..store.map.bytes().len());
            fadvise(File::open(&db).unwrap(), 0, None, Advice::DontNeed).unwrap();
            let mut cold = 0;
            for row in (100..59_000_u64).step_by(1877) {
                let text = [row * 7, (row + 30) * 7].map(|number| format!("{number:08}"));
                let (key, other) = match keys {
                    Keys::BYTES => (Key::Bytes(text[0].as_bytes()), Key::Bytes(text[1].as_bytes())),
                    _ => (Key::U64(row * 7), Key::U64((row + 30) * 7)),
                };
                for (i, lookup) in lookups(store, key, other).into_iter().enumerate() {
                    cold += usize::from(!store.is_ready(&lookup));
                    store.read_for(&[lookup.to_owned()]);
                    let lookup = lookups(store, key, other).swap_remove(i);
                    // Some ends of ranges always need records of other rows.
                    let is_tied = matches!(lookup, ColdLookup::Range(..)) && matches!(key, Key::Bytes(_));
                    assert!(store.is_ready(&lookup) || is_tied && row / 18 != (row + 30) / 18, "{lookup:?}");
                }
            }
            assert!(cold > 30, "{cold} lookups had to wait");
        }
    }
}
