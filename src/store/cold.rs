//! Reads of records that are not in memory.
//!
//! In: keys or records. Out: advice to the system, and records that were read from the disk. A table is cold if its
//! file does not fit into the memory that this process can use, so that any lookup may have to wait for the disk. For a
//! cold table, the system is advised to read only the pages that lookups touch; otherwise, it would read around each
//! page, up to the device's `read_ahead_kb`. A lookup in a cold table reads its record's pages together, and several
//! lookups read their records at the same time.

use std::ops::{ControlFlow, Range};
#[cfg(feature = "server")]
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "server")]
use super::clock;
use super::fences::{GROUP_KEYS, Gate, Lane, VerifyFirst};
#[cfg(feature = "server")]
use super::map::touch;
use super::neighbors::Side;
use super::{LookupError, Store, bytes_of, number_of};
use crate::Lookup;
#[cfg(feature = "server")]
use crate::format::checksum::BLOCK_LEN_BYTES;
#[cfg(feature = "server")]
use crate::format::fence::FENCE_ROWS;
use crate::format::fence::Fence;
#[cfg(feature = "server")]
use crate::format::group::GROUP_ROWS;
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::format::record::Record;
use crate::machine_memory;
#[cfg(feature = "server")]
use crate::machine_memory::PAGE_LEN_BYTES;

/// The number of keys that one thread looks up together.
const BATCH_KEYS: usize = 256;
/// The length of a file that fits into the memory of every machine.
const SMALL_LEN_BYTES: u64 = 16 << 20;
/// The maximum number of bytes of a record that are read before the lookup. The lookup itself reads the rest.
#[cfg(feature = "server")]
const READ_MAX_BYTES: usize = 4 << 20;

/// The offset of a record in the records section.
pub(crate) type RecordOffset = u64;

impl Store {
    /// Returns whether lookups may have to wait for the disk, because the file does not fit into memory.
    #[inline(always)]
    pub(crate) fn may_be_cold(&self) -> bool {
        self.may_be_cold
    }

    /// Determines whether the file fits into this process's memory, and advises the system how to read the records.
    /// With `is_assumed`, the file counts as too long.
    pub(super) fn adapted_to_memory(mut self, is_assumed: bool) -> Store {
        let len_bytes = self.file_len_bytes();
        let is_too_long = || machine_memory::available().is_some_and(|available| available.bytes < len_bytes);
        // Only a mapped file can be cold: copies and sealed memory files are in memory.
        self.may_be_cold = self.map.watched().is_some() && (is_assumed || len_bytes > SMALL_LEN_BYTES && is_too_long());
        self.assumes_cold = is_assumed;
        self.advise_reads();
        #[cfg(feature = "server")]
        if self.may_be_cold {
            self.recent_pages = RecentPages::new(&self.index_range());
        }
        self
    }

    /// Advises the system how to read the file while lookups are served.
    fn advise_reads(&self) {
        self.map.read_randomly(0..self.map.bytes().len(), false);
        if self.may_be_cold {
            self.map.read_randomly(self.records_range(), true);
        }
    }

    /// Calls `read`, during which the system reads only touched pages of the file, even if the file fits into memory.
    #[cfg(feature = "server")]
    pub(crate) fn with_random_reads<T>(&self, read: impl FnOnce() -> T) -> T {
        self.map.read_randomly(0..self.map.bytes().len(), true);
        let output = read();
        self.advise_reads();
        output
    }

    /// Begins to read a range of the records from the disk, without waiting. Does nothing if the table is not in a
    /// mapped file.
    pub(crate) fn begin_read(&self, range: Range<usize>) {
        let (start, len_bytes) = (self.layout.records.offset_bytes as usize, self.records().len());
        self.map.begin_read(start + range.start.min(len_bytes)..start + range.end.min(len_bytes));
    }

