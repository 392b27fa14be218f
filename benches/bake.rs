//! A complete bake, from CSV in memory to a verified and synced file.
//!
//! Canonical load: 100,000 and 1,000,000 rows in random order, seed 1, keys of 64 random bits, values of 26 bytes. A
//! sample is one bake, which replaces the file of the previous bake. The file is in the folder for temporary files
//! (`TMPDIR`), so the result depends on the disk of this folder. Megabytes refer to the CSV text. All rows of the
//! first file are checked before the measurement, and all rows of the last file after it.

mod support;

use std::path::Path;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use zero_kv::Lookup;
use zero_kv::bake::{Options, Report, bake_csv};
use zero_kv::{Key, Store};

const TEST_ROWS: usize = 1_000;

fn main() {
    warn_if_slow();
    divan::main();
}

#[divan::bench(args = [100_000, 1_000_000], sample_count = 10, sample_size = 1)]
fn bake_shuffled(bencher: Bencher, rows: usize) {
    let rows = if is_test() { TEST_ROWS } else { rows };
    let mut random = SmallRng::seed_from_u64(1);
    let mut keys: Vec<u64> = (0..rows).map(|_| random.next_u64()).collect();
    let mut csv = Vec::new();
    keys.iter().for_each(|key| push_csv_row(&mut csv, *key, VALUE_LEN_MIN_BYTES));
    keys.sort_unstable();

    let folder = tempfile::tempdir().expect("temporary folder");
    let output = folder.path().join("storage.db");
    bake(&csv, &output);
    check(&output, &keys);
    bencher.counter(ItemsCount::new(rows)).counter(BytesCount::new(csv.len())).bench_local(|| bake(&csv, &output));
    check(&output, &keys);
}

fn bake(csv: &[u8], output: &Path) -> Report {
    bake_csv(csv, output, &Options::default()).expect("bake")
}

fn check(file: &Path, sorted_keys: &[u64]) {
    let store = Store::open(file).expect("open the baked table");
    let mut value = Vec::new();
    assert_eq!(store.len(), sorted_keys.len());
    for (expected, (key, found)) in sorted_keys.iter().zip(store.iter().map(Result::unwrap)) {
        value.clear();
        push_value(&mut value, *expected, VALUE_LEN_MIN_BYTES);
        assert_eq!((key, found), (Key::U64(*expected), &*value));
    }
}
