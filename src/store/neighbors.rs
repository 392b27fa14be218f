//! Looks up the rows next to keys in key order, floors and ceilings, and numbers of rows before keys.
//!
//! In: keys, each with a side. Out: the record of the nearest row on this side. Many keys are looked up in stages, as
//! in [`super::search`]: the tree above the fences, the fence, and the record of each key are fetched from memory while
//! other keys are processed.
//!
//! Reasons and evidence: `docs/decisions/fence-tree.md`.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use super::epoch::Epoch;
use super::fences::{AllVerified, GROUP_KEYS, Gate, Lane, VerifyFirst, WINDOW_GROUPS, Window, prefetch_lines};
use super::machine::prefetch;
use super::rows::Position;
use super::{LookupError, Store};
use crate::Lookup;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::fence::{FENCE_ROWS, Fence};
use crate::format::heads::Heads;
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::format::lookup_key::{RecordKey, by_form};
use crate::format::record::Record;

/// The offset of a record that the stages cannot determine. No record has this offset.
const UNDETERMINED: u64 = u64::MAX;

/// A row of a table of ranges that a store lends: the first key of the range, the last key, and the value.
pub(crate) type LentRange<'s> = (Key<'s>, Key<'s>, &'s [u8]);

/// A row's record and its offset in the records section, or `None` if there is no such row.
pub(crate) type Neighbor<'s> = Option<(Record<'s>, u64)>;

impl Store {
    /// Implements [`Lookup::floor`](super::Lookup) and [`Lookup::ceiling`](super::Lookup).
    pub(crate) fn neighbor_row(&self, key: Key<'_>, side: Side) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        let key = self.check_key_kind(key)?;
        Ok(self.neighbor(key, side)?.map(|(record, _)| (record.key(), record.value())))
    }

