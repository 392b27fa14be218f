//! Checking and timing all indexes on spreads of keys.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use zero_kv::format::record::{ALIGN_BYTES, record_len_bytes};
use zero_kv::{Key, Store};

use crate::file::bake;
use crate::memory::Lines;
use crate::report::{Figures, Measured, Report};
use crate::rivals::{Binary, Directory, Searched, Tree};
use crate::spreads::Spread;
use crate::support::{Random, VALUE_LEN_MIN_BYTES, is_test, push_value};
use crate::table::Table;

const BATCH_KEYS: usize = 256;
const SAMPLE_KEYS: usize = 512 * BATCH_KEYS;
/// Samples of one turn, one directly after the other: the first finds the caches
/// full of what others left there.
pub(crate) const TURN_SAMPLES: usize = 3;
const CHECK_KEYS: usize = 100_000;
/// Of so many keys that are checked, one is not in the table.
const CHECK_MISS_EVERY: usize = 200;
/// From so many rows on, values are long.
const LONG_FROM_ROWS: usize = 10_000_000;
const LONG_VALUE_LEN_BYTES: usize = 100;

/// Values by keys.
pub(crate) trait Lookup {
    fn get(&self, key: u64) -> Option<&[u8]>;

    /// Hands each key's value on, in order, with the key's position.
    fn get_many<'s>(&'s self, keys: &[u64], answer: impl FnMut(usize, Option<&'s [u8]>));

    /// What records and index take up.
    fn len_bytes(&self) -> usize;
}

impl Lookup for Store {
    #[inline(always)]
    fn get(&self, key: u64) -> Option<&[u8]> {
        Store::get(self, key).expect("a number for a key")
    }

    #[inline(always)]
    fn get_many<'s>(&'s self, keys: &[u64], answer: impl FnMut(usize, Option<&'s [u8]>)) {
        Store::get_many(self, keys, answer).expect("numbers for keys");
    }

    fn len_bytes(&self) -> usize {
        self.file_len_bytes() as usize
    }
}

/// A [`Lookup`] of any kind, compiled as a whole for each.
trait Contestant {
    fn look_up_each(&self, keys: &[u64]);
    fn copy_batches(&self, keys: &[u64], answers: &mut Answers);
    fn check(&self, keys: &[u64], expected: &[Option<Vec<u8>>]);
    fn len_bytes(&self) -> usize;
}

impl<L: Lookup> Contestant for L {
    fn look_up_each(&self, keys: &[u64]) {
        for key in keys {
            black_box(self.get(*key));
        }
    }

    fn copy_batches(&self, keys: &[u64], answers: &mut Answers) {
        for batch in keys.chunks(BATCH_KEYS) {
            answers.clear();
            self.get_many(batch, |_, value| answers.push(value.unwrap_or_default()));
            black_box(&*answers);
        }
    }

    fn check(&self, keys: &[u64], expected: &[Option<Vec<u8>>]) {
        let mut answers = Answers::new();
        for (keys, expected) in keys.chunks(BATCH_KEYS).zip(expected.chunks(BATCH_KEYS)) {
            answers.clear();
            let mut count = 0;
            self.get_many(keys, |i, value| {
                assert_eq!((i, value), (count, expected[i].as_deref()), "key {}", keys[i]);
                answers.push(value.unwrap_or_default());
                count += 1;
            });
            assert_eq!(count, keys.len());
            assert!(answers.bytes().iter().eq(expected.iter().flatten().flatten()), "values are copied whole");
            for (key, expected) in keys.iter().zip(expected) {
                assert_eq!(self.get(*key), expected.as_deref(), "key {key}");
            }
        }
    }

