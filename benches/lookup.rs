//! Lookups in a file, on one thread.
//!
//! Canonical load: dense keys from 1, values `value_content_at_key_N`; keys
//! drawn at random from a seeded stream, in batches of 256, every answer copied
//! into one buffer. All answers are checked once before anything is timed.

use std::path::Path;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use zero_kv::Store;
use zero_kv::bake::{Options, bake_csv};

const BATCH_KEYS: usize = 256;
const BATCHES: usize = 400;
const ROWS: [u64; 2] = [100_000, 1_000_000];

fn main() {
    divan::main();
}

fn value(key: u64) -> String {
    format!("value_content_at_key_{key}")
}

fn bake(rows: u64, output: &Path) -> Store {
    let csv: String = (1..=rows).map(|key| format!("{key},{}\n", value(key))).collect();
    bake_csv(csv.as_bytes(), output, &Options::default(), &mut |_| ()).expect("a table");
    Store::open(output).expect("the table that was baked")
}

/// Keys of the table in random order (SplitMix64).
fn keys(rows: u64) -> Vec<u64> {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    (0..BATCHES * BATCH_KEYS).map(|_| 1 + random() % rows).collect()
}

fn with_table(rows: u64, run: impl FnOnce(&Store, &[u64])) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = bake(rows, &folder.path().join("storage.db"));
    let keys = keys(rows);
    for key in &keys {
        assert_eq!(store.get(*key), Some(value(*key).as_bytes()));
    }
    store.get_many(&keys, |i, found| assert_eq!(found, Some(value(keys[i]).as_bytes())));
    run(&store, &keys);
}

#[divan::bench(args = ROWS)]
fn get(bencher: Bencher, rows: u64) {
    with_table(rows, |store, keys| {
        bencher.counter(ItemsCount::new(keys.len())).bench_local(|| {
            for key in keys {
                black_box(store.get(*key));
            }
        });
    });
}

#[divan::bench(args = ROWS)]
fn get_many_copied(bencher: Bencher, rows: u64) {
    with_table(rows, |store, keys| {
        let mut answers = Vec::with_capacity(64 * BATCH_KEYS);
        bencher.counter(ItemsCount::new(keys.len())).bench_local(|| {
            for batch in keys.chunks(BATCH_KEYS) {
                answers.clear();
                store.get_many(batch, |_, value| answers.extend_from_slice(value.unwrap_or_default()));
                black_box(&answers);
            }
        });
    });
}
