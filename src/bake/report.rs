//! The report of a bake.

use std::sync::Arc;

use super::input::InputFacts;
use super::old_table::TableFacts;
use super::progress::StageFacts;
use super::value_lens::ValueLens;
use crate::format::header::SectionKind;
use crate::format::key::KeyKind;
use crate::typed::Schema;

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
    /// The kind of the keys.
    pub key_kind: KeyKind,
    /// The columns of a typed table.
    pub schema: Option<Arc<Schema>>,
    /// With [`Keys::Auto`](super::Keys::Auto), the input and the line (or row number) of the first key that is not a
    /// 64-bit decimal without leading zeros. Because of such a key, all keys are stored as bytes.
    pub first_text_key: Option<(String, u64)>,
    /// The length of the new file.
    pub file_len_bytes: u64,
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