    /// Implements [`Lookup::cover`](super::Lookup::cover).
    pub(crate) fn range_of(&self, key: Key<'_>) -> Result<Option<LentRange<'_>>, LookupError> {
        self.check_ranges()?;
        let key = self.check_key_kind(key)?;
        Ok(self.neighbor(key, Side::After)?.and_then(|(record, _)| range_row(&record, key)))
    }

    /// Looks up the rows next to many keys, as [`Store::each_value`] looks values up.
    #[inline(always)]
    pub(super) fn neighbor_many<'s, 'k, K>(
        &'s self,
        keys: &[K],
        side: Side,
        mut visit: impl FnMut(usize, Option<(Key<'s>, &'s [u8])>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.check_key_kinds(keys)?;
        self.neighbor_while(keys, side, |i, record| {
            visit(i, record.map(|record| (record.key(), record.value())));
            ControlFlow::Continue(())
        })
    }

    /// Looks up the ranges that contain many keys, as [`Store::each_value`] looks values up.
    #[inline(always)]
    pub(super) fn range_of_many<'s, 'k, K>(
        &'s self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<LentRange<'s>>),
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.check_ranges()?;
        self.check_key_kinds(keys)?;
        self.range_of_while(keys, |i, row| {
            visit(i, row);
            ControlFlow::Continue(())
        })
    }

    /// Looks up the ranges that contain many keys, which must be of the table's kind. The table must have ranges. Calls
    /// `visit` with each key's position in `keys` and the row of its range, until `visit` returns `Break`.
    #[inline(always)]
    pub(super) fn range_of_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<LentRange<'s>>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        self.neighbor_while(keys, Side::After, |i, record| {
            visit(i, record.and_then(|record| range_row(&record, keys[i].into())))
        })
    }

    /// Returns the row of the range that contains a key, after the floor of the key was looked up.
    #[cfg(feature = "server")]
    #[inline]
    pub(crate) fn range_at_floor<'s>(
        &'s self,
        floor: Result<Neighbor<'s>, LookupError>,
        key: Key<'_>,
    ) -> Result<Neighbor<'s>, LookupError> {
        self.check_ranges()?;
        Ok(floor?.filter(|(record, _)| range_row(record, key).is_some()))
    }

    pub(super) fn check_ranges(&self) -> Result<(), LookupError> {
        if self.form.has_ends { Ok(()) } else { Err(LookupError::NoRanges) }
    }

    /// Looks up the floors or ceilings of many keys, which must be of the table's kind. Calls `visit` with each key's
    /// position in `keys` and the record, until `visit` returns `Break`.
    #[inline(always)]
    pub(super) fn neighbor_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        side: Side,
        visit: impl FnMut(usize, Option<Record<'s>>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        match self.may_be_cold() {
            true => self.neighbor_cold_while(keys, side, visit),
            false => self.neighbor_batch_while(keys, side, visit),
        }
    }

    /// Implements [`Store::neighbor_while`] for keys whose memory accesses overlap, and whose disk reads do not.
    #[inline(always)]
    pub(super) fn neighbor_batch_while<'s, 'k, K>(
        &'s self,
        keys: &[K],
        side: Side,
        mut visit: impl FnMut(usize, Option<Record<'s>>) -> ControlFlow<()>,
    ) -> Result<(), LookupError>
    where
        K: Into<Key<'k>> + Copy,
    {
        let key = |i: usize| -> Key<'k> { keys[i].into() };
        let mut outcome = Ok(());
        let found = |i, neighbor: Result<Neighbor<'s>, LookupError>| match neighbor {
            Ok(neighbor) => visit(i, neighbor.map(|(record, _)| record)),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        // `unwrap_or_default` never returns a default here, because all keys are of the table's kind.
        match self.key_kind() {
            KeyKind::U64 => self.neighbor_each(keys.len(), |i| (key(i).as_u64().unwrap_or_default(), side), found),
            KeyKind::Bytes => self.neighbor_each(keys.len(), |i| (key(i).as_bytes().unwrap_or_default(), side), found),
        }
        outcome
    }

    /// Returns the floor ([`Side::After`]) or the ceiling ([`Side::Before`]) of a key, which must be of the table's
    /// kind.
    pub(crate) fn neighbor(&self, key: Key<'_>, side: Side) -> Result<Neighbor<'_>, LookupError> {
        let Some(position) = self.position_of_neighbor(key, side)? else { return Ok(None) };
        let record = self.record_of_row(position).ok_or(LookupError::Damaged)?;
        Ok(Some((record, position.offset_bytes)))
    }

    /// Looks up the floors or ceilings of `count` keys, which must be of the table's kind. Calls `found` with each
    /// key's position and result, in order, until `found` returns `Break`.
    ///
    /// Each group of keys goes through four stages: search the upper levels of the tree, search its lowest level,
    /// search the fence, and call `found`. Each stage prefetches what the next one reads.
    #[inline(always)]
    pub(crate) fn neighbor_each<'s, 'k, K: LookupKey + Into<Key<'k>>>(
        &'s self,
        count: usize,
        key_at: impl Fn(usize) -> (K, Side),
        found: impl FnMut(usize, Result<Neighbor<'s>, LookupError>) -> ControlFlow<()>,
    ) {
        debug_assert_eq!(K::KIND, self.key_kind());
        if self.is_compact() {
            let key_at = |i| {
                let (key, side) = key_at(i);
                (key.number(), side)
            };
            return self.groups().neighbor_each(count, key_at, found);
        }
        by_form!(
            self.form, K,
            plain: self.neighbor_each_of::<K, K>(count, key_at, found),
            fixed: self.neighbor_each_of::<K, K::Fixed>(count, key_at, found),
            ranged(_keys): self.neighbor_each_of::<K, K::Ranged>(count, key_at, found)
        );
    }

    /// Implements [`Store::neighbor_each`] for a table whose records have the form of `R`.
    #[inline(always)]
    fn neighbor_each_of<'s, 'k, K: LookupKey + Into<Key<'k>>, R: RecordKey>(
        &'s self,
        count: usize,
        key_at: impl Fn(usize) -> (K, Side),
        mut found: impl FnMut(usize, Result<Neighbor<'s>, LookupError>) -> ControlFlow<()>,
    ) {
        let epoch = self.epoch();
        let are_fences_verified = self.blocks.are_fences_verified(epoch);
        let mut window = Window::new();
        for step in 0..count.div_ceil(GROUP_KEYS) + WINDOW_GROUPS - 1 {
            // Two copies of the stages, so that the usual one has no checks of blocks.
            match are_fences_verified {
                true => self.advance_neighbors(step, count, &key_at, &mut window),
                false => self.verify_and_advance_neighbors(epoch, step, count, &key_at, &mut window),
            }
            let Some(number) = step.checked_sub(WINDOW_GROUPS - 1) else { continue };
            for (i, lane) in (number * GROUP_KEYS..).zip(window.group(number, count)) {
                if found(i, self.neighbor_at::<K, R>(key_at(i), lane.at)).is_break() {
                    return;
                }
            }
        }
    }

    /// Runs the first three stages, each for one group.
    ///
    /// Not inlined, so that the loop over the results can use all registers.
    #[inline(never)]
    fn advance_neighbors<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> (K, Side),
        window: &mut Window,
    ) {
        self.run_neighbor_stages(AllVerified, step, count, key_at, window);
    }

    /// Like [`Store::advance_neighbors`], but verifies each block of the fences and of their tree before reading it.
    #[cold]
    #[inline(never)]
    fn verify_and_advance_neighbors<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        epoch: Epoch,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> (K, Side),
        window: &mut Window,
    ) {
        self.run_neighbor_stages(VerifyFirst { store: self, epoch }, step, count, key_at, window);
    }

    /// Implements [`Store::advance_neighbors`]. If `gate` does not admit the search to a block, the fourth stage
    /// repeats the lookup, which then fails.
    #[inline(always)]
    fn run_neighbor_stages<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        gate: impl Gate,
        step: usize,
        count: usize,
        key_at: &impl Fn(usize) -> (K, Side),
        window: &mut Window,
    ) {
        let fences = self.fences();
        let lanes = window.group(step, count);
        for (i, lane) in (step * GROUP_KEYS..).zip(&mut *lanes) {
            let (key, side) = key_at(i);
            *lane = self.lane_of_neighbor(key.into(), side);
        }
        fences.search_upper_levels(lanes, gate);
        if let Some(number) = step.checked_sub(1) {
            fences.search_lowest_level(window.group(number, count), gate);
        }
        if let Some(number) = step.checked_sub(2) {
            for (i, lane) in (number * GROUP_KEYS..).zip(window.group(number, count)) {
                lane.at = self.likely_neighbor(fences.fences, lane, key_at(i).1, gate).unwrap_or(UNDETERMINED);
                self.prefetch_record(lane.at as usize);
            }
        }
    }

    /// Returns the first lane of a search for a key's neighbor.
    #[inline(always)]
    pub(super) fn lane_of_neighbor(&self, key: Key<'_>, side: Side) -> Lane {
        let head = self.heads().of(key);
        // No bound is above the greatest head.
        // Heads omit the common prefix, so they decide nothing for a key with another prefix. The fourth stage looks
        // these keys up slowly.
        let is_searched = self.compare_common(key) == Ordering::Equal && head < u64::MAX;
        Lane { head, bound: if is_searched { bound(head, side) } else { 0 }, at: 0 }
    }

    /// Returns the offset of the record that is the neighbor of a key unless several rows have the code of the key's
    /// head. Returns `None` if the fence does not determine the offset, or if `gate` does not admit the search to the
    /// fence.
    #[inline(always)]
    pub(super) fn likely_neighbor<G: Gate>(&self, fences: &[Fence], lane: &Lane, side: Side, gate: G) -> Option<u64> {
        let number = lane.at as usize;
        if !G::IS_OPEN && !gate.admits_fence(number) {
            return None;
        }
        let fence = fences.get(number).filter(|fence| fence.head.get() < lane.bound)?;
        let code = fence.code(lane.head);
        let (fence, i) = match side {
            Side::After => (fence, fence.rows_up_to(code) - 1),
            Side::Before => match fence.rows_below(code) {
                // The row is the first one of the next fence.
                FENCE_ROWS if G::IS_OPEN || gate.admits_fence(number + 1) => (fences.get(number + 1)?, 0),
                FENCE_ROWS => return None,
                i => (fence, i),
            },
        };
        Some(self.offset_bytes_in_fence(fence, fence.distance(i)?))
    }

    #[inline(always)]
    pub(super) fn offset_bytes_in_fence(&self, fence: &Fence, distance: u16) -> u64 {
        (u64::from(fence.place.get()) + u64::from(distance)) << self.record_align_bytes().trailing_zeros()
    }

    /// Returns the neighbor of a key. If the record at `offset_bytes` is on the right side of the key, it is the
    /// neighbor, because every row between this row and the key would have the same code as the key, and the stages
    /// selected the last of these rows ([`Side::After`]) or the first ([`Side::Before`]).
    #[inline(always)]
    fn neighbor_at<'k, K: LookupKey + Into<Key<'k>>, R: RecordKey>(
        &self,
        (key, side): (K, Side),
        offset_bytes: u64,
    ) -> Result<Neighbor<'_>, LookupError> {
        let record = self.record_at_with_form(R::form(self.form), offset_bytes);
        match record {
            Some(record) if is_before(record.key(), key.into(), side) == (side == Side::After) => {
                Ok(Some((record, offset_bytes)))
            }
            _ => self.neighbor_slowly(key.into(), side),
        }
    }

    #[cold]
    #[inline(never)]
    fn neighbor_slowly(&self, key: Key<'_>, side: Side) -> Result<Neighbor<'_>, LookupError> {
        self.neighbor(key, side)
    }

    /// Prefetches the start of a record, up to the table's mean record length, and the tag that states whether the
    /// record's block is verified.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, offset_bytes: usize) {
        prefetch(self.blocks.tags(), offset_bytes / BLOCK_LEN_BYTES);
        prefetch_lines(self.records(), offset_bytes, self.typical_len_bytes);
    }
}

