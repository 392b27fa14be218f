//! Record forms: how the records of a table store keys and the ends of ranges.
//!
//! In: keys, or the bytes of a record. Out: the bytes with which a record begins, or the keys in these bytes.
//! `docs/FORMAT.md` draws the forms.

use super::key::{Key, KeyKind};
use super::key_type::{FIXED_KEY_LEN_BYTES, KeyType};

/// The length of the field that precedes a byte key of any length in a record and contains the key's length.
const LEN_LEN_BYTES: usize = size_of::<u16>();
/// The bit of a form's number that is set if records have ends.
const HAS_ENDS: u8 = 4;

/// How records store a key. The discriminant is the form's number in a page of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyForm {
    /// A number in 8 bytes.
    U64 = 1,
    /// The length of the key, the key, and zeros up to a multiple of 8 bytes.
    Bytes = 2,
    /// A key of [`FIXED_KEY_LEN_BYTES`] bytes.
    Fixed = 3,
}

impl KeyForm {
    /// Returns the kind of the keys.
    #[inline]
    pub const fn kind(self) -> KeyKind {
        match self {
            KeyForm::U64 => KeyKind::U64,
            KeyForm::Bytes | KeyForm::Fixed => KeyKind::Bytes,
        }
    }

    /// Returns the key at the start of `bytes`, and the length of the encoded key. Returns `None` if the key is
    /// incomplete.
    #[inline(always)]
    fn read(self, bytes: &[u8]) -> Option<(Key<'_>, usize)> {
        match self {
            KeyForm::U64 => Some((Key::U64(u64::from_le_bytes(*bytes.first_chunk()?)), size_of::<u64>())),
            KeyForm::Bytes => {
                let len_bytes = u16::from_le_bytes(*bytes.first_chunk()?) as usize;
                let key = Key::Bytes(bytes.get(LEN_LEN_BYTES..LEN_LEN_BYTES + len_bytes)?);
                Some((key, self.len_bytes(key)))
            }
            KeyForm::Fixed => Some((Key::Bytes(bytes.first_chunk::<FIXED_KEY_LEN_BYTES>()?), FIXED_KEY_LEN_BYTES)),
        }
    }

    /// Returns the length of an encoded key, a multiple of 8.
    #[inline(always)]
    pub(super) const fn len_bytes(self, key: Key<'_>) -> usize {
        self.unpadded_len_bytes(key).next_multiple_of(size_of::<u64>())
    }

    /// Returns the length of an encoded key without its padding.
    #[inline(always)]
    pub(super) const fn unpadded_len_bytes(self, key: Key<'_>) -> usize {
        match (self, key) {
            (KeyForm::U64, _) | (KeyForm::Bytes, Key::U64(_)) => size_of::<u64>(),
            (KeyForm::Bytes, Key::Bytes(key)) => LEN_LEN_BYTES + key.len(),
            (KeyForm::Fixed, _) => FIXED_KEY_LEN_BYTES,
        }
    }

    /// Writes an encoded key to `bytes`, which must have its length.
    #[cfg(feature = "bake")]
    #[inline(always)]
    fn write_into(self, key: Key<'_>, bytes: &mut [u8]) {
        match (self, key) {
            (_, Key::U64(key)) => bytes.copy_from_slice(&key.to_le_bytes()),
            (KeyForm::Fixed, Key::Bytes(key)) => bytes.copy_from_slice(key),
            (KeyForm::U64 | KeyForm::Bytes, Key::Bytes(key)) => {
                let (len, rest) = bytes.split_at_mut(LEN_LEN_BYTES);
                len.copy_from_slice(&(key.len() as u16).to_le_bytes());
                rest[..key.len()].copy_from_slice(key);
                rest[key.len()..].fill(0);
            }
        }
    }
}

/// The key of a row and, in a table of ranges, the end of the range that begins with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The last key of the range, in a table of ranges.
    pub end: Option<Key<'a>>,
}

impl<'a> From<Key<'a>> for RowKey<'a> {
    #[inline]
    fn from(key: Key<'a>) -> RowKey<'a> {
        RowKey { key, end: None }
    }
}

/// How the records of a table begin: with the key and, in a table of ranges, the end of the range. The response header
/// follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordForm {
    /// How keys and ends are stored.
    pub keys: KeyForm,
    /// Whether each record has the end of a range after its key.
    pub has_ends: bool,
}

impl RecordForm {
    /// Returns the form of the records of a table.
    pub const fn new(key_type: KeyType, has_ends: bool) -> RecordForm {
        let keys = match key_type.kind() {
            KeyKind::U64 => KeyForm::U64,
            KeyKind::Bytes if key_type.fixed_len_bytes().is_some() => KeyForm::Fixed,
            KeyKind::Bytes => KeyForm::Bytes,
        };
        RecordForm { keys, has_ends }
    }

    /// Returns the form's number in a page of rows.
    pub const fn code(self) -> u8 {
        self.keys as u8 | if self.has_ends { HAS_ENDS } else { 0 }
    }

