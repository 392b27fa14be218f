//! Random changes.

use crate::rows;
use crate::support::encoder::{self, RECORD_ALIGN, RECORDS, SECTIONS, number, put, seal};
use crate::support::{Random, Scratch};
use zero_kv::{Key, Store};

/// What a walk along the records finds, with nothing of the index.
fn walk(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut at, len) = encoder::section(file, RECORDS);
    let end = at + len;
    let align = u32::from_le_bytes(file[RECORD_ALIGN..][..4].try_into().unwrap()) as usize;
    let mut rows = Vec::new();
    while at < end {
        let value_len = u64::from_be_bytes(file[at + 8..at + 16].try_into().unwrap()) as usize;
        rows.push((number(file, at), file[at + 16..at + 16 + value_len].to_vec()));
        at += (16 + value_len).next_multiple_of(align);
    }
    rows
}

/// Asks for everything, and holds each answer against the records.
fn assert_answers_as_its_records(store: &Store, file: &[u8], mut keys: Vec<u64>) {
    let rows = walk(file);
    keys.extend(rows.iter().map(|(key, _)| *key));
    let expected = |key: &u64| rows.iter().find(|row| row.0 == *key).map(|row| row.1.as_slice());
    let expected: Vec<_> = keys.iter().map(expected).collect();
    for (key, expected) in keys.iter().zip(&expected) {
        assert_eq!(
            (store.get(*key).unwrap(), store.contains(*key).unwrap()),
            (*expected, expected.is_some()),
            "key {key}"
        );
    }
    let mut answers = Vec::new();
    store
        .get_many(&keys, |i, value| {
            assert_eq!(i, answers.len());
            answers.push(value);
        })
        .unwrap();
    assert_eq!(answers, expected);
    assert_eq!(store.len(), rows.len());
    let rows: Vec<_> = rows.iter().map(|(key, value)| (Key::U64(*key), value.as_slice())).collect();
    assert_eq!(store.iter().collect::<Vec<_>>(), rows);
    assert!(store.iter().rev().eq(rows.iter().rev().copied()), "in reverse");
    assert!((0..rows.len()).map(|row| store.row(row)).eq(rows.iter().copied().map(Some)), "row by row");
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

#[test]
fn a_forgery_is_refused_or_answers_as_its_records() {
    let scratch = Scratch::new();
    let good: Vec<Vec<u8>> = [0, 5, 21, 300].map(|count| scratch.bake(&rows(count))).into();
    let mut keys: Vec<u64> = (0..910).step_by(13).chain([u64::MAX, u64::MAX - 1, 1 << 63]).collect();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random(seed);
        let mut file = good[random.below(good.len())].clone();
        mutate(&mut file, &mut random);
        seal(&mut file);
        keys[0] = random.next();
        let outcome = std::panic::catch_unwind(|| match scratch.open(&file) {
            Ok(store) => {
                assert_answers_as_its_records(&store, &file, keys.clone());
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
    assert!(opened > 100 && refused > 1000, "both are tried: {opened} opened, {refused} refused");
}