/// Returns the row of a record if it is the record of a range that contains a key. The range must not begin after the
/// key.
#[inline(always)]
fn range_row<'s>(record: &Record<'s>, key: Key<'_>) -> Option<LentRange<'s>> {
    let end = record.end().filter(|end| key <= *end)?;
    Some((record.key(), end, record.value()))
}

/// Returns the bound for a search of the tree: heads of fences before the position are below it. `head` is less than
/// `u64::MAX`.
#[inline(always)]
fn bound(head: u64, side: Side) -> u64 {
    head.wrapping_add(u64::from(side == Side::After))
}

/// One of the two positions next to a key in key order. The variants are in the order of the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The position just before the key. The row after this position is the ceiling of the key.
    Before,
    /// The position just after the key. The row before this position is the floor of the key.
    After,
}

impl Store {
    /// Returns the position of the row with the smallest key greater than or equal to `key` ([`Side::Before`]), or of
    /// the row with the largest key less than or equal to `key` ([`Side::After`]). Returns `None` if there is no such
    /// row.
    pub(super) fn position_of_neighbor(&self, key: Key<'_>, side: Side) -> Result<Option<Position>, LookupError> {
        if self.epoch().is_distrust() {
            return Err(LookupError::Damaged);
        }
        let rows_before = self.rows_before(key, side).ok_or(LookupError::Damaged)?;
        let row = match side {
            Side::Before => Some(rows_before).filter(|row| *row < self.len()),
            Side::After => rows_before.checked_sub(1),
        };
        row.map(|row| self.position(row).ok_or(LookupError::Damaged)).transpose()
    }

