//! Byte-string keys.

use std::collections::BTreeSet;
use zero_kv::Lookup;

use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::{DerivedKeys, Model, assert_agrees, bake_shuffled, value};
use crate::helpers::encoder::{self, PLACES};
use crate::helpers::random::Random;
use crate::helpers::rows::Scratch;

/// The distribution of the keys.
#[derive(Clone, Copy, Debug)]
enum Distribution {
    /// 1 to 40 random bytes.
    Random,
    /// Hosts, folders, and pages: many keys share prefixes, and some are prefixes of others.
    Urls,
    /// Long keys that differ only at the end.
    Alike,
    /// Every combination of a few bytes, among them the least and the greatest.
    Nested,
    /// 24 bytes, of which the first 10 are equal in all keys.
    Fixed,
    /// One or two bytes.
    Short,
}

const DISTRIBUTIONS: [Distribution; 6] = [
    Distribution::Random,
    Distribution::Urls,
    Distribution::Alike,
    Distribution::Nested,
    Distribution::Fixed,
    Distribution::Short,
];

fn key(distribution: Distribution, i: u64, random: &mut Random) -> Vec<u8> {
    match distribution {
        Distribution::Random => {
            let len = 1 + random.below(40);
            random.bytes(len)
        }
        Distribution::Urls => {
            let mut url = format!("https://host-{}.example", random.below(4));
            for _ in 0..random.below(5) {
                url.push_str(&format!("/folder-{}", random.below(5)));
            }
            if random.below(2) == 0 {
                url.push_str(&format!("/page?id={}", random.below(2000)));
            }
            url.into_bytes()
        }
        Distribution::Alike => [&[b'='; 300][..], i.to_string().as_bytes()].concat(),
        Distribution::Nested => (0..1 + random.below(12)).map(|_| b"\0\x01\xff"[random.below(3)]).collect(),
        Distribution::Fixed => format!("customers/{:014}", random.below(1 << 40)).into_bytes(),
        Distribution::Short => {
            let len = 1 + random.below(2);
            random.bytes(len)
        }
    }
}

fn model(distribution: Distribution, rows: u64, seed: u64) -> Model<Vec<u8>> {
    let mut random = Random(seed);
    let mut model = Model::new();
    let mut i = 0;
    while (model.len() as u64) < rows {
        model.insert(key(distribution, i, &mut random), value(&mut random));
        i += 1;
    }
    model
}

#[test]
fn a_table_of_every_size_at_which_the_index_grows_matches_the_model() {
    let scratch = Scratch::new();
    for rows in [0, 1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 257, 1000] {
        for distribution in DISTRIBUTIONS {
            println!("{rows} rows, {distribution:?}, seed {rows}");
            let model = model(distribution, rows, rows);
            assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
        }
    }
}

