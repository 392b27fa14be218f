//! Owned keys.

use std::fmt;

use super::key::Key;

/// A key that owns its bytes. The rows that clients return are copies, and their keys have this type.
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

/// An owned key and its value.
pub type Row = (OwnedKey, Vec<u8>);

impl OwnedKey {
    /// Borrows the key for a lookup.
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

/// Formats the key like [`Key`].
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
