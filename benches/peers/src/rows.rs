//! The rows that every engine stores, and the requests for them.
//!
//! In: the number of rows and the length of values. Out: keys, values, requests, and the expected sums of results. Keys
//! and values are computed from row numbers, so rows are not stored in memory. This module does not depend on engines.

use std::ops::Range;

use anyhow::Result;

/// Maps a number to a pseudo-random number (the finalizer of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A seeded random number generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The rows of a table. Keys are pseudo-random odd numbers, and ascend with the row number. An even number is therefore
/// always an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) count: u64,
    pub(crate) value_len_bytes: usize,
}

impl Rows {
    pub(crate) fn key(&self, row: u64) -> u64 {
        let stretch = self.stretch();
        (row * stretch + mix(row) % stretch) | 1
    }

    /// Returns the number of the row with the largest key that is not above `key`.
    pub(crate) fn floor(&self, key: u64) -> Option<u64> {
        let row = (key / self.stretch()).min(self.count - 1);
        if self.key(row) <= key { Some(row) } else { row.checked_sub(1) }
    }

    /// Returns the length of the range of numbers from which the key of one row is drawn.
    fn stretch(&self) -> u64 {
        // The length is even, so a key with its lowest bit set is still in the row's range.
        (u64::MAX / self.count) & !1
    }

    /// Replaces the contents of `buffer` with a key's value: printable text without commas and quotes.
    pub(crate) fn value<'b>(&self, key: u64, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        let mut seed = key;
        while buffer.len() < self.value_len_bytes {
            seed = mix(seed);
            let text = (seed & 0x3F3F_3F3F_3F3F_3F3F) + 0x3030_3030_3030_3030;
            let left = self.value_len_bytes - buffer.len();
            buffer.extend_from_slice(&text.to_le_bytes()[..left.min(8)]);
        }
        buffer
    }

    /// Calls `row` with the key and value of each row, in key order.
    pub(crate) fn each(&self, row: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.each_of(0..self.count, row)
    }

    /// Calls `row` with the key and value of each row in a range of row numbers, in key order.
    pub(crate) fn each_of(&self, numbers: Range<u64>, mut row: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut value = Vec::new();
        numbers.into_iter().try_for_each(|number| {
            let key = self.key(number);
            row(key, self.value(key, &mut value))
        })
    }

    /// Returns the numbers of all rows, divided into ranges of at most `len` rows.
    pub(crate) fn pieces(&self, len: u64) -> impl Iterator<Item = Range<u64>> {
        let end = self.count;
        (0..end).step_by(len as usize).map(move |first| first..(first + len).min(end))
    }

    /// Returns the total length of all keys and values.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.count * (8 + self.value_len_bytes as u64)
    }
}

/// Receives the results of lookups.
pub(crate) trait Sink {
    fn found(&mut self, value: &[u8]);
    fn missing(&mut self);

    fn accept(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.found(value),
            None => self.missing(),
        }
    }
}

/// A sink that reads every byte of every value, and adds the values up as 64-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    found: u64,
    missing: u64,
    words: u64,
}

impl Sum {
    pub(crate) fn found_count(&self) -> u64 {
        self.found
    }
}

impl Sink for Sum {
    #[inline]
    fn found(&mut self, value: &[u8]) {
        let (words, tail) = value.as_chunks::<8>();
        let words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        let tail = tail.iter().fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
        self.words = self.words.wrapping_add(words).wrapping_add(tail);
        self.found += 1;
    }

    #[inline]
    fn missing(&mut self) {
        self.missing += 1;
    }
}

/// One operation of the mixed load of gets and scans.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Get(u64),
    /// A scan that begins at this key.
    Scan(u64),
}

/// Number of rows per scan.
pub(crate) const SCAN_ROWS: u64 = 100;
/// Number of rows per scan in the mixed load.
pub(crate) const SHORT_SCAN_ROWS: u64 = 10;
/// Percentage of gets of existing keys in the mixed load.
pub(crate) const MIXED_GETS: u64 = 80;
/// Percentage of scans in the mixed load. The remaining operations are gets of absent keys.
pub(crate) const MIXED_SCANS: u64 = 15;

/// The number of requests of each kind in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    pub(crate) gets: usize,
    pub(crate) scans: usize,
}

/// The requests of one round, which are equal for all engines.
pub(crate) struct Requests {
    pub(crate) hits: Vec<u64>,
    pub(crate) misses: Vec<u64>,
    /// The requested keys of floors, about half of which are absent.
    pub(crate) floors: Vec<u64>,
    /// The first keys of scans.
    pub(crate) scans: Vec<u64>,
    pub(crate) mixed: Vec<Operation>,
}

