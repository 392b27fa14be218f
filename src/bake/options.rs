//! The options of a bake.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use super::bad_rows::BadRows;
use super::columns::{Column, ValueSpec};
use super::keys::Keys;
use super::place::Cancel;
use super::report::Progress;
use crate::format::header::TableLayout;
#[cfg(feature = "parquet")]
use crate::format::key::KeyKind;
#[cfg(feature = "parquet")]
use crate::format::key_type::PartType;
use crate::progress::WithProgress;
use crate::replace::ReplaceRules;
use crate::slots::{SlotRange, SlotSet};
use crate::typed;

/// The policy for rows that have the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Fail with an error that names both rows.
    #[default]
    Error,
    /// Of the rows with the same key, keep the row that comes first in the inputs.
    First,
    /// Of the rows with the same key, keep the row that comes last in the inputs.
    Last,
}

/// Where the ends of ranges are, in a table of ranges: each row belongs to all keys from its start to its end.
///
/// The last part of the keys must have a type of fixed length: any type but `bytes` and `hex`. Ranges of composite keys
/// have equal leading parts, so the ranges of one user, for example, are apart from those of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeEnds {
    /// The key column has the first key of each range, and this column has the last one, which is part of the range.
    /// Rows in memory have no columns: [`RowPiece::push_range`](super::RowPiece::push_range) takes the last keys.
    Column(Column),
    /// The key column has blocks of addresses (CIDR), such as `192.0.2.0/24`. An address stands for itself alone. Keys
    /// must be of type `ip` or `ipv4`.
    Blocks,
}

/// The policy for ranges that overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlaps {
    /// Fail with an error that names both rows.
    #[default]
    Error,
    /// A key belongs to the row that comes first in the inputs.
    First,
    /// A key belongs to the row that comes last in the inputs.
    Last,
    /// A key belongs to the row with the narrowest range. For blocks of addresses, this is the longest prefix. Of two
    /// ranges of equal length, a key belongs to the one that starts later.
    Narrowest,
}

