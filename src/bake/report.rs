//! The report of a bake.

use super::input::InputFacts;
use super::old_table::TableFacts;
use super::progress::StageFacts;
use super::value_lens::ValueLens;
use crate::format::header::SectionKind;
use crate::format::key::KeyKind;

/// The result of a bake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The inputs, in their order.
    pub inputs: Vec<InputFacts>,
    /// The base.
    pub base: Option<TableFacts>,
    /// The merged tables, in their order.
    pub tables: Vec<TableFacts>,
    /// Rows of the inputs, without bad rows and rows of other shards.
    pub rows_read: u64,
    /// Rows that arrived sorted and were written at once, part of `rows_read`.
    pub rows_streamed: u64,
    /// Rows of the inputs that were skipped.
    pub bad_rows: u64,
    /// Rows of the inputs and merged tables that were dropped because another row with the same key was kept.
    pub duplicates_dropped: u64,
    /// Rows of the base that the input replaced.
    pub base_replaced: u64,
    /// Rows of the base that the input removed.
    pub base_removed: u64,
    /// Keys that the input removes and the base does not have.
    pub absent_removed: u64,
    /// Sorted runs that were spilled to disk.
    pub runs: usize,
    /// The number of times that all runs were merged with each other before the last merge.
    pub merge_passes: usize,
    /// Rows in the file.
    pub rows: u64,
    /// The kind of the keys.
    pub key_kind: KeyKind,
    /// With [`Keys::Auto`](super::Keys::Auto), the input and the line of the first key that is not a number.
    pub first_text_key: Option<(String, u64)>,
    /// The file's length.
    pub file_len_bytes: u64,
    /// The length of each section.
    pub sections: Vec<(SectionKind, u64)>,
    /// The sum of the lengths of all values.
    pub values_len_bytes: u64,
    /// The distribution of value lengths.
    pub value_lens: ValueLens,
    /// The file's digest: see [`Store::digest`](crate::Store::digest).
    pub digest: u128,
    /// The duration of each stage.
    pub stages: Vec<StageFacts>,
    /// Keys that were looked up in the new file: all keys, or a sample if the index does not fit into memory.
    pub keys_looked_up: u64,
    /// The memory that the bake was allowed to use.
    pub memory_limit_bytes: u64,
    /// The number of threads used.
    pub threads: usize,
}

impl Report {
    /// Returns the bytes of the file that are not part of a value, per row.
    pub fn overhead_bytes_per_row(&self) -> f64 {
        (self.file_len_bytes - self.values_len_bytes) as f64 / self.rows.max(1) as f64
    }
}
