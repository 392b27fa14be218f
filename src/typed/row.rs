//! Reads the cells of one row.
//!
//! In: a schema, and the value of a row in a typed table. Out: the values of cells. The bytes may come from a damaged
//! or forged file: every offset is checked before it is used.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::cell::{List, Value, scalar};
use super::layout::{Cell, DataStart, END_LEN_BYTES, Place};
use super::schema::{Schema, SchemaError};
use super::text_list::TextList;
use super::types::{ColumnType, has_digits_at_most};
use crate::for_each_number;
use crate::format::record::VALUE_LEN_MAX_BYTES;

/// One row of a typed table.
///
/// # Example
/// ```
/// use zero_kv::typed::{TypedRow, RowEncoder, Schema, Value};
///
/// let schema = Schema::new("id", ["price:f32".parse()?, "name:text?".parse::<zero_kv::typed::Column>()?])?;
/// let bytes = RowEncoder::new(&schema).encode(&[Value::F32(2.5), Value::Null])?.to_vec();
/// let row = TypedRow::new(&schema, &bytes)?;
/// assert_eq!(row.get::<f32>("price")?, 2.5);
/// assert_eq!(row.get::<Option<&str>>("name")?, None);
/// let error = row.get::<i64>("price").unwrap_err();
/// assert_eq!(error.to_string(), "column \"price\" is f32, where i64 was requested: request the column's type");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TypedRow<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
}

/// The reason why columns cannot be selected, or why a cell cannot be read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnError {
    /// The selected columns are not a schema, for example because a column was selected twice.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema has no column with this name.
    #[error("the table has no column {name:?}: its columns are {columns}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of the table's columns, shortened if they are many.
        columns: String,
    },
    /// The column has another type than the requested one.
    #[error("column {column:?} is {found}, where {requested} was requested: request the column's type")]
    Type {
        /// The name of the column.
        column: String,
        /// The type of the column.
        found: ColumnType,
        /// The name of the requested type.
        requested: &'static str,
    },
    /// A column of a matrix has another type than the matrix.
    #[error(
        "column {column:?} is {found}, where all columns of a matrix have the type of its numbers: choose other \
         columns, or look the columns up one by one"
    )]
    Matrix {
        /// The name of the column.
        column: String,
        /// The type of the column.
        found: ColumnType,
    },
    /// The cell is null, but a value was requested.
    #[error("column {column:?} is null in this row, where {requested} was requested: request Option<{requested}>")]
    Null {
        /// The name of the column.
        column: String,
        /// The name of the requested type.
        requested: &'static str,
    },
    /// The column can be null, but the requested type cannot.
    #[error("column {column:?} can be null, where {requested} was requested: request Option<{requested}>")]
    Nullable {
        /// The name of the column.
        column: String,
        /// The name of the requested type.
        requested: &'static str,
    },
    /// A row to encode has too few or too many cells.
    #[error("{found} cells, where the schema has {expected} columns: give one cell per column")]
    CellCount {
        /// The number of columns.
        expected: usize,
        /// The number of cells.
        found: usize,
    },
    /// A cell to encode does not fit the type of its column.
    #[error("column {column:?} is {expected}, where {found} was given: convert the value, or change the column's type")]
    CellType {
        /// The name of the column.
        column: String,
        /// The type of the column.
        expected: ColumnType,
        /// The value, shortened.
        found: String,
    },
    /// A cell to encode is null, but its column cannot be null.
    #[error("column {column:?} is null, where every row needs a value: give a value, or make the column nullable")]
    NullCell {
        /// The name of the column.
        column: String,
    },
    /// An encoded row would be too long.
    #[error(
        "a row of {len_bytes} bytes, where at most {VALUE_LEN_MAX_BYTES} are allowed: store a reference to the longest \
         cell instead"
    )]
    TooLong {
        /// The length of the row.
        len_bytes: usize,
    },
    /// A cell that was read for a column buffer is not a value of its column.
    #[error(
        "column {column:?} of row {row} has no value of its type ({what}): the file is damaged or forged; bake it again"
    )]
    MalformedCell {
        /// The name of the column.
        column: String,
        /// The position of the row in the column buffers, counted from 0.
        row: usize,
        /// What is wrong with the cell.
        what: &'static str,
    },
    /// The row is not a row of the schema.
    #[error("the row is not a row of the schema ({what}): the file is damaged or forged; bake it again")]
    Malformed {
        /// What is wrong with the row.
        what: &'static str,
    },
}

