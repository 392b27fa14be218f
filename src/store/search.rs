//! Looks keys up in the hash index.
//!
//! In: keys. Out: the stored response of each key. Many keys are looked up in stages: while one group of keys is
//! processed, the data that other groups need in their next stage is fetched from memory. Even if the index is damaged,
//! a key is found only if a record has that key.

use std::ops::ControlFlow;
use std::slice::Chunks;

use zerocopy::little_endian::U32;

use super::Store;
use super::epoch::Epoch;
use super::fences::{GROUP_KEYS, WINDOW_GROUPS, prefetch_lines};
use super::machine::{Task, Windows, item_at_fraction, prefetch, run_with_new_instructions};
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::form::{KeyForm, RecordForm};
use crate::format::index::{Hash, Parts};
use crate::format::lookup_key::RecordKey;
use crate::format::record::{self, SHORT_MAX_BYTES, value_of_response};

/// The maximum length of the record of a number that has a short response.
const SHORT_RECORD_MAX_BYTES: usize = size_of::<u64>() + SHORT_MAX_BYTES;

/// The positions at which the record of a number with a short response can be.
pub(super) type RecordWindows<'a> = Windows<'a, SHORT_RECORD_MAX_BYTES>;

/// The lookups of a batch. Those of [`WINDOW_GROUPS`] groups are in flight.
///
/// Each group of items goes through four stages: prefetch pilots, prefetch places, prefetch records, and use the
/// records. In each step, consecutive groups are in consecutive stages, so the data of later groups is fetched from
/// memory while the caller uses the records of a group.
struct Window<'i, T> {
    /// The groups whose lookups have not begun.
    new_groups: Chunks<'i, T>,
    /// The groups in flight.
    groups: [&'i [T]; WINDOW_GROUPS],
    /// An entry for each item in flight: see [`Index::advance`].
    entries: [[u64; GROUP_KEYS]; WINDOW_GROUPS],
    step: usize,
    step_count: usize,
}

