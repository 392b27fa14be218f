//! What was baked, and what it took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{InputFacts, Progress, TableFacts};
use crate::format::header::SectionKind;
use crate::format::key::KeyKind;
use crate::format::record::VALUE_LEN_MAX_BYTES;

/// A part of a bake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading, parsing, and sorting runs.
    Read,
    /// Merging runs with each other, where they are many.
    Merge,
    /// Writing the records.
    Write,
    /// Reading them back and making the index.
    Index,
    /// Reading the file back.
    Verify,
    /// Waiting for the disk, and giving the file its name.
    Settle,
}

impl Stage {
    /// The stage in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Merge => "merge",
            Stage::Write => "write",
            Stage::Index => "index",
            Stage::Verify => "verify",
            Stage::Settle => "settle",
        }
    }
}

/// What a stage took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageFacts {
    /// The stage.
    pub stage: Stage,
    /// How long it lasted.
    pub took: Duration,
    /// Rows that it went through, if it goes by rows.
    pub rows: Option<u64>,
    /// Bytes that it read or wrote: those that the next stage, or the disk, has of it.
    pub len_bytes: Option<u64>,
}

/// How long the values of a table are, in bytes. Percentiles are exact below 2048, and to three digits above.
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

/// Lengths below this are counted one by one.
const SHORT_LENS: usize = 2048;

/// Counts values by their length.
pub(super) struct LenCounts {
    short: Box<[u64]>,
    long: Histogram<u64>,
    long_max: u64,
    long_min: u64,
}

impl LenCounts {
    pub(super) fn new() -> LenCounts {
        let long = Histogram::new_with_bounds(1, VALUE_LEN_MAX_BYTES as u64, 3).expect("bounds that are apart");
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

/// What was baked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was read, in its order.
    pub inputs: Vec<InputFacts>,
    /// The base.
    pub base: Option<TableFacts>,
    /// Tables that were merged, in their order.
    pub tables: Vec<TableFacts>,
    /// Rows of the inputs, without bad ones and those of other shards.
    pub rows_read: u64,
    /// Of these, rows that came sorted and were written at once.
    pub rows_streamed: u64,
    /// Rows of the inputs that were put aside.
    pub bad_rows: u64,
    /// Rows of the inputs that another row with the same key displaced.
    pub duplicates_dropped: u64,
    /// Rows of a base whose key has another value now.
    pub base_replaced: u64,
    /// Rows of a base whose key was removed.
    pub base_removed: u64,
    /// Keys that were to be removed and were not there.
    pub absent_removed: u64,
    /// Sorted runs that did not fit into memory together.
    pub runs: usize,
    /// How many times these were merged with each other before they were few enough.
    pub merge_passes: usize,
    /// Rows in the file.
    pub rows: u64,
    /// What their keys are.
    pub key_kind: KeyKind,
    /// With [`Keys::Auto`](super::Keys::Auto), the input and the line of the first key that made them bytes.
    pub first_text_key: Option<(String, u64)>,
    /// The file's length.
    pub file_len_bytes: u64,
    /// The length of each section.
    pub sections: Vec<(SectionKind, u64)>,
    /// The lengths of all values in the file together.
    pub values_len_bytes: u64,
    /// How they are spread.
    pub value_lens: ValueLens,
    /// The file's digest: see [`Store::digest`](crate::Store::digest).
    pub digest: u128,
    /// What each stage took.
    pub stages: Vec<StageFacts>,
    /// Keys that were looked up in the finished file: all, or a sample if the memory cannot hold what leads to all.
    pub keys_looked_up: u64,
    /// The memory that the bake was allowed.
    pub memory_limit_bytes: u64,
    /// Threads that were at work.
    pub threads: usize,
}

impl Report {
    /// Bytes of the file that are not bytes of a value, for each row.
    pub fn overhead_bytes_per_row(&self) -> f64 {
        (self.file_len_bytes - self.values_len_bytes) as f64 / self.rows.max(1) as f64
    }
}

/// Times stages.
pub(super) struct Clock {
    stage_began: Instant,
    stages: Vec<StageFacts>,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { stage_began: Instant::now(), stages: Vec::new() }
    }

    /// A stage has ended here, and the next begins.
    pub(super) fn end(
        &mut self,
        stage: Stage,
        rows: Option<u64>,
        len_bytes: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) {
        let now = Instant::now();
        let facts = StageFacts { stage, took: now - self.stage_began, rows, len_bytes };
        self.stages.push(facts);
        progress(Progress::Ended(facts));
        self.stage_began = now;
    }

    pub(super) fn stages(self) -> Vec<StageFacts> {
        self.stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_lengths_lie_between_the_shortest_and_the_longest() {
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