impl ColumnError {
    /// Adds the place of the cell to [`ColumnError::Malformed`].
    pub(super) fn in_cell(self, column: &str, row: usize) -> ColumnError {
        match self {
            ColumnError::Malformed { what } => ColumnError::MalformedCell { column: column.to_owned(), row, what },
            error => error,
        }
    }
}

/// A row that is shorter than the fixed part of its schema.
const TOO_SHORT: ColumnError = ColumnError::Malformed { what: "it is too short" };
/// A value of variable width that is not inside its row.
pub(super) const OUTSIDE: ColumnError = ColumnError::Malformed { what: "a value is not inside the row" };
/// Text that is not UTF-8.
const NOT_UTF8: ColumnError = ColumnError::Malformed { what: "text is not UTF-8" };
/// A decimal with more digits than its type has.
const TOO_MANY_DIGITS: ColumnError = ColumnError::Malformed { what: "a decimal has too many digits" };
/// The bytes of a list of texts that are not the JSON of texts.
const NOT_TEXTS: ColumnError = ColumnError::Malformed { what: "a list of texts is not the JSON of texts" };
/// The length of a list that is not a multiple of the length of an element.
const PARTIAL_ELEMENT: ColumnError = ColumnError::Malformed { what: "a list ends inside an element" };

impl<'a> TypedRow<'a> {
    /// Returns the row with this value. Checks only that the value is long enough for the columns of fixed width.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if the value is too short.
    #[inline]
    pub fn new(schema: &'a Schema, bytes: &'a [u8]) -> Result<TypedRow<'a>, ColumnError> {
        if bytes.len() < schema.layout().data_offset_bytes { Err(TOO_SHORT) } else { Ok(TypedRow { schema, bytes }) }
    }

    /// Returns the schema.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Returns the row's value, as the file stores it.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the value of a column. `T` is `bool`, an integer or float of the column's width, `&str`, `&[u8]`,
    /// [`List`], [`TextList`], `Vec<String>` for a list of texts, [`Value`], or an `Option` of one of these types for a column that can be null.
    ///
    /// # Errors
    /// [`ColumnError`] if the table has no such column, if the column is of another type, or if the cell is null and
    /// `T` is not an `Option`.
    pub fn get<T: FromCell<'a>>(&self, name: &str) -> Result<T, ColumnError> {
        let column = self.schema.position(name).ok_or_else(|| unknown_column(self.schema, name))?;
        self.get_at(column)
    }

    /// Returns the value of the column at a position: see [`TypedRow::get`].
    ///
    /// # Errors
    /// The errors of [`TypedRow::get`], except [`ColumnError::Unknown`].
    ///
    /// # Panics
    /// If the schema has no column at this position.
    pub fn get_at<T: FromCell<'a>>(&self, column: usize) -> Result<T, ColumnError> {
        let declared = &self.schema.columns()[column];
        if !T::accepts(declared.column_type) {
            let (column, found) = (declared.name.clone(), declared.column_type);
            return Err(ColumnError::Type { column, found, requested: T::NAME });
        }
        let value = self.value(column)?;
        T::from_value(value).ok_or_else(|| ColumnError::Null { column: declared.name.clone(), requested: T::NAME })
    }

    /// Returns the value of the column at a position.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] if the row is not a row of the schema.
    ///
    /// # Panics
    /// If the schema has no column at this position.
    pub fn value(&self, column: usize) -> Result<Value<'a>, ColumnError> {
        match (self.unchecked_value(column)?, self.schema.columns()[column].column_type) {
            (Value::Bytes(text), ColumnType::Text) => Ok(Value::Text(std::str::from_utf8(text).map_err(|_| NOT_UTF8)?)),
            (Value::Bytes(json), ColumnType::TextList) => {
                Ok(Value::TextList(TextList::from_bytes(json).ok_or(NOT_TEXTS)?))
            }
            (Value::Decimal { unscaled, .. }, ColumnType::Decimal { precision, .. })
                if !has_digits_at_most(unscaled, precision) =>
            {
                Err(TOO_MANY_DIGITS)
            }
            (value, _) => Ok(value),
        }
    }

    /// Returns the value of the column at a position. Returns text as bytes, which may not be UTF-8, and a list of
    /// texts as the bytes of its JSON, which may be something else. A decimal may have more digits than its type.
    ///
    /// # Errors
    /// The errors of [`TypedRow::value`], except those of text, of lists of texts, and of decimals with too many
    /// digits.
    ///
    /// # Panics
    /// If the schema has no column at this position.
    #[inline]
    pub(crate) fn unchecked_value(&self, column: usize) -> Result<Value<'a>, ColumnError> {
        let cell = self.schema.layout().cell(column);
        if self.is_null(cell) {
            return Ok(Value::Null);
        }
        let column_type = self.schema.columns()[column].column_type;
        Ok(match (cell.place, column_type) {
            (Place::Bit(bit), _) => Value::Bool(self.bit(bit)),
            (Place::Fixed { offset_bytes, len_bytes }, _) => {
                scalar(column_type, &self.bytes[offset_bytes..offset_bytes + len_bytes])
            }
            (place, ColumnType::List { element, .. }) => {
                Value::List(List::new(element, self.data(place)?).ok_or(PARTIAL_ELEMENT)?)
            }
            (place, _) => Value::Bytes(self.data(place)?),
        })
    }

    /// Returns whether the column at a position has a value in this row.
    ///
    /// # Panics
    /// If the schema has no column at this position.
    #[cfg(feature = "server")]
    #[inline]
    pub(crate) fn has_value(&self, column: usize) -> bool {
        !self.is_null(self.schema.layout().cell(column))
    }

    /// Returns an iterator over all cells, in the order of the columns.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, ColumnError>> + use<'a> {
        let row = *self;
        (0..self.schema.columns().len()).map(move |column| row.value(column))
    }

    /// Checks the whole row: that its values are valid and fill it, that null cells are empty, and that all unused
    /// bytes and bits are zero.
    ///
    /// # Errors
    /// [`ColumnError::Malformed`] for the first fault found.
    pub fn check(&self) -> Result<(), ColumnError> {
        let malformed = |what| ColumnError::Malformed { what };
        let layout = self.schema.layout();
        let used_bits = layout.fixed_len_bytes - layout.bits_offset_bytes;
        if (layout.bit_count..used_bits * 8).any(|bit| self.bit(bit)) {
            return Err(malformed("an unused bit is not zero"));
        }
        if self.bytes[layout.fixed_len_bytes..layout.data_offset_bytes].iter().any(|byte| *byte != 0) {
            return Err(malformed("the padding is not zero"));
        }
        for column in 0..self.schema.columns().len() {
            let cell = layout.cell(column);
            let is_empty = match cell.place {
                Place::Bit(bit) => !self.bit(bit),
                Place::Fixed { offset_bytes, len_bytes } => {
                    self.bytes[offset_bytes..offset_bytes + len_bytes].iter().all(|byte| *byte == 0)
                }
                Place::Variable { .. } => self.data(cell.place)?.is_empty(),
            };
            if self.is_null(cell) && !is_empty {
                return Err(malformed("a null cell has a value"));
            }
            self.value(column)?;
        }
        let end = match layout.variable.last().map(|column| layout.cell(*column).place) {
            Some(Place::Variable { end_at, .. }) => self.end(end_at),
            _ => layout.data_offset_bytes,
        };
        if end == self.bytes.len() { Ok(()) } else { Err(malformed("it does not end with its last value")) }
    }

    #[inline]
    pub(super) fn is_null(&self, cell: Cell) -> bool {
        cell.null_bit.is_some_and(|bit| self.bit(bit))
    }

    /// Returns a bit. The bit must be inside the fixed part.
    #[inline]
    pub(super) fn bit(&self, bit: usize) -> bool {
        self.bytes[self.schema.layout().bits_offset_bytes + bit / 8] >> (bit % 8) & 1 == 1
    }

    /// Returns the data of a variable-width column.
    #[inline]
    pub(super) fn data(&self, place: Place) -> Result<&'a [u8], ColumnError> {
        self.data_range(place).map(|range| &self.bytes[range])
    }

    /// Returns the range of the row's value that has the data of a variable-width column. The range is inside the
    /// value.
    #[inline]
    pub(super) fn data_range(&self, place: Place) -> Result<Range<usize>, ColumnError> {
        let Place::Variable { start, end_at } = place else { return Err(OUTSIDE) };
        let start = match start {
            DataStart::First => self.schema.layout().data_offset_bytes,
            DataStart::EndAt(at) => self.end(at),
        };
        // Data before the fixed part's end would overlap other cells, and is rejected, too.
        let range = start..self.end(end_at);
        let is_inside = start >= self.schema.layout().data_offset_bytes && self.bytes.get(range.clone()).is_some();
        if is_inside { Ok(range) } else { Err(OUTSIDE) }
    }

    /// Returns the offset that is stored at `at`, inside the fixed part.
    #[inline]
    fn end(&self, at: usize) -> usize {
        let end = self.bytes[at..].first_chunk::<END_LEN_BYTES>().expect("the row has its whole fixed part");
        u32::from_le_bytes(*end) as usize
    }
}