    /// Begins to read rows from the disk, and the rows between their fences and them. Reads all fences at the same
    /// time, and waits for them.
    #[cfg(feature = "server")]
    pub(crate) fn begin_reads_of_rows(&self, rows: &[usize]) {
        if self.is_compact() {
            return self.begin_reads_in_groups(rows);
        }
        rows.iter().for_each(|row| self.begin_read_of_fence(row / FENCE_ROWS));
        rows.iter().for_each(|row| self.begin_read_of_row(*row));
    }

    /// Implements [`Store::begin_reads_of_rows`] for the compact layout.
    #[cfg(feature = "server")]
    fn begin_reads_in_groups(&self, rows: &[usize]) {
        let (places, groups) = (&self.layout.places, &self.layout.fences);
        for row in rows {
            let place = places.offset_bytes as usize + row / GROUP_ROWS * size_of::<u32>();
            self.map.begin_read(place..place + size_of::<u32>());
        }
        for row in rows {
            if let Some(offset_bytes) = self.groups().offset_of(row / GROUP_ROWS) {
                let group = groups.offset_bytes as usize + offset_bytes;
                self.map.begin_read(group..(group + self.typical_group_len_bytes).min(self.map.bytes().len()));
            }
        }
        let values: Vec<Range<u64>> = rows.iter().filter_map(|row| self.groups().value_range(*row)).collect();
        self.begin_reads_of_values(values);
    }

    #[cfg(feature = "server")]
    fn begin_read_of_row(&self, row: usize) {
        let align_bytes = self.record_align_bytes();
        let offset = |fence: usize| {
            self.fence_entries()
                .get(fence)
                .map_or(self.records().len(), |fence| fence.place.get() as usize * align_bytes)
        };
        let fence = row / FENCE_ROWS;
        let start = offset(fence).min(self.records().len());
        self.begin_read(start..offset(fence + 1).clamp(start, start + READ_MAX_BYTES));
    }

    /// Returns the offsets of the records that lookups of the items' keys will read. The keys must be of the table's
    /// kind. Reads the index, but no record.
    pub(crate) fn records_of<T, K: LookupKey>(&self, items: &[T], key_of: impl Fn(&T) -> K) -> Vec<RecordOffset> {
        // The form of the records has no effect, because no record is read.
        self.index().offsets_bytes(items, key_of)
    }

