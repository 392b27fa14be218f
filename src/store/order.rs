//! Finds positions in the order of keys, and the rows between two positions.
//!
//! A search finds the last fence before a key, and then compares codes of the key's head in this fence. If several rows
//! have the same code as the key, the search compares the keys of their records.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use super::rows::{Position, Rows};
use super::{LookupError, Store};
use crate::format::KeyBounds;
use crate::format::fence::{FENCE_ROWS, Fence};
use crate::format::key::{Key, KeyKind};

/// One of the two positions next to a key in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The position just before the key. The row after this position is the ceiling of the key.
    Before,
    /// The position just after the key. The row before this position is the floor of the key.
    After,
}

impl Store {
    /// Returns the row with the smallest key.
    ///
    /// # Errors
    /// [`LookupError::Damaged`] if a block that must be read is damaged.
    pub fn first(&self) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.row(0)
    }

    /// Returns the row with the largest key.
    ///
    /// # Errors
    /// [`LookupError::Damaged`] if a block that must be read is damaged.
    pub fn last(&self) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        self.len().checked_sub(1).map_or(Ok(None), |last| self.row(last))
    }

    /// Returns a double-ended iterator over the rows whose keys are in a range, in key order.
    /// [`ExactSizeIterator::len`] returns the number of rows without reading them. A range that ends before it begins
    /// has no rows.
    ///
    /// # Errors
    /// The errors of [`Store::floor`], for the key at either end of the range.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Keys, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// # let mut options = Options::default();
    /// # options.keys = Keys::Bytes;
    /// # bake::bake_csv("ant,1\nbee,2\ncat,3\n".as_bytes(), &path, &options, &mut |_| ())?;
    /// use zero_kv::Key;
    ///
    /// let store = zero_kv::Store::open(&path)?;
    /// let keys: Vec<Key> = store.range("ant".."cat")?.map(|(key, _)| key).collect();
    /// assert_eq!(keys, ["ant", "bee"]);
    /// assert_eq!(store.range("b"..)?.rev().next(), Some(("cat".into(), &b"3"[..])));
    /// assert_eq!(store.count("b"..="cat")?, 2);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'k>(&self, range: impl KeyBounds<'k>) -> Result<Rows<'_>, LookupError> {
        let check_bound = |bound| match bound {
            Bound::Unbounded => Ok(Bound::Unbounded),
            Bound::Included(key) => self.check_key_kind(key).map(Bound::Included),
            Bound::Excluded(key) => self.check_key_kind(key).map(Bound::Excluded),
        };
        let (start, end) = range.bounds();
        self.between(check_bound(start)?, check_bound(end)?)
    }

    /// Returns the number of keys in a range. Reads only the keys near the ends of the range.
    ///
    /// # Errors
    /// The errors of [`Store::range`].
    pub fn count<'k>(&self, range: impl KeyBounds<'k>) -> Result<usize, LookupError> {
        self.range(range).map(|rows| rows.len())
    }

    /// Returns a double-ended iterator over the rows whose keys begin with `prefix`, in key order.
    ///
    /// # Errors
    /// [`LookupError::KeyKind`] if the table's keys are numbers, and otherwise the errors of [`Store::floor`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Rows<'_>, LookupError> {
        let prefix = prefix.as_ref();
        let start = self.check_key_kind(Key::Bytes(prefix))?;
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, |end| Bound::Excluded(Key::Bytes(end)));
        self.between(Bound::Included(start), end)
    }

    /// Returns the rows between two bounds. The keys in the bounds must be of the table's kind.
    pub(crate) fn between(&self, start: Bound<Key<'_>>, end: Bound<Key<'_>>) -> Result<Rows<'_>, LookupError> {
        let start = match start {
            Bound::Unbounded => Position::START,
            Bound::Included(key) => self.seek(key, Side::Before)?.0,
            Bound::Excluded(key) => self.seek(key, Side::After)?.0,
        };
        let end = match end {
            Bound::Unbounded => self.end(),
            Bound::Included(key) => self.seek(key, Side::After)?.0,
            Bound::Excluded(key) => self.seek(key, Side::Before)?.0,
        };
        Ok(Rows::between(self, start, end))
    }

    /// Returns the position just before or just after a key, as `side` selects. Also returns the position of the row
    /// that precedes this position, if there is one.
    pub(super) fn seek(&self, key: Key<'_>, side: Side) -> Result<(Position, Option<Position>), LookupError> {
        if self.epoch().is_distrust() {
            return Err(LookupError::Damaged);
        }
        let row = self.rows_before(key, side).ok_or(LookupError::Damaged)?;
        let position = |row| self.position(row).ok_or(LookupError::Damaged);
        Ok((position(row)?, row.checked_sub(1).map(position).transpose()?))
    }

    /// Returns the number of rows with a key less than `key` ([`Side::Before`]), or less than or equal to `key`
    /// ([`Side::After`]). Returns `None` if a fence or a record that must be read is damaged.
    fn rows_before(&self, key: Key<'_>, side: Side) -> Option<usize> {
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
    /// number. Returns `Some(None)` if every row is after this position, and `None` if a record that must be read is
    /// damaged.
    #[expect(clippy::option_option, reason = "a damaged record, or no fence")]
    fn fence_before(&self, key: Key<'_>, head: u64, side: Side) -> Option<Option<(usize, &Fence)>> {
        let fences = self.intact_fences()?;
        let entries = fences.fences;
        let last_below = |bound| {
            let number = fences.last_below(bound);
            entries.get(number).filter(|fence| fence.head.get() < bound).map(|_| number)
        };
        let not_above = || head.checked_add(1).map_or(entries.len().checked_sub(1), last_below);
        let number = match (self.key_kind(), side) {
            (KeyKind::U64, Side::Before) => last_below(head),
            (KeyKind::U64, Side::After) => not_above(),
            (KeyKind::Bytes, _) => match not_above() {
                // If fences have the same head as the key, the keys of their records determine which fences are before
                // the key.
                Some(last) if entries[last].head.get() == head => {
                    let first = last_below(head).map_or(0, |below| below + 1);
                    let end_row =
                        self.first_not_before(first * FENCE_ROWS..(last + 1) * FENCE_ROWS, FENCE_ROWS, key, side)?;
                    (end_row / FENCE_ROWS).checked_sub(1)
                }
                number => number,
            },
        };
        Some(number.and_then(|number| Some((number, entries.get(number)?))))
    }

    /// Returns the first of every `step`-th row of a range that is not before the position that `key` and `side`
    /// select, or the end of the range if all of these rows are before this position. Returns `None` if one of the rows
    /// is damaged.
    fn first_not_before(&self, rows: Range<usize>, step: usize, key: Key<'_>, side: Side) -> Option<usize> {
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

/// Returns the smallest byte string that is greater than all byte strings that begin with `prefix`. Returns `None` if
/// every byte of the prefix is 255, because then no byte string is greater than all of them.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}
