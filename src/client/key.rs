//! Ranges of keys.

use std::ops::Bound;

use crate::format::key::{Key, KeyKind};

pub use crate::format::OwnedKey;

/// A range of keys that owns its ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    pub(super) start: Bound<OwnedKey>,
    pub(super) end: Bound<OwnedKey>,
}

impl KeyRange {
    /// Creates a range from its ends.
    pub fn new(start: Bound<OwnedKey>, end: Bound<OwnedKey>) -> Self {
        KeyRange { start, end }
    }

    /// Returns the two ends, borrowed. Methods that take a range accept this pair.
    pub fn bounds(&self) -> (Bound<Key<'_>>, Bound<Key<'_>>) {
        (self.start.as_ref().map(OwnedKey::as_key), self.end.as_ref().map(OwnedKey::as_key))
    }
}

impl From<Bounds<'_>> for KeyRange {
    fn from(bounds: Bounds<'_>) -> Self {
        KeyRange { start: bounds.start.map(OwnedKey::from), end: bounds.end.map(OwnedKey::from) }
    }
}

/// A range of keys that borrows its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'k> {
    pub(super) start: Bound<Key<'k>>,
    pub(super) end: Bound<Key<'k>>,
}

impl Bounds<'_> {
    pub(super) const ALL: Bounds<'static> = Bounds { start: Bound::Unbounded, end: Bound::Unbounded };

    /// Returns the kinds of the keys at the ends.
    pub(super) fn kinds(&self) -> impl Iterator<Item = KeyKind> {
        [self.start, self.end].into_iter().filter_map(key_at).map(|key| key.kind())
    }

    pub(super) fn contains(&self, key: Key<'_>) -> bool {
        let is_after_start = match self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        is_after_start
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            }
    }
}

/// Returns the key at an end of a range, or `None` if the end is unbounded.
pub(super) fn key_at(bound: Bound<Key<'_>>) -> Option<Key<'_>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}
