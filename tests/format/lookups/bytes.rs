//! Byte-string keys.

use std::collections::BTreeSet;

use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::{Model, Question, assert_agrees, bake_shuffled, value};
use crate::helpers::encoder::{self, PLACES};
use crate::helpers::random::Random;
use crate::helpers::rows::Scratch;

/// How keys are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// 1 to 40 bytes of any kind.
    Random,
    /// Hosts, folders and pages: many begin alike, some are the beginning of others.
    Urls,
    /// Long, and alike but for the end.
    Alike,
    /// Few bytes, among them the least and the greatest, in every combination.
    Nested,
    /// 24 bytes of which the first 10 are the same.
    Fixed,
    /// One or two bytes.
    Short,
}

const SPREADS: [Spread; 6] =
    [Spread::Random, Spread::Urls, Spread::Alike, Spread::Nested, Spread::Fixed, Spread::Short];

fn key(spread: Spread, i: u64, random: &mut Random) -> Vec<u8> {
    match spread {
        Spread::Random => {
            let len = 1 + random.below(40);
            random.bytes(len)
        }
        Spread::Urls => {
            let mut url = format!("https://host-{}.example", random.below(4));
            for _ in 0..random.below(5) {
                url.push_str(&format!("/folder-{}", random.below(5)));
            }
            if random.below(2) == 0 {
                url.push_str(&format!("/page?id={}", random.below(2000)));
            }
            url.into_bytes()
        }
        Spread::Alike => [&[b'='; 300][..], i.to_string().as_bytes()].concat(),
        Spread::Nested => (0..1 + random.below(12)).map(|_| b"\0\x01\xff"[random.below(3)]).collect(),
        Spread::Fixed => format!("customers/{:014}", random.below(1 << 40)).into_bytes(),
        Spread::Short => {
            let len = 1 + random.below(2);
            random.bytes(len)
        }
    }
}

fn model(spread: Spread, rows: u64, seed: u64) -> Model<Vec<u8>> {
    let mut random = Random(seed);
    let mut model = Model::new();
    let mut i = 0;
    while (model.len() as u64) < rows {
        model.insert(key(spread, i, &mut random), value(&mut random));
        i += 1;
    }
    model
}

#[test]
fn a_table_of_every_size_at_which_the_index_grows_is_its_rows() {
    let scratch = Scratch::new();
    for rows in [0, 1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 257, 1000] {
        for spread in SPREADS {
            println!("{rows} rows, {spread:?}, seed {rows}");
            let model = model(spread, rows, rows);
            assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
        }
    }
}

#[test]
fn a_table_of_several_parts_is_its_rows() {
    let scratch = Scratch::new();
    for (rows, spread) in [(32_769, Spread::Fixed), (40_000, Spread::Random)] {
        println!("{rows} rows, {spread:?}, seed 3");
        let model = model(spread, rows, 3);
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
}

#[test]
fn every_key_of_one_byte_is_a_row_or_none() {
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
fn keys_of_every_length_up_to_the_longest_are_rows() {
    let scratch = Scratch::new();
    let lens = (1..64).chain([255, 256, 257, 4095, 4096, 16_384, 65_528, 65_533, 65_534, 65_535]);
    // All are beginnings of each other; a zero behind one is the next.
    for byte in [0, b'k'] {
        let model: Model<Vec<u8>> = lens.clone().map(|len| (vec![byte; len], len.to_string().into_bytes())).collect();
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
    // Alike but for the last byte of the longest.
    let long = |last: u8| [vec![b'k'; 65_534], vec![last]].concat();
    let model: Model<Vec<u8>> = (0..40).map(|last| (long(last * 2), vec![last])).collect();
    assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
}

#[test]
fn a_key_that_leads_to_the_record_of_another_is_not_found() {
    let scratch = Scratch::new();
    // In a table of one row every key leads to its record.
    for key in [&b"a"[..], b"\0", b"\xff\xff", b"abcdef", b"abcdefg", b"customers/00000000000001"] {
        let model = Model::from([(key.to_vec(), b"the only one".to_vec())]);
        let store = bake_shuffled(&scratch, &model, 1);
        for near in key.to_vec().near() {
            assert_eq!(store.get(&near).unwrap(), None, "{near:?} is not {key:?}");
            assert!(!store.contains(&near).unwrap(), "{near:?} is not {key:?}");
        }
    }
    // In a larger one, keys of the same length that lead to a slot in use.
    let mut random = Random(8);
    let model = model(Spread::Fixed, 300, 8);
    let store = bake_shuffled(&scratch, &model, 1);
    let file = std::fs::read(scratch.path()).unwrap();
    let slots: BTreeSet<usize> = model.keys().map(|key| encoder::place_at(&file, key)).collect();
    assert_eq!(slots.len(), model.len(), "each key has a slot for itself");
    assert!(
        slots
            .iter()
            .all(|at| (0..encoder::section(&file, PLACES).1).contains(&(at - encoder::section(&file, PLACES).0)))
    );
    let missing: Vec<Vec<u8>> = std::iter::repeat_with(|| key(Spread::Fixed, 0, &mut random))
        .filter(|key| !model.contains_key(key) && slots.contains(&encoder::place_at(&file, key)))
        .take(5000)
        .collect();
    let (mut answers, asked) = (Vec::new(), missing.iter().map(Vec::as_slice).collect::<Vec<_>>());
    store.get_many(&asked, |_, value| answers.push(value)).unwrap();
    assert_eq!(answers, vec![None; missing.len()]);
    assert!(missing.iter().all(|key| store.get(key).unwrap().is_none() && !store.contains(key).unwrap()));
}

/// XXH3 multiplies each half of 8 bytes, xored with a secret, by the other half.
/// The secret that it has without a seed is public: where a half is the secret's,
/// the product is zero whatever the other half is.
#[test]
fn keys_that_collide_without_a_seed_are_rows_of_one_table() {
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
fn a_batch_of_any_length_has_the_answers_of_its_keys() {
    let scratch = Scratch::new();
    let model = model(Spread::Urls, 500, 4);
    let store = bake_shuffled(&scratch, &model, 1);
    let mut random = Random(9);
    let keys: Vec<Vec<u8>> = (0..400).map(|i| key(Spread::Urls, i, &mut random)).collect();
    for len in (0..70).chain([127, 128, 129, 400]) {
        let mut answers = Vec::new();
        let asked: Vec<&[u8]> = keys[..len].iter().map(Vec::as_slice).collect();
        store.get_many(&asked, |i, value| answers.push((i, value))).unwrap();
        let expected: Vec<_> = asked.iter().map(|key| model.get(*key).map(Vec::as_slice)).enumerate().collect();
        assert_eq!(answers, expected, "{len} keys");
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
    fn a_table_of_any_keys_and_values_is_its_rows(
        model in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 1..40), prop::collection::vec(any::<u8>(), 0..40), 0..60
        ),
        seed in any::<u64>(),
    ) {
        assert_agrees(&bake_shuffled(&Scratch::new(), &model, seed), &model, seed);
    }
}