    /// Like [`Store::get_while`], but begins to read the records of [`BATCH_KEYS`] keys before it looks them up, so
    /// that the reads overlap.
    pub(super) fn get_cold_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&'s [u8]>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        in_batches(keys, visit, |batch, visit| {
            if self.is_compact() {
                self.begin_reads_of_values(self.groups().values_of(batch, number_of));
                return self.get_batch_while(batch, visit);
            }
            let records = match self.key_kind() {
                KeyKind::U64 => self.records_of(batch, number_of),
                KeyKind::Bytes => self.records_of(batch, bytes_of),
            };
            self.begin_reads(&records);
            self.get_batch_while(batch, visit)
        })
    }

    /// Like [`Store::neighbor_while`], but begins to read the rows next to [`BATCH_KEYS`] keys before it looks them up,
    /// so that the reads overlap.
    #[cold]
    #[inline(never)]
    pub(super) fn neighbor_cold_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        side: Side,
        visit: impl FnMut(usize, Option<Record<'s>>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        in_batches(keys, visit, |batch, visit| {
            if self.is_compact() {
                let keys: Vec<(u64, Side)> = batch.iter().map(|key| (number_of(key), side)).collect();
                self.begin_reads_of_values(self.groups().values_beside(&keys));
                return self.neighbor_batch_while(batch, side, visit);
            }
            let gate = VerifyFirst { store: self, epoch: self.epoch() };
            self.begin_neighbor_reads(batch.iter().map(|key| ((*key).into(), side)), gate);
            self.neighbor_batch_while(batch, side, visit)
        })
    }

    /// Begins to read the rows next to keys from the disk. Reads all fences of these rows at the same time, and waits
    /// for them.
    pub(super) fn begin_neighbor_reads<'k>(&self, keys: impl Iterator<Item = (Key<'k>, Side)>, gate: impl Gate) {
        let lane = |(key, side)| (self.lane_of_neighbor(key, side), side);
        let (mut lanes, sides): (Vec<Lane>, Vec<Side>) = keys.map(lane).filter(|(lane, _)| lane.bound > 0).unzip();
        for group in lanes.chunks_mut(GROUP_KEYS) {
            self.fences().search_upper_levels(group, gate);
            self.fences().search_lowest_level(group, gate);
        }
        let fences = self.fence_entries();
        let admitted = lanes.iter().map(|lane| lane.at as usize).filter(|fence| *fence < fences.len());
        admitted.for_each(|fence| self.begin_read_of_fence(fence));
        for (lane, side) in lanes.iter().zip(sides) {
            if let Some(offset) = self.likely_neighbor(fences, lane, side, gate) {
                self.begin_read(self.typical_range(offset));
            }
        }
    }

    /// Begins to read a fence and the next one from the disk, without waiting.
    fn begin_read_of_fence(&self, fence: usize) {
        let start = self.layout.fences.offset_bytes as usize + fence * size_of::<Fence>();
        self.map.begin_read(start..(start + 2 * size_of::<Fence>()).min(self.map.bytes().len()));
    }

    /// Begins to read values of the compact layout from the disk, without waiting.
    fn begin_reads_of_values(&self, values: Vec<Range<u64>>) {
        for value in values {
            self.begin_read(value.start as usize..value.end as usize);
        }
    }

    /// Begins to read records from the disk, without waiting.
    pub(crate) fn begin_reads(&self, offsets: &[RecordOffset]) {
        for offset in offsets {
            self.begin_read(self.typical_range(*offset));
        }
    }

    /// Reads a record from the disk, waits for it, and verifies its blocks. Lookups of the record then do not wait.
    #[cfg(feature = "server")]
    pub(crate) fn read_record(&self, offset: RecordOffset) {
        let (typical, records) = (self.typical_range(offset), self.records());
        touch(&records[typical.clone()]);
        let len_bytes = Record::at(self.form, records, offset).map_or(0, |record| record.bytes().len());
        let range = typical.start..typical.start + len_bytes.clamp(typical.len(), READ_MAX_BYTES.max(typical.len()));
        let range = range.start..range.end.min(records.len());
        if range.len() > typical.len() {
            self.begin_read(range.clone());
        }
        self.read_records(range);
    }

    /// Reads a range of the records from the disk, waits for it, and verifies its blocks.
    #[cfg(feature = "server")]
    pub(super) fn read_records(&self, range: Range<usize>) {
        if range.len() > BLOCK_LEN_BYTES {
            self.begin_read(range.clone());
        }
        touch(self.records().get(range.clone()).unwrap_or_default());
        // A damaged block is recorded, and is an error for the lookup.
        let _ = self.are_intact(range);
    }

    /// Begins to read the pilots and places of keys. Waits until the pilots are in memory. Does nothing for the compact
    /// layout, which has none.
    #[cfg(feature = "server")]
    pub(crate) fn begin_index_reads<'k>(&self, keys: impl Iterator<Item = Key<'k>>) {
        if self.is_compact() {
            return;
        }
        let keys: Vec<Key<'k>> = keys.collect();
        match self.key_kind() {
            KeyKind::U64 => self.begin_reads_of_positions(&keys.iter().filter_map(Key::as_u64).collect::<Vec<_>>()),
            KeyKind::Bytes => self.begin_reads_of_positions(&keys.iter().filter_map(Key::as_bytes).collect::<Vec<_>>()),
        }
    }

    #[cfg(feature = "server")]
    fn begin_reads_of_positions<K: LookupKey>(&self, keys: &[K]) {
        let begin = |at: usize, len_bytes: usize| {
            if !self.is_index_in_memory(at..at + len_bytes) {
                self.map.begin_read(at..at + len_bytes);
            }
        };
        let (pilots, places) = (self.layout.pilots.offset_bytes as usize, self.layout.places.offset_bytes as usize);
        let begin_place = |slot: usize| begin(places + slot * size_of::<u32>(), size_of::<u32>());
        self.index().visit_positions(keys, |pilot| begin(pilots + pilot, 1), begin_place);
    }

    /// Returns the bytes of the records section that a record of typical length takes at an offset. The range is empty
    /// if the offset is not inside the section.
    pub(super) fn typical_range(&self, offset: RecordOffset) -> Range<usize> {
        let len_bytes = self.records().len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(len_bytes);
        start..len_bytes.min(start + self.typical_len_bytes.max(1))
    }

    /// Returns the range of the file from the first section of the index to the last one.
    #[cfg(feature = "server")]
    fn index_range(&self) -> Range<usize> {
        let places = &self.layout.places;
        self.layout.fences.offset_bytes as usize..(places.offset_bytes + places.len_bytes) as usize
    }

    /// Returns the range of the file with the records.
    fn records_range(&self) -> Range<usize> {
        let start = self.layout.records.offset_bytes as usize;
        start..start + self.layout.records.len_bytes as usize
    }
}

