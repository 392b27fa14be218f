//! Reads the records of a file without its index, and compares lookups with them.

use zero_kv::Lookup;
use zero_kv::{Key, LookupError, Store};

use super::encoder::{self, Keyed, RECORD_ALIGN, RECORDS, number};
use super::rows::{KeySpan, TestKey};

/// A key that can be read from a record.
pub trait RecordKey: TestKey + Keyed {
    /// Returns the key at the start of a record, and the length of the key's field in bytes.
    fn read_key(record: &[u8]) -> (Self, usize);
}

impl RecordKey for u64 {
    fn read_key(record: &[u8]) -> (u64, usize) {
        (number(record, 0), 8)
    }
}

impl RecordKey for Vec<u8> {
    fn read_key(record: &[u8]) -> (Vec<u8>, usize) {
        let len = usize::from(record[0]) + usize::from(record[1]) * 256;
        (record[2..2 + len].to_vec(), (2 + len).next_multiple_of(8))
    }
}

impl RecordKey for [u8; 16] {
    fn read_key(record: &[u8]) -> ([u8; 16], usize) {
        (record[..16].try_into().unwrap(), 16)
    }
}

impl<K: RecordKey> RecordKey for KeySpan<K> {
    fn read_key(record: &[u8]) -> (KeySpan<K>, usize) {
        let (first, first_len) = K::read_key(record);
        let (last, last_len) = K::read_key(&record[first_len..]);
        (KeySpan { first, last }, first_len + last_len)
    }
}

/// Returns all rows in the order of their records.
pub fn read_records<K: RecordKey>(file: &[u8]) -> Vec<(K, Vec<u8>)> {
    let (mut at, len) = encoder::section(file, RECORDS);
    let end = at + len;
    let align = u32::from_le_bytes(file[RECORD_ALIGN..][..4].try_into().unwrap()) as usize;
    let mut rows = Vec::new();
    while at < end {
        let (key, key_len) = K::read_key(&file[at..]);
        let answer = &file[at + key_len..];
        let value_len = u64::from_be_bytes(answer[..8].try_into().unwrap()) as usize;
        rows.push((key, answer[8..8 + value_len].to_vec()));
        at += (key_len + 8 + value_len).next_multiple_of(align);
    }
    rows
}

/// Looks up these keys and all keys of the file in every way, and compares the results with the records.
pub fn assert_lookups_match_its_records<K: RecordKey>(store: &Store, file: &[u8], keys: &[K]) {
    let rows = read_records::<K>(file);
    let keys: Vec<&K> = keys.iter().chain(rows.iter().map(|(key, _)| key)).collect();
    let value = |key: &K| rows.iter().find(|row| row.0 == *key).map(|row| row.1.as_slice());
    let expected: Vec<_> = keys.iter().map(|key| value(key)).collect();
    let row = |(key, value): &'_ (K, Vec<u8>)| format!("{:?}", (key.key(), value.as_slice()));
    for (key, expected) in keys.iter().zip(&expected) {
        let asked = key.key();
        assert_eq!((store.get(asked), store.contains(asked)), (Ok(*expected), Ok(expected.is_some())), "key {key:?}");
        let (below, from) = (rows.partition_point(|row| row.0 <= **key), rows.partition_point(|row| row.0 < **key));
        let floor = store.floor(asked).unwrap().map(|row| format!("{row:?}"));
        assert_eq!(floor, rows[..below].last().map(row), "floor of {key:?}");
        let span = rows[..below].last().and_then(|(first, value)| Some((first.key(), first.last()?, &value[..])));
        let span = span.filter(|(_, last, _)| asked <= *last);
        assert_eq!(store.cover(asked), if store.has_ranges() { Ok(span) } else { Err(LookupError::NoRanges) });
        let ceiling = store.ceiling(asked).unwrap().map(|row| format!("{row:?}"));
        assert_eq!(ceiling, rows[from..].first().map(row), "ceiling of {key:?}");
        assert_eq!((store.count(asked..), store.count(..asked)), (Ok(rows.len() - from), Ok(from)), "{key:?}");
    }
    let asked: Vec<Key<'_>> = keys.iter().map(|key| key.key()).collect();
    assert_eq!(store.get_many(&asked).unwrap(), expected);
    let mut answers = Vec::new();
    let in_order = |i, value: Option<&[u8]>| {
        assert_eq!(i, answers.len());
        answers.push(value.map(<[u8]>::to_vec));
    };
    store.get_many_with(&asked, in_order).unwrap();
    assert!(answers.iter().map(Option::as_deref).eq(expected));
    assert_eq!(store.len(), rows.len());
    let rows: Vec<_> = rows.iter().map(|(key, value)| (key.key(), value.as_slice())).collect();
    assert_eq!(store.iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
    assert!(store.iter().map(Result::unwrap).rev().eq(rows.iter().rev().copied()), "in reverse");
    assert!((0..rows.len()).map(|row| store.row(row)).eq(rows.iter().copied().map(|row| Ok(Some(row)))), "row by row");
}