/// Returns the error for a column that a schema does not have.
pub(crate) fn unknown_column(schema: &Schema, name: &str) -> ColumnError {
    const SHOWN_COUNT: usize = 8;
    let names: Vec<&str> = schema.columns().iter().take(SHOWN_COUNT).map(|column| column.name.as_str()).collect();
    let more = schema.columns().len() - names.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    ColumnError::Unknown { name: name.to_owned(), columns: names.join(", ") + &more }
}

/// A type that the cells of some columns can be read as.
pub trait FromCell<'a>: Sized {
    /// The name of the type in error messages.
    const NAME: &'static str;
    /// Whether the type can be read from null.
    const ACCEPTS_NULL: bool = false;

    /// Returns whether cells of a column of this type can be read as `Self`.
    fn accepts(column_type: ColumnType) -> bool;

    /// Returns the value of a cell. Returns `None` if the cell is null and `Self` cannot be null. `value` comes from a
    /// column whose type [`FromCell::accepts`] has accepted.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

/// Implements [`FromCell`] for a type that some column types become.
macro_rules! from_cell {
    ($($type:ty, $name:literal: $columns:pat, $value:pat => $read:expr;)*) => {
        $(impl<'a> FromCell<'a> for $type {
            const NAME: &'static str = $name;

            fn accepts(column_type: ColumnType) -> bool {
                matches!(column_type, $columns)
            }

            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    $value => Some($read),
                    _ => None,
                }
            }
        })*
    };
}