/// Looks up [`BATCH_KEYS`] keys at a time with `look_up`, which passes the position in the batch and the result of each
/// key to the function that it is given. Calls `visit` with the position in `keys` and the result, until `visit`
/// returns `Break`.
fn in_batches<K, T>(
    keys: &[K],
    mut visit: impl FnMut(usize, T) -> ControlFlow<()>,
    look_up: impl Fn(&[K], &mut dyn FnMut(usize, T) -> ControlFlow<()>) -> Result<(), LookupError>,
) -> Result<(), LookupError> {
    for (number, batch) in keys.chunks(BATCH_KEYS).enumerate() {
        let mut is_over = false;
        look_up(batch, &mut |i, result| {
            let visited = visit(number * BATCH_KEYS + i, result);
            is_over = visited.is_break();
            visited
        })?;
        if is_over {
            break;
        }
    }
    Ok(())
}

/// The number of bits of nanoseconds in one tick of [`RecentPages`]: a tick takes 268 ms.
#[cfg(feature = "server")]
const TICK_BITS: u32 = 28;

/// The pages of the index that were recently found in memory: asking the system costs more than a lookup. A page that a
/// lookup has just read is not examined again for a moment, because the system discards the pages first that were not
/// read for a long time.
#[cfg(feature = "server")]
#[derive(Debug, Default)]
pub(super) struct RecentPages {
    /// The offset of the index in the file.
    start: usize,
    /// For each page, the tick in which it was last found in memory.
    ticks: Box<[AtomicU32]>,
}