    /// Returns the form with this number, or `None` if no form has this number.
    pub const fn from_code(code: u8) -> Option<RecordForm> {
        let keys = match code & !HAS_ENDS {
            1 => KeyForm::U64,
            2 => KeyForm::Bytes,
            3 => KeyForm::Fixed,
            _ => return None,
        };
        Some(RecordForm { keys, has_ends: code & HAS_ENDS != 0 })
    }

    /// Returns the key and the end at the start of a record, and the offset of the response in the record. Returns
    /// `None` if they are incomplete.
    #[inline(always)]
    pub(crate) fn read(self, record: &[u8]) -> Option<(RowKey<'_>, usize)> {
        let (key, len_bytes) = self.keys.read(record)?;
        if !self.has_ends {
            return Some((RowKey { key, end: None }, len_bytes));
        }
        let (end, end_len_bytes) = self.keys.read(record.get(len_bytes..)?)?;
        Some((RowKey { key, end: Some(end) }, len_bytes + end_len_bytes))
    }

    /// Returns the offset of the response in the record of a row, a multiple of 8.
    #[inline(always)]
    pub const fn answer_at_bytes(self, row_key: RowKey<'_>) -> usize {
        match row_key.end {
            None => self.keys.len_bytes(row_key.key),
            Some(end) => self.keys.len_bytes(row_key.key) + self.keys.len_bytes(end),
        }
    }

    /// Writes the start of a record, which must have exactly [`RecordForm::answer_at_bytes`] bytes. Byte keys must have
    /// a length that the form allows.
    #[cfg(feature = "bake")]
    #[inline(always)]
    pub(crate) fn write_into(self, row_key: RowKey<'_>, bytes: &mut [u8]) {
        let (key, end) = bytes.split_at_mut(self.keys.len_bytes(row_key.key));
        self.keys.write_into(row_key.key, key);
        if let Some(range_end) = row_key.end {
            self.keys.write_into(range_end, end);
        }
    }

    /// Appends the start of a record, as [`RecordForm::write_into`] writes it.
    #[cfg(feature = "bake")]
    #[inline(always)]
    pub(crate) fn write_to(self, row_key: RowKey<'_>, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.answer_at_bytes(row_key), 0);
        self.write_into(row_key, &mut bytes[start..]);
    }

    /// Returns whether a row of this form can have this key and this end: whether the row has an end exactly if the
    /// form has ends, and whether keys of a fixed length have this length.
    #[cfg(feature = "bake")]
    #[inline(always)]
    pub(crate) fn fits(self, row_key: RowKey<'_>) -> bool {
        let fits = |key: Key<'_>| match (self.keys, key) {
            (KeyForm::U64, Key::U64(_)) | (KeyForm::Bytes, Key::Bytes(_)) => true,
            (KeyForm::Fixed, Key::Bytes(key)) => key.len() == FIXED_KEY_LEN_BYTES,
            (KeyForm::U64, Key::Bytes(_)) | (KeyForm::Bytes | KeyForm::Fixed, Key::U64(_)) => false,
        };
        row_key.end.is_some() == self.has_ends && fits(row_key.key) && row_key.end.is_none_or(fits)
    }

    /// Returns whether the padding of the key and of the end at the start of a record is zero.
    #[inline(always)]
    pub(crate) fn is_padded_with_zeros(self, row_key: RowKey<'_>, record: &[u8]) -> bool {
        if self.keys != KeyForm::Bytes {
            return true;
        }
        let is_zero = |start: usize, key| {
            let padding = record.get(start + self.keys.unpadded_len_bytes(key)..start + self.keys.len_bytes(key));
            padding.is_some_and(|padding| padding.iter().all(|byte| *byte == 0))
        };
        is_zero(0, row_key.key) && row_key.end.is_none_or(|end| is_zero(self.keys.len_bytes(row_key.key), end))
    }
}

/// The form in which records without ends store keys of any length.
impl From<KeyKind> for RecordForm {
    #[inline(always)]
    fn from(kind: KeyKind) -> RecordForm {
        let keys = match kind {
            KeyKind::U64 => KeyForm::U64,
            KeyKind::Bytes => KeyForm::Bytes,
        };
        RecordForm { keys, has_ends: false }
    }
}

/// What is wrong with the key or the end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderFault {
    EmptyKey,
    Key,
    End,
    Overlap,
}

impl OrderFault {
    /// Returns the fault as part of an error message.
    pub(crate) fn what(self) -> &'static str {
        match self {
            OrderFault::EmptyKey => "the key is empty",
            OrderFault::Key => "the key is not greater than the preceding key",
            OrderFault::End => "the range ends before it begins",
            OrderFault::Overlap => "the range begins before the preceding range ends",
        }
    }
}