#[test]
fn a_table_of_several_parts_matches_the_model() {
    let scratch = Scratch::new();
    for (rows, distribution) in [(32_769, Distribution::Fixed), (40_000, Distribution::Random)] {
        println!("{rows} rows, {distribution:?}, seed 3");
        let model = model(distribution, rows, 3);
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
}

#[test]
fn one_byte_keys_are_found_exactly_if_they_are_rows() {
    let scratch = Scratch::new();
    for left_out in [None, Some(0), Some(b'a'), Some(255)] {
        let keys = (0..=255_u8).filter(|byte| Some(*byte) != left_out);
        let model: Model<Vec<u8>> = keys.map(|byte| (vec![byte], vec![byte; 3])).collect();
        let store = bake_shuffled(&scratch, &model, 1);
        assert_agrees(&store, &model, 2);
        for byte in 0..=255 {
            assert_eq!(store.contains(&[byte]).unwrap(), Some(byte) != left_out, "{byte}");
            assert!(!store.contains(&[byte, 0]).unwrap());
        }
    }
}

#[test]
fn keys_of_every_length_up_to_the_longest_are_found() {
    let scratch = Scratch::new();
    let lens = (1..64).chain([255, 256, 257, 4095, 4096, 16_384, 65_528, 65_533, 65_534, 65_535]);
    // Each key is a prefix of the next. A key followed by a zero is the next key in order.
    for byte in [0, b'k'] {
        let model: Model<Vec<u8>> = lens.clone().map(|len| (vec![byte; len], len.to_string().into_bytes())).collect();
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
    // The longest keys, which differ only in the last byte.
    let long = |last: u8| [vec![b'k'; 65_534], vec![last]].concat();
    let model: Model<Vec<u8>> = (0..40).map(|last| (long(last * 2), vec![last])).collect();
    assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
}

#[test]
fn an_absent_key_that_leads_to_another_keys_record_is_not_found() {
    let scratch = Scratch::new();
    // In a table of one row, the index leads every key to the only record.
    for key in [&b"a"[..], b"\0", b"\xff\xff", b"abcdef", b"abcdefg", b"customers/00000000000001"] {
        let model = Model::from([(key.to_vec(), b"the only one".to_vec())]);
        let store = bake_shuffled(&scratch, &model, 1);
        for near in key.to_vec().near() {
            assert_eq!(store.get(&near).unwrap(), None, "{near:?} is not {key:?}");
            assert!(!store.contains(&near).unwrap(), "{near:?} is not {key:?}");
        }
    }
    // In a larger table, absent keys of the same length that lead to a used slot.
    let mut random = Random(8);
    let model = model(Distribution::Fixed, 300, 8);
    let store = bake_shuffled(&scratch, &model, 1);
    let file = std::fs::read(scratch.path()).unwrap();
    let slots: BTreeSet<usize> = model.keys().map(|key| encoder::place_at(&file, key)).collect();
    assert_eq!(slots.len(), model.len(), "each key has its own slot");
    assert!(
        slots
            .iter()
            .all(|at| (0..encoder::section(&file, PLACES).1).contains(&(at - encoder::section(&file, PLACES).0)))
    );
    let missing: Vec<Vec<u8>> = std::iter::repeat_with(|| key(Distribution::Fixed, 0, &mut random))
        .filter(|key| !model.contains_key(key) && slots.contains(&encoder::place_at(&file, key)))
        .take(5000)
        .collect();
    let asked: Vec<_> = missing.iter().map(Vec::as_slice).collect();
    assert_eq!(store.get_many(&asked).unwrap(), vec![None; missing.len()]);
    assert!(missing.iter().all(|key| store.get(key).unwrap().is_none() && !store.contains(key).unwrap()));
}

/// XXH3 multiplies each half of 8 bytes, xored with a secret, by the other half. Without a seed, the secret is public:
/// if one half equals the secret, the product is zero for every other half.
#[test]
fn keys_that_collide_without_a_seed_can_be_in_one_table() {
    let key = |difference: u32| {
        let mut key = vec![7; 256];
        key[..4].copy_from_slice(&[0xb8, 0xfe, 0x6c, 0x39]);
        key[64..68].copy_from_slice(&[0x7c, 0x01, 0x81, 0x2c]);
        key[4..8].copy_from_slice(&(1000 + difference).to_le_bytes());
        key[68..72].copy_from_slice(&(2000 - difference).to_le_bytes());
        key
    };
    let (a, b) = (key(0), key(1));
    assert_eq!(XxHash3_64::oneshot(&a), XxHash3_64::oneshot(&b), "keys that collide");
    let model: Model<Vec<u8>> = [(a, b"a".to_vec()), (b, b"b".to_vec())].into();
    assert_agrees(&bake_shuffled(&Scratch::new(), &model, 1), &model, 1);
}

#[test]
fn a_batch_of_any_length_equals_single_lookups() {
    let scratch = Scratch::new();
    let model = model(Distribution::Urls, 500, 4);
    let store = bake_shuffled(&scratch, &model, 1);
    let mut random = Random(9);
    let keys: Vec<Vec<u8>> = (0..400).map(|i| key(Distribution::Urls, i, &mut random)).collect();
    for len in (0..70).chain([127, 128, 129, 400]) {
        let asked: Vec<&[u8]> = keys[..len].iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = asked.iter().map(|key| model.get(*key).map(Vec::as_slice)).collect();
        assert_eq!(store.get_many(&asked).unwrap(), expected, "{len} keys");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(9),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_table_of_any_keys_and_values_matches_the_model(
        model in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 1..40), prop::collection::vec(any::<u8>(), 0..40), 0..60
        ),
        seed in any::<u64>(),
    ) {
        assert_agrees(&bake_shuffled(&Scratch::new(), &model, seed), &model, seed);
    }
}
