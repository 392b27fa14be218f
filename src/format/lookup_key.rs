//! Keys to look up, as types that determine how records store keys.

use super::form::{KeyForm, RecordForm};
use super::index::Hash;
use super::key::{Key, KeyKind};
use super::key_type::FIXED_KEY_LEN_BYTES;
use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;

/// A key whose kind is known at compile time: a number or bytes. The types [`LookupKey::Fixed`] and
/// [`LookupKey::Ranged`] are those of the same key in tables whose records have another form. A batch is dispatched
/// once, with `by_form!`, so that the lookup of a key has no branches on the form.
pub(crate) trait LookupKey: RecordKey {
    /// The kind of the keys of this type.
    const KIND: KeyKind;
    /// The key in a table whose keys have a fixed length.
    type Fixed: RecordKey;
    /// The key in a table of ranges.
    type Ranged: RecordKey;

    /// Returns the key for a table whose keys have a fixed length.
    fn fixed(self) -> Self::Fixed;

    /// Returns the key for a table of ranges, whose keys have this form.
    fn ranged(self, form: KeyForm) -> Self::Ranged;

    /// Returns the number, or 0 for bytes.
    fn number(self) -> u64;
}

/// A key that is compared with records of one form.
pub(crate) trait RecordKey: Copy {
    /// Returns the form of the table's records, which must be `of_table`. If the type determines the form, the result
    /// is a constant, and the compiler removes the branches on it.
    fn form(of_table: RecordForm) -> RecordForm;

    /// Returns the key's hash with a seed.
    fn hash(self, seed: u64) -> Hash;

    /// Returns the offset of the response in `record`. Returns `None` if the record has another key or is incomplete.
    /// If only the end after the key is incomplete, the offset is outside `record`.
    fn answer_at(self, record: &[u8]) -> Option<usize>;

    /// Returns how many bytes at the start of a record [`RecordKey::answer_at`] compares with this key if the record
    /// has this key. If the record has another key, `answer_at` may compare fewer bytes.
    fn compared_len_bytes(self) -> usize;
}

/// Evaluates one of three expressions, which have a type of the keys of a table whose records have the form `$form`:
/// `$key` itself, `$key::Fixed`, or `$key::Ranged`.
macro_rules! by_form {
    ($form:expr, $key:ty, plain: $plain:expr, fixed: $fixed:expr, ranged($keys:ident): $ranged:expr) => {
        match $form {
            $crate::format::form::RecordForm { has_ends: true, keys: $keys } => $ranged,
            $crate::format::form::RecordForm { keys: $crate::format::form::KeyForm::Fixed, .. }
                if <$key as $crate::format::lookup_key::LookupKey>::KIND == $crate::format::key::KeyKind::Bytes =>
            {
                $fixed
            }
            _ => $plain,
        }
    };
}
pub(crate) use by_form;

impl LookupKey for u64 {
    const KIND: KeyKind = KeyKind::U64;
    type Fixed = u64;
    type Ranged = RangedNumber;

    #[inline(always)]
    fn fixed(self) -> u64 {
        self
    }

    #[inline(always)]
    fn ranged(self, _: KeyForm) -> RangedNumber {
        RangedNumber(self)
    }

    #[inline(always)]
    fn number(self) -> u64 {
        self
    }
}

impl RecordKey for u64 {
    #[inline(always)]
    fn form(_: RecordForm) -> RecordForm {
        RecordForm { keys: KeyForm::U64, has_ends: false }
    }

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

impl<'k> LookupKey for &'k [u8] {
    const KIND: KeyKind = KeyKind::Bytes;
    type Fixed = FixedKey<'k>;
    type Ranged = RangedBytes<'k>;

    #[inline(always)]
    fn fixed(self) -> FixedKey<'k> {
        FixedKey(self)
    }

    #[inline(always)]
    fn ranged(self, form: KeyForm) -> RangedBytes<'k> {
        RangedBytes { key: self, form }
    }

    #[inline(always)]
    fn number(self) -> u64 {
        0
    }
}

impl RecordKey for &[u8] {
    #[inline(always)]
    fn form(_: RecordForm) -> RecordForm {
        RecordForm { keys: KeyForm::Bytes, has_ends: false }
    }

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
        let found = record.get(size_of::<u16>()..size_of::<u16>() + self.len())?;
        (found == self).then_some(KeyForm::Bytes.len_bytes(Key::Bytes(self)))
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        KeyForm::Bytes.unpadded_len_bytes(Key::Bytes(self))
    }
}

/// A byte key to look up in a table whose keys have [`FIXED_KEY_LEN_BYTES`]. No row has a key of another length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedKey<'k>(&'k [u8]);

impl RecordKey for FixedKey<'_> {
    #[inline(always)]
    fn form(_: RecordForm) -> RecordForm {
        RecordForm { keys: KeyForm::Fixed, has_ends: false }
    }

    #[inline(always)]
    fn hash(self, seed: u64) -> Hash {
        self.0.hash(seed)
    }

    #[inline(always)]
    fn answer_at(self, record: &[u8]) -> Option<usize> {
        let key: &[u8; FIXED_KEY_LEN_BYTES] = self.0.try_into().ok()?;
        (record.first_chunk()? == key).then_some(FIXED_KEY_LEN_BYTES)
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        FIXED_KEY_LEN_BYTES
    }
}

/// A number to look up in a table of ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangedNumber(u64);

impl RecordKey for RangedNumber {
    #[inline(always)]
    fn form(_: RecordForm) -> RecordForm {
        RecordForm { keys: KeyForm::U64, has_ends: true }
    }

    #[inline(always)]
    fn hash(self, seed: u64) -> Hash {
        self.0.hash(seed)
    }

    #[inline(always)]
    fn answer_at(self, record: &[u8]) -> Option<usize> {
        self.0.answer_at(record).map(|end_at_bytes| 2 * end_at_bytes)
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        self.0.compared_len_bytes()
    }
}

/// A byte key to look up in a table of ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangedBytes<'k> {
    key: &'k [u8],
    /// How the table's records store keys and ends.
    form: KeyForm,
}

impl RecordKey for RangedBytes<'_> {
    #[inline(always)]
    fn form(of_table: RecordForm) -> RecordForm {
        of_table
    }

    #[inline(always)]
    fn hash(self, seed: u64) -> Hash {
        self.key.hash(seed)
    }

    #[inline(always)]
    fn answer_at(self, record: &[u8]) -> Option<usize> {
        if self.form == KeyForm::Fixed {
            return FixedKey(self.key).answer_at(record).map(|end_at_bytes| 2 * end_at_bytes);
        }
        let end_at_bytes = self.key.answer_at(record)?;
        let end_len_bytes = match record.get(end_at_bytes..).and_then(<[u8]>::first_chunk) {
            Some(len_bytes) => size_of::<u16>() + usize::from(u16::from_le_bytes(*len_bytes)),
            // No response is at this offset, so the record counts as damaged.
            None => record.len(),
        };
        Some(end_at_bytes + end_len_bytes.next_multiple_of(size_of::<u64>()))
    }

    #[inline(always)]
    fn compared_len_bytes(self) -> usize {
        match self.form {
            KeyForm::Fixed => FIXED_KEY_LEN_BYTES,
            _ => self.key.compared_len_bytes(),
        }
    }
}
