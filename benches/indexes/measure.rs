//! Checks and measures all indexes.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use zero_kv::format::record::{ALIGN_BYTES, record_len_bytes};
use zero_kv::{Key, KeyKind, Store};

use crate::indexes::file::bake;
use crate::indexes::memory::Lines;
use crate::indexes::report::{Figures, LONG_VALUE_LEN_BYTES, Load, ROUND_SAMPLES, Report, SpreadResults};
use crate::indexes::rivals::{Binary, Directory, Lookup, Searched, Tree};
use crate::indexes::spreads::Spread;
use crate::indexes::table::Table;
use crate::support::push_value;

const BATCH_KEYS: usize = 256;
const SAMPLE_KEYS: usize = 512 * BATCH_KEYS;
const CHECK_KEYS: usize = 100_000;
/// One in `CHECK_MISS_EVERY` checked keys is absent.
const CHECK_MISS_EVERY: usize = 200;

impl Lookup for Store {
    #[inline(always)]
    fn get(&self, key: u64) -> Option<&[u8]> {
        zero_kv::Lookup::get(self, key).expect("key is a number")
    }

    #[inline(always)]
    fn get_many(&self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) {
        zero_kv::Lookup::get_many_with(self, keys, visit).expect("keys are numbers");
    }

    #[inline(always)]
    fn floor_many(&self, keys: &[u64], mut visit: impl FnMut(usize, Option<&[u8]>)) {
        let visit = |i, row: Option<(Key<'_>, &[u8])>| visit(i, row.map(|(_, value)| value));
        zero_kv::Lookup::floor_many_with(self, keys, visit).expect("keys are numbers");
    }

    fn len_bytes(&self) -> usize {
        self.file_len_bytes() as usize
    }
}

/// A [`Lookup`] as a trait object. Each method contains a whole loop, which is compiled separately for each index, so
/// that no virtual calls are measured.
trait MeasuredIndex {
    fn look_up_each(&self, keys: &[u64]);
    fn copy_batches(&self, keys: &[u64], values: &mut ValueBuffer);
    fn copy_floor_batches(&self, keys: &[u64], values: &mut ValueBuffer);
    fn check(&self, keys: &[u64], expected: &[Option<Vec<u8>>]);
    fn check_floors(&self, keys: &[u64], expected: &[Option<Vec<u8>>]);
    fn len_bytes(&self) -> usize;
}

impl<L: Lookup> MeasuredIndex for L {
    fn look_up_each(&self, keys: &[u64]) {
        for key in keys {
            black_box(self.get(*key));
        }
    }

    fn copy_batches(&self, keys: &[u64], values: &mut ValueBuffer) {
        for batch in keys.chunks(BATCH_KEYS) {
            values.clear();
            self.get_many(batch, |_, value| values.push(value.unwrap_or_default()));
            black_box(&*values);
        }
    }

    fn copy_floor_batches(&self, keys: &[u64], values: &mut ValueBuffer) {
        for batch in keys.chunks(BATCH_KEYS) {
            values.clear();
            self.floor_many(batch, |_, value| values.push(value.unwrap_or_default()));
            black_box(&*values);
        }
    }

    fn check_floors(&self, keys: &[u64], expected: &[Option<Vec<u8>>]) {
        for (keys, expected) in keys.chunks(BATCH_KEYS).zip(expected.chunks(BATCH_KEYS)) {
            let mut count = 0;
            self.floor_many(keys, |i, value| {
                assert_eq!((i, value), (count, expected[i].as_deref()), "floor of {}", keys[i]);
                count += 1;
            });
            assert_eq!(count, keys.len());
        }
    }

    fn check(&self, keys: &[u64], expected: &[Option<Vec<u8>>]) {
        let mut values = ValueBuffer::new();
        for (keys, expected) in keys.chunks(BATCH_KEYS).zip(expected.chunks(BATCH_KEYS)) {
            values.clear();
            let mut count = 0;
            self.get_many(keys, |i, value| {
                assert_eq!((i, value), (count, expected[i].as_deref()), "key {}", keys[i]);
                values.push(value.unwrap_or_default());
                count += 1;
            });
            assert_eq!(count, keys.len());
            assert!(values.bytes().iter().eq(expected.iter().flatten().flatten()), "the copied values are complete");
            for (key, expected) in keys.iter().zip(expected) {
                assert_eq!(self.get(*key), expected.as_deref(), "key {key}");
            }
        }
    }

