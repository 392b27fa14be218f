//! Looks up both ends of ranges of keys.
//!
//! In: ranges. Out: the numbers of their rows. Many ranges are looked up in stages, as in [`super::neighbors`]: the
//! tree above the fences, the fence, and the record at each end are fetched from memory while other ends are processed.
//! Most ends need no record: the codes of a fence determine the row, unless several keys can have the code of the
//! range's key.
//!
//! Reasons and evidence: `docs/decisions/ranges.md`.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow, Range};

use super::epoch::Epoch;
use super::fences::{AllVerified, GROUP_KEYS, Gate, Lane, NOT_ADMITTED, VerifyFirst, WINDOW_GROUPS, Window};
use super::neighbors::Side;
use super::rows::Rows;
use super::{LookupError, Store};
use crate::Lookup;
use crate::format::KeyBounds;
use crate::format::fence::{FENCE_ROWS, Fence};
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;

/// The row number of an end that the stages cannot determine. No table has that many rows.
pub(super) const UNDETERMINED: u64 = u64::MAX;

/// A position in key order at which a range begins or ends. The variants are in the order of the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeEnd<K> {
    BeforeAll,
    Beside(K, Side),
    AfterAll,
}

impl<K> RangeEnd<K> {
    /// Returns the position at which a range with this lower bound begins.
    pub(crate) fn start(bound: Bound<K>) -> RangeEnd<K> {
        match bound {
            Bound::Unbounded => RangeEnd::BeforeAll,
            Bound::Included(key) => RangeEnd::Beside(key, Side::Before),
            Bound::Excluded(key) => RangeEnd::Beside(key, Side::After),
        }
    }

    /// Returns the position at which a range with this upper bound ends.
    pub(crate) fn end(bound: Bound<K>) -> RangeEnd<K> {
        match bound {
            Bound::Unbounded => RangeEnd::AfterAll,
            Bound::Included(key) => RangeEnd::Beside(key, Side::After),
            Bound::Excluded(key) => RangeEnd::Beside(key, Side::Before),
        }
    }

    pub(super) fn map<L>(self, convert: impl FnOnce(K) -> L) -> RangeEnd<L> {
        match self {
            RangeEnd::BeforeAll => RangeEnd::BeforeAll,
            RangeEnd::Beside(key, side) => RangeEnd::Beside(convert(key), side),
            RangeEnd::AfterAll => RangeEnd::AfterAll,
        }
    }
}

/// The rows that a lookup of a range prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetched {
    Nothing,
    /// The first row of the range.
    First,
    /// The last row of the range.
    Last,
}

/// A range of keys to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeLookup<K> {
    pub(crate) start: RangeEnd<K>,
    pub(crate) end: RangeEnd<K>,
    pub(crate) prefetched: Prefetched,
}

impl<K: Copy> RangeLookup<K> {
    /// A range that needs no lookup.
    #[cfg(feature = "server")]
    pub(crate) const NOTHING: RangeLookup<K> =
        RangeLookup { start: RangeEnd::BeforeAll, end: RangeEnd::BeforeAll, prefetched: Prefetched::Nothing };

    /// Returns an end of the range, and whether the row beside it is prefetched. Ends are numbered from 0 for the start
    /// of the first of several ranges; `number` is the number of this end.
    #[inline(always)]
    fn end_with_number(&self, number: usize) -> (RangeEnd<K>, bool) {
        match number % 2 {
            0 => (self.start, self.prefetched == Prefetched::First),
            _ => (self.end, self.prefetched == Prefetched::Last),
        }
    }

    #[inline(always)]
    fn has_key(&self) -> bool {
        [self.start, self.end].iter().any(|end| matches!(end, RangeEnd::Beside(..)))
    }
}

