//! The columns that the options of a bake declare for a typed table.

use super::columns::Column;
use crate::typed;

/// The columns of a typed table.
///
/// The schema of the table has the columns of the first input, except the key column and the delete column. Other
/// inputs must have columns with the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedColumns {
    /// The columns of the table with their types, in the order of the table. The key column may be among them: its type
    /// selects the kind of the keys, and must be `u64`, `text`, or `bytes`. [`parse_types`](super::parse_types) parses this list.
    ///
    /// If the list is empty, the first input determines the types. Parquet files have types. In text formats, the types
    /// are inferred from the rows in the first mebibyte of the first input, and columns that the base has keep the
    /// base's types. Rows in memory require declared types.
    pub types: Vec<typed::Column>,
    /// The columns to store, in the order of the table. The default is all columns of `types`, or all columns of the
    /// first input if `types` is empty.
    pub columns: Vec<Column>,
    /// Whether the values of the base's columns are converted if their types have changed. A value that does not fit
    /// the new type exactly is a bad row.
    pub cast: bool,
}
