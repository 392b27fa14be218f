//! Rows out of the formats that tables come in.
//!
//! In: a piece of an input. Out: its rows, each as it stands there. What a key
//! must be, and what becomes of bad rows, is not known here.

pub(super) mod delimited;

use super::{BakeError, RowFault};

/// A row as it stands in the input.
pub(super) struct RawRow<'a> {
    /// The line on which it begins, from 1; in formats without lines its number.
    pub(super) line: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// What the column that tells whether the row removes its key has, if there is one.
    pub(super) delete: Option<&'a [u8]>,
    /// The whole row, for the file of bad rows; empty in formats that are no text.
    pub(super) text: &'a [u8],
}

/// What takes rows.
pub(super) trait RowSink {
    /// Takes a row.
    fn row(&mut self, row: &RawRow<'_>) -> Result<(), BakeError>;
    /// Takes what should have been a row.
    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError>;
}