impl Store {
    /// Implements [`Lookup::range`](super::Lookup::range).
    pub(crate) fn rows_in<'k>(&self, range: &impl KeyBounds<'k>) -> Result<Rows<'_>, LookupError> {
        let (start, end) = self.check_bounds(range)?;
        self.between(RangeEnd::start(start), RangeEnd::end(end))
    }

    /// Implements [`Lookup::count`](super::Lookup::count).
    pub(crate) fn count_in<'k>(&self, range: &impl KeyBounds<'k>) -> Result<usize, LookupError> {
        let (start, end) = self.check_bounds(range)?;
        self.row_numbers_between(RangeEnd::start(start), RangeEnd::end(end)).map(|rows| rows.len())
    }

    /// Implements [`Lookup::prefix`](super::Lookup::prefix).
    pub(crate) fn rows_with_prefix(&self, prefix: &[u8]) -> Result<Rows<'_>, LookupError> {
        let start = self.check_key_kind(Key::Bytes(prefix))?;
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(RangeEnd::AfterAll, |end| RangeEnd::Beside(Key::Bytes(end), Side::Before));
        self.between(RangeEnd::Beside(start, Side::Before), end)
    }

    /// Calls `visit` with the rows of each of many ranges, in order. If any key is not of the table's kind, `visit` is
    /// never called.
    pub(crate) fn each_range<'s, 'k, R: KeyBounds<'k>>(
        &'s self,
        ranges: &[R],
        mut visit: impl FnMut(Rows<'s>),
    ) -> Result<(), LookupError> {
        self.row_numbers_of_many(ranges, Prefetched::First, |_, rows| {
            visit(self.rows_with_numbers(rows)?);
            Ok(())
        })
    }

    /// Calls `visit` with the number of keys in each of many ranges, in order.
    pub(super) fn each_count<'k, R: KeyBounds<'k>>(
        &self,
        ranges: &[R],
        mut visit: impl FnMut(usize),
    ) -> Result<(), LookupError> {
        self.row_numbers_of_many(ranges, Prefetched::Nothing, |_, rows| {
            visit(rows.len());
            Ok(())
        })
    }

    /// Calls `visit` with the position of each range in `ranges` and the numbers of its rows, until `visit` returns an
    /// error.
    fn row_numbers_of_many<'k, R: KeyBounds<'k>>(
        &self,
        ranges: &[R],
        prefetched: Prefetched,
        mut visit: impl FnMut(usize, Range<usize>) -> Result<(), LookupError>,
    ) -> Result<(), LookupError> {
        for range in ranges {
            self.check_bounds(range)?;
        }
        let mut outcome = Ok(());
        let lookup = |i: usize| {
            let (start, end) = ranges[i].bounds();
            RangeLookup { start: RangeEnd::start(start), end: RangeEnd::end(end), prefetched }
        };
        self.row_numbers_each(ranges.len(), lookup, |i, rows| {
            outcome = rows.and_then(|rows| visit(i, rows));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome
    }

    /// Returns the bounds of a range, after a check of their kind.
    fn check_bounds<'k>(&self, range: &impl KeyBounds<'k>) -> Result<(Bound<Key<'k>>, Bound<Key<'k>>), LookupError> {
        let (start, end) = range.bounds();
        for bound in [start, end] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                self.check_key_kind(key)?;
            }
        }
        Ok((start, end))
    }

    /// Returns the rows between two positions. The keys must be of the table's kind.
    fn between(&self, start: RangeEnd<Key<'_>>, end: RangeEnd<Key<'_>>) -> Result<Rows<'_>, LookupError> {
        self.rows_with_numbers(self.row_numbers_between(start, end)?)
    }

    /// Returns the numbers of the rows between two positions. The keys must be of the table's kind.
    pub(crate) fn row_numbers_between(
        &self,
        start: RangeEnd<Key<'_>>,
        end: RangeEnd<Key<'_>>,
    ) -> Result<Range<usize>, LookupError> {
        let mut found = Err(LookupError::Damaged);
        let lookup = RangeLookup { start, end, prefetched: Prefetched::Nothing };
        self.row_numbers_each(
            1,
            |_| lookup,
            |_, rows| {
                found = rows;
                ControlFlow::Continue(())
            },
        );
        found
    }

    /// Looks up `count` ranges of keys, which must be of the table's kind. Calls `found` with each range's position and
    /// the numbers of its rows, in order, until `found` returns `Break`. A range that ends before it begins has no
    /// rows.
    pub(crate) fn row_numbers_each<'k>(
        &self,
        count: usize,
        lookup: impl Fn(usize) -> RangeLookup<Key<'k>>,
        found: impl FnMut(usize, Result<Range<usize>, LookupError>) -> ControlFlow<()>,
    ) {
        // `unwrap_or_default` never returns a default here, because all keys are of the table's kind.
        match self.key_kind() {
            KeyKind::U64 => self.range_each(count, |i| lookup(i).map(|key| key.as_u64().unwrap_or_default()), found),
            KeyKind::Bytes => {
                self.range_each(count, |i| lookup(i).map(|key| key.as_bytes().unwrap_or_default()), found);
            }
        }
    }

    /// Returns the rows with these numbers, which must not exceed the number of rows.
    pub(crate) fn rows_with_numbers(&self, rows: Range<usize>) -> Result<Rows<'_>, LookupError> {
        let position = |row| self.position(row).ok_or(LookupError::Damaged);
        Ok(Rows::between(self, position(rows.start)?, position(rows.end)?))
    }

    /// Implements [`Store::row_numbers_each`].
    ///
    /// Each group of ends goes through four stages: search the upper levels of the tree, search its lowest level,
    /// search the fence, and compare the keys of records if necessary. Each stage prefetches what the next one reads.
    #[inline(always)]
    fn range_each<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        count: usize,
        lookup: impl Fn(usize) -> RangeLookup<K>,
        mut found: impl FnMut(usize, Result<Range<usize>, LookupError>) -> ControlFlow<()>,
    ) {
        const GROUP_RANGES: usize = GROUP_KEYS / 2;
        debug_assert_eq!(K::KIND, self.key_kind());
        let epoch = self.epoch();
        if self.is_compact() {
            for i in 0..count {
                if found(i, self.row_numbers_in_groups(epoch, &lookup(i))).is_break() {
                    return;
                }
            }
            return;
        }
        let are_fences_verified = self.blocks.are_fences_verified(epoch);
        let mut window = Window::new();
        for step in 0..count.div_ceil(GROUP_RANGES) + WINDOW_GROUPS - 1 {
            match are_fences_verified {
                true => self.advance_ends(step, 2 * count, &lookup, &mut window),
                false => self.verify_and_advance_ends(epoch, step, 2 * count, &lookup, &mut window),
            }
            let Some(number) = step.checked_sub(WINDOW_GROUPS - 1) else { continue };
            for (i, ends) in (number * GROUP_RANGES..).zip(window.group(number, 2 * count).chunks_exact(2)) {
                let lookup = lookup(i);
                let rows = || {
                    let (start, end) = (self.end_row(lookup.start, &ends[0])?, self.end_row(lookup.end, &ends[1])?);
                    Ok(start.min(end)..end)
                };
                // A range without keys needs neither the fences nor the common prefix of the keys.
                let is_trusted = !epoch.is_distrust() || !lookup.has_key();
                let rows = if is_trusted { rows() } else { Err(LookupError::Damaged) };
                if found(i, rows).is_break() {
                    return;
                }
            }
        }
    }

    /// Returns the numbers of the rows of a range in a table with the compact layout.
    fn row_numbers_in_groups<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        epoch: Epoch,
        lookup: &RangeLookup<K>,
    ) -> Result<Range<usize>, LookupError> {
        if epoch.is_distrust() && lookup.has_key() {
            return Err(LookupError::Damaged);
        }
        let row = |end: RangeEnd<K>| match end {
            RangeEnd::BeforeAll => Ok(0),
            RangeEnd::Beside(key, side) => self.rows_before(key.into(), side).ok_or(LookupError::Damaged),
            RangeEnd::AfterAll => Ok(self.len()),
        };
        let (start, end) = (row(lookup.start)?, row(lookup.end)?);
        Ok(start.min(end)..end)
    }

    /// Runs the first three stages, each for one group of ends.
    ///
    /// Not inlined, so that the loop over the results can use all registers.
    #[inline(never)]
    fn advance_ends<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        step: usize,
        end_count: usize,
        lookup: &impl Fn(usize) -> RangeLookup<K>,
        window: &mut Window,
    ) {
        self.run_end_stages(AllVerified, step, end_count, lookup, window);
    }

    /// Like [`Store::advance_ends`], but verifies each block of the fences and of their tree before reading it.
    #[cold]
    #[inline(never)]
    fn verify_and_advance_ends<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        epoch: Epoch,
        step: usize,
        end_count: usize,
        lookup: &impl Fn(usize) -> RangeLookup<K>,
        window: &mut Window,
    ) {
        self.run_end_stages(VerifyFirst { store: self, epoch }, step, end_count, lookup, window);
    }

    /// Implements [`Store::advance_ends`]. If `gate` does not admit the search to a block, the fourth stage repeats the
    /// lookup, which then fails.
    #[inline(always)]
    fn run_end_stages<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        gate: impl Gate,
        step: usize,
        end_count: usize,
        lookup: &impl Fn(usize) -> RangeLookup<K>,
        window: &mut Window,
    ) {
        let fences = self.fences();
        let lanes = window.group(step, end_count);
        for (i, lane) in (step * GROUP_KEYS..).zip(&mut *lanes) {
            *lane = self.lane_of_end(lookup(i / 2).end_with_number(i).0);
        }
        fences.search_upper_levels(lanes, gate);
        if let Some(number) = step.checked_sub(1) {
            fences.search_lowest_level(window.group(number, end_count), gate);
        }
        if let Some(number) = step.checked_sub(2) {
            for (i, lane) in (number * GROUP_KEYS..).zip(window.group(number, end_count)) {
                let (end, is_prefetched) = lookup(i / 2).end_with_number(i);
                let is_end = !i.is_multiple_of(2);
                self.search_fence(fences.fences, end, lane, gate);
                // A record is read if its key must be compared, or if the caller reads the row beside the end.
                if lane.tied_rows() > 0 || is_prefetched && lane.at != UNDETERMINED {
                    let row = if lane.tied_rows() > 0 { lane.at } else { lane.at.saturating_sub(u64::from(is_end)) };
                    self.prefetch_row(fences.fences, row as usize);
                }
            }
        }
    }

    /// Returns the lane with which the search for an end begins. If there is nothing to search for, the lane's head is
    /// the row number.
    #[inline(always)]
    pub(super) fn lane_of_end<'k, K: LookupKey + Into<Key<'k>>>(&self, end: RangeEnd<K>) -> Lane {
        let known = |row| Lane { head: row, bound: 0, at: 0 };
        let key: Key<'k> = match end {
            RangeEnd::BeforeAll => return known(0),
            RangeEnd::AfterAll => return known(self.len() as u64),
            RangeEnd::Beside(key, _) => key.into(),
        };
        let head = self.heads().of(key);
        match self.compare_common(key) {
            Ordering::Less => known(0),
            Ordering::Greater => known(self.len() as u64),
            // No bound is above the greatest head.
            Ordering::Equal if head == u64::MAX => known(UNDETERMINED),
            Ordering::Equal => Lane { head, bound: head + 1, at: 0 },
        }
    }

    /// Searches the fence of a lane. Sets `at` to the number of rows before the end, or to [`UNDETERMINED`], for
    /// example if `gate` does not admit the search to a block. If the keys of records must be compared, sets `at` to
    /// the first of these rows, and `bound` to their number.
    #[inline(always)]
    pub(super) fn search_fence<K: LookupKey, G: Gate>(
        &self,
        fences: &[Fence],
        end: RangeEnd<K>,
        lane: &mut Lane,
        gate: G,
    ) {
        let (head, number) = (lane.head, lane.at as usize);
        if lane.bound == 0 {
            lane.at = head;
            return;
        }
        lane.bound = 0;
        if !G::IS_OPEN && (lane.at == NOT_ADMITTED || !gate.admits_fence(number)) {
            lane.at = UNDETERMINED;
            return;
        }
        let Some(fence) = fences.get(number).filter(|fence| fence.head.get() <= head) else {
            // The heads of all fences are above the key.
            lane.at = 0;
            return;
        };
        if K::KIND == KeyKind::Bytes && fence.head.get() == head {
            // Earlier fences can have the same head.
            lane.at = UNDETERMINED;
            return;
        }
        let code = fence.code(head);
        let (below, up_to) = (fence.rows_below(code), fence.rows_up_to(code));
        let is_exact = K::KIND == KeyKind::U64 && fence.is_exact(head);
        let is_after = matches!(end, RangeEnd::Beside(_, Side::After));
        lane.at = (number * FENCE_ROWS + if is_exact && is_after { up_to } else { below }) as u64;
        lane.bound = if is_exact { 0 } else { (up_to - below) as u64 };
    }

    /// Prefetches the record of a row, if the row's fence is in `fences` and has its distance.
    #[inline(always)]
    fn prefetch_row(&self, fences: &[Fence], row: usize) {
        if let Some(fence) = fences.get(row / FENCE_ROWS)
            && let Some(distance) = fence.distance(row % FENCE_ROWS)
        {
            self.prefetch_record(self.offset_bytes_in_fence(fence, distance) as usize);
        }
    }

    /// Returns the number of rows before an end, after the third stage.
    #[inline(always)]
    pub(super) fn end_row<'k, K: LookupKey + Into<Key<'k>>>(
        &self,
        end: RangeEnd<K>,
        lane: &Lane,
    ) -> Result<usize, LookupError> {
        let row = match end {
            RangeEnd::Beside(key, side) if lane.at == UNDETERMINED => self.rows_before(key.into(), side),
            RangeEnd::Beside(key, side) if lane.tied_rows() > 0 => {
                let first = lane.at as usize;
                self.first_not_before(first..first + lane.tied_rows(), 1, key.into(), side)
            }
            _ => Some(lane.at as usize),
        };
        row.map(|row| row.min(self.len())).ok_or(LookupError::Damaged)
    }
}

impl Lane {
    /// Returns the number of rows whose keys must be compared, after the third stage.
    #[inline(always)]
    pub(super) fn tied_rows(&self) -> usize {
        self.bound as usize
    }
}

impl<K> RangeLookup<K> {
    pub(super) fn map<L>(self, convert: impl Fn(K) -> L) -> RangeLookup<L> {
        RangeLookup { start: self.start.map(&convert), end: self.end.map(&convert), prefetched: self.prefetched }
    }
}

/// Returns the smallest byte string that is greater than all byte strings that begin with `prefix`. Returns `None` if
/// every byte of the prefix is 255, because then no byte string is greater than all of them.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}
