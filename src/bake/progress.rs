//! The stages of a bake, and their progress.

use std::time::{Duration, Instant};

/// A stage of a bake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading and parsing the inputs, and sorting runs.
    Read,
    /// Merging runs with each other, if there are too many.
    Merge,
    /// Writing the records.
    Write,
    /// Reading the records back and building the index.
    Index,
    /// Reading the new file back.
    Verify,
    /// Waiting for the disk and renaming the file.
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

/// The duration and the amount of work of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageFacts {
    /// The stage.
    pub stage: Stage,
    /// The stage's duration.
    pub took: Duration,
    /// The number of rows processed, if the stage processes rows.
    pub rows: Option<u64>,
    /// The bytes that the stage read or wrote, if it does either.
    pub len_bytes: Option<u64>,
}

/// The progress of a bake. All numbers count from the start of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Reading the inputs. Runs are sorted meanwhile.
    Read {
        /// Bytes read, before decompression.
        input_bytes: u64,
        /// Rows found.
        rows: u64,
    },
    /// Merging runs with each other.
    Merge {
        /// Rows merged.
        rows: u64,
        /// All rows.
        rows_total: u64,
    },
    /// Writing records.
    Write {
        /// Rows written.
        rows: u64,
        /// All rows, including those that will be dropped.
        rows_total: u64,
    },
    /// Building the index.
    Index {
        /// Steps done.
        done: u64,
        /// All steps.
        total: u64,
    },
    /// Reading the file back.
    Verify {
        /// Bytes read.
        bytes: u64,
        /// All bytes.
        bytes_total: u64,
    },
    /// Comparing every row with the sorted rows, with [`Verify::Full`](super::Verify::Full).
    Compare {
        /// Rows compared.
        rows: u64,
        /// All rows.
        rows_total: u64,
    },
    /// Waiting until the file is on disk.
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

    /// Ends a stage, and begins the next.
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
