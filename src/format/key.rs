//! Keys: their kinds, their order, and ranges of keys.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

pub use crate::protocol::native::KEY_LEN_MAX_BYTES;

/// The kind of a table's keys. The discriminant is the kind's number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum KeyKind {
    /// Unsigned 64-bit numbers.
    U64 = 1,
    /// 1 to [`KEY_LEN_MAX_BYTES`] bytes.
    Bytes = 2,
}

impl KeyKind {
    /// Returns the kind with this number, or `None` if no kind has this number.
    pub const fn from_code(code: u32) -> Option<KeyKind> {
        match code {
            1 => Some(KeyKind::U64),
            2 => Some(KeyKind::Bytes),
            _ => None,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::U64 => "unsigned 64-bit numbers",
            KeyKind::Bytes => "bytes",
        })
    }
}

/// A key of either kind.
///
/// Numbers are ordered as numbers. Byte keys are ordered byte by byte, and a key precedes all longer keys that begin
/// with it. A table has keys of only one kind. If keys of both kinds are compared, numbers precede bytes.
///
/// # Example
/// ```
/// use zero_kv::Key;
///
/// assert_eq!(Key::from("seven"), Key::Bytes(b"seven"));
/// assert_eq!(Key::from(7), Key::U64(7));
/// assert!(Key::from("seven") < Key::from("seventeen"));
/// assert_eq!(Key::from("seven"), b"seven");
/// assert_eq!(Key::from("seven").to_string(), "seven");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key<'a> {
    /// A number.
    U64(u64),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> Key<'a> {
    /// Returns the key's kind.
    #[inline(always)]
    pub const fn kind(&self) -> KeyKind {
        match self {
            Key::U64(_) => KeyKind::U64,
            Key::Bytes(_) => KeyKind::Bytes,
        }
    }

    /// Returns the number, or `None` for bytes.
    #[inline]
    pub const fn as_u64(&self) -> Option<u64> {
        match self {
            Key::U64(key) => Some(*key),
            Key::Bytes(_) => None,
        }
    }

    /// Returns the bytes, or `None` for a number.
    #[inline]
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match self {
            Key::U64(_) => None,
            Key::Bytes(key) => Some(key),
        }
    }

    /// Returns the key's head, by which keys are sorted and searched. The head of a number is the number itself. The
    /// head of a byte key is the 8 bytes after its first `common_len_bytes` bytes, read as a big-endian number; missing
    /// bytes count as zeros. Fences store other heads for addresses: see [`Heads`](super::heads::Heads). Among keys
    /// with the same first `common_len_bytes` bytes, a greater key never has a smaller head.
    #[inline]
    pub fn head(&self, common_len_bytes: usize) -> u64 {
        match self {
            Key::U64(key) => *key,
            Key::Bytes(key) => {
                let rest = key.get(common_len_bytes..).unwrap_or_default();
                match rest.first_chunk() {
                    Some(head) => u64::from_be_bytes(*head),
                    None => rest.iter().rev().fold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
                }
            }
        }
    }

    /// Returns the length of the prefix that this byte key shares with `other`, or 0 if one of the keys is a number.
    pub fn common_len_bytes(&self, other: &Key<'_>) -> usize {
        let bytes = |key: &Key<'a>| key.as_bytes().unwrap_or_default();
        bytes(self).iter().zip(other.as_bytes().unwrap_or_default()).take_while(|(a, b)| a == b).count()
    }
}

/// Writes numbers in decimal, and bytes as text with invalid UTF-8 replaced.
impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::U64(key) => key.fmt(f),
            Key::Bytes(key) => String::from_utf8_lossy(key).fmt(f),
        }
    }
}

impl From<u64> for Key<'_> {
    #[inline]
    fn from(key: u64) -> Self {
        Key::U64(key)
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    #[inline]
    fn from(key: &'a [u8]) -> Self {
        Key::Bytes(key)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    #[inline]
    fn from(key: &'a [u8; N]) -> Self {
        Key::Bytes(key)
    }
}

impl<'a> From<&'a Vec<u8>> for Key<'a> {
    #[inline]
    fn from(key: &'a Vec<u8>) -> Self {
        Key::Bytes(key)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    #[inline]
    fn from(key: &'a str) -> Self {
        Key::Bytes(key.as_bytes())
    }
}

impl<'a> From<&'a String> for Key<'a> {
    #[inline]
    fn from(key: &'a String) -> Self {
        Key::Bytes(key.as_bytes())
    }
}

