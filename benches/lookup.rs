//! Point and range lookups in a file, on one thread.
//!
//! Canonical load: 100,000 and 1,000,000 rows, values of 26 bytes. Keys are the numbers from 1 on, or texts of 24 bytes
//! that contain these numbers after a common prefix of 10 bytes. Keys are drawn at random, seed 1, and none, half, or
//! all of them are absent. A sample is 102,400 lookups or 1,024 ranges, and consecutive samples use different keys.
//! `get_many_copied` gets 256 keys at a time, and copies every value into one buffer. A range consists of the 100 rows
//! from a key on, whose values are copied, too. Before the measurement, all point lookups and some floors and ranges
//! are checked once.
//!
//! `floor_many_in_ranges` and `cover_many` look up the same keys, 256 at a time, in one table of ranges. A range has 12
//! keys, and 4 keys between two ranges are in no range. Keys are numbers, or addresses, of which none or half are IPv6,
//! alone or after one of 200 codes of two letters. Both benches count the values that they find. To count their
//! instructions without the bake and the preparation, run the program that `cargo bench --no-run` prints:
//! `valgrind --tool=callgrind --toggle-collect='*count_covers*' PROGRAM --bench --sample-count 1 cover_many`, and the
//! same with `count_floors` and `floor_many_in_ranges`.
//!
//! `cargo bench --bench index` measures other key distributions and other indexes.

mod support;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{VALUE_LEN_MIN_BYTES, is_test, push_value, warn_if_slow};
use zero_kv::bake::{Column, Keys, Options, RangeEnds, ValueSpec, bake_csv};
use zero_kv::{Key, KeyType, Lookup, OwnedKey, Store};

const BATCH_KEYS: usize = 256;
const SAMPLE_KEYS: usize = 400 * BATCH_KEYS;
const SAMPLE_RANGES: usize = SAMPLE_KEYS / RANGE_ROWS;
const RANGE_ROWS: usize = 100;
const SAMPLES: usize = 10;
const ROWS: [u64; 2] = [100_000, 1_000_000];
const TEST_ROWS: u64 = 1_000;
/// Adding this number to the number of a key makes the number of an absent key.
const MISSING: u64 = 50_000_000_000_000;

fn main() {
    warn_if_slow();
    divan::main();
}

/// A type of keys that the benches use.
trait BenchKey: Copy + Into<Key<'static>> {
    const KEYS: Keys;

    /// Returns the keys with these numbers. Keys have the same order as their numbers.
    fn from_numbers(numbers: &[u64]) -> Vec<Self>;
}

impl BenchKey for u64 {
    const KEYS: Keys = Keys::U64;

    fn from_numbers(numbers: &[u64]) -> Vec<u64> {
        numbers.to_vec()
    }
}

type Text = &'static [u8; 24];

impl BenchKey for Text {
    const KEYS: Keys = Keys::BYTES;

    fn from_numbers(numbers: &[u64]) -> Vec<Text> {
        let text = |number: &u64| format!("customers/{number:014}").into_bytes().try_into().expect("24 bytes");
        let texts: Vec<[u8; 24]> = numbers.iter().map(text).collect();
        Vec::leak(texts).iter().collect()
    }
}

/// The number of rows of a table, and the percentage of absent keys in lookups.
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

fn loads_of_hits() -> impl Iterator<Item = Load> {
    loads().filter(|load| load.miss_percent == 0)
}

impl Load {
    /// Calls `run` with a table and an endless iterator over samples. Each item of the iterator contains the keys of
    /// one sample.
    fn run<K: BenchKey>(&self, sample_keys: usize, run: impl FnOnce(&Store, &mut dyn Iterator<Item = &[K]>)) {
        let rows = if is_test() { TEST_ROWS } else { self.rows };
        let store = bake::<K>(rows);
        let mut random = SmallRng::seed_from_u64(1);
        let mut number = |_| {
            let number = 1 + random.random_range(0..rows);
            if random.random_range(0..100) < self.miss_percent { number + MISSING } else { number }
        };
        let sample_keys = if is_test() { 2 * BATCH_KEYS } else { sample_keys };
        let numbers: Vec<u64> = (0..SAMPLES * sample_keys).map(&mut number).collect();
        let keys = K::from_numbers(&numbers);
        check(&store, &keys, &numbers, rows);
        run(&store, &mut keys.chunks(sample_keys).cycle());
    }
}

/// The number of keys from the start of a range to the start of the next one, and in the range.
const RANGE_KEYS: u64 = 16;
const RANGE_LEN_KEYS: u64 = 12;
const CODES: u64 = 200;

/// A table of ranges.
struct RangeLoad {
    rows: u64,
    key_type: &'static str,
    is_half_ipv6: bool,
}

impl std::fmt::Display for RangeLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let half = if self.is_half_ipv6 { ", half IPv6" } else { "" };
        write!(f, "{} ranges, {}{half}", self.rows, self.key_type)
    }
}