impl<'i, T> Window<'i, T> {
    #[inline(always)]
    fn new(items: &'i [T]) -> Window<'i, T> {
        Window {
            new_groups: items.chunks(GROUP_KEYS),
            groups: [&[]; WINDOW_GROUPS],
            entries: [[NO_RECORD; GROUP_KEYS]; WINDOW_GROUPS],
            step: 0,
            step_count: items.len().div_ceil(GROUP_KEYS) + WINDOW_GROUPS - 1,
        }
    }

    /// Returns the next group of items and, for each item, the offset of the only record that can have the item's key.
    #[inline(always)]
    fn next_group<K: RecordKey>(
        &mut self,
        index: &Index<'_>,
        key_of: &impl Fn(&T) -> K,
    ) -> Option<(&'i [T], &mut [u64])> {
        while self.step < self.step_count {
            let step = self.step;
            self.step += 1;
            self.groups[step % WINDOW_GROUPS] = self.new_groups.next().unwrap_or_default();
            index.advance(step, key_of, self);
            if step >= WINDOW_GROUPS - 1 {
                return Some(self.stage(step, WINDOW_GROUPS - 1));
            }
        }
        None
    }

    /// Returns the group that is in a stage, and its entries. The stages are counted from 0. In each step, every group
    /// moves to the next stage.
    #[inline(always)]
    fn stage(&mut self, step: usize, stage: usize) -> (&'i [T], &mut [u64]) {
        let at = step.wrapping_sub(stage) % WINDOW_GROUPS;
        let group = self.groups[at];
        (group, &mut self.entries[at][..group.len()])
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// The key's stored response, and the response's offset in the records section.
    Answer(&'a [u8], u64),
    /// The key's value, and its offset in the records section, in a table with the compact layout, which stores no
    /// responses.
    Value(&'a [u8], u64),
    /// No record has this key.
    Missing,
    /// The bytes that the result depends on are damaged.
    Damaged,
}

impl<'a> Found<'a> {
    /// Returns the key's value, and its offset in the records section, if a row has the key.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<(&'a [u8], u64)> {
        match self {
            Found::Answer(answer, offset_bytes) => Some(value_of_response(answer, offset_bytes)),
            Found::Value(value, offset_bytes) => Some((value, offset_bytes)),
            Found::Missing | Found::Damaged => None,
        }
    }
}

/// A short stored response: a header and a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortAnswer<'a> {
    /// The response and the bytes after it, so that the response can be copied without checks of bounds.
    pub(crate) window: &'a [u8; SHORT_MAX_BYTES],
    /// The length of the response, at most [`SHORT_MAX_BYTES`].
    pub(crate) len_bytes: usize,
    /// The response's offset in the records section.
    pub(crate) offset_bytes: u64,
}

impl<'a> ShortAnswer<'a> {
    /// Returns the response.
    #[inline(always)]
    pub(crate) fn response(&self) -> &'a [u8] {
        &self.window[..self.len_bytes.min(SHORT_MAX_BYTES)]
    }
}

/// The result of [`Index::quick_record`].
enum Quick<'a> {
    /// The key's stored response, which is short.
    Short(ShortAnswer<'a>),
    /// No record has this key.
    Missing,
    /// The caller must call [`Index::record`].
    Undecided,
}

/// Receives the results of lookups. A closure that takes an item and its [`Found`] is a `Visitor`.
pub(crate) trait Visitor<'a, T> {
    /// Receives the result for an item. Returns `Break` if no more results are wanted.
    fn found(&mut self, item: &T, found: Found<'a>) -> ControlFlow<()>;

    /// Receives a short response for an item. Lookups call only one of the functions for an item.
    #[inline(always)]
    fn found_short(&mut self, item: &T, answer: ShortAnswer<'a>) -> ControlFlow<()> {
        self.found(item, Found::Answer(answer.response(), answer.offset_bytes))
    }

    /// Receives the result [`Found::Missing`] for an item. Lookups may also pass this result to [`Visitor::found`].
    #[inline(always)]
    fn found_missing(&mut self, item: &T) -> ControlFlow<()> {
        self.found(item, Found::Missing)
    }

    /// Is called after each group of [`GROUP_KEYS`] items. Returns `Break` if no more results are wanted.
    #[inline(always)]
    fn group_ended(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<'a, T, F: FnMut(&T, Found<'a>) -> ControlFlow<()>> Visitor<'a, T> for F {
    #[inline(always)]
    fn found(&mut self, item: &T, found: Found<'a>) -> ControlFlow<()> {
        self(item, found)
    }
}

/// The offset after a damaged block of pilots or places. No record has this offset.
const NO_RECORD: u64 = u64::MAX;

/// The slot after a damaged block of pilots, and the slot in an index without pilots. No key has this slot.
const NO_SLOT: usize = usize::MAX;

/// The data that lookups in the hash index read: sections and header fields of a file, and the state of its blocks.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    pub(super) form: RecordForm,
    pub(super) hash_seed: u64,
    pub(super) parts: Parts,
    pub(super) pilots: &'a [u8],
    pub(super) places: &'a [U32],
    pub(super) records: &'a [u8],
    pub(super) record_windows: RecordWindows<'a>,
    pub(super) record_align_bits: u32,
    /// The number of bytes to prefetch per record: the mean record length, up to a maximum.
    pub(super) typical_len_bytes: usize,
    pub(super) store: &'a Store,
    /// The epoch in which the lookups began.
    pub(super) epoch: Epoch,
    /// Whether all pilots and places were verified in this epoch. Otherwise, each lookup verifies the blocks of its
    /// pilot and its place.
    pub(super) are_slots_verified: bool,
    /// Whether all records were verified in this epoch. Otherwise, each lookup verifies the blocks of its record.
    pub(super) are_records_verified: bool,
}

