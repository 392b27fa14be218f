//! The stages of a bake, and their progress.

use std::time::{Duration, Instant};

/// A stage of a bake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading and parsing the inputs, and sorting runs.
    Read,
    /// Merging sorted runs into fewer runs, if there are too many for one merge.
    Merge,
    /// Writing the records.
    Write,
    /// Reading the records back and building the index.
    Index,
    /// Reading the new file back.
    Verify,
    /// Waiting until the file is on disk, and renaming it.
    Settle,
}

impl Stage {
    /// Returns the stage's name, one word.
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

/// The duration of a stage, and the amount of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageFacts {
    /// The stage.
    pub stage: Stage,
    /// The time that the stage took.
    pub took: Duration,
    /// The number of rows that the stage processed, if it processes rows.
    pub rows: Option<u64>,
    /// The number of bytes that the stage read or wrote, if the stage reads or writes bytes.
    pub len_bytes: Option<u64>,
}

/// The progress of a bake. The counts of rows and bytes start at 0 in each variant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The bake has inferred the types of columns from the first input.
    Inferred {
        /// The types, in the form that [`parse_types`](super::parse_types) parses.
        types: String,
    },
    /// The bake reads the inputs, and sorts runs at the same time.
    Read {
        /// The number of bytes read from the inputs, counted before decompression.
        input_bytes: u64,
        /// The number of rows found.
        rows: u64,
    },
    /// The bake merges sorted runs into fewer runs.
    Merge {
        /// The number of rows merged.
        rows: u64,
        /// The number of rows to merge.
        rows_total: u64,
    },
    /// The bake writes records.
    Write {
        /// The number of rows written.
        rows: u64,
        /// The maximum number of rows to write. Some of these rows may be dropped as duplicates or deletions.
        rows_total: u64,
    },
    /// The bake builds the index.
    Index {
        /// The number of rows processed. Every row is processed twice: first, the bake reads the row's record; later,
        /// it chooses the slot of the row's key.
        done: u64,
        /// Twice the number of rows.
        total: u64,
    },
    /// The bake reads the new file back.
    Verify {
        /// The number of bytes read.
        bytes: u64,
        /// The length of the file.
        bytes_total: u64,
    },
    /// The bake compares the rows of the new file with the sorted rows, as [`Verify::Full`](super::Verify::Full)
    /// requires.
    Compare {
        /// The number of rows compared.
        rows: u64,
        /// The number of rows in the file.
        rows_total: u64,
    },
    /// The bake waits until the file is on disk.
    Settle,
    /// A stage has ended.
    Ended(StageFacts),
}

/// Measures the duration of each stage.
pub(super) struct StageClock {
    stage_began: Instant,
    stages: Vec<StageFacts>,
}

impl StageClock {
    pub(super) fn start() -> StageClock {
        StageClock { stage_began: Instant::now(), stages: Vec::new() }
    }

    /// Ends the current stage, reports its duration, and begins the next stage.
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
