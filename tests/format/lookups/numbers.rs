//! Numeric keys.

use proptest::prelude::*;
use zero_kv::format::index::{Hash, Parts};

use super::{Model, assert_agrees, bake_shuffled, rows_of, value};
use crate::helpers::random::Random;
use crate::helpers::rows::Scratch;

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

fn model(spread: Spread, rows: usize, seed: u64) -> Model<u64> {
    let mut random = Random(seed);
    (0..rows as u64).map(|i| (key(spread, i, &mut random), value(&mut random))).collect()
}

#[test]
fn a_table_of_every_size_at_which_the_index_grows_is_its_rows() {
    let scratch = Scratch::new();
    for rows in [0, 1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 255, 256, 257, 2049, 5000] {
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
fn the_least_and_the_greatest_key_are_found_only_where_they_are_rows() {
    let scratch = Scratch::new();
    for rows in [1, 7, 8, 9, 129, 2049] {
        let mut model: Model<u64> = (1..=rows).map(|key| (key, vec![0; 8])).collect();
        for ends in [&[][..], &[0], &[u64::MAX], &[0, u64::MAX]] {
            model.retain(|key, _| *key != 0 && *key != u64::MAX);
            model.extend(ends.iter().map(|key| (*key, b"end".to_vec())));
            let store = bake_shuffled(&scratch, &model, 1);
            for key in [0, u64::MAX] {
                assert_eq!(
                    store.get(key).unwrap().is_some(),
                    ends.contains(&key),
                    "{rows} rows and {ends:?}: key {key}"
                );
            }
            assert_agrees(&store, &model, 3);
        }
    }
}

#[test]
fn a_table_of_several_parts_is_its_rows() {
    let scratch = Scratch::new();
    for (rows, spread) in [(32_768, Spread::BitReversed), (32_769, Spread::Clustered), (70_000, Spread::Timestamps)] {
        println!("{rows} rows, {spread:?}");
        let model = model(spread, rows, 3);
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
}

/// A row's hash.
type HashOf = fn(u64) -> u64;

/// What an odd number is multiplied by to give 1, by Newton's method: each step
/// doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// The key that has this hash under seed 0.
fn key_of_hash(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(inverse(0xd6e8_feb8_6659_fd93));
    (hash ^ (hash >> 32)).wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn keys_made_to_collide_under_a_seed_known_beforehand_are_found() {
    let scratch = Scratch::new();
    for rows in [13, 100, 2000, 33_000] {
        let parts = Parts { count: Parts::count(rows), pilots: rows.div_ceil(3), slots: rows * 17 / 16 };
        // Hashes that share the first pilot, the last pilot, and, whatever the number of slots, one slot under pilot 0.
        let sets: [(&str, HashOf); 3] = [
            ("the first pilot", |i| i),
            ("the last pilot", |i| u64::MAX - i),
            ("one slot", |i| i.wrapping_mul(inverse(0xe703_7ed1_a0b4_28db))),
        ];
        for (shared, hash) in sets {
            println!("{rows} rows, {shared}");
            let keys: Vec<u64> = (0..rows + 50).map(|i| key_of_hash(hash(i))).collect();
            let of = |key: &u64| match shared {
                "one slot" => Hash::from_u64(*key, 0).slot_in_part(0, &parts),
                _ => Hash::from_u64(*key, 0).pilot(&parts) as u64,
            };
            assert!(keys.iter().all(|key| of(key) == of(&keys[0])), "they share {shared}");
            let (present, missing) = keys.split_at(rows as usize);
            let model: Model<u64> = present.iter().map(|key| (*key, key.to_string().into_bytes())).collect();
            let store = bake_shuffled(&scratch, &model, 4);
            assert_agrees(&store, &model, 5);
            assert!(missing.iter().all(|key| store.get(*key).unwrap().is_none()), "keys that share {shared}, too");
        }
    }
}

#[test]
fn rows_are_skipped_as_if_they_were_walked() {
    let scratch = Scratch::new();
    for rows in [0, 1, 15, 16, 17, 32, 100, 160] {
        let model: Model<u64> = (0..rows).map(|key| (key * 3, vec![b'v'; key as usize % 30])).collect();
        let store = bake_shuffled(&scratch, &model, 6);
        let expected_rows = rows_of(&model);
        for (taken, skipped) in
            (0..40).flat_map(|taken| [0, 1, 14, 15, 16, 17, 33, 200].map(|skipped| (taken, skipped)))
        {
            let (mut iter, mut walked) = (store.iter(), expected_rows.iter().copied());
            iter.by_ref().take(taken).for_each(drop);
            walked.by_ref().take(taken).for_each(drop);
            let expected = walked.nth(skipped);
            assert_eq!(iter.nth(skipped), expected, "{rows} rows, {skipped} skipped after {taken}");
            assert_eq!(
                (iter.len(), iter.map(|(key, _)| key.as_u64().unwrap()).sum()),
                (walked.len(), walked.map(|(key, _)| key.as_u64().unwrap()).sum::<u64>())
            );
        }
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
