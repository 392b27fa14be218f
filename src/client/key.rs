//! Keys that a client holds.

use std::ops::Bound;

use crate::format::key::{Key, KeyKind};

pub use crate::format::OwnedKey;

/// The keys between two, which can be kept: what a page leaves to be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    pub(super) start: Bound<OwnedKey>,
    pub(super) end: Bound<OwnedKey>,
}

impl KeyRange {
    /// Its two ends, as questions take a range.
    pub fn bounds(&self) -> (Bound<Key<'_>>, Bound<Key<'_>>) {
        (self.start.as_ref().map(OwnedKey::as_key), self.end.as_ref().map(OwnedKey::as_key))
    }
}

impl From<Bounds<'_>> for KeyRange {
    fn from(bounds: Bounds<'_>) -> Self {
        KeyRange { start: bounds.start.map(OwnedKey::from), end: bounds.end.map(OwnedKey::from) }
    }
}

/// The two ends of a range that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'k> {
    pub(super) start: Bound<Key<'k>>,
    pub(super) end: Bound<Key<'k>>,
}

impl Bounds<'_> {
    pub(super) const ALL: Bounds<'static> = Bounds { start: Bound::Unbounded, end: Bound::Unbounded };

    /// The kinds of the keys at its ends.
    pub(super) fn kinds(&self) -> impl Iterator<Item = KeyKind> {
        [self.start, self.end].into_iter().filter_map(key_at).map(|key| key.kind())
    }

    pub(super) fn contains(&self, key: Key<'_>) -> bool {
        let is_behind_start = match self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        is_behind_start
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            }
    }
}

/// The key at an end of a range.
pub(super) fn key_at(bound: Bound<Key<'_>>) -> Option<Key<'_>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}