#[cfg(feature = "server")]
impl RecentPages {
    pub(super) fn new(index: &Range<usize>) -> RecentPages {
        let pages = index.len().div_ceil(PAGE_LEN_BYTES) + 1;
        let start = index.start - index.start % PAGE_LEN_BYTES;
        RecentPages { start, ticks: (0..pages).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Returns whether the page at an offset of the file was found in memory in this tick. If not, calls `examine`,
    /// which returns whether the page is in memory.
    pub(super) fn contains_or(&self, at: usize, examine: impl FnOnce() -> bool) -> bool {
        let tick = tick_now();
        let page = at.checked_sub(self.start).and_then(|at| self.ticks.get(at / PAGE_LEN_BYTES));
        if page.is_some_and(|found_in| found_in.load(Ordering::Relaxed) == tick) {
            return true;
        }
        let is_in_memory = examine();
        if let Some(found_in) = page.filter(|_| is_in_memory) {
            found_in.store(tick, Ordering::Relaxed);
        }
        is_in_memory
    }
}

#[cfg(feature = "server")]
fn tick_now() -> u32 {
    // 0 means that a page was never found in memory.
    (clock::now_ns() >> TICK_BITS) as u32 | 1 << 31
}

#[cfg(all(test, feature = "bake", feature = "server"))]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::bake::{Keys, Options, TableLayout, bake_csv};
    use crate::store::{MappedStore, OpenOptions, Verify};

    fn value(key: u64) -> Vec<u8> {
        (0..200 + key % 7000).map(|at| b'a' + ((key + at) % 26) as u8).collect()
    }

    fn bake(db: &Path, layout: TableLayout, rows: u64) {
        let mut csv = Vec::new();
        for key in 0..rows {
            csv.extend_from_slice(format!("{key},").as_bytes());
            csv.extend(value(key));
            csv.push(b'\n');
        }
        bake_csv(&csv[..], db, &Options { keys: Keys::U64, layout, ..Options::default() }).unwrap();
    }

    fn open(db: &Path, assume_cold: bool) -> MappedStore {
        let options = OpenOptions { verify: Verify::Touch, assume_cold, ..OpenOptions::default() };
        MappedStore::open_with(db, &options).unwrap()
    }

    /// Discards the pages of a file, as the system does if memory is short.
    fn evict(store: &MappedStore, db: &Path) {
        let map = &store.unverified().map;
        map.release(0..map.bytes().len());
        fadvise(File::open(db).unwrap(), 0, None, Advice::DontNeed).unwrap();
    }

    #[test]
    fn lookups_return_the_rows_while_pages_are_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        for (layout, assume_cold) in
            [TableLayout::Fast, TableLayout::Compact].into_iter().flat_map(|layout| [(layout, false), (layout, true)])
        {
            bake(&db, layout, 2000);
            let store = open(&db, assume_cold);
            assert_eq!(store.unverified().may_be_cold(), assume_cold, "a small file fits into memory");
            for round in 0..5_u64 {
                evict(&store, &db);
                let keys: Vec<u64> = (0..700).map(|i| (i * 7919 + round) % 2010).collect();
                let expected: Vec<_> = keys.iter().map(|key| (*key < 2000).then(|| value(*key))).collect();
                assert!(store.get_many(&keys).unwrap() == expected, "round {round}");
                evict(&store, &db);
                assert!(store.get(keys[0]).unwrap() == expected[0], "round {round}");
                let row = |key: u64| (Key::U64(key).into(), value(key));
                evict(&store, &db);
                let floors: Vec<_> = keys.iter().map(|key| Some(row(1999.min(*key)))).collect();
                assert!(store.floor_many(&keys).unwrap() == floors, "round {round}");
                evict(&store, &db);
                let ceilings: Vec<_> = keys.iter().map(|key| (*key < 2000).then(|| row(*key))).collect();
                assert!(store.ceiling_many(&keys).unwrap() == ceilings, "round {round}");
                let rows: Vec<_> = store.range(100..300).unwrap().map(Result::unwrap).collect();
                assert!(rows.iter().map(|(key, _)| key.as_key()).eq((100..300_u64).map(Key::U64)));
                assert!(rows.iter().zip(100..).all(|((_, found), key)| *found == value(key)));
            }
            let all: Vec<_> = store.iter().map(Result::unwrap).collect();
            assert!(all.iter().zip(0..).all(|((_, found), key)| *found == value(key)) && all.len() == 2000);
        }
    }

    #[test]
    fn a_record_is_in_memory_after_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake(&db, TableLayout::Fast, 2000);
        let store = open(&db, false);
        let table = store.unverified();
        let keys: Vec<u64> = (0..2000).collect();
        let records = table.records_of(&keys, |key| *key);
        evict(&store, &db);
        for (key, record) in records.iter().enumerate().step_by(37) {
            table.read_record(*record);
            assert!(table.is_record_ready(*record), "key {key}");
            let start = *record as usize;
            assert!(table.blocks.are_verified(table.epoch(), start, start + 1), "key {key}");
        }
        // Offsets that no record has.
        for offset in [table.records().len() as u64, u64::MAX] {
            table.read_record(offset);
            assert!(table.is_record_ready(offset));
        }
    }
}