/// The options of a bake.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The format of the inputs.
    pub format: Format,
    /// The byte between two fields of delimited text. The default is a comma, or a tab in TSV.
    pub delimiter: Option<u8>,
    /// The byte that encloses fields of delimited text.
    pub quote: Quote,
    /// The byte of delimited text that removes the meaning of the byte after it. In quoted fields, it precedes a quote
    /// or itself, and is text before any other byte. If fields have no quotes, it precedes a delimiter, a line end, or
    /// itself, and `b`, `f`, `n`, `r`, `t`, `v`, and `0` after it stand for control characters. The default is none.
    pub escape: Option<u8>,
    /// The byte with which comments begin. Lines of delimited text that begin with it, outside quotes, are skipped. By
    /// default, no line is a comment.
    pub comment: Option<u8>,
    /// The number of lines that are skipped at the beginning of each input of delimited text.
    pub skip_lines: u64,
    /// The texts of delimited text that stand for null, quoted or not. In a typed table, a field with such a text is
    /// null. Without them, an empty field is null in a column that can be null. With them, an empty field of a column
    /// of text or bytes is an empty text, unless the empty text is among them.
    pub null_texts: Vec<Vec<u8>>,
    /// Whether the first row of each delimited input is a header with the names of the columns.
    pub header: bool,
    /// The column that holds the key. If rows have two columns, the default is the first column, or the second column
    /// if `value` selects the first. In JSON Lines, the default is the field `key` if `value` selects no field. In
    /// Parquet, the default is the index of a pandas DataFrame, if the file has one.
    pub key: Option<Column>,
    /// The columns of the second and the later parts of composite keys, whose first part is in the column `key`. If
    /// there are none, the column `key` has the written form of the keys.
    pub more_key_columns: Vec<Column>,
    /// The columns that become the value.
    pub value: ValueSpec,
    /// The columns of a typed table. `None` if values are not typed. With typed columns, `value` must be
    /// [`ValueSpec::Unnamed`], `delete_marker` must be `None`, and `key` must select a column, unless all inputs are
    /// rows in memory or have a default. The value of a row in memory must be a row of the schema, as
    /// [`RowEncoder`](crate::typed::RowEncoder) encodes it.
    pub typed: Option<TypedColumns>,
    /// The type of the keys. The declared type of a typed table's key column overrides it. If there is a base,
    /// [`Keys::Auto`] means the type of the base's keys.
    pub keys: Keys,
    /// Where the ends of the rows' ranges are, in a table of ranges. `None` if each row belongs to one key. Adjacent
    /// ranges with equal values become one row. [`Options::key`] must be set, unless all inputs are rows in memory, and
    /// [`Options::keys`] or a base must select the type of the keys. A table of ranges cannot be divided by slots. A
    /// merge ignores this option, because its tables have ranges or not.
    pub ranges: Option<RangeEnds>,
    /// The policy for ranges that overlap, of inputs or of merged tables. Rows with equal ranges are duplicates: see
    /// [`Options::duplicates`]. A range of the base loses the keys that it shares with a range of an input.
    pub overlaps: Overlaps,
    /// How the file stores rows. [`TableLayout::Compact`] requires numeric keys.
    pub layout: TableLayout,
    /// The policy for rows that have the same key.
    pub duplicates: Duplicates,
    /// The value that marks a deletion: a row with this value removes its key.
    pub delete_marker: Option<Vec<u8>>,
    /// The column that marks deletions. A row in which this column is `1`, `true`, `t`, `yes`, or `y` removes its key.
    /// In other rows, the column must be `0`, `false`, `f`, `no`, `n`, or empty. The comparison ignores ASCII case.
    pub delete_column: Option<Column>,
    /// The policy for bad rows.
    pub bad_rows: BadRows,
    /// The base: an older table whose rows the bake copies into the new table. The base's keys must be of the same kind
    /// as the input's keys. A row of the input replaces the base's row with the same key. A deletion in the input
    /// removes the base's row with the same key. All other rows of the base are kept. In a table of ranges, a row or a
    /// deletion takes all keys of its range from the base's rows, which keep their other keys. The base may be the table
    /// at the output's path.
    pub base: Option<PathBuf>,
    /// The slots to bake: the table is a shard. Rows of the inputs and of the base whose keys have other slots are left
    /// out. By default, all rows are baked. Slots require [`Keys::U64`], [`Keys::BYTES`], or a base.
    pub slots: Option<SlotRange>,
    /// The slots whose rows are read from tables, instead of `slots`, for a merge of the rows of many ranges.
    #[doc(hidden)]
    pub table_slots: Option<Arc<SlotSet>>,
    /// The memory that the bake may use, at least [`MEMORY_MIN_BYTES`](super::MEMORY_MIN_BYTES). The default is the
    /// memory of the machine or control group, divided by [`MEMORY_SHARE`](super::MEMORY_SHARE).
    pub memory_bytes: Option<u64>,
    /// The number of threads. The default is the number of processors.
    pub threads: Option<NonZero<usize>>,
    /// The folder for temporary files. The default is the output's folder.
    pub temp_dir: Option<PathBuf>,
    /// Whether the bake compares every row of the new file with the sorted row that it was written from. In every case,
    /// before the file replaces the output, the bake reads it back, verifies its checksums, and looks up every key, or
    /// a sample of the keys if the index does not fit into memory.
    pub compare_rows: bool,
    /// The rules that the new table must satisfy to replace the table at the output's path.
    pub replace: ReplaceRules,
    /// The handle that can cancel the bake from another thread.
    pub cancel: Cancel,
}

