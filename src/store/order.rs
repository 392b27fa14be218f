//! Finds positions in the order of keys.
//!
//! A search finds the last fence before a key, and then compares codes of the key's head in this fence. If several rows
//! have the same code as the key, the search compares the keys of their records.

use std::cmp::Ordering;
use std::ops::Range;

use super::fences::{AllVerified, VerifyFirst};
use super::rows::Position;
use super::{LookupError, Store};
use crate::Lookup;
use crate::format::fence::{FENCE_ROWS, Fence};
use crate::format::key::{Key, KeyKind};

/// One of the two positions next to a key in key order. The variants are in the order of the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The position just before the key. The row after this position is the ceiling of the key.
    Before,
    /// The position just after the key. The row before this position is the floor of the key.
    After,
}

impl Store {
    /// Returns the position of the row with the smallest key greater than or equal to `key` ([`Side::Before`]), or of the
    /// row with the largest key less than or equal to `key` ([`Side::After`]). Returns `None` if there is no such row.
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
        match self.compare_common(key) {
            Ordering::Less => return Some(0),
            Ordering::Greater => return Some(self.len()),
            Ordering::Equal => {}
        }
        let head = key.head(self.common.len());
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
