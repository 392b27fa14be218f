//! Keys that a client holds.

use std::fmt;
use std::ops::Bound;

use crate::format::key::{Key, KeyKind};

/// A key in memory of its own, as a client gives it.
///
/// # Example
/// ```
/// use zero_kv::Key;
/// use zero_kv::client::OwnedKey;
///
/// let key = OwnedKey::from(Key::from("seven"));
/// assert_eq!(key.as_key(), Key::from("seven"));
/// assert_eq!(key.to_string(), "seven");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnedKey {
    /// A number.
    U64(u64),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl OwnedKey {
    /// The same key, borrowed: what questions take.
    #[inline]
    pub fn as_key(&self) -> Key<'_> {
        match self {
            OwnedKey::U64(key) => Key::U64(*key),
            OwnedKey::Bytes(key) => Key::Bytes(key),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::U64(key) => OwnedKey::U64(key),
            Key::Bytes(key) => OwnedKey::Bytes(key.to_vec()),
        }
    }
}

impl<'a> From<&'a OwnedKey> for Key<'a> {
    fn from(key: &'a OwnedKey) -> Self {
        key.as_key()
    }
}

/// Like [`Key`]'s.
impl fmt::Display for OwnedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

impl PartialEq<u64> for OwnedKey {
    fn eq(&self, other: &u64) -> bool {
        self.as_key() == *other
    }
}

impl PartialEq<&[u8]> for OwnedKey {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_key() == *other
    }
}

impl PartialEq<&str> for OwnedKey {
    fn eq(&self, other: &&str) -> bool {
        self.as_key() == *other
    }
}

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
