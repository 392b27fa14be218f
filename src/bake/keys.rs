//! Parses keys.

use std::convert::Infallible;

use super::error::{RowFault, RowPlace};
use crate::format::key::{KEY_LEN_MAX_BYTES, Key, KeyKind};
use crate::format::key_type::{KeyType, decimal, escape_part};

/// Selects the type of a table's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Every key must be a key of this type.
    Type(KeyType),
    /// Numbers if every key is a decimal without leading zeros, otherwise bytes.
    Auto,
}

impl Keys {
    /// Unsigned 64-bit numbers.
    pub const U64: Keys = Keys::Type(KeyType::U64);
    /// The bytes of each row's key field, unchanged.
    pub const BYTES: Keys = Keys::Type(KeyType::BYTES);

    /// Returns the kind that keys have in memory while the input is read. With `Auto`, keys are held as bytes.
    pub(super) fn kind(self) -> KeyKind {
        self.key_type(KeyKind::Bytes).kind()
    }

    /// Returns the type of keys that turned out to be of a kind.
    pub(super) fn key_type(self, kind: KeyKind) -> KeyType {
        match self {
            Keys::Type(key_type) => key_type,
            Keys::Auto => kind.into(),
        }
    }
}

impl Default for Keys {
    fn default() -> Keys {
        Keys::U64
    }
}

impl From<KeyKind> for Keys {
    fn from(kind: KeyKind) -> Keys {
        Keys::Type(kind.into())
    }
}

impl From<KeyType> for Keys {
    fn from(key_type: KeyType) -> Keys {
        Keys::Type(key_type)
    }
}

/// Parses the keys of rows.
pub(super) struct KeyParser {
    key_type: KeyType,
    /// The last byte key that is stored in another form than its text.
    encoded: Vec<u8>,
}

impl KeyParser {
    pub(super) fn new(keys: Keys) -> KeyParser {
        KeyParser { key_type: keys.key_type(KeyKind::Bytes), encoded: Vec::new() }
    }

    pub(super) fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Parses a field. The error for a field that is not a number depends on the place of the row.
    #[inline]
    pub(super) fn parse<'k>(&'k mut self, field: &'k [u8], place: RowPlace) -> Result<Key<'k>, RowFault> {
        match self.key_type {
            KeyType::U64 => decimal(field).map(Key::U64).ok_or_else(|| RowFault::key(field, place)),
            KeyType::BYTES if (1..=KEY_LEN_MAX_BYTES).contains(&field.len()) => Ok(Key::Bytes(field)),
            KeyType::BYTES => Err(RowFault::KeyLen { len_bytes: field.len() }),
            key_type => {
                let parsed = key_type.parse_into(field, &mut self.encoded);
                parsed.map_err(|fault| RowFault::typed_key(fault, place))
            }
        }
    }
}

/// The key columns of an input: one, or one for each part of composite keys.
#[derive(Clone, Debug)]
pub(super) struct KeyColumns {
    /// The position of the first column.
    pub(super) first: usize,
    /// The positions of the columns of the second and the later parts.
    more: Vec<usize>,
    /// The written form of the last composite key.
    joined: Vec<u8>,
}

impl KeyColumns {
    pub(super) fn new(first: usize, more: Vec<usize>) -> KeyColumns {
        KeyColumns { first, more, joined: Vec::new() }
    }

    /// Returns the positions of the columns.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Returns the written form of a row's key, or the first fault. `only` returns the text of a column that is the
    /// only one, and `part` the text of one of several columns.
    pub(super) fn text<'t, T: AsRef<[u8]>, E>(
        &'t mut self,
        only: impl FnOnce(usize) -> Result<&'t [u8], E>,
        part: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<&'t [u8], E> {
        if self.more.is_empty() {
            return only(self.first);
        }
        let mut joined = std::mem::take(&mut self.joined);
        let parts = join(self.iter().map(part), &mut joined);
        self.joined = joined;
        parts.map(|()| &self.joined[..])
    }
}

/// Writes the written form of the key with these parts into `text`, or returns the first fault.
fn join<T: AsRef<[u8]>, E>(parts: impl Iterator<Item = Result<T, E>>, text: &mut Vec<u8>) -> Result<(), E> {
    text.clear();
    for (i, part) in parts.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        escape_part(part?.as_ref(), text);
    }
    Ok(())
}

/// Returns the name of the key of a table: the name of the key column, or those of the parts with commas between them,
/// in which a comma or a backslash follows a backslash.
pub(super) fn key_name<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    if let [name] = names[..] {
        return name.to_owned();
    }
    let mut joined = Vec::new();
    let Ok(()) = join(names.iter().map(Ok::<_, Infallible>), &mut joined);
    String::from_utf8_lossy(&joined).into_owned()
}

/// Parses an unsigned 64-bit decimal without leading zeros.
pub(super) fn canonical_decimal(key: &[u8]) -> Option<u64> {
    // As numbers, `007` and `7` would be the same key.
    decimal(key).filter(|_| key[0] != b'0' || key.len() == 1)
}
