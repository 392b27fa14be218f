//! Looks keys up in groups: in a table with the compact layout.
//!
//! In: keys, each with what is searched: the row of the key, or the row before or after it. Out: the values of rows.
//! The tree above the groups leads to a group, which has the exact keys of its rows and the positions of their values.
//! A lookup therefore reads no value but the one that it returns, and none if the key is missing. Many keys are looked
//! up in stages, as in [`super::neighbors`].
//!
//! Reasons and evidence: `docs/decisions/compact-layout.md`.

use std::ops::{ControlFlow, Range};

use zerocopy::little_endian::U32;

use super::epoch::Epoch;
use super::fences::{
    AllVerified, Fences, GROUP_KEYS, Gate, Lane, NOT_ADMITTED, VerifyFirst, WINDOW_GROUPS, Window, prefetch_lines,
};
use super::machine::{Task, prefetch, run_with_new_instructions};
use super::neighbors::{Neighbor, Side};
use super::rows::Position;
use super::search::{Found, Visitor};
use super::{LookupError, Store, typed};
use crate::Lookup;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::fence::NODE_HEADS;
use crate::format::form::RowKey;
use crate::format::group::{GROUP_ALIGN_BYTES, GROUP_LEN_MIN_BYTES, GROUP_ROWS, Group};
use crate::format::header::Layout;
use crate::format::key::Key;
use crate::format::record::Record;

/// The maximum number of bytes to prefetch per group.
const PREFETCH_MAX_BYTES: usize = 320;

/// The row that a lookup of a key returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The row with the key.
    Exact,
    /// The row next to a position.
    Beside(Side),
}

/// The state of a lookup after the third stage, as the number in [`Lane::at`]. In the state [`FOUND`], [`Lane::head`] is
/// the row's key. If a row beside a position was wanted in a table of ranges, [`Lane::bound`] is the last key of the
/// row's range.
const FOUND: u64 = 0;
const NO_ROW: u64 = 1;
const DAMAGED: u64 = 2;

/// The data that lookups in groups read.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    store: &'a Store,
    tree: Fences<'a>,
    groups: &'a [u8],
    places: &'a [U32],
    records: &'a [u8],
    row_count: usize,
    /// Whether the rows are ranges.
    has_ranges: bool,
    /// The epoch in which the lookups began.
    epoch: Epoch,
    /// Whether the groups, their places, and the tree were verified in this epoch.
    is_index_verified: bool,
    /// Whether all values were verified in this epoch.
    are_records_verified: bool,
}

/// The values of the lookups in flight.
type Values = [[Range<u64>; GROUP_KEYS]; WINDOW_GROUPS];

impl Store {
    /// Returns whether the table has the compact layout, whose rows [`Store::groups`] looks up.
    #[inline(always)]
    pub(crate) fn is_compact(&self) -> bool {
        self.layout.dimensions.is_compact()
    }

    /// Returns the groups of a table with the compact layout, which may be damaged.
    #[inline]
    pub(super) fn groups(&self) -> Groups<'_> {
        let epoch = self.blocks.epoch();
        Groups {
            store: self,
            tree: self.tree(),
            groups: self.section(&self.layout.fences),
            places: typed(self.section(&self.layout.places)),
            records: self.records(),
            row_count: self.len(),
            has_ranges: self.layout.dimensions.has_ranges,
            epoch,
            is_index_verified: self.blocks.are_fences_verified(epoch) && self.blocks.are_slots_verified(epoch),
            are_records_verified: self.blocks.are_records_verified(epoch),
        }
    }

    /// Verifies the blocks of a range of the groups section in an epoch. Returns whether they are intact.
    #[inline(never)]
    fn are_groups_intact(&self, epoch: Epoch, range: Range<usize>) -> bool {
        let len_bytes = self.layout.fences.len_bytes as usize;
        let blocks = range.start.min(len_bytes) / BLOCK_LEN_BYTES..range.end.min(len_bytes).div_ceil(BLOCK_LEN_BYTES);
        let first = self.blocks.numbers().fences.start;
        blocks.into_iter().all(|block| self.is_block_intact(epoch, first + block))
    }
}

