//! Lookups in a file, on one thread: hits, misses, and some of each.
//!
//! Canonical load: 100,000 and 1,000,000 rows, dense keys from 1, values of 26
//! bytes; keys drawn at random, seed 1. Of these, none, half or all are not in
//! the table: the same keys with the highest bit set. A sample is 102,400
//! lookups, of other keys than the one before; `get_many` gets 256 keys at a
//! time, and every value is copied into one buffer. All answers are checked once
//! before anything is timed.
//!
//! `cargo bench --bench index` measures other spreads of keys, and other indexes.

mod support;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use support::{Random, VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use zero_kv::Store;
use zero_kv::bake::{Options, bake_csv};

const BATCH_KEYS: usize = 256;
const SAMPLE_KEYS: usize = 400 * BATCH_KEYS;
const SAMPLES: usize = 10;
const ROWS: [u64; 2] = [100_000, 1_000_000];
const TEST_ROWS: u64 = 1_000;
const MISSING: u64 = 1 << 63;

fn main() {
    warn_if_slow();
    divan::main();
}

/// A table, and so many keys of each hundred not in it.
struct Load {
    rows: u64,
    miss_percent: u64,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} rows, {} % misses", self.rows, self.miss_percent)
    }
}

fn loads() -> impl Iterator<Item = Load> {
    let load = |rows| [0, 50, 100].map(|miss_percent| Load { rows, miss_percent });
    ROWS.into_iter().flat_map(load)
}

impl Load {
    /// Runs with a table, and with each sample's keys by turns.
    fn run(&self, run: impl FnOnce(&Store, &mut dyn Iterator<Item = &[u64]>)) {
        let rows = if is_test() { TEST_ROWS } else { self.rows };
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("storage.db");
        let mut csv = Vec::new();
        (1..=rows).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        bake_csv(&*csv, &output, &Options::default(), &mut |_| ()).expect("a table");
        let store = Store::open(&output).expect("the table that was baked");

        let mut random = Random(1);
        let mut key = |_| {
            let key = 1 + random.below(rows);
            if random.below(100) < self.miss_percent { key | MISSING } else { key }
        };
        let sample_keys = if is_test() { 2 * BATCH_KEYS } else { SAMPLE_KEYS };
        let keys: Vec<u64> = (0..SAMPLES * sample_keys).map(&mut key).collect();
        check(&store, &keys);
        run(&store, &mut keys.chunks(sample_keys).cycle());
    }
}

fn check(store: &Store, keys: &[u64]) {
    let mut value = Vec::new();
    let mut expect = |key: u64, found: Option<&[u8]>| {
        value.clear();
        push_value(&mut value, key, VALUE_LEN_MIN_BYTES);
        assert_eq!(found, (key < MISSING).then_some(&*value), "key {key}");
    };
    keys.iter().for_each(|key| expect(*key, store.get(*key).expect("a number for a key")));
    let mut count = 0;
    store
        .get_many(keys, |i, found| {
            assert_eq!(i, count);
            expect(keys[i], found);
            count += 1;
        })
        .expect("numbers for keys");
    assert_eq!(count, keys.len());
}

fn keys_of_a_sample() -> ItemsCount {
    ItemsCount::new(SAMPLE_KEYS)
}

#[divan::bench(args = loads(), sample_count = 50, sample_size = 1)]
fn get(bencher: Bencher, load: &Load) {
    load.run(|store, samples| {
        bencher.counter(keys_of_a_sample()).bench_local(|| {
            for key in samples.next().unwrap_or_default() {
                black_box(store.get(*key).expect("a number for a key"));
            }
        });
    });
}

#[divan::bench(args = loads(), sample_count = 50, sample_size = 1)]
fn get_many_copied(bencher: Bencher, load: &Load) {
    load.run(|store, samples| {
        let mut answers = Vec::with_capacity(VALUE_LEN_MIN_BYTES * BATCH_KEYS);
        bencher.counter(keys_of_a_sample()).bench_local(|| {
            for batch in samples.next().unwrap_or_default().chunks(BATCH_KEYS) {
                answers.clear();
                let copy = |_, value: Option<&[u8]>| answers.extend_from_slice(value.unwrap_or_default());
                store.get_many(batch, copy).expect("numbers for keys");
                black_box(&answers);
            }
        });
    });
}