    fn len_bytes(&self) -> usize {
        Lookup::len_bytes(self)
    }
}

/// A buffer for the concatenated values of a batch.
struct ValueBuffer {
    copied: Box<[u8]>,
    len_bytes: usize,
}

impl ValueBuffer {
    fn new() -> ValueBuffer {
        ValueBuffer { copied: vec![0; BATCH_KEYS * LONG_VALUE_LEN_BYTES].into(), len_bytes: 0 }
    }

    fn clear(&mut self) {
        self.len_bytes = 0;
    }

    fn bytes(&self) -> &[u8] {
        &self.copied[..self.len_bytes]
    }

    #[inline(always)]
    fn push(&mut self, value: &[u8]) {
        let end = self.len_bytes + value.len();
        let to = &mut self.copied[self.len_bytes..end];
        if !copy_halves::<16>(value, to) && !copy_halves::<64>(value, to) {
            to.copy_from_slice(value);
        }
        self.len_bytes = end;
    }
}

/// Copies `from`, which has `N` to `2 * N` bytes, as two slices of `N` bytes that may overlap. The server copies short
/// responses in this way. Returns false for any other length.
#[inline(always)]
fn copy_halves<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    if from.len() > 2 * N || to.len() != from.len() {
        return false;
    }
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    if let Some(to) = to.first_chunk_mut() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut() {
        *to = *last;
    }
    true
}

