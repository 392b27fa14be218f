//! What was baked, and what it took.

use std::time::{Duration, Instant};

use super::InputFacts;
use crate::format::header::SectionKind;
use crate::format::key::KeyKind;

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

/// What was baked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was read, in its order.
    pub inputs: Vec<InputFacts>,
    /// Rows of the inputs, without bad ones and those of other shards.
    pub rows_read: u64,
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
    /// Rows in the file.
    pub rows: u64,
    /// What their keys are.
    pub key_kind: KeyKind,
    /// The file's length.
    pub file_len_bytes: u64,
    /// The length of each section.
    pub sections: Vec<(SectionKind, u64)>,
    /// The lengths of all values in the file together.
    pub values_len_bytes: u64,
    /// The file's digest: see [`Store::digest`](crate::Store::digest).
    pub digest: u128,
    /// What each stage took.
    pub stages: Vec<(Stage, Duration)>,
}

impl Report {
    /// Bytes of the file that are not bytes of a value, for each row.
    pub fn overhead_bytes_per_row(&self) -> f64 {
        (self.file_len_bytes - self.values_len_bytes) as f64 / self.rows.max(1) as f64
    }
}

/// Times stages.
pub(super) struct Clock {
    lap_began: Instant,
    stages: Vec<(Stage, Duration)>,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { lap_began: Instant::now(), stages: Vec::new() }
    }

    /// A stage has ended here.
    pub(super) fn lap(&mut self, stage: Stage) {
        let now = Instant::now();
        self.stages.push((stage, now - self.lap_began));
        self.lap_began = now;
    }

    pub(super) fn stages(self) -> Vec<(Stage, Duration)> {
        self.stages
    }
}
