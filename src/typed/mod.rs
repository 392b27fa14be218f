//! Typed tables: schemas, rows, and projections.
//!
//! A table may have a [`Schema`]: columns with names and types. The value of each row then contains one cell per
//! column, in a layout that lets a reader read one column without touching the others. In: cells, or the bytes of rows.
//! Out: the bytes of rows, or cells. This module reads no files and sends nothing.
//!
//! | type | what it does |
//! |---|---|
//! | [`Schema`], [`Column`], [`ColumnType`] | describe the columns of a table |
//! | [`RowEncoder`] | encodes the cells of a row |
//! | [`Value`], [`List`], [`TextList`] | cells |
//! | [`TypedRow`] | reads the cells of a row |
//! | [`row_struct!`](crate::row_struct) | defines a struct that rows are read as |
//! | [`Projection`] | selects columns, and copies them into a shorter row |
//! | [`MatrixPlan`] | copies columns of one type into a matrix |
//! | [`ColumnBuffers`] | copies columns of any types into one buffer per column |
//!
//! With the feature `bake` or `server`, `write_text` writes the text of a cell, and `TextParser` parses it. With the
//! feature `bake`, `Caster` converts values to other types. With the feature `arrow`, column buffers become an Arrow
//! RecordBatch.

#[cfg(feature = "arrow")]
mod arrow;
mod buffers;
#[cfg(feature = "bake")]
mod cast;
mod cell;
mod encode;
mod from_row;
mod layout;
mod matrix;
mod projection;
mod row;
mod schema;
#[cfg(any(feature = "bake", feature = "server"))]
mod text;
mod text_list;
mod types;

pub use buffers::{ColumnBuffer, ColumnBuffers, ColumnValues};
#[cfg(feature = "bake")]
#[doc(hidden)]
pub use cast::Caster;
pub use cell::{List, Value};
pub use encode::RowEncoder;
#[doc(hidden)]
pub use from_row::{FromRow, RowReader, position_of_field};
pub use layout::FIXED_LEN_MAX_BYTES;
pub use matrix::{MatrixNumber, MatrixPlan};
pub use projection::Projection;
pub use row::{ColumnError, FromCell, OwnedRow, TypedRow};
pub use schema::{COLUMN_COUNT_MAX, NAME_LEN_MAX_BYTES, Schema, SchemaError};
#[cfg(feature = "bake")]
pub(crate) use text::LIST_LEN_EXPECTED;
#[cfg(all(test, feature = "server"))]
pub(crate) use text::element_len_max_bytes;
#[cfg(any(feature = "bake", feature = "server"))]
#[doc(hidden)]
pub use text::{TextFault, TextParser, write_text};
#[cfg(feature = "server")]
pub(crate) use text::{text_len_max_bytes, write_elements};
pub use text_list::TextList;
#[cfg(feature = "parquet")]
pub(crate) use text_list::push_text;
pub use types::{Column, ColumnType, DECIMAL_PRECISION_MAX, DECIMAL64_PRECISION_MAX, ElementType, TimeUnit};
