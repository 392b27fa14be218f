//! Key distributions.
//!
//! In: a number of rows. Out: one distinct key per row, in ascending order. All runs use the same keys.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

pub(crate) struct Spread {
    pub(crate) name: &'static str,
    keys: fn(u64, &mut SmallRng) -> Vec<u64>,
}

/// All distributions. The report compares the slowest distribution with the first one.
pub(crate) const SPREADS: &[Spread] = &[
    Spread { name: "dense", keys: dense },
    Spread { name: "uniform", keys: uniform },
    Spread { name: "timestamps", keys: timestamps },
    Spread { name: "clusters", keys: clusters },
    Spread { name: "ipv4", keys: ipv4 },
    Spread { name: "bit-reversed", keys: bit_reversed },
];

impl Spread {
    pub(crate) fn keys(&self, rows: usize) -> Vec<u64> {
        let keys = (self.keys)(rows as u64, &mut SmallRng::seed_from_u64(1));
        assert!(keys.len() == rows && keys.is_sorted_by(|a, b| a < b), "{}", self.name);
        keys
    }
}

/// Returns the numbers from 1 to `rows`.
fn dense(rows: u64, _random: &mut SmallRng) -> Vec<u64> {
    (1..=rows).collect()
}

/// Returns random 64-bit numbers.
fn uniform(rows: u64, random: &mut SmallRng) -> Vec<u64> {
    distinct(rows, || random.next_u64())
}

/// Returns timestamps in nanoseconds since 1970. They form bursts of up to 512 events, with pauses of up to ten seconds
/// between bursts. Events in a burst are at most a microsecond apart.
fn timestamps(rows: u64, random: &mut SmallRng) -> Vec<u64> {
    let (mut now, mut left_of_burst) = (1_700_000_000_000_000_000, 0);
    let events = (0..rows).map(|_| {
        if left_of_burst == 0 {
            left_of_burst = 1 + random.random_range(0..512);
            now += random.random_range(0..10_000_000_000);
        }
        left_of_burst -= 1;
        now += 1 + random.random_range(0..1000);
        now
    });
    events.collect()
}

/// Returns clusters of up to 1,000 keys, and 16 outliers. A cluster begins at a random number below 2^40 and spans
/// 4,000 numbers. The largest outlier is 2^64 - 1.
fn clusters(rows: u64, random: &mut SmallRng) -> Vec<u64> {
    let (mut base, mut outliers) = (0, 16);
    let mut count = 0;
    distinct(rows, || {
        if outliers > 0 {
            outliers -= 1;
            return u64::MAX - (outliers << 58);
        }
        if count % 1000 == 0 {
            base = random.random_range(0..1 << 40);
        }
        count += 1;
        base + random.random_range(0..4000)
    })
}

/// Returns the first addresses of IPv4 ranges. Each range is split into halves, which get random shares of the rows,
/// until each range has at most one row. The lengths of ranges therefore vary, and some regions of the address space
/// are dense.
fn ipv4(rows: u64, random: &mut SmallRng) -> Vec<u64> {
    fn split(first: u64, len: u64, rows: u64, random: &mut SmallRng, keys: &mut Vec<u64>) {
        if rows < 2 {
            keys.extend((rows == 1).then_some(first));
            return;
        }
        let half = len / 2;
        let share = 1 + random.random_range(0..15);
        let lower = (rows * share / 16).clamp(rows.saturating_sub(half), half.min(rows));
        split(first, half, lower, random, keys);
        split(first + half, half, rows - lower, random, keys);
    }
    let mut keys = Vec::with_capacity(rows as usize);
    split(0, 1 << 32, rows, random, &mut keys);
    keys
}

/// Returns the numbers from 0 to `rows - 1`, each with its bits reversed. The keys are evenly spaced, and their lower
/// bits are zero.
fn bit_reversed(rows: u64, _random: &mut SmallRng) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..rows).map(u64::reverse_bits).collect();
    keys.sort_unstable();
    keys
}

fn distinct(rows: u64, mut key: impl FnMut() -> u64) -> Vec<u64> {
    let mut keys = Vec::with_capacity(rows as usize);
    while (keys.len() as u64) < rows {
        keys.extend((keys.len() as u64..rows).map(|_| key()));
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}