fn range_loads() -> impl Iterator<Item = RangeLoad> {
    let kinds = [
        ("u64", false),
        ("ipv4", false),
        ("ip", false),
        ("ip", true),
        ("bytes,ipv4", false),
        ("bytes,ip", false),
        ("bytes,ip", true),
    ];
    let load = move |rows| kinds.map(|(key_type, is_half_ipv6)| RangeLoad { rows, key_type, is_half_ipv6 });
    ROWS.into_iter().flat_map(load)
}

impl RangeLoad {
    /// Returns the written form of the key with a number, and of its last part.
    fn key(&self, number: u64) -> (String, String) {
        let range = number / RANGE_KEYS;
        let last = match self.key_type {
            "u64" => number.to_string(),
            _ if self.is_half_ipv6 && (range / CODES).is_multiple_of(2) => {
                Ipv6Addr::from((0x2001_0DB8 << 96) + (u128::from(number) << 64)).to_string()
            }
            _ => Ipv4Addr::from((1 << 24) + number as u32).to_string(),
        };
        let code = (range % CODES) as u8;
        match self.key_type.split_once(',') {
            None => (last.clone(), last),
            Some(_) => (format!("{}{},{last}", char::from(b'A' + code / 20), char::from(b'A' + code % 20)), last),
        }
    }

