//! Looks rows up by the order of their keys: the rows at, before, or after a key, and the rows of a range.
//!
//! A search finds the two fences around a key, and then reads the rows between these fences. For byte keys, a fence has
//! only 8 bytes of its row's key: those after the common prefix of all keys. If several fences have equal bytes, the
//! search compares the keys of their records.

use std::cmp::Ordering;
use std::ops::Bound;

use super::directory::{Directory, prefetch_bytes};
#[cfg(feature = "server")]
use super::rows::PageRange;
use super::rows::{Position, Rows};
use super::{LookupError, Store};
use crate::format::KeyBounds;
use crate::format::index::{FENCE_ROWS, Fence};
use crate::format::key::{Key, KeyKind};

/// One of the two positions next to a key in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The position just before the key.
    Before,
    /// The position just after the key.
    After,
}

impl Store {
    /// Returns the row with the largest key less than or equal to `key`.
    ///
    /// # Errors
    /// [`LookupError::KeyKind`] if the key is a number but the table's keys are bytes, or vice versa;
    /// [`LookupError::Damaged`] if a block that must be read is damaged.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// // Each key is the first address of a range, and each value is the range's owner.
    /// # bake::bake_csv("100,first\n200,second\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
    /// let store = zero_kv::Store::open(&path)?;
    /// assert_eq!(store.floor(150)?, Some((100.into(), &b"first"[..])));
    /// assert_eq!(store.ceiling(150)?, Some((200.into(), &b"second"[..])));
    /// assert_eq!(store.floor(99)?, None);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn floor<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        let key = self.check_key_kind(key.into())?;
        self.seek(key, Side::After)?.1.map(|position| self.row_at(position)).transpose()
    }

    /// Returns the row with the smallest key greater than or equal to `key`.
    ///
    /// # Errors
    /// The errors of [`Store::floor`].
    pub fn ceiling<'k>(&self, key: impl Into<Key<'k>>) -> Result<Option<(Key<'_>, &[u8])>, LookupError> {
        let key = self.check_key_kind(key.into())?;
        let (position, _) = self.seek(key, Side::Before)?;
        (position.row < self.len()).then(|| self.row_at(position)).transpose()
    }

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

    fn row_at(&self, position: Position) -> Result<(Key<'_>, &[u8]), LookupError> {
        let record = self.record_at(position.offset_bytes).ok_or(LookupError::Damaged)?;
        Ok((record.key(), record.value()))
    }

    /// Returns a page with only the row that [`Store::floor`] returns, or an empty page if there is no such row.
    #[cfg(feature = "server")]
    pub(crate) fn floor_page(&self, key: Key<'_>) -> Result<PageRange, LookupError> {
        let (end, start) = self.seek(key, Side::After)?;
        Ok(PageRange::between(start.unwrap_or(end), end))
    }

    /// Returns a page with only the row that [`Store::ceiling`] returns, or an empty page if there is no such row.
    #[cfg(feature = "server")]
    pub(crate) fn ceiling_page(&self, key: Key<'_>) -> Result<PageRange, LookupError> {
        let (start, _) = self.seek(key, Side::Before)?;
        let mut rows = Rows::between(self, start, self.end());
        if rows.next_record().is_none() && start.row < self.len() {
            return Err(LookupError::Damaged);
        }
        Ok(PageRange::between(start, rows.ends().0))
    }

    /// Returns the position `p` just before or just after a key (`side`). Also returns the start of the row that ends
    /// at `p`, if there is such a row.
    fn seek(&self, key: Key<'_>, side: Side) -> Result<(Position, Option<Position>), LookupError> {
        if self.epoch().is_distrust() {
            return Err(LookupError::Damaged);
        }
        let (fences, tree) = self.fences_and_tree().ok_or(LookupError::Damaged)?;
        // If all fences are after the key, all rows are, too.
        let Some(number) = self.fences_before(fences, tree, key, side)?.checked_sub(1) else {
            return Ok((Position::START, None));
        };
        let offset_bytes = fences[number].offset_bytes.get();
        let next_offset_bytes = fences.get(number + 1).map_or(self.end().offset_bytes, |next| next.offset_bytes.get());
        // The length of each record determines the offset of the next one, so without this prefetch, the walk would
        // wait for each record.
        prefetch_bytes(self.records(), offset_bytes as usize, next_offset_bytes.saturating_sub(offset_bytes) as usize);
        let start = Position { row: number * FENCE_ROWS, offset_bytes };
        match key {
            Key::U64(_) => self.walk(KeyKind::U64, start, key, side),
            Key::Bytes(_) => self.walk(KeyKind::Bytes, start, key, side),
        }
    }

    /// Reads the rows from a fence up to the position just before or just after a key. Returns what [`Store::seek`]
    /// returns. Fails if the rows do not match the fences, which happens only if the file was changed since it was
    /// opened.
    #[inline(always)]
    fn walk(
        &self,
        kind: KeyKind,
        start: Position,
        key: Key<'_>,
        side: Side,
    ) -> Result<(Position, Option<Position>), LookupError> {
        let align_bytes = self.record_align_bytes();
        let (mut position, mut before) = (start, None);
        while position.row < self.len() {
            let record = self.record_at_with_kind(kind, position.offset_bytes).ok_or(LookupError::Damaged)?;
            if !is_before(record.key(), key, side) {
                break;
            }
            if position.row == start.row + FENCE_ROWS {
                return Err(LookupError::Damaged);
            }
            before = Some(position);
            position.row += 1;
            position.offset_bytes += record.len_bytes(align_bytes) as u64;
        }
        if before.is_none() {
            return Err(LookupError::Damaged);
        }
        Ok((position, before))
    }

    /// Returns the number of fences whose row has a key less than `key` ([`Side::Before`]), or less than or equal to
    /// `key` ([`Side::After`]).
    fn fences_before(
        &self,
        fences: &[Fence],
        tree: &Directory,
        key: Key<'_>,
        side: Side,
    ) -> Result<usize, LookupError> {
        match self.compare_common(key) {
            Ordering::Less => return Ok(0),
            Ordering::Greater => return Ok(fences.len()),
            Ordering::Equal => {}
        }
        let head = key.head(self.common.len());
        let below = || tree.below(fences, head);
        let not_above = || head.checked_add(1).map_or(fences.len(), |bound| tree.below(fences, bound));
        if self.key_kind() == KeyKind::U64 {
            return Ok(match side {
                Side::Before => below(),
                Side::After => not_above(),
            });
        }
        let not_above = not_above();
        // If fences have the same head as the key, the keys of their records determine which fences are before the key.
        match fences[..not_above].last() {
            Some(last) if last.head.get() == head => {}
            _ => return Ok(not_above),
        }
        // `min` has an effect only if the file was changed since it was opened: in an unchanged file, the heads do not
        // decrease.
        let below = below().min(not_above);
        let mut is_damaged = false;
        let before = fences[below..not_above].partition_point(|fence| {
            let record = self.record_at(fence.offset_bytes.get());
            is_damaged |= record.is_none();
            record.is_some_and(|record| is_before(record.key(), key, side))
        });
        if is_damaged { Err(LookupError::Damaged) } else { Ok(below + before) }
    }

    /// Compares a key with the common prefix of the table's keys. Returns `Less` if the key is less than all keys of
    /// the table, `Greater` if the key is greater than all keys of the table, and `Equal` if the key begins with the
    /// prefix or is a number.
    fn compare_common(&self, key: Key<'_>) -> Ordering {
        let Some(key) = key.as_bytes() else { return Ordering::Equal };
        key[..key.len().min(self.common.len())].cmp(&self.common)
    }
}

/// Returns whether a row's key, `row`, is less than `key` ([`Side::Before`]), or less than or equal to `key`
/// ([`Side::After`]).
#[inline(always)]
fn is_before(row: Key<'_>, key: Key<'_>, side: Side) -> bool {
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
