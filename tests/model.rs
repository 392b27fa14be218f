//! Random tables against a `BTreeMap` of the same rows.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::{Random, Rows, Scratch, bake_to};
use zero_kv::Store;

type Model = BTreeMap<u64, Vec<u8>>;

/// How keys are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Dense,
    Uniform,
    /// Runs of neighbours, and the least and the greatest key of all.
    Clustered,
    /// A counter with its bits in reverse.
    BitReversed,
    /// Milliseconds, ever further apart.
    Timestamps,
}

const SPREADS: [Spread; 5] =
    [Spread::Dense, Spread::Uniform, Spread::Clustered, Spread::BitReversed, Spread::Timestamps];

fn key(spread: Spread, i: u64, random: &mut Random) -> u64 {
    match (spread, i) {
        (Spread::Dense, _) => i,
        (Spread::Uniform, _) => random.next(),
        (Spread::Clustered, 0) => 0,
        (Spread::Clustered, 1) => u64::MAX,
        (Spread::Clustered, _) => (1 << (20 + i % 5 * 9)) + i,
        (Spread::BitReversed, _) => i.reverse_bits(),
        (Spread::Timestamps, _) => 1_700_000_000_000 + i * i + random.next() % (2 * i + 1),
    }
}

/// Values with what delimited text finds difficult.
fn value(random: &mut Random) -> Vec<u8> {
    let len = random.below(201);
    let awkward = b"\",\n\r;\t\0\xff\xef\xbb\xbf ";
    match random.below(3) {
        0 => random.bytes(len),
        1 => (0..len).map(|_| awkward[random.below(awkward.len())]).collect(),
        _ => (0..len).map(|i| b'a' + (i % 26) as u8).collect(),
    }
}

fn model(spread: Spread, rows: usize, seed: u64) -> Model {
    let mut random = Random(seed);
    (0..rows as u64).map(|i| (key(spread, i, &mut random), value(&mut random))).collect()
}

fn bake_shuffled(scratch: &Scratch, model: &Model, seed: u64) -> Store {
    let mut rows: Rows = model.clone().into_iter().collect();
    Random(seed).shuffle(&mut rows);
    bake_to(&scratch.path(), &rows);
    Store::open(scratch.path()).unwrap()
}

/// Present keys and their neighbours, the ends, and keys from anywhere.
fn questions(model: &Model, random: &mut Random) -> Vec<u64> {
    let mut keys = vec![0, 1, u64::MAX - 1, u64::MAX];
    for key in model.keys() {
        keys.extend([*key, key.wrapping_sub(1), key.wrapping_add(1)]);
    }
    keys.extend((0..50).map(|_| random.next()));
    random.shuffle(&mut keys);
    keys
}

fn assert_agrees(store: &Store, model: &Model, seed: u64) {
    assert_eq!(store.len(), model.len());
    assert_eq!(store.is_empty(), model.is_empty());
    let keys = questions(model, &mut Random(seed));
    for (i, key) in keys.iter().enumerate() {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(store.get(*key), expected, "key {key}");
        assert_eq!(store.contains(*key), expected.is_some(), "key {key}");
        // Each of these sums a block or two.
        if i % 16 == 0 {
            assert_eq!(store.get_verified(*key).unwrap(), expected, "key {key}");
        }
    }
    let mut answers = Vec::new();
    store.get_many(&keys, |i, value| answers.push((i, value)));
    let one_by_one: Vec<_> = keys.iter().map(|key| store.get(*key)).enumerate().collect();
    assert_eq!(answers, one_by_one);
    assert_rows_agree(store, model);
    store.verify().unwrap();
}

fn assert_rows_agree(store: &Store, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(key, value)| (*key, value.as_slice())).collect();
    assert_eq!(store.iter().collect::<Vec<_>>(), expected);
    assert!(store.iter().rev().eq(expected.iter().rev().copied()), "in reverse");
    for (row, (key, value)) in expected.iter().enumerate() {
        assert_eq!(store.row(row), Some((*key, *value)), "row {row}");
        assert_eq!(store.key(row), Some(*key), "row {row}");
    }
    assert_eq!((store.row(model.len()), store.key(model.len())), (None, None));
    assert_eq!((store.row(usize::MAX), store.key(usize::MAX)), (None, None));
}

#[test]
fn a_table_of_every_size_at_which_the_index_grows_is_its_rows() {
    let scratch = Scratch::new();
    for rows in [0, 1, 7, 8, 9, 127, 128, 129, 135, 136, 137, 2047, 2048, 2049, 5000] {
        for spread in SPREADS {
            println!("{rows} rows, {spread:?}");
            let model = model(spread, rows, rows as u64);
            assert_eq!(model.len(), rows, "keys differ");
            assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    // A failure is printed as its spread, rows and seed.
    #[test]
    fn a_random_table_is_its_rows(
        spread in proptest::sample::select(&SPREADS[..]),
        rows in prop_oneof![0..40_usize, 0..600_usize],
        seed in any::<u64>(),
    ) {
        let scratch = Scratch::new();
        let model = model(spread, rows, seed);
        assert_agrees(&bake_shuffled(&scratch, &model, seed), &model, seed);
    }

    #[test]
    fn a_table_of_any_keys_and_values_is_its_rows(
        model in prop::collection::btree_map(any::<u64>(), prop::collection::vec(any::<u8>(), 0..40), 0..30)
    ) {
        let scratch = Scratch::new();
        assert_agrees(&bake_shuffled(&scratch, &model, 5), &model, 6);
    }
}

#[test]
fn the_greatest_key_is_missed_where_unused_places_hold_it() {
    let scratch = Scratch::new();
    for rows in [1, 7, 8, 9, 129, 2049] {
        let mut model = model(Spread::Dense, rows, 1);
        let store = bake_shuffled(&scratch, &model, 1);
        assert_eq!((store.get(u64::MAX), store.contains(u64::MAX)), (None, false), "{rows} rows");
        drop(store);
        model.insert(u64::MAX, b"greatest".to_vec());
        let store = bake_shuffled(&scratch, &model, 1);
        assert_eq!(store.get(u64::MAX), Some(&b"greatest"[..]), "{rows} rows and one");
    }
}

#[test]
fn threads_share_one_store() {
    fn shared<T: Send + Sync + 'static>(value: T) -> std::sync::Arc<T> {
        std::sync::Arc::new(value)
    }
    let scratch = Scratch::new();
    let model = model(Spread::Uniform, 700, 9);
    let store = shared(bake_shuffled(&scratch, &model, 9));
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let (store, model) = (store.clone(), model.clone());
            std::thread::spawn(move || assert_agrees(&store, &model, seed))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