    /// Returns the number of rows with a key less than `key` ([`Side::Before`]), or less than or equal to `key`
    /// ([`Side::After`]). Returns `None` if a fence or a record that must be read is damaged.
    pub(super) fn rows_before(&self, key: Key<'_>, side: Side) -> Option<usize> {
        if self.is_compact() {
            return self.groups().rows_before(key.as_u64()?, side);
        }
        match self.compare_common(key) {
            Ordering::Less => return Some(0),
            Ordering::Greater => return Some(self.len()),
            Ordering::Equal => {}
        }
        let head = self.heads().of(key);
        let Some((number, fence)) = self.fence_before(key, head, side)? else { return Some(0) };
        let code = fence.code(head);
        let (below, up_to) = (fence.rows_below(code), fence.rows_up_to(code));
        let first_row = number * FENCE_ROWS;
        let count = match side {
            _ if self.key_kind() == KeyKind::Bytes || !fence.is_exact(head) => {
                self.first_not_before(first_row + below..first_row + up_to, 1, key, side)? - first_row
            }
            Side::Before => below,
            Side::After => up_to,
        };
        Some((first_row + count).min(self.len()))
    }

    /// Returns the last fence whose first row is before the position that `key` and `side` select, and the fence's
    /// number. Returns `Some(None)` if every row is after this position, and `None` if a block that must be read is
    /// damaged.
    #[expect(clippy::option_option, reason = "a damaged block, or no fence")]
    fn fence_before(&self, key: Key<'_>, head: u64, side: Side) -> Option<Option<(usize, &Fence)>> {
        let (fences, epoch) = (self.fences(), self.epoch());
        let Some(last) = fences.fences.len().checked_sub(1) else { return Some(None) };
        let last_below = |bound| {
            let number = match self.blocks.are_fences_verified(epoch) {
                true => fences.last_below(bound, AllVerified)?,
                false => fences.last_below(bound, VerifyFirst { store: self, epoch })?,
            };
            Some((self.fence(number)?.head.get() < bound).then_some(number))
        };
        let not_above = || head.checked_add(1).map_or(Some(Some(last)), last_below);
        let number = match (self.key_kind(), side) {
            (KeyKind::U64, Side::Before) => last_below(head)?,
            (KeyKind::U64, Side::After) => not_above()?,
            (KeyKind::Bytes, _) => match not_above()? {
                // If fences have the same head as the key, the keys of their records determine which fences are before
                // the key.
                Some(last) if self.fence(last)?.head.get() == head => {
                    let first = last_below(head)?.map_or(0, |below| below + 1);
                    let end_row =
                        self.first_not_before(first * FENCE_ROWS..(last + 1) * FENCE_ROWS, FENCE_ROWS, key, side)?;
                    (end_row / FENCE_ROWS).checked_sub(1)
                }
                number => number,
            },
        };
        match number {
            Some(number) => Some(Some((number, self.fence(number)?))),
            None => Some(None),
        }
    }

