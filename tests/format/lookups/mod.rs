//! Compares every lookup in random tables with a `BTreeMap` of their rows, for both kinds of keys.

mod bytes;
mod kinds;
mod numbers;
mod order;

use std::collections::BTreeMap;

use zero_kv::Lookup;
use zero_kv::{Key, Store};

use crate::helpers::random::Random;
use crate::helpers::rows::{Scratch, TestKey};

type Model<K> = BTreeMap<K, Vec<u8>>;

/// The number of rows up to which every key is looked up. In larger tables, some keys are drawn.
const ALL_KEYS_ROWS_MAX: usize = 2000;

/// A key from which other keys are derived.
trait DerivedKeys: TestKey {
    /// Returns the adjacent keys, and keys that are easily mistaken for this key.
    fn near(&self) -> Vec<Self>;
    /// Returns the least and the greatest key, and keys beyond them.
    fn extremes() -> Vec<Self>;
    fn any(random: &mut Random) -> Self;
}

impl DerivedKeys for u64 {
    fn near(&self) -> Vec<u64> {
        vec![self.wrapping_sub(1), self.wrapping_add(1)]
    }

    fn extremes() -> Vec<u64> {
        vec![0, 1, u64::MAX - 1, u64::MAX]
    }

    fn any(random: &mut Random) -> u64 {
        random.next()
    }
}

impl DerivedKeys for Vec<u8> {
    fn near(&self) -> Vec<Vec<u8>> {
        let changed = |at: usize, by: u8| {
            let mut key = self.clone();
            if let Some(byte) = key.get_mut(at) {
                *byte = byte.wrapping_add(by);
            }
            key
        };
        let last = self.len().saturating_sub(1);
        vec![
            [self, &b"\0"[..]].concat(),
            [self, &b"\xff"[..]].concat(),
            self[..last].to_vec(),
            self[..self.len() / 2].to_vec(),
            changed(last, 1),
            changed(last, 255),
            changed(0, 1),
            changed(0, 255),
            changed(self.len() / 2, 128),
            [&changed(last, 255), &b"\xff"[..]].concat(),
        ]
    }

    fn extremes() -> Vec<Vec<u8>> {
        vec![
            vec![],
            vec![0],
            vec![0; 2],
            vec![255],
            vec![255; 9],
            vec![255; 65_535],
            vec![b'a'; 65_536],
            vec![255; 65_536],
        ]
    }

    fn any(random: &mut Random) -> Vec<u8> {
        let len = random.below(30);
        random.bytes(len)
    }
}

/// Returns a value, possibly with bytes that delimited text must quote.
fn value(random: &mut Random) -> Vec<u8> {
    let len = random.below(201);
    let awkward = b"\",\n\r;\t\0\xff\xef\xbb\xbf ";
    match random.below(3) {
        0 => random.bytes(len),
        1 => (0..len).map(|_| awkward[random.below(awkward.len())]).collect(),
        _ => (0..len).map(|i| b'a' + (i % 26) as u8).collect(),
    }
}

fn bake_shuffled<K: TestKey>(scratch: &Scratch, model: &Model<K>, seed: u64) -> Store {
    let mut rows: Vec<(K, Vec<u8>)> = model.clone().into_iter().collect();
    Random(seed).shuffle(&mut rows);
    scratch.bake(&rows);
    Store::open(scratch.path()).unwrap()
}

/// Returns keys of the table and keys near them, the extremes, and random keys.
fn keys_to_look_up<K: DerivedKeys>(model: &Model<K>, random: &mut Random) -> Vec<K> {
    let mut keys = K::extremes();
    for key in model.keys().step_by(model.len() / ALL_KEYS_ROWS_MAX + 1) {
        keys.extend(key.near());
        keys.push(key.clone());
    }
    keys.extend((0..50).map(|_| K::any(random)));
    random.shuffle(&mut keys);
    keys
}

fn assert_agrees<K: DerivedKeys>(store: &Store, model: &Model<K>, seed: u64) {
    assert_eq!(store.len(), model.len());
    assert_eq!(store.is_empty(), model.is_empty());
    let mut random = Random(seed);
    let keys = keys_to_look_up(model, &mut random);
    for key in &keys {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(store.get(key.key()).unwrap(), expected, "key {key:?}");
        assert_eq!(store.contains(key.key()).unwrap(), expected.is_some(), "key {key:?}");
    }
    let typed: Vec<Key<'_>> = keys.iter().map(TestKey::key).collect();
    let one_by_one: Vec<_> = typed.iter().map(|key| store.get(*key).unwrap()).collect();
    assert!(store.get_many(&typed).unwrap() == one_by_one, "a batch returns the values of its keys");
    assert_rows_agree(store, model);
    order::assert_order_agrees(store, model, &keys, &mut random);
}

fn rows_of<K: TestKey>(model: &Model<K>) -> Vec<(Key<'_>, &[u8])> {
    model.iter().map(|(key, value)| (key.key(), value.as_slice())).collect()
}

fn assert_rows_agree<K: TestKey>(store: &Store, model: &Model<K>) {
    let expected = rows_of(model);
    assert!(store.iter().map(Result::unwrap).eq(expected.iter().copied()), "row by row");
    assert!(store.iter().map(Result::unwrap).rev().eq(expected.iter().rev().copied()), "in reverse");
    for (row, expected) in expected.iter().enumerate() {
        assert_eq!(store.row(row), Ok(Some(*expected)), "row {row}");
    }
    assert_eq!((store.row(model.len()), store.row(usize::MAX)), (Ok(None), Ok(None)));
    assert_eq!((store.first(), store.last()), (Ok(expected.first().copied()), Ok(expected.last().copied())));
}