impl Options {
    /// Returns the chosen key columns.
    pub(super) fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().chain(&self.more_key_columns)
    }

    /// Returns the type of the keys or of the part of the keys that each key column has. A single column can have the
    /// written form of composite keys.
    #[cfg(feature = "parquet")]
    pub(super) fn key_part_types(&self) -> Vec<PartType> {
        let key_type = self.keys.key_type(KeyKind::Bytes);
        match key_type.parts() {
            parts if parts.len() == self.key_columns().count().max(1) => parts.to_vec(),
            _ => vec![PartType::Bytes],
        }
    }

    /// Returns the type of the keys by which rows are sorted.
    pub(super) fn sorted_keys(&self) -> Keys {
        if self.ranges.is_some() { Keys::BYTES } else { self.keys }
    }

    /// Returns the column with the ends of ranges, if there is one.
    pub(super) fn end_column(&self) -> Option<&Column> {
        match &self.ranges {
            Some(RangeEnds::Column(end)) => Some(end),
            _ => None,
        }
    }

    /// Adds a function that a bake calls with each event of its progress.
    ///
    /// # Example
    /// ```
    /// use zero_kv::bake::{self, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let (options, mut events) = (Options::default(), 0);
    /// let mut count = |_| events += 1;
    /// bake::bake_csv("7,seven\n".as_bytes(), &folder.path().join("storage.db"), options.with_progress(&mut count))?;
    /// assert!(events > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_progress<'a>(
        &'a self,
        progress: &'a mut (dyn FnMut(Progress) + Send),
    ) -> WithProgress<'a, Options, Progress> {
        WithProgress::new(self, progress)
    }
}

/// The columns of a typed table.
///
/// The schema of the table has the columns of the first input, except the key column and the delete column. Other
/// inputs must have columns with the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedColumns {
    /// The columns of the table with their types, in the order of the table. The key column may be among them: its type
    /// selects the type of the keys, and must be `u64`, `i64`, `text`, `bytes`, `date`, or `timestamp`.
    /// [`parse_types`](super::parse_types) parses this list.
    ///
    /// If the list is empty, the first input determines the types. Parquet files have types. In text formats, the types
    /// are inferred from the rows in the first mebibyte of the first input, and columns that the base has keep the
    /// base's types. Rows in memory require declared types.
    pub types: Vec<typed::Column>,
    /// The columns to store, in the order of the table. The default is all columns of `types`, or all columns of the
    /// first input if `types` is empty.
    pub columns: Vec<Column>,
    /// Whether each input must have all columns. By default, a column that can be null is null in the rows of an input
    /// that lacks it. Objects of JSON Lines may lack such a column in every case.
    pub require_columns: bool,
    /// Whether the values of the base's columns are converted if their types have changed. A value that does not fit
    /// the new type exactly is a bad row.
    pub cast: bool,
}

/// The byte that encloses fields of delimited text, so that they can contain delimiters and line ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quote {
    /// `"`, or no byte if tabs separate the fields: TSV has no quotes.
    #[default]
    Auto,
    /// No byte: quotes are part of the text, and every line is a row.
    None,
    /// This byte. Two of them in a quoted field stand for one.
    Byte(u8),
}

/// The format of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Detects the format. Parquet is detected by the input's first bytes. Other formats are detected by the end of the
    /// input's name, after `.gz` or `.zst` is removed. Names that end in `.jsonl`, `.ndjson`, or `.json` mean JSON
    /// Lines, names that end in `.tsv` mean TSV, and all other names mean delimited text.
    #[default]
    Auto,
    /// Delimited text (RFC 4180).
    Delimited,
    /// Delimited text with tabs, or with [`Options::delimiter`](super::Options::delimiter) if it is set.
    Tsv,
    /// JSON objects: one per line (JSON Lines), in a list, or one after the other.
    JsonLines,
    /// Apache Parquet. Requires the feature `parquet`.
    Parquet,
}

/// The first bytes of formats that have a magic number.
const MAGICS: &[(&[u8], Format)] = &[(b"PAR1", Format::Parquet)];
/// The endings of file names that identify formats without a magic number.
const NAME_ENDS: &[(&str, Format)] = &[
    (".jsonl", Format::JsonLines),
    (".ndjson", Format::JsonLines),
    (".json", Format::JsonLines),
    (".tsv", Format::Tsv),
];

impl Format {
    /// Returns `self`, or the detected format if `self` is `Auto`. The format is detected from the input's name and
    /// first bytes.
    pub(super) fn detect(self, name: &str, head: &[u8]) -> Format {
        if self != Format::Auto {
            return self;
        }
        let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
        let by_magic = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| *format);
        let by_name = || NAME_ENDS.iter().find(|(end, _)| plain.ends_with(end)).map(|(_, format)| *format);
        by_magic.or_else(by_name).unwrap_or(Format::Delimited)
    }
}