/// Determines whether lookups may read parts of the index: see [`Gate`].
pub(super) trait GroupGate: Gate {
    /// Returns whether the place of a group may be read.
    fn admits_place(self, group: usize) -> bool;

    /// Returns whether a range of the groups section may be read.
    fn admits_groups(self, range: Range<usize>) -> bool;
}

impl GroupGate for AllVerified {
    #[inline(always)]
    fn admits_place(self, _: usize) -> bool {
        true
    }

    #[inline(always)]
    fn admits_groups(self, _: Range<usize>) -> bool {
        true
    }
}

impl GroupGate for VerifyFirst<'_> {
    fn admits_place(self, group: usize) -> bool {
        self.store.is_place_intact(self.epoch, group)
    }

    fn admits_groups(self, range: Range<usize>) -> bool {
        self.store.are_groups_intact(self.epoch, range)
    }
}

impl<'a> Groups<'a> {
    /// Looks up one key.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Found<'a> {
        let value = match self.is_index_verified {
            true => self.value_with(key, None, AllVerified),
            false => self.value_with(key, None, VerifyFirst { store: self.store, epoch: self.epoch }),
        };
        match value.map(|range| range.map(|range| (self.value(&range), range.start))) {
            Ok(None) => Found::Missing,
            Ok(Some((Some(value), offset_bytes))) => Found::Value(value, offset_bytes),
            Ok(Some((None, _))) | Err(Damaged) => Found::Damaged,
        }
    }

    /// Looks up the key of each item, and passes the items and results to `visitor`, in order. Returns the number of
    /// items before the first `Break`.
    #[inline(never)]
    pub(super) fn find_each<T>(
        &self,
        items: &[T],
        key_of: impl Fn(&T) -> u64,
        mut visitor: impl Visitor<'a, T>,
    ) -> usize {
        let found = |i: usize, lane: &Lane, value: &Range<u64>| {
            let item = &items[i];
            let found = match lane.at {
                FOUND => match self.value(value) {
                    Some(bytes) => Found::Value(bytes, value.start),
                    None => Found::Damaged,
                },
                NO_ROW => Found::Missing,
                _ => Found::Damaged,
            };
            let visited = match found {
                Found::Missing => visitor.found_missing(item),
                found => visitor.found(item, found),
            };
            let is_group_end = (i + 1).is_multiple_of(GROUP_KEYS) || i + 1 == items.len();
            if visited.is_continue() && is_group_end && visitor.group_ended().is_break() {
                return Visited::BreakAfter;
            }
            if visited.is_break() { Visited::BreakBefore } else { Visited::Continue }
        };
        self.search_each(items.len(), |i| (key_of(&items[i]), Wanted::Exact), found)
    }

    /// Looks up the floors or ceilings of `count` keys. Calls `found` with each key's position and result, in order,
    /// until `found` returns `Break`.
    pub(super) fn neighbor_each(
        &self,
        count: usize,
        key_at: impl Fn(usize) -> (u64, Side),
        mut found: impl FnMut(usize, Result<Neighbor<'a>, LookupError>) -> ControlFlow<()>,
    ) {
        let found = |i: usize, lane: &Lane, value: &Range<u64>| {
            let neighbor = match lane.at {
                FOUND => self
                    .value(value)
                    .map(|bytes| Some((Record::of_value(self.row_key(lane), bytes), value.start)))
                    .ok_or(LookupError::Damaged),
                NO_ROW => Ok(None),
                _ => Err(LookupError::Damaged),
            };
            if found(i, neighbor).is_break() { Visited::BreakBefore } else { Visited::Continue }
        };
        let key_at = |i| {
            let (key, side) = key_at(i);
            (key, Wanted::Beside(side))
        };
        self.search_each(count, key_at, found);
    }

    /// Returns the ranges of the records section that lookups of keys read. Does not read the values.
    pub(super) fn values_of<T>(&self, items: &[T], key_of: impl Fn(&T) -> u64) -> Vec<Range<u64>> {
        self.values_found(items.len(), |i| (key_of(&items[i]), Wanted::Exact))
    }

    /// Returns the ranges of the records section that lookups of floors or ceilings read. Does not read the values.
    pub(super) fn values_beside(&self, keys: &[(u64, Side)]) -> Vec<Range<u64>> {
        self.values_found(keys.len(), |i| (keys[i].0, Wanted::Beside(keys[i].1)))
    }

    fn values_found(&self, count: usize, key_at: impl Fn(usize) -> (u64, Wanted)) -> Vec<Range<u64>> {
        let mut values = Vec::with_capacity(count);
        self.search_each(count, key_at, |_, lane, value| {
            if lane.at == FOUND {
                values.push(value.clone());
            }
            Visited::Continue
        });
        values
    }

    /// Searches rows in four stages: the upper levels of the tree, its lowest level, the group, and the value. Calls
    /// `found` with the position of each key, the state of its lookup, and the range of its value, in order. Returns
    /// the number of keys before the first `Break`.
    #[inline(always)]
    fn search_each(
        &self,
        count: usize,
        key_at: impl Fn(usize) -> (u64, Wanted),
        found: impl FnMut(usize, &Lane, &Range<u64>) -> Visited,
    ) -> usize {
        struct Search<'g, 'a, F, V>(&'g Groups<'a>, usize, F, V);
        impl<F: Fn(usize) -> (u64, Wanted), V: FnMut(usize, &Lane, &Range<u64>) -> Visited> Task for Search<'_, '_, F, V> {
            type Output = usize;

            #[inline(always)]
            fn run(self) -> usize {
                match self.0.is_index_verified {
                    true => self.0.run(AllVerified, self.1, self.2, self.3),
                    false => self.0.verify_and_run(self.1, self.2, self.3),
                }
            }
        }
        run_with_new_instructions(Search(self, count, key_at, found))
    }

    /// Implements [`Groups::search_each`] if blocks of the index are not verified yet.
    #[cold]
    #[inline(never)]
    fn verify_and_run(
        &self,
        count: usize,
        key_at: impl Fn(usize) -> (u64, Wanted),
        found: impl FnMut(usize, &Lane, &Range<u64>) -> Visited,
    ) -> usize {
        self.run(VerifyFirst { store: self.store, epoch: self.epoch }, count, key_at, found)
    }

    #[inline(always)]
    fn run(
        &self,
        gate: impl GroupGate,
        count: usize,
        key_at: impl Fn(usize) -> (u64, Wanted),
        mut found: impl FnMut(usize, &Lane, &Range<u64>) -> Visited,
    ) -> usize {
        let mut window = Window::new();
        let mut values: Values = Default::default();
        for step in 0..count.div_ceil(GROUP_KEYS) + WINDOW_GROUPS - 1 {
            let lanes = window.group(step, count);
            for (i, lane) in (step * GROUP_KEYS..).zip(&mut *lanes) {
                let (head, _) = key_at(i);
                *lane = Lane { head, bound: head.saturating_add(1), at: 0 };
            }
            self.tree.search_upper_levels(lanes, gate);
            lanes.iter().for_each(|lane| prefetch(self.places, (lane.at as usize).wrapping_mul(NODE_HEADS)));
            if let Some(number) = step.checked_sub(1) {
                window.group(number, count).iter_mut().for_each(|lane| self.find_group(lane, gate));
            }
            if let Some(number) = step.checked_sub(2) {
                let values = &mut values[number % WINDOW_GROUPS];
                for ((i, lane), value) in (number * GROUP_KEYS..).zip(window.group(number, count)).zip(values) {
                    self.search_group(lane, value, key_at(i).1, gate);
                }
            }
            let Some(number) = step.checked_sub(WINDOW_GROUPS - 1) else { continue };
            let values = &values[number % WINDOW_GROUPS];
            for ((i, lane), value) in (number * GROUP_KEYS..).zip(window.group(number, count)).zip(values) {
                match found(i, lane, value) {
                    Visited::Continue => {}
                    Visited::BreakBefore => return i,
                    Visited::BreakAfter => return i + 1,
                }
            }
        }
        count
    }

    /// Searches the lowest level of the tree. Sets `at` of a lane to the last group whose head is not above the key, or
    /// to the first group, and prefetches this group.
    #[inline(always)]
    fn find_group<G: GroupGate>(&self, lane: &mut Lane, gate: G) {
        self.tree.search_level(0, lane, gate);
        if lane.head == u64::MAX && lane.at != NOT_ADMITTED {
            // No bound is above the greatest key.
            lane.at = self.places.len().saturating_sub(1) as u64;
        }
        if !G::IS_OPEN && (lane.at == NOT_ADMITTED || !gate.admits_place(lane.at as usize)) {
            return;
        }
        if let Some(place) = self.places.get(lane.at as usize) {
            let offset_bytes = place.get() as usize * GROUP_ALIGN_BYTES;
            prefetch_lines(self.groups, offset_bytes, self.store.typical_group_len_bytes);
        }
    }

    /// Searches the group `at` of a lane, and prefetches the value of the wanted row.
    #[inline(always)]
    fn search_group(&self, lane: &mut Lane, value: &mut Range<u64>, wanted: Wanted, gate: impl GroupGate) {
        let key = lane.head;
        let found = self.row_in_group(lane.at as usize, key, wanted, gate);
        lane.at = match found {
            Ok(None) => NO_ROW,
            Err(Damaged) => DAMAGED,
            Ok(Some(row)) => match row.group.value(row.index) {
                Some(range) => {
                    if wanted != Wanted::Exact {
                        lane.head = row.group.key(row.index);
                        if self.has_ranges {
                            lane.bound = row.group.last_key(row.index);
                        }
                    }
                    *value = range;
                    self.prefetch_value(value);
                    FOUND
                }
                None => DAMAGED,
            },
        };
    }

    /// Returns the key and the last key of the row that a lookup found.
    #[inline(always)]
    fn row_key(&self, lane: &Lane) -> RowKey<'static> {
        RowKey { key: Key::U64(lane.head), end: self.has_ranges.then_some(Key::U64(lane.bound)) }
    }

    /// Returns the wanted row, after the search for the last group whose head is not above the key.
    #[inline(always)]
    fn row_in_group(
        &self,
        number: usize,
        key: u64,
        wanted: Wanted,
        gate: impl GroupGate,
    ) -> Result<Option<RowInGroup<'a>>, Damaged> {
        if self.row_count == 0 {
            return if self.epoch.is_distrust() { Err(Damaged) } else { Ok(None) };
        }
        let group = self.group(number, gate)?;
        let (below, is_found) = group.rows_below(key);
        let index = match wanted {
            Wanted::Exact => is_found.then_some(below),
            Wanted::Beside(Side::After) => (below + usize::from(is_found)).checked_sub(1),
            Wanted::Beside(Side::Before) if below < group.row_count() => Some(below),
            Wanted::Beside(Side::Before) if (number + 1) * GROUP_ROWS >= self.row_count => None,
            // The row is the first one of the next group.
            Wanted::Beside(Side::Before) => {
                let group = self.group(number + 1, gate)?;
                return Ok(Some(RowInGroup { group, index: 0 }));
            }
        };
        Ok(index.map(|index| RowInGroup { group, index }))
    }

    /// Returns a group, if `gate` admits the lookup to it.
    #[inline(always)]
    fn group<G: GroupGate>(&self, number: usize, gate: G) -> Result<Group<'a>, Damaged> {
        if !G::IS_OPEN && (number >= self.places.len() || !gate.admits_place(number)) {
            return Err(Damaged);
        }
        let offset_bytes = self.places.get(number).ok_or(Damaged)?.get() as usize * GROUP_ALIGN_BYTES;
        if !G::IS_OPEN && !gate.admits_groups(offset_bytes..offset_bytes + GROUP_LEN_MIN_BYTES) {
            return Err(Damaged);
        }
        let row_count = self.row_count.saturating_sub(number * GROUP_ROWS).min(GROUP_ROWS);
        let group = Group::at(self.groups, offset_bytes, row_count, self.has_ranges).ok_or(Damaged)?;
        // The length of the group is in its head, which has to be verified before it is used.
        let admits = |len_bytes| gate.admits_groups(offset_bytes..offset_bytes + len_bytes);
        let is_admitted = G::IS_OPEN || admits(group.head_len_bytes()) && admits(group.len_bytes());
        if is_admitted { Ok(group) } else { Err(Damaged) }
    }

    /// Verifies the blocks of a group and of its place, and returns the group. Returns `None` if a block is damaged.
    pub(super) fn verified_group(&self, number: usize) -> Option<Group<'a>> {
        match self.is_index_verified {
            true => self.group(number, AllVerified).ok(),
            false => self.group(number, VerifyFirst { store: self.store, epoch: self.epoch }).ok(),
        }
    }

    /// Returns the number of rows with a key less than `key` ([`Side::Before`]), or less than or equal to `key`
    /// ([`Side::After`]). Returns `None` if a block of the index that must be read is damaged.
    pub(super) fn rows_before(&self, key: u64, side: Side) -> Option<usize> {
        match self.is_index_verified {
            true => self.rows_before_with(key, side, AllVerified).ok(),
            false => self.rows_before_with(key, side, VerifyFirst { store: self.store, epoch: self.epoch }).ok(),
        }
    }

    /// Returns the position of a row, or `None` if a block of the index that must be read is damaged.
    pub(super) fn position(&self, row: usize) -> Option<Position> {
        if row >= self.row_count {
            return Some(Position { row: self.row_count, offset_bytes: self.records.len() as u64 });
        }
        let value = self.verified_group(row / GROUP_ROWS)?.value(row % GROUP_ROWS)?;
        Some(Position { row, offset_bytes: value.start })
    }

    /// Returns the record of a row, and its offset in the records section. Returns `None` if the row is damaged, or if
    /// there is no such row.
    pub(super) fn record(&self, row: usize) -> Option<(Record<'a>, u64)> {
        if row >= self.row_count {
            return None;
        }
        let (group, index) = (self.verified_group(row / GROUP_ROWS)?, row % GROUP_ROWS);
        let value = group.value(index)?;
        Some((Record::of_value(group.row_key(index), self.value(&value)?), value.start))
    }

    /// Returns the offset of a group in its section, from its place, which may be damaged.
    #[cfg(feature = "server")]
    pub(super) fn offset_of(&self, number: usize) -> Option<usize> {
        self.places.get(number).map(|place| place.get() as usize * GROUP_ALIGN_BYTES)
    }

    /// Returns the range of the records section that has the value of a row. Returns `None` if a block of the index that
    /// must be read is damaged.
    #[cfg(feature = "server")]
    pub(super) fn value_range(&self, row: usize) -> Option<Range<u64>> {
        self.verified_group(row / GROUP_ROWS)?.value(row % GROUP_ROWS)
    }

    /// Returns the range of the records section that the lookup of a row reads: of the row with the key, or of the row on
    /// a side of the key. Returns `Ok(None)` if there is no such row.
    ///
    /// # Errors
    /// If `gate` does not admit the lookup to a block of the index.
    #[inline]
    pub(super) fn value_with(
        &self,
        key: u64,
        side: Option<Side>,
        gate: impl GroupGate,
    ) -> Result<Option<Range<u64>>, Damaged> {
        let number = self.group_of(key, gate)?;
        let row = self.row_in_group(number, key, side.map_or(Wanted::Exact, Wanted::Beside), gate)?;
        row.map(|row| row.group.value(row.index).ok_or(Damaged)).transpose()
    }

    /// Returns the number of rows before a position.
    ///
    /// # Errors
    /// If `gate` does not admit the lookup to a block of the index.
    pub(super) fn rows_before_with(&self, key: u64, side: Side, gate: impl GroupGate) -> Result<usize, Damaged> {
        if self.row_count == 0 {
            return Ok(0);
        }
        let number = self.group_of(key, gate)?;
        let (below, is_found) = self.group(number, gate)?.rows_below(key);
        Ok(number * GROUP_ROWS + below + usize::from(is_found && side == Side::After))
    }

    /// Returns the range of the records section that has the values of rows, which the table must have.
    ///
    /// # Errors
    /// If `gate` does not admit the lookup to the group of one of the rows.
    #[cfg(feature = "server")]
    pub(super) fn values_of_rows(&self, rows: Range<usize>, gate: impl GroupGate) -> Result<Range<u64>, Damaged> {
        let Some(last) = rows.end.checked_sub(1).filter(|last| rows.start <= *last) else { return Ok(0..0) };
        let value = |row: usize, group: &Group<'_>| group.value(row % GROUP_ROWS).ok_or(Damaged);
        let start = value(rows.start, &self.group(rows.start / GROUP_ROWS, gate)?)?.start;
        for number in rows.start / GROUP_ROWS..last / GROUP_ROWS {
            self.group(number, gate)?;
        }
        Ok(start..value(last, &self.group(last / GROUP_ROWS, gate)?)?.end)
    }

    /// Returns the last group whose head is not above a key, or the first group.
    #[inline(always)]
    fn group_of(&self, key: u64, gate: impl GroupGate) -> Result<usize, Damaged> {
        let mut lane = Lane { head: key, bound: key.saturating_add(1), at: 0 };
        self.tree.search_upper_levels(std::slice::from_mut(&mut lane), gate);
        self.find_group(&mut lane, gate);
        if lane.at == NOT_ADMITTED { Err(Damaged) } else { Ok(lane.at as usize) }
    }

    /// Returns the bytes of a value, after their blocks are verified. Returns `None` if they are damaged.
    #[inline(always)]
    fn value(&self, value: &Range<u64>) -> Option<&'a [u8]> {
        let (start, end) = (value.start as usize, value.end as usize);
        let bytes = self.records.get(start..end)?;
        let is_verified = self.are_records_verified || self.store.blocks.is_in_verified_block(self.epoch, start, end);
        (is_verified || self.store.are_intact(start..end)).then_some(bytes)
    }

    /// Prefetches the start of a value, and the tag that states whether its block is verified.
    #[inline(always)]
    fn prefetch_value(&self, value: &Range<u64>) {
        let start = value.start as usize;
        if !self.are_records_verified {
            prefetch(self.store.blocks.tags(), start / BLOCK_LEN_BYTES);
        }
        let len_bytes = (value.end.saturating_sub(value.start) as usize).min(super::PREFETCH_MAX_BYTES);
        prefetch_lines(self.records, start, len_bytes.max(1));
    }
}

/// Returns the number of bytes to prefetch per group: the mean length of groups, up to a maximum.
pub(super) fn typical_len_bytes(layout: &Layout) -> usize {
    let group_count = layout.dimensions.head_count().max(1) as u64;
    ((layout.dimensions.groups_len_bytes / group_count) as usize).clamp(1, PREFETCH_MAX_BYTES)
}

/// A row of a group.
struct RowInGroup<'a> {
    group: Group<'a>,
    index: usize,
}

/// A part of the index that a lookup must read is damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Damaged;

/// What a search does after a result.
enum Visited {
    Continue,
    /// The result does not count.
    BreakBefore,
    /// The result counts, but no more results are wanted.
    BreakAfter,
}
