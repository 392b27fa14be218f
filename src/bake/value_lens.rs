//! The distribution of value lengths.

use hdrhistogram::Histogram;

use crate::format::record::VALUE_LEN_MAX_BYTES;

/// The distribution of value lengths in bytes. Percentiles that are less than 2048 bytes are exact. All other
/// percentiles have three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub struct ValueLens {
    pub min: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

/// Each length less than this number has its own counter.
const SHORT_LENS: usize = 2048;

/// Counts values by length.
pub(super) struct LenCounts {
    short: Box<[u64]>,
    long: Histogram<u64>,
    long_max: u64,
    long_min: u64,
}

impl LenCounts {
    pub(super) fn new() -> LenCounts {
        let long = Histogram::new_with_bounds(1, VALUE_LEN_MAX_BYTES as u64, 3)
            .expect("the upper bound is at least twice the lower bound");
        LenCounts { short: vec![0; SHORT_LENS].into(), long, long_max: 0, long_min: u64::MAX }
    }

    #[inline]
    pub(super) fn add(&mut self, len_bytes: usize) {
        match self.short.get_mut(len_bytes) {
            Some(count) => *count += 1,
            None => self.add_long(len_bytes as u64),
        }
    }

    #[cold]
    fn add_long(&mut self, len_bytes: u64) {
        self.long.saturating_record(len_bytes);
        self.long_max = self.long_max.max(len_bytes);
        self.long_min = self.long_min.min(len_bytes);
    }

    pub(super) fn lens(mut self) -> ValueLens {
        for (len_bytes, count) in (0..).zip(&self.short) {
            self.long.saturating_record_n(len_bytes, *count);
        }
        let are_short = |count: &u64| *count > 0;
        let short_min = self.short.iter().position(are_short).map_or(u64::MAX, |len_bytes| len_bytes as u64);
        let short_max = self.short.iter().rposition(are_short).map_or(0, |len_bytes| len_bytes as u64);
        let max = short_max.max(self.long_max);
        let min = short_min.min(self.long_min).min(max);
        let at = |quantile| self.long.value_at_quantile(quantile).clamp(min, max);
        ValueLens { min, p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_between_the_shortest_and_the_longest_length() {
        let lens = |all: &[u64]| {
            let mut counts = LenCounts::new();
            all.iter().for_each(|len_bytes| counts.add(*len_bytes as usize));
            counts.lens()
        };
        assert_eq!(lens(&[]), ValueLens::default());
        assert_eq!(lens(&[0]), ValueLens::default());
        let one = 1_000_003;
        assert_eq!(lens(&[one]), ValueLens { min: one, p50: one, p90: one, p99: one, p99_9: one, max: one });
        let all: Vec<u64> = (1..=1000).collect();
        assert_eq!(lens(&all), ValueLens { min: 1, p50: 500, p90: 900, p99: 990, p99_9: 999, max: 1000 });
        let longest = VALUE_LEN_MAX_BYTES as u64;
        assert_eq!(
            lens(&[0, longest]),
            ValueLens { p50: 0, p90: longest, p99: longest, p99_9: longest, min: 0, max: longest }
        );
    }
}
