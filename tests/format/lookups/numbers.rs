//! Numeric keys.

use proptest::prelude::*;
use zero_kv::Lookup;
use zero_kv::format::index::{Hash, Parts};

use super::{Model, assert_agrees, bake_shuffled, rows_of, value};
use crate::helpers::random::Random;
use crate::helpers::rows::{LAYOUTS, Scratch};

/// The distribution of the keys.
#[derive(Clone, Copy, Debug)]
enum Distribution {
    Dense,
    Uniform,
    /// Runs of consecutive keys, and the least and the greatest key of all.
    Clustered,
    /// A counter with its bits reversed.
    BitReversed,
    /// Timestamps in milliseconds with growing distances.
    Timestamps,
}

const DISTRIBUTIONS: [Distribution; 5] = [
    Distribution::Dense,
    Distribution::Uniform,
    Distribution::Clustered,
    Distribution::BitReversed,
    Distribution::Timestamps,
];

fn key(distribution: Distribution, i: u64, random: &mut Random) -> u64 {
    match (distribution, i) {
        (Distribution::Dense, _) => i,
        (Distribution::Uniform, _) => random.next(),
        (Distribution::Clustered, 0) => 0,
        (Distribution::Clustered, 1) => u64::MAX,
        (Distribution::Clustered, _) => (1 << (20 + i % 5 * 9)) + i,
        (Distribution::BitReversed, _) => i.reverse_bits(),
        (Distribution::Timestamps, _) => 1_700_000_000_000 + i * i + random.next() % (2 * i + 1),
    }
}

fn model(distribution: Distribution, rows: usize, seed: u64) -> Model<u64> {
    let mut random = Random(seed);
    (0..rows as u64).map(|i| (key(distribution, i, &mut random), value(&mut random))).collect()
}

#[test]
fn a_table_of_every_size_at_which_the_index_grows_matches_the_model() {
    let scratches = LAYOUTS.map(Scratch::of);
    for rows in [0, 1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 255, 256, 257, 511, 512, 513, 2049, 5000] {
        for (distribution, (scratch, layout)) in DISTRIBUTIONS
            .iter()
            .flat_map(|distribution| scratches.iter().zip(LAYOUTS).map(move |of| (*distribution, of)))
        {
            println!("{rows} rows, {distribution:?}, {layout}");
            let model = model(distribution, rows, rows as u64);
            assert_eq!(model.len(), rows, "keys differ");
            assert_agrees(&bake_shuffled(scratch, &model, 1), &model, 2);
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

    // A failure prints the distribution, the number of rows, and the seed.
    #[test]
    fn a_random_table_matches_the_model(
        distribution in proptest::sample::select(&DISTRIBUTIONS[..]),
        rows in prop_oneof![0..40_usize, 0..600_usize],
        layout in proptest::sample::select(&LAYOUTS[..]),
        seed in any::<u64>(),
    ) {
        let scratch = Scratch::of(layout);
        let model = model(distribution, rows, seed);
        assert_agrees(&bake_shuffled(&scratch, &model, seed), &model, seed);
    }

    #[test]
    fn a_table_of_any_keys_and_values_matches_the_model(
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
fn a_table_of_several_parts_matches_the_model() {
    let scratch = Scratch::new();
    for (rows, distribution) in
        [(32_768, Distribution::BitReversed), (32_769, Distribution::Clustered), (70_000, Distribution::Timestamps)]
    {
        println!("{rows} rows, {distribution:?}");
        let model = model(distribution, rows, 3);
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
}

/// Returns the hash of the row with a number.
type HashOf = fn(u64) -> u64;

/// Returns the multiplicative inverse of an odd number, by Newton's method: each step doubles the number of correct
/// bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Returns the key with this hash under seed 0.
fn key_of_hash(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(inverse(0xd6e8_feb8_6659_fd93));
    (hash ^ (hash >> 32)).wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn keys_that_collide_under_a_known_seed_are_found() {
    let scratch = Scratch::new();
    for rows in [13, 100, 2000, 33_000] {
        let parts = Parts { count: Parts::count(rows), pilots: rows.div_ceil(3), slots: rows * 17 / 16 };
        // Hashes that share the first pilot, hashes that share the last pilot, and hashes that share one slot under
        // pilot 0 for any number of slots.
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
fn skipping_rows_equals_iterating_over_them() {
    let scratch = Scratch::new();
    let key = |row: Result<(zero_kv::Key<'_>, &[u8]), zero_kv::store::LookupError>| row.unwrap().0.as_u64().unwrap();
    for rows in [0, 1, 15, 16, 17, 32, 100, 160] {
        let model: Model<u64> = (0..rows).map(|key| (key * 3, vec![b'v'; key as usize % 30])).collect();
        let store = bake_shuffled(&scratch, &model, 6);
        let expected_rows = rows_of(&model);
        for (taken, skipped) in
            (0..40).flat_map(|taken| [0, 1, 14, 15, 16, 17, 33, 200].map(|skipped| (taken, skipped)))
        {
            let (mut iter, mut walked) = (store.iter(), expected_rows.iter().copied().map(Ok));
            iter.by_ref().take(taken).for_each(drop);
            walked.by_ref().take(taken).for_each(drop);
            let expected = walked.nth(skipped);
            assert_eq!(iter.nth(skipped), expected, "{rows} rows, {skipped} skipped after {taken}");
            assert_eq!((iter.len(), iter.map(key).sum()), (walked.len(), walked.map(key).sum::<u64>()));
        }
    }
}

#[test]
fn threads_share_one_store() {
    fn shared<T: Send + Sync + 'static>(value: T) -> std::sync::Arc<T> {
        std::sync::Arc::new(value)
    }
    let scratch = Scratch::new();
    let model = model(Distribution::Uniform, 700, 9);
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
