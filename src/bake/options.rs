//! What is asked of a bake, and what it tells while it lasts.

use std::num::NonZero;
use std::path::PathBuf;

use super::report::StageFacts;
use super::{BadRows, Cancel, Column, Keys, Shard, ValueSpec};
use crate::replace::ReplaceRules;

/// What to do with rows that have the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse the input.
    #[default]
    Error,
    /// Keep the first of them, in the order of the inputs.
    First,
    /// Keep the last of them, in the order of the inputs.
    Last,
}

/// What an input is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Parquet if it begins like that. Else what its name ends with, without `.gz` or `.zst`: `.jsonl`, `.ndjson` and
    /// `.json` are JSON Lines, `.tsv` has tabs, and all else is delimited text.
    #[default]
    Auto,
    /// Delimited text, RFC 4180.
    Delimited,
    /// Delimited text with tabs, unless another delimiter was given.
    Tsv,
    /// One JSON object a line.
    JsonLines,
    /// Apache Parquet; with the feature `parquet`.
    Parquet,
}

impl Format {
    /// The format of an input that is called so.
    pub(super) fn of(self, name: &str, begins_as_parquet: bool) -> Format {
        let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
        match self {
            Format::Auto if begins_as_parquet => Format::Parquet,
            Format::Auto if [".jsonl", ".ndjson", ".json"].iter().any(|end| plain.ends_with(end)) => Format::JsonLines,
            Format::Auto if plain.ends_with(".tsv") => Format::Tsv,
            Format::Auto => Format::Delimited,
            format => format,
        }
    }
}

impl Options {
    /// The byte between two fields in text of a format, if it has fields.
    pub(super) fn delimiter_of(&self, format: Format) -> Option<u8> {
        match format {
            Format::Auto | Format::Delimited => Some(self.delimiter.unwrap_or(b',')),
            Format::Tsv => Some(self.delimiter.unwrap_or(b'\t')),
            Format::JsonLines | Format::Parquet => None,
        }
    }
}

/// How much of the new file is held against the rows before it is put in place. In any case all of it is read back
/// and held against its checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Keys are looked up: all, or if the index does not fit into the memory a sample.
    #[default]
    Sample,
    /// Every row as well is compared with the sorted rows that it was written from.
    Full,
}

/// How to bake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What the inputs are.
    pub format: Format,
    /// In delimited text, the byte between two fields. By default a comma, or the tab that the format says.
    pub delimiter: Option<u8>,
    /// In delimited text, whether the first row of each input names the columns, and is not data.
    pub header: bool,
    /// The column that holds the key. By default the first of two; in JSON Lines the field `key`.
    pub key: Option<Column>,
    /// What becomes the value.
    pub value: ValueSpec,
    /// What the keys are. With a base, [`Keys::Auto`] are keys like those of the base.
    pub keys: Keys,
    /// What to do with rows that have the same key.
    pub duplicates: Duplicates,
    /// A row with this value removes its key.
    pub delete_marker: Option<Vec<u8>>,
    /// A row in which this column is `1`, `true`, `t`, `yes` or `y` removes its key. In others it is `0`, `false`, `f`, `no`, `n`
    /// or empty.
    pub delete_column: Option<Column>,
    /// What to do with rows that are none.
    pub bad_rows: BadRows,
    /// A table whose rows are taken as well, if no row of the input has their key: the input replaces rows of it and, with a
    /// delete marker or column, removes them. It may be the output. Its keys must be of the same kind.
    pub base: Option<PathBuf>,
    /// The rows to bake, if not all; also of the base. Needs to know what the keys are: not with [`Keys::Auto`], unless there is
    /// a base.
    pub shard: Option<Shard>,
    /// The memory that a bake takes, at least [`MEMORY_MIN_BYTES`](super::MEMORY_MIN_BYTES). By default one part in
    /// [`MEMORY_SHARE`](super::MEMORY_SHARE) of the machine's.
    pub memory_bytes: Option<u64>,
    /// Threads at work. By default as many as the machine has processors.
    pub threads: Option<NonZero<usize>>,
    /// The folder for temporary files. By default that of the output.
    pub temp_dir: Option<PathBuf>,
    /// How the new file is checked.
    pub verify: Verify,
    /// What the new table must be like to replace the one at the output's path.
    pub replace: ReplaceRules,
    /// Set from outside, it stops the bake.
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            format: Format::Auto,
            delimiter: None,
            header: false,
            key: None,
            value: ValueSpec::Unnamed,
            keys: Keys::U64,
            duplicates: Duplicates::Error,
            delete_marker: None,
            delete_column: None,
            bad_rows: BadRows::Refuse,
            base: None,
            shard: None,
            memory_bytes: None,
            threads: None,
            temp_dir: None,
            verify: Verify::Sample,
            replace: ReplaceRules::default(),
            cancel: Cancel::default(),
        }
    }
}

/// How far a bake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Reading the input: so much of it, and so many rows, so far. Runs are sorted meanwhile.
    Read {
        /// Bytes read, as they stand in the inputs.
        input_bytes: u64,
        /// Rows found in them.
        rows: u64,
    },
    /// Merging runs with each other: so many of their rows so far.
    Merge {
        /// Rows merged.
        rows: u64,
        /// All rows.
        rows_total: u64,
    },
    /// Writing records: so many of them so far.
    Write {
        /// Rows written.
        rows: u64,
        /// All rows, and those that will be dropped.
        rows_total: u64,
    },
    /// Making the index: so much of the work so far.
    Index {
        /// Steps done.
        done: u64,
        /// All steps.
        total: u64,
    },
    /// Reading the file back: so much of it so far.
    Verify {
        /// Bytes read.
        bytes: u64,
        /// All bytes.
        bytes_total: u64,
    },
    /// Comparing every row with those that were sorted, where that was asked for.
    Compare {
        /// Rows compared.
        rows: u64,
        /// All rows.
        rows_total: u64,
    },
    /// Waiting until the disk has the file.
    Settle,
    /// A stage has ended.
    Ended(StageFacts),
}