    /// Calls `run` with a table, and an endless iterator over samples of keys.
    fn run(&self, run: impl FnOnce(&Store, &mut dyn Iterator<Item = &[Key<'static>]>)) {
        let rows = if is_test() { TEST_ROWS } else { self.rows };
        let key_type: KeyType = self.key_type.parse().expect("a key type");
        let mut csv = Vec::new();
        for start in (0..rows).map(|range| range * RANGE_KEYS) {
            let (first, (_, last)) = (self.key(start).0, self.key(start + RANGE_LEN_KEYS - 1));
            write!(csv, "\"{first}\",{last},").expect("write to memory");
            push_value(&mut csv, start, VALUE_LEN_MIN_BYTES);
            csv.push(b'\n');
        }
        let mut options = Options::default();
        (options.key, options.value) = (Some(Column::Number(1)), ValueSpec::Column(Column::Number(3)));
        options.ranges = Some(RangeEnds::Column(Column::Number(2)));
        options.keys = key_type.into();
        let store = map_baked(&csv, &options);
        let mut random = SmallRng::seed_from_u64(1);
        let sample_keys = if is_test() { 2 * BATCH_KEYS } else { SAMPLE_KEYS };
        let numbers: Vec<u64> = (0..SAMPLES * sample_keys).map(|_| random.random_range(0..rows * RANGE_KEYS)).collect();
        let parse = |number: &u64| key_type.parse(self.key(*number).0.as_bytes()).expect("a key");
        let keys = Vec::leak(numbers.iter().map(parse).collect::<Vec<OwnedKey>>());
        let keys: Vec<Key<'static>> = keys.iter().map(OwnedKey::as_key).collect();
        let mut value = Vec::new();
        let covers = store.cover_many(&keys).expect("valid keys");
        for (number, (found, floor)) in numbers.iter().zip(covers.iter().zip(store.floor_many(&keys).expect("keys"))) {
            value.clear();
            push_value(&mut value, number - number % RANGE_KEYS, VALUE_LEN_MIN_BYTES);
            assert_eq!(floor.map(|(_, value)| value), Some(&value[..]), "floor of {number}");
            let expected = (number % RANGE_KEYS < RANGE_LEN_KEYS).then_some(&value[..]);
            assert_eq!(found.map(|(_, _, value)| value), expected, "range of {number}");
        }
        run(&store, &mut keys.chunks(sample_keys).cycle());
    }
}

#[inline(never)]
fn count_floors(store: &Store, keys: &[Key<'_>]) -> usize {
    let mut found = 0;
    for batch in keys.chunks(BATCH_KEYS) {
        store.floor_many_with(batch, |_, row| found += usize::from(black_box(row).is_some())).expect("valid keys");
    }
    found
}

#[inline(never)]
fn count_covers(store: &Store, keys: &[Key<'_>]) -> usize {
    let mut found = 0;
    for batch in keys.chunks(BATCH_KEYS) {
        store.cover_many_with(batch, |_, row| found += usize::from(black_box(row).is_some())).expect("valid keys");
    }
    found
}

/// Bakes and maps a table with the keys from 1 to `rows`.
fn bake<K: BenchKey>(rows: u64) -> Store {
    let numbers: Vec<u64> = (1..=rows).collect();
    let mut csv = Vec::new();
    for (number, key) in numbers.iter().zip(K::from_numbers(&numbers)) {
        let key: Key<'_> = key.into();
        write!(csv, "{key},").expect("write to memory");
        push_value(&mut csv, *number, VALUE_LEN_MIN_BYTES);
        csv.push(b'\n');
    }
    let mut options = Options::default();
    options.keys = K::KEYS;
    map_baked(&csv, &options)
}

fn map_baked(csv: &[u8], options: &Options) -> Store {
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = folder.path().join("storage.db");
    bake_csv(csv, &output, options).expect("bake");
    // SAFETY: no other process writes to the file, which is in a new temporary folder that is removed on return.
    unsafe { Store::map(&output) }.expect("open the baked table")
}

fn check<K: BenchKey>(store: &Store, keys: &[K], numbers: &[u64], rows: u64) {
    let mut value = Vec::new();
    let mut expect = |number: u64, found: Option<&[u8]>| {
        value.clear();
        push_value(&mut value, number, VALUE_LEN_MIN_BYTES);
        assert_eq!(found, (number < MISSING).then_some(&*value), "key {number}");
    };
    for (key, number) in keys.iter().zip(numbers) {
        expect(*number, store.get(*key).expect("valid key"));
    }
    let mut count = 0;
    let in_order = |i: usize, found: Option<&[u8]>| {
        assert_eq!(i, count);
        expect(numbers[i], found);
        count += 1;
    };
    store.get_many_with(keys, in_order).expect("valid keys");
    assert_eq!(count, keys.len());
    for (key, number) in keys.iter().zip(numbers).take(2 * BATCH_KEYS) {
        let (floor, _) = store.floor(*key).expect("valid key").expect("row at or below the key");
        assert_eq!(floor, K::from_numbers(&[*number.min(&rows)])[0].into(), "floor of {number}");
        let rows_from = (rows + 1).saturating_sub(*number) as usize;
        assert_eq!(range(store, *key).count(), RANGE_ROWS.min(rows_from), "rows from {number}");
    }
}

/// Returns the 100 rows that begin at a key.
fn range<K: BenchKey>(store: &Store, key: K) -> impl Iterator<Item = (Key<'_>, &[u8])> {
    let key: Key<'static> = key.into();
    store.range(key..).expect("valid key").take(RANGE_ROWS).map(Result::unwrap)
}

#[divan::bench(types = [u64, Text], args = loads(), sample_count = 50, sample_size = 1)]
fn get<K: BenchKey>(bencher: Bencher, load: &Load) {
    load.run::<K>(SAMPLE_KEYS, |store, samples| {
        bencher.counter(ItemsCount::new(SAMPLE_KEYS)).bench_local(|| {
            for key in samples.next().unwrap_or_default() {
                black_box(store.get(*key).expect("valid key"));
            }
        });
    });
}

#[divan::bench(types = [u64, Text], args = loads(), sample_count = 50, sample_size = 1)]
fn get_many_copied<K: BenchKey>(bencher: Bencher, load: &Load) {
    load.run::<K>(SAMPLE_KEYS, |store, samples| {
        let mut values = Vec::with_capacity(VALUE_LEN_MIN_BYTES * BATCH_KEYS);
        bencher.counter(ItemsCount::new(SAMPLE_KEYS)).bench_local(|| {
            for batch in samples.next().unwrap_or_default().chunks(BATCH_KEYS) {
                values.clear();
                let copy = |_, value: Option<&[u8]>| values.extend_from_slice(value.unwrap_or_default());
                store.get_many_with(batch, copy).expect("valid keys");
                black_box(&values);
            }
        });
    });
}

#[divan::bench(types = [u64, Text], args = loads_of_hits(), sample_count = 50, sample_size = 1)]
fn floor<K: BenchKey>(bencher: Bencher, load: &Load) {
    load.run::<K>(SAMPLE_KEYS, |store, samples| {
        bencher.counter(ItemsCount::new(SAMPLE_KEYS)).bench_local(|| {
            for key in samples.next().unwrap_or_default() {
                black_box(store.floor(*key).expect("valid key"));
            }
        });
    });
}

#[divan::bench(types = [u64, Text], args = loads_of_hits(), sample_count = 50, sample_size = 1)]
fn range_of_100_rows_copied<K: BenchKey>(bencher: Bencher, load: &Load) {
    load.run::<K>(SAMPLE_RANGES, |store, samples| {
        let mut values = Vec::with_capacity(VALUE_LEN_MIN_BYTES * RANGE_ROWS);
        bencher.counter(ItemsCount::new(SAMPLE_RANGES)).bench_local(|| {
            for key in samples.next().unwrap_or_default() {
                values.clear();
                range(store, *key).for_each(|(_, value)| values.extend_from_slice(value));
                black_box(&values);
            }
        });
    });
}

#[divan::bench(args = range_loads(), sample_count = 50, sample_size = 1)]
fn floor_many_in_ranges(bencher: Bencher, load: &RangeLoad) {
    load.run(|store, samples| {
        let bencher = bencher.counter(ItemsCount::new(SAMPLE_KEYS));
        bencher.bench_local(|| black_box(count_floors(store, samples.next().unwrap_or_default())));
    });
}

#[divan::bench(args = range_loads(), sample_count = 50, sample_size = 1)]
fn cover_many(bencher: Bencher, load: &RangeLoad) {
    load.run(|store, samples| {
        let bencher = bencher.counter(ItemsCount::new(SAMPLE_KEYS));
        bencher.bench_local(|| black_box(count_covers(store, samples.next().unwrap_or_default())));
    });
}
