//! What a bake reports: its progress while it runs, and a report at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::input::InputFacts;
use super::table::ValueLens;
use super::warning::Warning;
use crate::format::header::{SectionKind, TableLayout};
use crate::format::key_type::KeyType;
use crate::typed::Schema;

/// Describes a table whose rows were merged into the new table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableFacts {
    /// The table's path.
    pub path: PathBuf,
    /// The file's length.
    pub len_bytes: u64,
    /// The number of rows.
    pub rows: u64,
    /// The digest in the table's header: see [`Store::digest`](crate::Store::digest).
    pub digest: u128,
}

/// The result of a bake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The inputs, in the order given.
    pub inputs: Vec<InputFacts>,
    /// The base, if there was one.
    pub base: Option<TableFacts>,
    /// The merged tables, in the order given.
    pub tables: Vec<TableFacts>,
    /// The number of rows in the inputs, not counting bad rows and rows of other slots.
    pub rows_read: u64,
    /// The number of rows that were written to the new file immediately after they were parsed, because they arrived
    /// sorted.
    pub rows_streamed: u64,
    /// The number of skipped bad rows.
    pub bad_rows: u64,
    /// The number of rows in the inputs and merged tables that were dropped because another row with the same key was
    /// kept.
    pub duplicates_dropped: u64,
    /// The number of the base's rows that were replaced by rows of the input.
    pub base_replaced: u64,
    /// The number of the base's rows that were removed by deletions in the input.
    pub base_removed: u64,
    /// The number of deletions in the input whose key is not in the base.
    pub absent_removed: u64,
    /// The number of sorted runs that were spilled to disk.
    pub runs: usize,
    /// The number of merge passes before the final merge. A merge pass merges all spilled runs into fewer runs.
    pub merge_passes: usize,
    /// The number of rows in the new file.
    pub rows: u64,
    /// The type of the keys.
    pub key_type: KeyType,
    /// The columns of a typed table.
    pub schema: Option<Arc<Schema>>,
    /// With [`Keys::Auto`](super::Keys::Auto), the input and the line (or row number) of the first key that is not a
    /// 64-bit decimal without leading zeros. Because of such a key, all keys are stored as bytes.
    pub first_text_key: Option<(String, u64)>,
    /// The length of the new file.
    pub file_len_bytes: u64,
    /// The length that the file would have with the other layout. `None` if the table cannot have the other layout.
    pub other_layout: Option<OtherLayout>,
    /// The length of each section of the new file.
    pub sections: Vec<(SectionKind, u64)>,
    /// The sum of the lengths of all values.
    pub values_len_bytes: u64,
    /// The distribution of value lengths.
    pub value_lens: ValueLens,
    /// The digest of the new file: see [`Store::digest`](crate::Store::digest).
    pub digest: u128,
    /// The duration of each stage.
    pub stages: Vec<StageFacts>,
    /// The number of keys that were looked up in the new file: all keys, or a sample if the index does not fit into
    /// memory.
    pub keys_looked_up: u64,
    /// The memory limit of the bake.
    pub memory_limit_bytes: u64,
    /// The number of threads used.
    pub threads: usize,
}

impl Report {
    /// Returns the average number of bytes per row that are not part of a value.
    pub fn overhead_bytes_per_row(&self) -> f64 {
        (self.file_len_bytes - self.values_len_bytes) as f64 / self.rows.max(1) as f64
    }
}

/// The length of a table's file in a layout that the file does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherLayout {
    /// The layout.
    pub layout: TableLayout,
    /// The length of the file.
    pub len_bytes: u64,
    /// Whether the length is exact. The length of a hash index of more than 32,768 rows is an estimate.
    pub is_exact: bool,
}

impl OtherLayout {
    /// Returns the length of two files together.
    #[doc(hidden)]
    pub fn plus(self, other: OtherLayout) -> OtherLayout {
        OtherLayout { len_bytes: self.len_bytes + other.len_bytes, is_exact: self.is_exact && other.is_exact, ..self }
    }
}

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
    /// The bake suspects that the inputs mean something else.
    Warning(Warning),
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
    /// The bake compares the rows of the new file with the sorted rows: see
    /// [`Options::compare_rows`](super::Options::compare_rows).
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