impl PartialEq<u64> for Key<'_> {
    fn eq(&self, other: &u64) -> bool {
        self.as_u64() == Some(*other)
    }
}

impl PartialEq<&[u8]> for Key<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_bytes() == Some(other)
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Key<'_> {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.as_bytes() == Some(other.as_slice())
    }
}

impl PartialEq<&str> for Key<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == Some(other.as_bytes())
    }
}

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

/// A row of a table of ranges: the first key of the range, the last key, and the value.
pub type RangeRow = (OwnedKey, OwnedKey, Vec<u8>);

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

/// A range of keys. The trait is implemented for the range types of [`std::ops`], and for pairs of [`Bound`]s. The
/// bounds must be values that convert to a [`Key`].
///
/// Methods use this trait instead of [`RangeBounds`], because a range of references implements `RangeBounds` twice: for
/// the references and for their targets. With `RangeBounds`, a call with a range of references would be ambiguous.
/// `KeyBounds` cannot be implemented outside this crate. To use another range type, convert the range to a pair of
/// bounds.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Keys, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # let mut options = Options::default();
/// # options.keys = Keys::BYTES;
/// # bake::bake_csv("ant,1\nbee,2\ncat,3\n".as_bytes(), &path, &options)?;
/// use std::ops::Bound;
///
/// use zero_kv::Lookup;
///
/// let store = zero_kv::Store::open(&path)?;
/// assert_eq!(store.count(..)?, 3);
/// assert_eq!(store.count("ant".."cat")?, 2);
/// assert_eq!(store.count(b"ant"..=b"cat")?, 3);
///
/// let (from, to) = (String::from("b"), vec![b'c']);
/// assert_eq!(store.count(&from..)?, 2);
/// assert_eq!(store.count(..&to)?, 2);
/// assert_eq!(store.count(..=&to[..])?, 2);
/// assert_eq!(store.count((Bound::Excluded("bee"), Bound::Unbounded))?, 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyBounds<'k>: sealed::Sealed {
    /// Returns the start and the end of the range.
    fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! impl_key_bounds {
    ($($range:ty),*) => {$(
        impl<K> sealed::Sealed for $range {}

        impl<'k, K: Into<Key<'k>> + Clone> KeyBounds<'k> for $range {
            fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>) {
                let [start, end] = [RangeBounds::<K>::start_bound(self), RangeBounds::<K>::end_bound(self)];
                (start.cloned().map(Into::into), end.cloned().map(Into::into))
            }
        }
    )*};
}

impl_key_bounds!(Range<K>, RangeFrom<K>, RangeTo<K>, RangeInclusive<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

impl sealed::Sealed for RangeFull {}

impl<'k> KeyBounds<'k> for RangeFull {
    fn bounds(&self) -> (Bound<Key<'k>>, Bound<Key<'k>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_in_the_order_of_the_keys() {
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![255; 3], vec![255; 8], vec![255; 9]];
        for number in 0..2000_u32 {
            let key = number.wrapping_mul(0x9E37_79B9).to_be_bytes();
            keys.push(key[..1 + number as usize % 4].to_vec());
            keys.push([&key[..], &key[..], &key[..]].concat());
        }
        for common in [&b""[..], b"a", b"a common beginning"] {
            let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| [common, key].concat()).collect();
            keys.sort();
            assert!(keys.is_sorted_by_key(|key| Key::from(key).head(common.len())));
        }
        assert_eq!(Key::from("abcdefghi").head(0), u64::from_be_bytes(*b"abcdefgh"));
        assert_eq!(Key::from("abc").head(1), u64::from_be_bytes(*b"bc\0\0\0\0\0\0"));
        assert_eq!((Key::from("abc").head(4), Key::from(7).head(4)), (0, 7));
    }
}