/// Returns what is wrong with the key or the end of a row that follows `previous`, or `None` if nothing is.
#[inline(always)]
pub(crate) fn order_fault(previous: Option<RowKey<'_>>, row_key: RowKey<'_>) -> Option<OrderFault> {
    if row_key.key == Key::Bytes(b"") {
        return Some(OrderFault::EmptyKey);
    }
    if previous.is_some_and(|previous| previous.key >= row_key.key) {
        return Some(OrderFault::Key);
    }
    let end = row_key.end?;
    if end < row_key.key {
        return Some(OrderFault::End);
    }
    if previous.and_then(|previous| previous.end).is_some_and(|previous| previous >= row_key.key) {
        return Some(OrderFault::Overlap);
    }
    None
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::format::key::KEY_LEN_MAX_BYTES;
    use crate::format::lookup_key::{LookupKey, RecordKey, by_form};
    use crate::protocol::native::RESPONSE_HEADER_LEN_BYTES;

    /// Returns the offset of the response that a lookup of `key` finds in a record.
    fn answer_at(form: RecordForm, key: Key<'_>, record: &[u8]) -> Option<usize> {
        fn find<K: LookupKey>(form: RecordForm, key: K, record: &[u8]) -> Option<usize> {
            by_form!(
                form, K,
                plain: key.answer_at(record),
                fixed: key.fixed().answer_at(record),
                ranged(keys): key.ranged(keys).answer_at(record)
            )
        }
        match key {
            Key::U64(key) => find(form, key, record),
            Key::Bytes(key) => find(form, key, record),
        }
    }

    #[test]
    fn a_record_that_was_written_begins_with_the_same_keys() {
        let fixed = [[0; 16], [7; 16], *b"sixteen bytes...", [255; 16]];
        let long = [255; KEY_LEN_MAX_BYTES];
        let bytes = [Key::from("a"), Key::from("six by"), Key::from("twelve bytes"), Key::from(&long)];
        let forms: [(KeyForm, Vec<Key<'_>>); 3] = [
            (KeyForm::U64, [0, 7, 1 << 60, u64::MAX].map(Key::U64).into()),
            (KeyForm::Bytes, bytes.into()),
            (KeyForm::Fixed, fixed.iter().map(Key::from).collect()),
        ];
        for (keys, all) in forms {
            for (key, end) in all.iter().flat_map(|key| all.iter().map(|end| (*key, *end))) {
                for row_key in [RowKey { key, end: None }, RowKey { key, end: Some(end) }] {
                    let form = RecordForm { keys, has_ends: row_key.end.is_some() };
                    assert_eq!(RecordForm::from_code(form.code()), Some(form));
                    assert!(form.fits(row_key) && !RecordForm { has_ends: !form.has_ends, ..form }.fits(row_key));
                    let mut record = Vec::new();
                    form.write_to(row_key, &mut record);
                    let answer_at_bytes = record.len();
                    assert_eq!((form.answer_at_bytes(row_key), answer_at_bytes % 8), (answer_at_bytes, 0));
                    assert_eq!(form.read(&record), Some((row_key, answer_at_bytes)));
                    assert!(form.is_padded_with_zeros(row_key, &record));
                    record.extend_from_slice(&[0; RESPONSE_HEADER_LEN_BYTES]);
                    for other in &all {
                        let expected = (*other == key).then_some(answer_at_bytes);
                        assert_eq!(answer_at(form, *other, &record), expected, "{form:?} {row_key:?} {other:?}");
                    }
                    if keys == KeyForm::Bytes {
                        for len_bytes in 0..answer_at_bytes.min(40) {
                            let read = form.read(&record[..len_bytes]);
                            assert!(read.is_none_or(|(_, at_bytes)| at_bytes > len_bytes), "{form:?} {row_key:?}");
                        }
                    }
                }
            }
        }
        assert!(RecordForm::from_code(0).is_none() && RecordForm::from_code(4).is_none());
        assert!(RecordForm::from_code(8).is_none() && RecordForm::from_code(255).is_none());
    }

    #[test]
    fn a_key_of_another_length_is_not_the_key_of_a_fixed_record() {
        let record = [5; 40];
        let found = |has_ends, len_bytes: usize, record: &[u8]| {
            answer_at(RecordForm { keys: KeyForm::Fixed, has_ends }, Key::Bytes(&[5; 40][..len_bytes]), record)
        };
        for len_bytes in [0, 1, 8, 15, 17, 24, 32, 40] {
            assert_eq!((found(false, len_bytes, &record), found(true, len_bytes, &record)), (None, None));
        }
        assert_eq!((found(false, 16, &record), found(true, 16, &record)), (Some(16), Some(32)));
        assert_eq!((found(false, 16, &record[..15]), found(true, 16, &record[..15])), (None, None));
    }

    #[test]
    fn rows_are_in_order_and_ranges_do_not_overlap() {
        let row = |key, end| RowKey { key: Key::U64(key), end: Some(Key::U64(end)) };
        assert_eq!(order_fault(None, row(5, 5)), None);
        assert_eq!(order_fault(Some(row(5, 6)), row(7, 9)), None);
        assert_eq!(order_fault(None, row(5, 4)), Some(OrderFault::End));
        assert_eq!(order_fault(Some(row(5, 7)), row(7, 9)), Some(OrderFault::Overlap));
        assert_eq!(order_fault(Some(row(5, 7)), row(5, 9)), Some(OrderFault::Key));
        assert_eq!(order_fault(None, Key::from("").into()), Some(OrderFault::EmptyKey));
    }
}
