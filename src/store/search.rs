//! Looks keys up in the hash index.
//!
//! In: keys. Out: the stored response of each key. Many keys are looked up in stages: while one group of keys is
//! processed, the data that other groups need in their next stage is fetched from memory. Even if the index is damaged,
//! a key is found only if a record has that key.

use std::ops::ControlFlow;

use zerocopy::little_endian::U32;

use super::Store;
use super::blocks::Epoch;
use super::machine::prefetch;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::index::{Hash, Parts};
use crate::format::key::LookupKey;
use crate::format::record;

/// The number of keys that each stage of a lookup processes together: about the number of cache misses that a core can
/// have in flight.
const GROUP_KEYS: usize = 16;

/// The number of groups whose lookups are in flight: one in each of the four stages.
const WINDOW_GROUPS: usize = 4;

const LINE_LEN_BYTES: usize = 64;

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// The key's stored response, and the response's offset in the records section.
    Answer(&'a [u8], u64),
    /// No record has this key.
    Missing,
    /// The bytes that the result depends on are damaged.
    Damaged,
}

/// The offset that is used if the block of the key's pilot or place is damaged. No record has this offset.
const NO_RECORD: u64 = u64::MAX;

/// The slot that is used if the block of the key's pilot is damaged, or if the index has no pilots. No key has this
/// slot.
const NO_SLOT: usize = usize::MAX;

/// The data that lookups in the hash index read: sections and header fields of a file, and the state of its blocks.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    pub(super) hash_seed: u64,
    pub(super) parts: Parts,
    pub(super) pilots: &'a [u8],
    pub(super) places: &'a [U32],
    pub(super) records: &'a [u8],
    pub(super) record_align_bits: u32,
    /// The number of bytes of each record that are prefetched: the mean record length, up to a maximum.
    pub(super) typical_len_bytes: usize,
    pub(super) store: &'a Store,
    /// The epoch in which the lookups began.
    pub(super) epoch: Epoch,
    /// Whether all pilots and places were verified in this epoch. Otherwise, each lookup verifies the blocks of its
    /// pilot and its place.
    pub(super) is_verified: bool,
}