impl Requests {
    pub(crate) fn new(rows: &Rows, amounts: Amounts, seed: u64) -> Requests {
        let mut random = Random::seeded(seed);
        let hit = |random: &mut Random| rows.key(random.below(rows.count));
        let miss = |random: &mut Random| random.next() & !1;
        let start = |random: &mut Random, len: u64| {
            rows.key(random.below(rows.count.saturating_sub(len) + 1).min(rows.count - 1))
        };
        Requests {
            hits: (0..amounts.gets).map(|_| hit(&mut random)).collect(),
            misses: (0..amounts.gets).map(|_| miss(&mut random)).collect(),
            floors: (0..amounts.gets)
                .map(|_| if random.below(2) == 0 { hit(&mut random) } else { miss(&mut random) })
                .collect(),
            scans: (0..amounts.scans).map(|_| start(&mut random, SCAN_ROWS)).collect(),
            mixed: (0..amounts.gets)
                .map(|_| match random.below(100) {
                    n if n < MIXED_GETS => Operation::Get(hit(&mut random)),
                    n if n < MIXED_GETS + MIXED_SCANS => Operation::Scan(start(&mut random, SHORT_SCAN_ROWS)),
                    _ => Operation::Get(miss(&mut random)),
                })
                .collect(),
        }
    }
}

/// Computes the expected sums of results.
pub(crate) struct Expected<'r> {
    rows: &'r Rows,
    value: Vec<u8>,
    sum: Sum,
}

impl Expected<'_> {
    pub(crate) fn of_gets(rows: &Rows, keys: &[u64]) -> Sum {
        Expected::sum(rows, |expected| keys.iter().for_each(|key| expected.get(*key)))
    }

    pub(crate) fn of_floors(rows: &Rows, keys: &[u64]) -> Sum {
        Expected::sum(rows, |expected| {
            for key in keys {
                match rows.floor(*key) {
                    Some(row) => expected.get(rows.key(row)),
                    None => expected.sum.missing(),
                }
            }
        })
    }

    pub(crate) fn of_scans(rows: &Rows, starts: &[u64]) -> Sum {
        Expected::sum(rows, |expected| starts.iter().for_each(|start| expected.scan(*start, SCAN_ROWS)))
    }

    pub(crate) fn of_mixed(rows: &Rows, operations: &[Operation]) -> Sum {
        Expected::sum(rows, |expected| {
            for operation in operations {
                match operation {
                    Operation::Get(key) => expected.get(*key),
                    Operation::Scan(start) => expected.scan(*start, SHORT_SCAN_ROWS),
                }
            }
        })
    }

    fn sum(rows: &Rows, add: impl FnOnce(&mut Expected<'_>)) -> Sum {
        let mut expected = Expected { rows, value: Vec::new(), sum: Sum::default() };
        add(&mut expected);
        expected.sum
    }

    fn get(&mut self, key: u64) {
        match key & 1 {
            1 => self.sum.found(self.rows.value(key, &mut self.value)),
            _ => self.sum.missing(),
        }
    }

    fn scan(&mut self, start: u64, len: u64) {
        let start = self.rows.floor(start).expect("a scan begins at a key");
        for row in start..(start + len).min(self.rows.count) {
            self.get(self.rows.key(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_odd_and_ascend() {
        for count in [1, 2, 1000] {
            let rows = Rows { count, value_len_bytes: 26 };
            let keys: Vec<u64> = (0..count).map(|row| rows.key(row)).collect();
            assert!(keys.iter().all(|key| key & 1 == 1));
            assert!(keys.is_sorted_by(|before, after| before < after));
        }
    }

    #[test]
    fn the_floor_of_a_number_is_the_last_key_up_to_it() {
        for count in [1, 2, 3, 1000] {
            let rows = Rows { count, value_len_bytes: 26 };
            for row in 0..count {
                let key = rows.key(row);
                assert_eq!((rows.floor(key), rows.floor(key - 1)), (Some(row), row.checked_sub(1)), "{row} of {count}");
            }
            assert_eq!((rows.floor(u64::MAX), rows.floor(0)), (Some(count - 1), None));
        }
    }

    #[test]
    fn a_wrong_missing_or_extra_result_changes_the_sum() {
        let rows = Rows { count: 10, value_len_bytes: 26 };
        let mut value = Vec::new();
        let sum = |values: &[&[u8]]| {
            let mut sum = Sum::default();
            values.iter().for_each(|value| sum.found(value));
            sum
        };
        let right = rows.value(rows.key(0), &mut value).to_vec();
        assert_eq!(sum(&[&right]), Expected::of_gets(&rows, &[rows.key(0)]));
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert_ne!(sum(&[&wrong]), sum(&[&right]), "byte {at}");
        }
        assert_ne!(sum(&[]), sum(&[&right]));
        assert_ne!(sum(&[&right, b""]), sum(&[&right]));
    }
}