/// All indexes for one distribution of keys, and the keys of the samples.
struct IndexComparison {
    measured_indexes: [(&'static str, Box<dyn MeasuredIndex>); 6],
    samples: Vec<Vec<u64>>,
    floor_samples: Vec<Vec<u64>>,
    measured: SpreadResults,
}

impl IndexComparison {
    fn new(spread: &Spread, load: &Load) -> IndexComparison {
        let table = Rc::new(Table::new(spread.keys(load.rows), load.value_len_bytes));
        let [mapped, copied] = bake(&table.keys, load.value_len_bytes);
        let measured_indexes: [(&str, Box<dyn MeasuredIndex>); 6] = [
            ("`Store`", Box::new(mapped)),
            ("`Store`, `Store::open`", Box::new(copied)),
            ("B-tree, 64-byte nodes", Box::new(Searched::<Tree<8>>::new(&table))),
            ("B-tree, 128-byte nodes", Box::new(Searched::<Tree<16>>::new(&table))),
            ("two-level directory", Box::new(Searched::<Directory>::new(&table))),
            ("binary search", Box::new(Searched::<Binary>::new(&table))),
        ];
        let (keys, expected) = checked_keys(&table.keys, load.value_len_bytes);
        for (_, index) in &measured_indexes {
            index.check(&keys, &expected);
        }
        let (floor_keys, expected) = checked_floors(&table.keys, load.value_len_bytes);
        for (_, index) in &measured_indexes {
            index.check_floors(&floor_keys, &expected);
        }
        let mut random = SmallRng::seed_from_u64(3);
        let mut floor_sample = || (0..SAMPLE_KEYS).map(|_| floor_key(&table.keys, &mut random)).collect();
        let floor_samples = std::iter::repeat_with(&mut floor_sample).take(load.rounds * ROUND_SAMPLES).collect();
        let mut random = SmallRng::seed_from_u64(2);
        let mut key = || table.keys[random.random_range(0..load.rows as u64) as usize];
        let mut sample = || std::iter::repeat_with(&mut key).take(SAMPLE_KEYS).collect();
        let samples = std::iter::repeat_with(&mut sample).take(2 * load.rounds * ROUND_SAMPLES).collect();
        let figures = measured_indexes.iter().map(|(name, it)| Figures::new(name, it.len_bytes(), load)).collect();
        IndexComparison {
            measured_indexes,
            samples,
            floor_samples,
            measured: SpreadResults { spread: spread.name, indexes: figures },
        }
    }

    fn run_round(&mut self, round: usize, values: &mut ValueBuffer) {
        let samples = &self.samples[2 * round * ROUND_SAMPLES..][..2 * ROUND_SAMPLES];
        // Batches and single lookups use different keys, so the single lookups do not find their data in the cache.
        let (batches, singles) = samples.split_at(ROUND_SAMPLES);
        let floors = &self.floor_samples[round * ROUND_SAMPLES..][..ROUND_SAMPLES];
        for ((_, index), figures) in self.measured_indexes.iter().zip(&mut self.measured.indexes) {
            record_fastest(&mut figures.batch_ns, batches, |keys| index.copy_batches(keys, values));
            record_fastest(&mut figures.floor_batch_ns, floors, |keys| index.copy_floor_batches(keys, values));
            record_fastest(&mut figures.single_ns, singles, |keys| index.look_up_each(keys));
        }
    }
}

/// Builds, checks, and measures all indexes for these distributions.
pub(crate) fn measure(spreads: &[&Spread], rows: usize) -> Report {
    let load = Load::for_rows(rows);
    let record_len_bytes = record_len_bytes(KeyKind::U64.into(), Key::U64(0).into(), load.value_len_bytes, ALIGN_BYTES);
    let mut lines = Lines::new(rows * record_len_bytes);
    let (mut overlapped_line_ns, mut dependent_line_ns) = (f64::INFINITY, f64::INFINITY);
    let (mut measured, mut values) = (Vec::new(), ValueBuffer::new());
    for spreads in spreads.chunks(load.spreads_at_once) {
        let mut comparisons: Vec<IndexComparison> =
            spreads.iter().map(|spread| IndexComparison::new(spread, &load)).collect();
        for round in 0..load.rounds {
            for comparison in &mut comparisons {
                let samples = &comparison.samples[..ROUND_SAMPLES];
                record_fastest(&mut overlapped_line_ns, samples, |keys| lines.read_overlapped(keys.len()));
                record_fastest(&mut dependent_line_ns, samples, |keys| lines.read_dependent(keys.len()));
                comparison.run_round(round, &mut values);
            }
        }
        measured.extend(comparisons.into_iter().map(|comparison| comparison.measured));
    }
    Report { load, lines_len_bytes: lines.len_bytes(), overlapped_line_ns, dependent_line_ns, spreads: measured }
}

/// Measures the time per key of each sample, and updates the minimum.
fn record_fastest(fastest_ns: &mut f64, samples: &[Vec<u64>], mut run: impl FnMut(&[u64])) {
    for keys in samples {
        let start = Instant::now();
        run(keys);
        *fastest_ns = fastest_ns.min(start.elapsed().as_nanos() as f64 / keys.len() as f64);
    }
}

/// Returns a random key of the table, or a random number between this key and the next one. Never returns `u64::MAX` or
/// a number above the largest key, which the other indexes do not support.
fn floor_key(sorted: &[u64], random: &mut SmallRng) -> u64 {
    let row = random.random_range(0..sorted.len() as u64) as usize;
    let next = sorted.get(row + 1).copied().unwrap_or(sorted[row]);
    let key = if random.random() && sorted[row] < next { random.random_range(sorted[row]..next) } else { sorted[row] };
    key.min(u64::MAX - 1)
}

/// Returns keys for the check of floors, and the expected values.
fn checked_floors(sorted: &[u64], value_len_bytes: usize) -> (Vec<u64>, Vec<Option<Vec<u8>>>) {
    let mut random = SmallRng::seed_from_u64(5);
    let count = CHECK_KEYS.min(4 * sorted.len());
    let keys: Vec<u64> = [0].into_iter().chain((0..count).map(|_| floor_key(sorted, &mut random))).collect();
    let floor = |key: &u64| {
        let row = sorted.partition_point(|other| other <= key).checked_sub(1)?;
        let mut value = Vec::new();
        push_value(&mut value, sorted[row], value_len_bytes);
        Some(value)
    };
    let expected = keys.iter().map(floor).collect();
    (keys, expected)
}

/// Returns keys for the check, and their expected values. Some keys are absent; binary search over the sorted keys
/// shows which.
fn checked_keys(sorted: &[u64], value_len_bytes: usize) -> (Vec<u64>, Vec<Option<Vec<u8>>>) {
    let mut random = SmallRng::seed_from_u64(4);
    let mut key = |i: usize| {
        let key = sorted[random.random_range(0..sorted.len() as u64) as usize];
        if !i.is_multiple_of(CHECK_MISS_EVERY) {
            return key;
        }
        // An absent key is one above a key of the table. If this number is also a key, random numbers are tried.
        let mut key = key.wrapping_add(1);
        while sorted.binary_search(&key).is_ok() {
            key = random.next_u64();
        }
        key
    };
    let count = CHECK_KEYS.min(4 * sorted.len());
    let keys: Vec<u64> = [0, u64::MAX].into_iter().chain((0..count).map(&mut key)).collect();
    let value = |key: &u64| {
        let mut value = Vec::new();
        push_value(&mut value, *key, value_len_bytes);
        value
    };
    let expected = keys.iter().map(|key| sorted.binary_search(key).ok().map(|_| value(key))).collect();
    (keys, expected)
}
