//! The columns of the input that become keys and values.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use super::error::{BakeError, Remedy};

/// Identifies a column by its number or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// The column's number, counted from 1.
    Number(usize),
    /// The column's name.
    Name(String),
}

impl Column {
    /// Returns the column's name, or `None` if the column is identified by its number.
    pub fn name(&self) -> Option<&str> {
        match self {
            Column::Number(_) => None,
            Column::Name(name) => Some(name),
        }
    }
}

impl FromStr for Column {
    type Err = Infallible;

    /// Parses a column's number or name. Any text that is not a number is a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Column::Name(text.to_owned()), Column::Number))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Number(number) => number.fmt(f),
            Column::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// The columns that become the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueSpec {
    /// No column is chosen. If rows have two columns, the value is the column that is not the key. In JSON Lines, the
    /// value is the field `value`.
    #[default]
    Unnamed,
    /// One column.
    Column(Column),
    /// Several columns, which are packed into one JSON object together with their names.
    Packed(Vec<Column>),
}

/// The role of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnRole {
    Key,
    End,
    Value,
    Packed,
    Typed,
    Delete,
}

impl ColumnRole {
    pub(super) fn remedy(self) -> Remedy {
        match self {
            ColumnRole::Key => Remedy::ChooseKey,
            ColumnRole::End => Remedy::ChooseRanges,
            ColumnRole::Value => Remedy::ChooseValue,
            ColumnRole::Packed | ColumnRole::Typed => Remedy::ChooseColumns,
            ColumnRole::Delete => Remedy::ChooseDeleteColumn,
        }
    }
}

impl fmt::Display for ColumnRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnRole::Key => "key column",
            ColumnRole::End => "column of ends",
            ColumnRole::Value => "value column",
            ColumnRole::Packed => "packed column",
            ColumnRole::Typed => "typed column",
            ColumnRole::Delete => "delete column",
        })
    }
}

/// The reason why the chosen columns do not fit an input, and the options that can be changed to avoid the failure.
#[derive(Debug)]
pub(super) struct ColumnsFault {
    message: String,
    remedies: Vec<Remedy>,
}

impl ColumnsFault {
    pub(super) fn new(message: impl Into<String>, remedies: &[Remedy]) -> ColumnsFault {
        ColumnsFault { message: message.into(), remedies: remedies.to_vec() }
    }

    /// Returns a fault with the message `the {role} {column} {problem}`.
    pub(super) fn of_column(role: ColumnRole, column: impl fmt::Display, problem: impl fmt::Display) -> ColumnsFault {
        ColumnsFault::new(format!("the {role} {column} {problem}"), &[role.remedy()])
    }

    /// Adds a remedy.
    pub(super) fn or(mut self, remedy: Remedy) -> ColumnsFault {
        self.remedies.push(remedy);
        self
    }

    pub(super) fn in_input(self, input: &str) -> BakeError {
        BakeError::Columns { input: input.to_owned(), fault: self.message, remedies: self.remedies }
    }
}
