//! A column of a schema: its name and its type.

use std::fmt;

use super::types::ColumnType;

/// A column of a typed table.
///
/// The [`Display`](fmt::Display) form and the [`FromStr`](std::str::FromStr) form are `name:type`, followed by `?` if the column can be
/// null: `price:f32?`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The name, 1 to 255 bytes.
    pub name: String,
    /// The type.
    pub column_type: ColumnType,
    /// Whether a row may have no value in this column.
    pub is_nullable: bool,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nullable = if self.is_nullable { "?" } else { "" };
        write!(f, "{}:{}{nullable}", self.name, self.column_type)
    }
}