    fn len_bytes(&self) -> usize {
        Lookup::len_bytes(self)
    }
}

/// The values of a batch, copied one behind the other.
struct Answers {
    copied: Box<[u8]>,
    len_bytes: usize,
}

impl Answers {
    fn new() -> Answers {
        Answers { copied: vec![0; BATCH_KEYS * LONG_VALUE_LEN_BYTES].into(), len_bytes: 0 }
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

/// Copies `N` to `2 * N` bytes as their first and last `N`, as the server does
/// with short answers.
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

/// All indexes of one spread, checked, and the keys that they will be asked for.
struct Course {
    contestants: [(&'static str, Box<dyn Contestant>); 6],
    samples: Vec<Vec<u64>>,
    measured: Measured,
}

impl Course {
    fn new(spread: &Spread, load: &Load) -> Course {
        let table = Rc::new(Table::new(spread.keys(load.rows), load.value_len_bytes));
        let [mapped, copied] = bake(&table.keys, load.value_len_bytes);
        let contestants: [(&str, Box<dyn Contestant>); 6] = [
            ("`Store`", Box::new(mapped)),
            ("`Store`, `Store::open`", Box::new(copied)),
            ("B-tree, 64-byte nodes", Box::new(Searched::<Tree<8>>::new(&table))),
            ("B-tree, 128-byte nodes", Box::new(Searched::<Tree<16>>::new(&table))),
            ("two-level directory", Box::new(Searched::<Directory>::new(&table))),
            ("binary search", Box::new(Searched::<Binary>::new(&table))),
        ];
        let (keys, expected) = questions(&table.keys, load.value_len_bytes);
        for (_, contestant) in &contestants {
            contestant.check(&keys, &expected);
        }
        let mut random = Random(2);
        let mut key = || table.keys[random.below(load.rows as u64) as usize];
        let mut sample = || std::iter::repeat_with(&mut key).take(SAMPLE_KEYS).collect();
        let samples = std::iter::repeat_with(&mut sample).take(2 * load.turns * TURN_SAMPLES).collect();
        let figures = contestants.iter().map(|(name, it)| Figures::new(name, it.len_bytes(), load)).collect();
        Course { contestants, samples, measured: Measured { spread: spread.name, indexes: figures } }
    }

    fn take_turn(&mut self, turn: usize, answers: &mut Answers) {
        let samples = &self.samples[2 * turn * TURN_SAMPLES..][..2 * TURN_SAMPLES];
        // Other keys for each, or the second would find in the cache what the first brought there.
        let (batches, singles) = samples.split_at(TURN_SAMPLES);
        for ((_, contestant), figures) in self.contestants.iter().zip(&mut self.measured.indexes) {
            fastest(&mut figures.batch_ns, batches, |keys| contestant.copy_batches(keys, answers));
            fastest(&mut figures.single_ns, singles, |keys| contestant.look_up_each(keys));
        }
    }
}

/// How much is looked up in how much.
pub(crate) struct Load {
    pub(crate) rows: usize,
    pub(crate) value_len_bytes: usize,
    /// Turns that each index has on each spread.
    pub(crate) turns: usize,
    /// Spreads that are in memory together.
    spreads_at_once: usize,
}

impl Load {
    pub(crate) fn of_rows(rows: usize) -> Load {
        match rows {
            _ if is_test() => Load { rows, value_len_bytes: VALUE_LEN_MIN_BYTES, turns: 1, spreads_at_once: 1 },
            ..LONG_FROM_ROWS => {
                Load { rows, value_len_bytes: VALUE_LEN_MIN_BYTES, turns: 6, spreads_at_once: usize::MAX }
            }
            _ => Load { rows, value_len_bytes: LONG_VALUE_LEN_BYTES, turns: 3, spreads_at_once: 1 },
        }
    }
}

/// Builds, checks and times all indexes on all of these spreads.
pub(crate) fn measure(spreads: &[&Spread], rows: usize) -> Report {
    let load = Load::of_rows(rows);
    let record_len_bytes = record_len_bytes(Key::U64(0), load.value_len_bytes, ALIGN_BYTES);
    let mut lines = Lines::new(rows * record_len_bytes);
    let (mut overlapped_line_ns, mut dependent_line_ns) = (f64::INFINITY, f64::INFINITY);
    let (mut measured, mut answers) = (Vec::new(), Answers::new());
    for spreads in spreads.chunks(load.spreads_at_once) {
        let mut courses: Vec<Course> = spreads.iter().map(|spread| Course::new(spread, &load)).collect();
        for turn in 0..load.turns {
            for course in &mut courses {
                let samples = &course.samples[..TURN_SAMPLES];
                fastest(&mut overlapped_line_ns, samples, |keys| lines.read_overlapped(keys.len()));
                fastest(&mut dependent_line_ns, samples, |keys| lines.read_dependent(keys.len()));
                course.take_turn(turn, &mut answers);
            }
        }
        measured.extend(courses.into_iter().map(|course| course.measured));
    }
    Report { load, lines_len_bytes: lines.len_bytes(), overlapped_line_ns, dependent_line_ns, spreads: measured }
}

/// Keeps the fewest nanoseconds that a key of a sample took.
fn fastest(fastest_ns: &mut f64, samples: &[Vec<u64>], mut run: impl FnMut(&[u64])) {
    for keys in samples {
        let start = Instant::now();
        run(keys);
        *fastest_ns = fastest_ns.min(start.elapsed().as_nanos() as f64 / keys.len() as f64);
    }
}

/// Keys to check with, some of which the table does not have, and the values
/// that binary search says they have.
fn questions(sorted: &[u64], value_len_bytes: usize) -> (Vec<u64>, Vec<Option<Vec<u8>>>) {
    let mut random = Random(4);
    let mut key = |i: usize| {
        let key = sorted[random.below(sorted.len() as u64) as usize];
        if !i.is_multiple_of(CHECK_MISS_EVERY) {
            return key;
        }
        // Just above a key of the table if there is room.
        let mut key = key.wrapping_add(1);
        while sorted.binary_search(&key).is_ok() {
            key = random.number();
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
