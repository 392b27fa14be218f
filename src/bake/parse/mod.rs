//! Formats: bytes of an input in, rows out.
//!
//! Each format hands on its rows as [`RawRow`]s, with key and value as bytes. What
//! a key must be, which rows are kept and where they go is not known here.

pub(super) mod delimited;
pub(super) mod json_lines;
pub(super) mod pack;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
pub(super) mod rows;
#[cfg(test)]
mod tests;

use super::{BakeError, Column, Options, RowFault};
use pack::Pack;

/// A row as it stands in the input.
pub(super) struct RawRow<'a> {
    /// The line on which it begins, or its number where there are no lines; from 1.
    pub(super) line: u64,
    pub(super) key: &'a [u8],
    /// Empty if the row may be a deletion and has no value.
    pub(super) value: &'a [u8],
    /// What the delete column says, if one was asked for and is not null.
    pub(super) delete: Option<&'a [u8]>,
    /// The row as it stands there, without its line end. Empty if it is no text.
    pub(super) text: &'a [u8],
}

/// What takes rows.
pub(super) trait RowSink {
    fn row(&mut self, row: &RawRow<'_>) -> Result<(), BakeError>;

    /// Takes a row that is none; `text` as in [`RawRow`].
    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError>;
}

/// Which columns, or fields of an object, become what.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSpec {
    pub(super) key: Option<Column>,
    pub(super) value: ValueSpec,
    pub(super) delete: Option<Column>,
}

impl RowSpec {
    pub(super) fn of(options: &Options) -> RowSpec {
        RowSpec { key: options.key.clone(), value: options.value.clone(), delete: options.delete_column.clone() }
    }
}

/// What becomes the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueSpec {
    /// The second of two columns; in JSON Lines the field `value`.
    #[default]
    Unnamed,
    /// A column.
    Column(Column),
    /// Several columns, packed into one value with their names.
    Packed(Vec<Column>, Pack),
}

/// Whether what a delete column says means yes; `None` if it means neither yes nor no.
pub(super) fn is_deletion(text: &[u8]) -> Option<bool> {
    let is_any = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    match text {
        _ if is_any(&["1", "true", "t", "yes", "y"]) => Some(true),
        _ if is_any(&["", "0", "false", "f", "no", "n"]) => Some(false),
        _ => None,
    }
}
