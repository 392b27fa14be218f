//! Random changes.

use std::ops::Range;
use std::panic::RefUnwindSafe;

use crate::bytes::byte_rows;
use crate::rows;
use crate::support::encoder::{self, Keyed, RECORD_ALIGN, RECORDS, SECTIONS, number, put, seal};
use crate::support::{Random, Scratch, TestKey};
use zero_kv::{Key, KeyKind, Store};

/// A key, as a walk finds it.
trait WalkedKey: TestKey + Keyed {
    /// The key at the start of a record, and what it takes up.
    fn walked(record: &[u8]) -> (Self, usize);
}

impl WalkedKey for u64 {
    fn walked(record: &[u8]) -> (u64, usize) {
        (number(record, 0), 8)
    }
}

impl WalkedKey for Vec<u8> {
    fn walked(record: &[u8]) -> (Vec<u8>, usize) {
        let len = usize::from(record[0]) + usize::from(record[1]) * 256;
        (record[2..2 + len].to_vec(), (2 + len).next_multiple_of(8))
    }
}

/// What a walk along the records finds, with nothing of the index.
fn walk<K: WalkedKey>(file: &[u8]) -> Vec<(K, Vec<u8>)> {
    let (mut at, len) = encoder::section(file, RECORDS);
    let end = at + len;
    let align = u32::from_le_bytes(file[RECORD_ALIGN..][..4].try_into().unwrap()) as usize;
    let mut rows = Vec::new();
    while at < end {
        let (key, key_len) = K::walked(&file[at..]);
        let answer = &file[at + key_len..];
        let value_len = u64::from_be_bytes(answer[..8].try_into().unwrap()) as usize;
        rows.push((key, answer[8..8 + value_len].to_vec()));
        at += (key_len + 8 + value_len).next_multiple_of(align);
    }
    rows
}

/// Asks for everything, and holds each answer against the records.
fn assert_answers_as_its_records<K: WalkedKey>(store: &Store, file: &[u8], keys: &[K]) {
    let rows = walk::<K>(file);
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
        let ceiling = store.ceiling(asked).unwrap().map(|row| format!("{row:?}"));
        assert_eq!(ceiling, rows[from..].first().map(row), "ceiling of {key:?}");
        assert_eq!((store.count(asked..), store.count(..asked)), (Ok(rows.len() - from), Ok(from)), "{key:?}");
    }
    let mut answers = Vec::new();
    let asked: Vec<Key<'_>> = keys.iter().map(|key| key.key()).collect();
    let in_order = |i, value| {
        assert_eq!(i, answers.len());
        answers.push(value);
    };
    store.get_many(&asked, in_order).unwrap();
    assert_eq!(answers, expected);
    assert_eq!(store.len(), rows.len());
    let rows: Vec<_> = rows.iter().map(|(key, value)| (key.key(), value.as_slice())).collect();
    assert_eq!(store.iter().collect::<Vec<_>>(), rows);
    assert!(store.iter().rev().eq(rows.iter().rev().copied()), "in reverse");
    assert!((0..rows.len()).map(|row| store.row(row)).eq(rows.iter().copied().map(|row| Ok(Some(row)))), "row by row");
}

/// Changes one to eight bytes, or one whole number, anywhere or in a section.
fn mutate(file: &mut [u8], random: &mut Random) {
    let ranges = [(0, encoder::HEADER)].into_iter().chain(SECTIONS.map(|section| encoder::section(file, section)));
    let ranges: Vec<(usize, usize)> = ranges.chain([(0, file.len())]).collect();
    for _ in 0..random.below(8) + 1 {
        let (start, len) = ranges[random.below(ranges.len())];
        let at = start + random.below(len.max(1));
        let near = |random: &mut Random, old: u64| match random.below(5) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => 0,
            3 => u64::MAX,
            _ => random.next(),
        };
        match random.below(3) {
            0 if at / 8 * 8 + 8 <= file.len() => {
                let at = at / 8 * 8;
                let old = number(file, at);
                put(file, at, near(random, old));
            }
            1 => file[at.min(file.len() - 1)] ^= 1 << random.below(8),
            _ => file[at.min(file.len() - 1)] = random.next() as u8,
        }
    }
}

/// Opens changed files, with every checksum right, and asks those that open.
fn try_forgeries<K: WalkedKey + RefUnwindSafe>(good: &[Vec<u8>], seeds: Range<u64>, keys: &[K]) -> (u64, u64) {
    let scratch = Scratch::new();
    let (mut opened, mut refused) = (0, 0);
    for seed in seeds {
        let mut random = Random(seed);
        let mut file = good[random.below(good.len())].clone();
        mutate(&mut file, &mut random);
        seal(&mut file);
        let outcome = std::panic::catch_unwind(|| match scratch.open(&file) {
            Ok(store) => {
                assert_eq!(Some(store.key_kind()), KeyKind::from_code(K::KIND));
                assert_answers_as_its_records(&store, &file, keys);
                true
            }
            Err(_) => false,
        });
        match outcome {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("seed {seed}: see the message above"),
        }
    }
    (opened, refused)
}

#[test]
fn a_forgery_is_refused_or_answers_as_its_records() {
    let good = [0, 5, 21, 300].map(|count| Scratch::new().bake(&rows(count)));
    let keys: Vec<u64> = (0..910).step_by(13).chain([u64::MAX, u64::MAX - 1, 1 << 63]).collect();
    let (opened, refused) = try_forgeries(&good, 0..4000, &keys);
    assert!(opened > 100 && refused > 1000, "both are tried: {opened} opened, {refused} refused");
}

#[test]
fn a_forgery_of_bytes_is_refused_or_answers_as_its_records() {
    // An empty file has a kind, and no row to tell it by.
    let good = [5, 21, 300].map(|count| Scratch::new().bake(&byte_rows(count)));
    let mut keys: Vec<Vec<u8>> = (0..910).step_by(13).map(|i| format!("key-{i:03}").into_bytes()).collect();
    keys.extend([&b""[..], b"\0", b"key-", b"key", b"key-0000", b"\xff\xff", b"\0\0\0\0\0\0\0\0"].map(<[u8]>::to_vec));
    let (opened, refused) = try_forgeries(&good, 0..4000, &keys);
    assert!(opened > 100 && refused > 1000, "both are tried: {opened} opened, {refused} refused");
}
