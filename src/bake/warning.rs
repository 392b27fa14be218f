//! What a bake suspects: inputs that it bakes, but that may mean something else.

use std::fmt;

use super::error::Remedy;
use crate::counted::counted;

/// A reason to doubt that the rows of a table are those that its inputs mean.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Quoted fields have lines that look like rows. If quotes are part of the text, the field has swallowed rows.
    RowsInQuotes {
        /// The input with the first of these fields.
        input: String,
        /// The line on which the row with this field begins, counted from 1.
        line: u64,
        /// The number of rows with such a field.
        rows: u64,
    },
    /// The first row of an input looks like a header, but is read as a row.
    PossibleHeader {
        /// The input.
        input: String,
        /// The line of the row, counted from 1.
        line: u64,
    },
    /// An input lacks a column of a typed table. The column is null in the rows of this input, and of later inputs that
    /// lack it.
    MissingColumn {
        /// The first input that lacks the column.
        input: String,
        /// The name of the column.
        column: String,
    },
    /// Keys are baked as bytes, and all keys that were looked at are IP addresses, which do not sort as bytes.
    KeysAreAddresses,
    /// Keys are baked as bytes, and all keys that were looked at are UUIDs, which take 36 bytes as text instead of 16.
    KeysAreUuids,
    /// Fields without quotes have escapes, which are read as text. Reported for the first such input.
    PossibleEscapes {
        /// The input.
        input: String,
        /// The line of the first escape, counted from 1.
        line: u64,
        /// The first escape.
        escape: String,
    },
    /// A column of an update seems to mark deletions, and no column is chosen that does. Reported for the first such
    /// input.
    PossibleDeletions {
        /// The input.
        input: String,
        /// The name of the column.
        column: String,
        /// A value that marks a deletion.
        found: String,
    },
}

impl Warning {
    /// Returns the options that can be changed if the suspicion is right.
    pub fn remedies(&self) -> &'static [Remedy] {
        match self {
            Warning::RowsInQuotes { .. } => &[Remedy::ReadWithoutQuotes],
            Warning::PossibleHeader { .. } => &[Remedy::ReadHeader, Remedy::ReadNoHeader],
            Warning::MissingColumn { .. } => &[Remedy::RequireColumns],
            Warning::KeysAreAddresses => &[Remedy::TakeKeysAsAddresses],
            Warning::KeysAreUuids => &[Remedy::TakeKeysAsUuids],
            Warning::PossibleEscapes { .. } => &[Remedy::SetEscape, Remedy::SetNullText],
            Warning::PossibleDeletions { .. } => &[Remedy::ChooseDeleteColumn],
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::RowsInQuotes { input, line, rows } => write!(
                f,
                "{input}:{line}: the lines of a quoted field look like rows ({} with such a field): if quotes are part \
                 of the text, read fields without quotes",
                counted(*rows, "row")
            ),
            Warning::PossibleHeader { input, line } => write!(
                f,
                "{input}:{line}: the row looks like the names of columns, and is baked as a row: read it as a header, \
                 or confirm that it is a row"
            ),
            Warning::MissingColumn { input, column } => write!(
                f,
                "{input}: the typed column {column:?} does not exist, and is null in all rows of the input: correct \
                 the name, or require all columns"
            ),
            Warning::KeysAreAddresses => f.write_str(
                "the keys look like IP addresses, and are baked as bytes, in whose order 10.0.0.0 precedes 9.0.0.0: \
                 bake them as addresses",
            ),
            Warning::KeysAreUuids => f.write_str(
                "the keys look like UUIDs, and are baked as bytes, each of which takes 36 bytes instead of 16: bake \
                 them as UUIDs",
            ),
            Warning::PossibleEscapes { input, line, escape } => write!(
                f,
                "{input}:{line}: {escape} looks like an escape, as all backslashes of the first rows do, and is baked as \
                 text: read fields with escapes, and \\N as null"
            ),
            Warning::PossibleDeletions { input, column, found } => write!(
                f,
                "{input}: the column {column:?} seems to mark deletions, as {found:?} does, and removes no row: choose it \
                 as the delete column, with values such as true and false"
            ),
        }
    }
}