impl<'a> Index<'a> {
    /// Looks up one key.
    #[inline]
    pub(super) fn find<K: RecordKey>(&self, key: K) -> Found<'a> {
        let hash = key.hash(self.hash_seed);
        let offset_bytes = match self.are_slots_verified {
            true => self.offset_bytes(self.slot(hash)),
            false => self.verified_offset_bytes(self.verified_slot(hash)),
        };
        match self.quick_record(key, offset_bytes) {
            Quick::Short(answer) => Found::Answer(answer.response(), answer.offset_bytes),
            Quick::Missing => Found::Missing,
            Quick::Undecided => self.record(key, offset_bytes),
        }
    }

    /// Returns the offset of the only record that can have a key. Returns `None` if the block of the key's pilot or
    /// place must not be read: `admits_pilot` and `admits_slot` determine this. An offset may be outside the records
    /// section.
    #[cfg(feature = "server")]
    pub(super) fn offset_if<K: RecordKey>(
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

    /// Calls `begin_pilot` with the pilot of each of `count` keys, and then `begin_slot` with the slot of each key,
    /// before the blocks of the slots are read.
    #[cfg(feature = "server")]
    pub(super) fn visit_positions<K: RecordKey>(
        &self,
        keys: &[K],
        mut begin_pilot: impl FnMut(usize),
        mut begin_slot: impl FnMut(usize),
    ) {
        let hashes = || keys.iter().map(|key| key.hash(self.hash_seed));
        hashes().for_each(|hash| begin_pilot(hash.pilot(&self.parts)));
        hashes().map(|hash| self.slot(hash)).filter(|slot| *slot != NO_SLOT).for_each(&mut begin_slot);
    }

    /// Looks up the key of each item, and passes the items and results to `visitor`, in order. Returns the number of
    /// items before the first `Break`.
    #[inline(always)]
    pub(super) fn find_each<T, K: RecordKey>(
        &self,
        items: &[T],
        key_of: impl Fn(&T) -> K,
        visitor: impl Visitor<'a, T>,
    ) -> usize {
        struct FindEach<'i, 'a, T, F, V>(&'i Index<'a>, &'i [T], F, V);
        impl<'a, T, K: RecordKey, F: Fn(&T) -> K, V: Visitor<'a, T>> Task for FindEach<'_, 'a, T, F, V> {
            type Output = usize;

            #[inline(always)]
            fn run(self) -> usize {
                self.0.visit_each(self.1, self.2, self.3)
            }
        }
        // A struct instead of a closure: the compiler does not inline closures into code for newer processors, so they
        // would have none of the newer instructions.
        run_with_new_instructions(FindEach(self, items, key_of, visitor))
    }

    /// Implements [`Index::find_each`].
    #[inline(always)]
    fn visit_each<T, K: RecordKey>(
        &self,
        items: &[T],
        key_of: impl Fn(&T) -> K,
        mut visitor: impl Visitor<'a, T>,
    ) -> usize {
        let mut count = 0;
        let mut window = Window::new(items);
        while let Some((group, offsets_bytes)) = window.next_group(self, &key_of) {
            for i in 0..group.len() {
                let (item, offset_bytes) = (&group[i], offsets_bytes[i]);
                let key = key_of(item);
                // Short and missing responses stay in the loop: with misses in `record`, a miss took 218 instructions
                // instead of 88.
                let visited = match self.quick_record(key, offset_bytes) {
                    Quick::Short(answer) => visitor.found_short(item, answer),
                    Quick::Missing => visitor.found_missing(item),
                    Quick::Undecided => visitor.found(item, self.record(key, offset_bytes)),
                };
                if visited.is_break() {
                    return count + i;
                }
            }
            count += group.len();
            if visitor.group_ended().is_break() {
                break;
            }
        }
        count
    }

    /// Returns, for the key of each item, the offset of the only record that can have the key. An offset may be outside
    /// the records section.
    pub(super) fn offsets_bytes<T, K: RecordKey>(&self, items: &[T], key_of: impl Fn(&T) -> K) -> Vec<u64> {
        let mut all_bytes = Vec::with_capacity(items.len());
        let mut window = Window::new(items);
        while let Some((_, offsets_bytes)) = window.next_group(self, &key_of) {
            all_bytes.extend_from_slice(offsets_bytes);
        }
        all_bytes
    }

    /// Runs the first three stages, each for one group. The first stage stores the hash of each key in its entry, the
    /// second stage replaces the hash with the slot, and the third stage replaces the slot with the record's offset.
    #[inline(always)]
    fn advance<T, K: RecordKey>(&self, step: usize, key_of: &impl Fn(&T) -> K, window: &mut Window<'_, T>) {
        match self.are_slots_verified {
            true => self.run_stages::<T, K, true>(step, key_of, window),
            false => self.advance_and_verify(step, key_of, window),
        }
    }

    /// Like [`Index::advance`], but verifies the blocks of each pilot and each place first.
    #[inline(never)]
    fn advance_and_verify<T, K: RecordKey>(&self, step: usize, key_of: &impl Fn(&T) -> K, window: &mut Window<'_, T>) {
        self.run_stages::<T, K, false>(step, key_of, window);
    }

    /// Implements [`Index::advance`]. `VERIFIED` must be `are_slots_verified`.
    #[inline(always)]
    fn run_stages<T, K: RecordKey, const VERIFIED: bool>(
        &self,
        step: usize,
        key_of: &impl Fn(&T) -> K,
        window: &mut Window<'_, T>,
    ) {
        let (group, entries) = window.stage(step, 0);
        unrolled(group, entries, |item, entry| {
            let hash = key_of(item).hash(self.hash_seed);
            *entry = hash.number();
            prefetch(self.pilots, hash.pilot(&self.parts));
        });
        let (group, entries) = window.stage(step, 1);
        unrolled(group, entries, |_, entry| {
            let hash = Hash::from_number(*entry);
            let slot = if VERIFIED { self.slot(hash) } else { self.verified_slot(hash) };
            *entry = slot as u64;
            prefetch(self.places, slot);
        });
        let (group, entries) = window.stage(step, 2);
        unrolled(group, entries, |_, entry| {
            let slot = *entry as usize;
            *entry = if VERIFIED { self.offset_bytes(slot) } else { self.verified_offset_bytes(slot) };
            self.prefetch_record(*entry);
        });
    }

    /// Returns the slot of a hash, or [`NO_SLOT`] if the index has no pilot for the hash.
    #[inline(always)]
    fn slot(&self, hash: Hash) -> usize {
        item_at_fraction(self.pilots, hash.number()).map_or(NO_SLOT, |pilot| hash.slot(*pilot, &self.parts))
    }

    /// Returns the offset of the only record whose key can have this slot, or [`NO_RECORD`] if the index does not have
    /// the slot.
    #[inline(always)]
    fn offset_bytes(&self, slot: usize) -> u64 {
        self.places.get(slot).map_or(NO_RECORD, |place| u64::from(place.get()) << self.record_align_bits)
    }

    /// Like [`Index::slot`], but verifies the pilot's block first. Returns [`NO_SLOT`] if the block is damaged.
    #[inline(never)]
    fn verified_slot(&self, hash: Hash) -> usize {
        match self.store.is_pilot_intact(self.epoch, hash.pilot(&self.parts)) {
            true => self.slot(hash),
            false => NO_SLOT,
        }
    }

    /// Like [`Index::offset_bytes`], but verifies the place's block first. Returns [`NO_RECORD`] if the block is
    /// damaged.
    #[inline(never)]
    fn verified_offset_bytes(&self, slot: usize) -> u64 {
        match slot != NO_SLOT && self.store.is_place_intact(self.epoch, slot) {
            true => self.offset_bytes(slot),
            false => NO_RECORD,
        }
    }

    /// Like [`Index::record`], for short and missing responses. May return [`Quick::Undecided`] for any record, for
    /// example if its block is not verified yet.
    #[inline(always)]
    fn quick_record<K: RecordKey>(&self, key: K, offset_bytes: u64) -> Quick<'a> {
        let start = offset_bytes as usize;
        let record = match K::form(self.form) {
            RecordForm { keys: KeyForm::U64, has_ends: false } => {
                self.record_windows.at(start).map(|record| &record[..])
            }
            _ => self.records.get(start..),
        };
        let Some(record) = record else { return Quick::Undecided };
        // The compared bytes may be damaged: a result counts only if they are verified.
        let Some(answer_at_bytes) = key.answer_at(record) else {
            let is_verified = self.is_verified(start, start + key.compared_len_bytes());
            return if is_verified { Quick::Missing } else { Quick::Undecided };
        };
        if let Some(window) = record.get(answer_at_bytes..).and_then(<[u8]>::first_chunk)
            && let Some(response) = record::answer(window)
            && self.is_verified(start, start + answer_at_bytes + response.len())
        {
            let offset_bytes = offset_bytes + answer_at_bytes as u64;
            return Quick::Short(ShortAnswer { window, len_bytes: response.len(), offset_bytes });
        }
        Quick::Undecided
    }

    /// Returns whether a range of the records section is verified in this epoch. May return `false` for a range in
    /// several blocks.
    #[inline(always)]
    fn is_verified(&self, start: usize, end: usize) -> bool {
        self.are_records_verified || self.store.blocks.is_in_verified_block(self.epoch, start, end)
    }

    /// Compares the record at an offset with a key. Reads the record first, then verifies the blocks that were read.
    ///
    /// Not inlined, so that the loop over short responses can use all registers.
    #[inline(never)]
    fn record<K: RecordKey>(&self, key: K, offset_bytes: u64) -> Found<'a> {
        let start = offset_bytes as usize;
        let Some(rest) = self.records.get(start..) else { return self.outside_records() };
        let Some(answer_at_bytes) = key.answer_at(rest) else {
            return if self.verify(start, start + key.compared_len_bytes()) { Found::Missing } else { Found::Damaged };
        };
        match rest.get(answer_at_bytes..).and_then(record::answer) {
            Some(response) if self.verify(start, start + answer_at_bytes + response.len()) => {
                Found::Answer(response, offset_bytes + answer_at_bytes as u64)
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
    #[inline]
    fn verify(&self, start: usize, end: usize) -> bool {
        let (blocks, end_in_section) = (&self.store.blocks, end.min(self.records.len()));
        blocks.are_verified(self.epoch, start, end)
            || blocks.verify_range(self.epoch, &self.store.lookup_data(), start, end_in_section)
    }

    /// Prefetches the start of a record, up to `typical_len_bytes`, and the tag that states whether the record's block
    /// is verified.
    #[inline(always)]
    fn prefetch_record(&self, offset_bytes: u64) {
        let offset_bytes = offset_bytes as usize;
        if !self.are_records_verified {
            prefetch(self.store.blocks.tags(), offset_bytes / BLOCK_LEN_BYTES);
        }
        prefetch_lines(self.records, offset_bytes, self.typical_len_bytes);
    }
}

/// Calls `run` for each item and its entry, in order. The compiler unrolls the loop, which takes fewer instructions.
#[inline(always)]
fn unrolled<T>(items: &[T], entries: &mut [u64], mut run: impl FnMut(&T, &mut u64)) {
    const UNROLLED: usize = 4;
    let (item_chunks, items) = items.as_chunks::<UNROLLED>();
    let (entry_chunks, entries) = entries.as_chunks_mut::<UNROLLED>();
    for (items, entries) in item_chunks.iter().zip(entry_chunks) {
        for i in 0..UNROLLED {
            run(&items[i], &mut entries[i]);
        }
    }
    for (item, entry) in items.iter().zip(entries) {
        run(item, entry);
    }
}