from_cell! {
    bool, "bool": ColumnType::Bool, Value::Bool(value) => value;
    &'a str, "&str": ColumnType::Text, Value::Text(value) => value;
    List<'a>, "List": ColumnType::List { .. }, Value::List(value) => value;
    TextList<'a>, "TextList": ColumnType::TextList, Value::TextList(value) => value;
    Vec<String>, "Vec<String>": ColumnType::TextList, Value::TextList(value) => {
        value.iter().map(Cow::into_owned).collect()
    };
}

macro_rules! number_from_cell {
    ([] $($variant:ident $number:ident $value:ident),*) => {
        $(impl<'a> FromCell<'a> for $number {
            const NAME: &'static str = stringify!($number);

            fn accepts(column_type: ColumnType) -> bool {
                column_type != ColumnType::Date && column_type.stored_as() == ColumnType::$variant
            }

            fn from_value(value: Value<'a>) -> Option<Self> {
                // The layout has the width of the column's type, so no conversion loses bits. Only `i64` accepts
                // timestamps.
                match value {
                    Value::$value(value) => Some(value as $number),
                    Value::Timestamp(units, _) => Some(units as $number),
                    _ => None,
                }
            }
        })*
    };
}

for_each_number!(number_from_cell);

/// Any cell, including null.
impl<'a> FromCell<'a> for Value<'a> {
    const NAME: &'static str = "Value";
    const ACCEPTS_NULL: bool = true;

    fn accepts(_: ColumnType) -> bool {
        true
    }

    fn from_value(value: Value<'a>) -> Option<Self> {
        Some(value)
    }
}

/// Bytes, and the UTF-8 bytes of text.
impl<'a> FromCell<'a> for &'a [u8] {
    const NAME: &'static str = "&[u8]";

    fn accepts(column_type: ColumnType) -> bool {
        matches!(column_type, ColumnType::Bytes | ColumnType::Text)
    }

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Text(text) => Some(text.as_bytes()),
            _ => None,
        }
    }
}

impl<'a, T: FromCell<'a>> FromCell<'a> for Option<T> {
    const NAME: &'static str = T::NAME;
    const ACCEPTS_NULL: bool = true;

    fn accepts(column_type: ColumnType) -> bool {
        T::accepts(column_type)
    }

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// A row of a typed table that owns its bytes.
#[derive(Clone)]
pub struct OwnedRow {
    schema: Arc<Schema>,
    bytes: Vec<u8>,
}

impl OwnedRow {
    /// Wraps the bytes of a row.
    ///
    /// # Errors
    /// The errors of [`TypedRow::new`].
    pub fn new(schema: Arc<Schema>, bytes: Vec<u8>) -> Result<OwnedRow, ColumnError> {
        TypedRow::new(&schema, &bytes)?;
        Ok(OwnedRow { schema, bytes })
    }