impl<'a> Index<'a> {
    /// Looks up one key.
    #[inline]
    pub(super) fn find<K: LookupKey>(&self, key: K) -> Found<'a> {
        let hash = key.hash(self.hash_seed);
        let offset_bytes = match self.is_verified {
            true => self.offset_bytes(self.slot(hash)),
            false => self.verified_offset_bytes(self.verified_slot(hash)),
        };
        self.record(key, offset_bytes)
    }

    /// Looks up `count` keys. Calls `found` with each key's position and result, in order, until `found` returns
    /// `Break`.
    #[inline(always)]
    pub(super) fn find_each<K: LookupKey>(
        &self,
        count: usize,
        key_at: impl Fn(usize) -> K,
        mut found: impl FnMut(usize, Found<'a>) -> ControlFlow<()>,
    ) {
        self.offsets_each(count, &key_at, |i, offset_bytes| found(i, self.record(key_at(i), offset_bytes)));
    }

    /// Returns the offset of the only record that can have a key. Returns `None` if the block of the key's pilot or place
    /// must not be read: `admits_pilot` and `admits_slot` determine this. An offset may be outside the records section.
    #[cfg(feature = "server")]
    pub(super) fn offset_if<K: LookupKey>(
        &self,
        key: K,
        admits_pilot: impl FnOnce(usize) -> bool,
        admits_slot: impl FnOnce(usize) -> bool,
    ) -> Option<u64> {
        let hash = key.hash(self.hash_seed);
        if !admits_pilot(hash.pilot(&self.parts)) {
            return None;
        }
        let slot = self.slot(hash);
        (slot == NO_SLOT || admits_slot(slot)).then(|| self.offset_bytes(slot))
    }

    /// Calls `begin_pilot` with the pilot of each of `count` keys, and then `begin_slot` with the slot of each key, before
    /// the blocks of the slots are read.
    #[cfg(feature = "server")]
    pub(super) fn visit_positions<K: LookupKey>(
        &self,
        keys: &[K],
        mut begin_pilot: impl FnMut(usize),
        mut begin_slot: impl FnMut(usize),
    ) {
        let hashes = || keys.iter().map(|key| key.hash(self.hash_seed));
        hashes().for_each(|hash| begin_pilot(hash.pilot(&self.parts)));
        hashes().map(|hash| self.slot(hash)).filter(|slot| *slot != NO_SLOT).for_each(&mut begin_slot);
    }

    /// Returns the offsets of the only records that can have the keys. An offset may be outside the records section.
    pub(super) fn offsets_bytes<K: LookupKey>(&self, count: usize, key_at: impl Fn(usize) -> K) -> Vec<u64> {
        let mut offsets_bytes = Vec::with_capacity(count);
        self.offsets_each(count, &key_at, |_, offset_bytes| {
            offsets_bytes.push(offset_bytes);
            ControlFlow::Continue(())
        });
        offsets_bytes
    }

    /// Calls `visit` with the position of each of `count` keys and the offset of the only record that can have the key,
    /// in order, until `visit` returns `Break`.
    ///
    /// Each group of keys goes through four stages: prefetch pilots, prefetch places, prefetch records, and call
    /// `visit`. In each iteration of the loop, consecutive groups are in consecutive stages, so the data of later
    /// groups is fetched from memory while `visit` runs.
    #[inline(always)]
    fn offsets_each<K: LookupKey>(
        &self,
        count: usize,
        key_at: &impl Fn(usize) -> K,
        mut visit: impl FnMut(usize, u64) -> ControlFlow<()>,
    ) {
        let mut window = [[NO_RECORD; GROUP_KEYS]; WINDOW_GROUPS];
        for step in 0..count.div_ceil(GROUP_KEYS) + WINDOW_GROUPS - 1 {
            self.advance(step, count, key_at, &mut window);
            let Some(number) = step.checked_sub(WINDOW_GROUPS - 1) else { continue };
            for (i, offset_bytes) in (number * GROUP_KEYS..count).zip(&window[number % WINDOW_GROUPS]) {
                if visit(i, *offset_bytes).is_break() {
                    return;
                }
            }
        }
    }

    /// Runs the first three stages, each for one group. In `window`, the first stage stores the hash of each key, the
    /// second stage replaces the hash with the slot, and the third stage replaces the slot with the record's offset.
    ///
    /// Not inlined, so that the loop over the results can use all registers.
    #[inline(never)]
    fn advance<K: LookupKey>(
        &self,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> K,
        window: &mut [[u64; GROUP_KEYS]; WINDOW_GROUPS],
    ) {
        match self.is_verified {
            true => self.run_stages::<K, true>(step, count, key_at, window),
            false => self.advance_and_verify(step, count, key_at, window),
        }
    }

    /// Does what [`Index::advance`] does, and verifies the blocks of each pilot and each place.
    #[inline(never)]
    fn advance_and_verify<K: LookupKey>(
        &self,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> K,
        window: &mut [[u64; GROUP_KEYS]; WINDOW_GROUPS],
    ) {
        self.run_stages::<K, false>(step, count, key_at, window);
    }

    /// Implements [`Index::advance`]. `VERIFIED` must be `is_verified`.
    #[inline(always)]
    fn run_stages<K: LookupKey, const VERIFIED: bool>(
        &self,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> K,
        window: &mut [[u64; GROUP_KEYS]; WINDOW_GROUPS],
    ) {
        for (i, entry) in (step * GROUP_KEYS..count).zip(&mut window[step % WINDOW_GROUPS]) {
            let hash = key_at(i).hash(self.hash_seed);
            *entry = hash.number();
            prefetch(self.pilots, hash.pilot(&self.parts));
        }
        if let Some(number) = step.checked_sub(1) {
            for (_, entry) in (number * GROUP_KEYS..count).zip(&mut window[number % WINDOW_GROUPS]) {
                let hash = Hash::from_number(*entry);
                let slot = if VERIFIED { self.slot(hash) } else { self.verified_slot(hash) };
                *entry = slot as u64;
                prefetch(self.places, slot);
            }
        }
        if let Some(number) = step.checked_sub(2) {
            for (_, entry) in (number * GROUP_KEYS..count).zip(&mut window[number % WINDOW_GROUPS]) {
                let slot = *entry as usize;
                *entry = if VERIFIED { self.offset_bytes(slot) } else { self.verified_offset_bytes(slot) };
                self.prefetch_record(*entry);
            }
        }
    }

    /// Returns the slot of a hash, or [`NO_SLOT`] if the index has no pilot for the hash.
    #[inline(always)]
    fn slot(&self, hash: Hash) -> usize {
        self.pilots.get(hash.pilot(&self.parts)).map_or(NO_SLOT, |pilot| hash.slot(*pilot, &self.parts))
    }

    /// Returns the offset of the only record whose key can have this slot, or [`NO_RECORD`] if the index does not have
    /// the slot.
    #[inline(always)]
    fn offset_bytes(&self, slot: usize) -> u64 {
        self.places.get(slot).map_or(NO_RECORD, |place| u64::from(place.get()) << self.record_align_bits)
    }

    /// Does what [`Index::slot`] does, after the block of the pilot is verified. Returns [`NO_SLOT`] if the block is
    /// damaged.
    #[inline(never)]
    fn verified_slot(&self, hash: Hash) -> usize {
        match self.store.is_pilot_intact(self.epoch, hash.pilot(&self.parts)) {
            true => self.slot(hash),
            false => NO_SLOT,
        }
    }

    /// Does what [`Index::offset_bytes`] does, after the block of the place is verified. Returns [`NO_RECORD`] if the
    /// block is damaged.
    #[inline(never)]
    fn verified_offset_bytes(&self, slot: usize) -> u64 {
        match slot != NO_SLOT && self.store.is_place_intact(self.epoch, slot) {
            true => self.offset_bytes(slot),
            false => NO_RECORD,
        }
    }

    /// Compares the record at an offset with a key. Reads the record first, then verifies the blocks that were read.
    #[inline(always)]
    fn record<K: LookupKey>(&self, key: K, offset_bytes: u64) -> Found<'a> {
        let start = offset_bytes as usize;
        let Some(rest) = self.records.get(start..) else { return self.outside_records() };
        let Some(answer_at_bytes) = key.answer_at(rest) else {
            return if self.verify(start, start + key.compared_len_bytes()) { Found::Missing } else { Found::Damaged };
        };
        match rest.get(answer_at_bytes..).and_then(record::answer) {
            Some(answer) if self.verify(start, start + answer_at_bytes + answer.len()) => {
                Found::Answer(answer, offset_bytes + answer_at_bytes as u64)
            }
            _ => Found::Damaged,
        }
    }

    /// Returns the result of a lookup whose record would be beyond the end of the records section. The index of a table
    /// with rows leads no key there, unless it is damaged.
    #[cold]
    fn outside_records(&self) -> Found<'a> {
        if self.records.is_empty() && !self.epoch.is_distrust() { Found::Missing } else { Found::Damaged }
    }

    /// Verifies the part of a range that is inside the records section. Returns whether this part is intact.
    #[inline(always)]
    fn verify(&self, start: usize, end: usize) -> bool {
        self.store.blocks.is_in_verified_block(self.epoch, start, end) || self.verify_blocks(start, end)
    }

    /// Does what [`Index::verify`] does, for a range in any number of blocks. Not inlined, so that the loop over the
    /// results can use all registers.
    #[inline(never)]
    fn verify_blocks(&self, start: usize, end: usize) -> bool {
        let (blocks, end_in_section) = (&self.store.blocks, end.min(self.records.len()));
        blocks.are_verified(self.epoch, start, end)
            || blocks.verify_range(self.epoch, &self.store.block_data(), start, end_in_section)
    }

    /// Prefetches the start of a record, up to `typical_len_bytes`, and the tag that states whether the record's block
    /// is verified.
    #[inline(always)]
    fn prefetch_record(&self, offset_bytes: u64) {
        let offset_bytes = offset_bytes as usize;
        prefetch(self.store.blocks.tags(), offset_bytes / BLOCK_LEN_BYTES);
        prefetch(self.records, offset_bytes);
        let mut at = LINE_LEN_BYTES;
        while at < self.typical_len_bytes {
            prefetch(self.records, offset_bytes.wrapping_add(at));
            at += LINE_LEN_BYTES;
        }
        prefetch(self.records, offset_bytes.wrapping_add(self.typical_len_bytes.wrapping_sub(1)));
    }
}