    /// Returns the first of every `step`-th row of a range that is not before the position that `key` and `side`
    /// select, or the end of the range if all of these rows are before this position. Returns `None` if one of the rows
    /// is damaged.
    pub(super) fn first_not_before(&self, rows: Range<usize>, step: usize, key: Key<'_>, side: Side) -> Option<usize> {
        let (mut start, mut end) = (0, rows.len() / step);
        while start < end {
            let middle = start.midpoint(end);
            let record = self.record_at(self.position(rows.start + middle * step)?.offset_bytes)?;
            match is_before(record.key(), key, side) {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        Some(rows.start + start * step)
    }

    /// Returns how the heads of the table's keys are computed.
    #[inline(always)]
    pub(super) fn heads(&self) -> Heads {
        Heads::new(self.layout.dimensions.key_type, self.common.len())
    }

    /// Compares a key with the common prefix of the table's keys. Returns `Less` if the key is less than all keys of
    /// the table, `Greater` if the key is greater than all keys of the table, and `Equal` if the key begins with the
    /// prefix or is a number.
    pub(super) fn compare_common(&self, key: Key<'_>) -> Ordering {
        let Some(key) = key.as_bytes() else { return Ordering::Equal };
        key[..key.len().min(self.common.len())].cmp(&self.common)
    }
}

/// Returns whether a row's key, `row`, is less than `key` ([`Side::Before`]), or less than or equal to `key`
/// ([`Side::After`]).
#[inline(always)]
pub(super) fn is_before(row: Key<'_>, key: Key<'_>, side: Side) -> bool {
    match side {
        Side::Before => row < key,
        Side::After => row <= key,
    }
}