    /// The columns.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Borrows the row.
    pub fn as_row(&self) -> TypedRow<'_> {
        TypedRow::new(&self.schema, &self.bytes).expect("the length was checked by OwnedRow::new")
    }

    /// The value of a column: see [`TypedRow::get`].
    ///
    /// # Errors
    /// The errors of [`TypedRow::get`].
    pub fn get<'a, T: FromCell<'a>>(&'a self, name: &str) -> Result<T, ColumnError> {
        self.as_row().get(name)
    }
}

impl fmt::Debug for OwnedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_row().values()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::RowEncoder;
    use super::super::schema::tests::schema;
    use super::*;

    #[test]
    fn every_changed_byte_and_every_shorter_row_is_read_without_a_panic() {
        let schema = schema("a:i8? b:text c:list(f64) d:bool e:bytes? f:decimal(3,1) g:list(u16) h:list(text)");
        let floats = [1.5_f64.to_le_bytes(), 2.5_f64.to_le_bytes()].concat();
        let list = |name: usize, bytes| match schema.columns()[name].column_type {
            ColumnType::List { element, .. } => Value::List(List::new(element, bytes).unwrap()),
            _ => unreachable!(),
        };
        let values = [
            Value::Null,
            Value::Text("té"),
            list(2, &floats),
            Value::Bool(true),
            Value::Bytes(b"\xff"),
            Value::Decimal { unscaled: -999, scale: 1 },
            list(6, &[1, 2, 3, 4]),
            Value::TextList(TextList::from_bytes("[\"é\",\"\\n\"]".as_bytes()).unwrap()),
        ];
        let bytes = RowEncoder::new(&schema).encode(&values).unwrap().to_vec();
        let row = TypedRow::new(&schema, &bytes).unwrap();
        row.check().unwrap();
        assert!(row.values().map(Result::unwrap).eq(values));
        for at in 0..bytes.len() {
            for changed_to in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = changed_to;
                let row = TypedRow::new(&schema, &changed).unwrap();
                let is_read = row.values().all(|value| value.is_ok());
                assert!(row.check().is_err() || is_read, "a row that passes the check can be read");
            }
        }
        for len in 0..bytes.len() {
            let row = TypedRow::new(&schema, &bytes[..len]);
            assert_eq!(row.is_ok(), len >= schema.layout().data_offset_bytes);
            assert!(row.is_err() || row.unwrap().check().is_err(), "{len}");
        }
    }

    #[test]
    fn a_cell_is_read_only_as_its_own_type() {
        let schema = schema("a:i16 b:text? c:timestamp(ms) d:bytes e:list(text)");
        let texts = TextList::from_bytes(b"[\"x\",\"\\\"\"]").unwrap();
        let at = Value::Timestamp(9, super::super::TimeUnit::Millis);
        let values = [Value::Int(-5), Value::Null, at, Value::Bytes(b"x"), Value::TextList(texts)];
        let bytes = RowEncoder::new(&schema).encode(&values).unwrap().to_vec();
        let row = TypedRow::new(&schema, &bytes).unwrap();
        assert_eq!((row.get("a"), row.get("c"), row.get("d")), (Ok(-5_i16), Ok(9_i64), Ok(&b"x"[..])));
        assert_eq!((row.get("a"), row.get::<Option<&str>>("b")), (Ok(Some(-5_i16)), Ok(None)));
        assert_eq!(row.get("a"), Ok(Value::Int(-5)));
        assert_eq!(row.get("e"), Ok(vec!["x".to_owned(), "\"".to_owned()]));
        assert_eq!(row.get("e"), Ok(Some(texts)));
        let type_error = |name: &str, requested: &'static str| ColumnError::Type {
            column: name.to_owned(),
            found: schema.columns()[schema.position(name).unwrap()].column_type,
            requested,
        };
        assert_eq!(row.get::<i64>("a"), Err(type_error("a", "i64")));
        assert_eq!(row.get::<&str>("d"), Err(type_error("d", "&str")));
        assert_eq!(row.get::<&str>("b"), Err(ColumnError::Null { column: "b".to_owned(), requested: "&str" }));
        let unknown = row.get::<i64>("A").unwrap_err();
        assert_eq!(unknown.to_string(), "the table has no column \"A\": its columns are a, b, c, d, e");
    }
}
