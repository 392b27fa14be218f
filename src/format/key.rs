//! Keys: their kinds, their order, their encoding in a record, and ranges of keys.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::index::Hash;
pub use crate::protocol::native::KEY_LEN_MAX_BYTES;
use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;

/// The length of the field that precedes a byte key in a record and contains the key's length.
const LEN_LEN_BYTES: usize = size_of::<u16>();

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

    /// Returns the key at the start of a record, and the offset of the response in the record. Returns `None` if the
    /// record is incomplete.
    #[inline(always)]
    pub(crate) fn from_record(kind: KeyKind, record: &'a [u8]) -> Option<(Key<'a>, usize)> {
        match kind {
            KeyKind::U64 => {
                Some((Key::U64(u64::from_le_bytes(*record.first_chunk()?)), Key::U64(0).prefix_len_bytes()))
            }
            KeyKind::Bytes => {
                let len_bytes = u16::from_le_bytes(*record.first_chunk()?) as usize;
                let key = Key::Bytes(record.get(LEN_LEN_BYTES..LEN_LEN_BYTES + len_bytes)?);
                Some((key, key.prefix_len_bytes()))
            }
        }
    }

    /// Returns the length of the encoded key, a multiple of 8. In a record, the response follows the encoded key.
    #[inline(always)]
    pub const fn prefix_len_bytes(&self) -> usize {
        self.unpadded_len_bytes().next_multiple_of(size_of::<u64>())
    }

    /// Returns the length of the encoded key without its padding.
    #[inline(always)]
    pub(crate) const fn unpadded_len_bytes(&self) -> usize {
        match self {
            Key::U64(_) => size_of::<u64>(),
            Key::Bytes(key) => LEN_LEN_BYTES + key.len(),
        }
    }

    /// Writes the encoded key to `record`, which must have exactly [`Key::prefix_len_bytes`] bytes. A byte key must not
    /// be longer than [`KEY_LEN_MAX_BYTES`].
    #[cfg(feature = "bake")]
    #[inline]
    pub(crate) fn write_into(&self, record: &mut [u8]) {
        match self {
            Key::U64(key) => record.copy_from_slice(&key.to_le_bytes()),
            Key::Bytes(key) => {
                let (len, rest) = record.split_at_mut(LEN_LEN_BYTES);
                len.copy_from_slice(&(key.len() as u16).to_le_bytes());
                rest[..key.len()].copy_from_slice(key);
                rest[key.len()..].fill(0);
            }
        }
    }

    /// Appends the encoded key to `record`.
    #[cfg(feature = "bake")]
    pub(crate) fn write_to(&self, record: &mut Vec<u8>) {
        let start = record.len();
        record.resize(start + self.prefix_len_bytes(), 0);
        self.write_into(&mut record[start..]);
    }

    /// Returns the key's head: the number that a fence stores for the key. The head of a number is the number itself.
    /// The head of a byte key is the 8 bytes after its first `common_len_bytes` bytes, read as a big-endian number;
    /// missing bytes count as zeros. Among keys with the same first `common_len_bytes` bytes, a greater key never has a
    /// smaller head.
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

/// A key whose kind is known at compile time, for lookups.
pub(crate) trait LookupKey: Copy {
    /// The kind of the keys of this type.
    const KIND: KeyKind;
    /// Returns the key's hash with a seed.
    fn hash(self, seed: u64) -> Hash;
    /// Returns the offset of the response in `record`. Returns `None` if the record has another key or is incomplete.
    fn answer_at(self, record: &[u8]) -> Option<usize>;
    /// Returns how many bytes at the start of a record [`LookupKey::answer_at`] compares with this key if the record
    /// has this key. If the record has another key, `answer_at` may compare fewer bytes.
    fn compared_len_bytes(self) -> usize;
}

impl LookupKey for u64 {
    const KIND: KeyKind = KeyKind::U64;

    #[inline(always)]
    fn hash(self, seed: u64) -> Hash {
        Hash::from_u64(self, seed)
    }

    #[inline(always)]
    fn answer_at(self, record: &[u8]) -> Option<usize> {
        // Every record has a response header, so one length check covers key and header.
        let head = record.first_chunk::<{ size_of::<u64>() + RESPONSE_HEADER_LEN_BYTES }>()?;
        (u64::from_le_bytes(*head.first_chunk()?) == self).then_some(size_of::<u64>())
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        size_of::<u64>()
    }
}

impl LookupKey for &[u8] {
    const KIND: KeyKind = KeyKind::Bytes;

    #[inline(always)]
    fn hash(self, seed: u64) -> Hash {
        Hash::from_bytes(self, seed)
    }

    #[inline(always)]
    fn answer_at(self, record: &[u8]) -> Option<usize> {
        let len_bytes = u16::from_le_bytes(*record.first_chunk()?) as usize;
        // If the lengths are equal, the slice below is the record's whole key.
        if len_bytes != self.len() {
            return None;
        }
        let found = record.get(LEN_LEN_BYTES..LEN_LEN_BYTES + self.len())?;
        (found == self).then_some(Key::Bytes(self).prefix_len_bytes())
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        Key::Bytes(self).unpadded_len_bytes()
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
/// # options.keys = Keys::Bytes;
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

    #[cfg(feature = "bake")]
    #[test]
    fn an_encoded_key_decodes_to_the_original_key() {
        for key in [Key::from(u64::MAX), Key::from("a"), Key::from("twelve bytes"), Key::from(&[7; KEY_LEN_MAX_BYTES])]
        {
            let mut record = Vec::new();
            key.write_to(&mut record);
            assert_eq!(record.len() % 8, 0);
            let answer_at_bytes = record.len();
            record.extend_from_slice(&[0; RESPONSE_HEADER_LEN_BYTES]);
            assert_eq!(Key::from_record(key.kind(), &record), Some((key, answer_at_bytes)));
            let answer_at = match key {
                Key::U64(key) => key.answer_at(&record),
                Key::Bytes(key) => key.answer_at(&record),
            };
            assert_eq!(answer_at, Some(answer_at_bytes));
            assert_eq!(b"another".as_slice().answer_at(&record), None);
        }
    }
}
