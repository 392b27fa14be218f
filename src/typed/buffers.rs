//! Column buffers: the cells of many rows, column by column.
//!
//! In: rows. Out: one buffer per column, with the values of all rows and with the rows that have none.

use zerocopy::IntoBytes;

use super::cell::Value;
use super::projection::Projection;
use super::row::{ColumnError, TypedRow};
use super::schema::Schema;
use super::types::Column;
use super::types::ColumnType;
use crate::for_each_number;

/// The cells of many rows, column by column.
///
/// # Example
/// ```
/// use zero_kv::typed::{Column, ColumnBuffers, ColumnValues, Projection, RowEncoder, Schema, TypedRow, Value};
///
/// let schema = Schema::new("id", ["price:f32".parse()?, "stock:u16".parse::<Column>()?])?;
/// let row = RowEncoder::new(&schema).encode(&[Value::F32(2.5), Value::Uint(7)])?.to_vec();
/// let mut buffers = ColumnBuffers::new(&schema, &Projection::new(&schema, &["price"])?);
/// buffers.push(&TypedRow::new(&schema, &row)?)?;
/// buffers.push_missing();
/// assert_eq!(buffers.column(0).values, ColumnValues::F32(vec![2.5, 0.0]));
/// assert_eq!(buffers.column(0).is_valid, [true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ColumnBuffers {
    source_id: u64,
    positions: Box<[usize]>,
    columns: Vec<ColumnBuffer>,
    row_count: usize,
}

/// The cells of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnBuffer {
    pub(super) column: Column,
    /// The values. A row without a value has zero, `false`, or no data.
    pub values: ColumnValues,
    /// Whether each row has a value: the row exists, and its cell is not null.
    pub is_valid: Vec<bool>,
}

/// The values of one column, in a vector of the column's type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ColumnValues {
    /// Booleans.
    Bool(Vec<bool>),
    /// Integers of 8 bits.
    I8(Vec<i8>),
    /// Integers of 16 bits.
    I16(Vec<i16>),
    /// Integers of 32 bits, or dates.
    I32(Vec<i32>),
    /// Integers of 64 bits, or timestamps.
    I64(Vec<i64>),
    /// Unsigned integers of 8 bits.
    U8(Vec<u8>),
    /// Unsigned integers of 16 bits.
    U16(Vec<u16>),
    /// Unsigned integers of 32 bits.
    U32(Vec<u32>),
    /// Unsigned integers of 64 bits.
    U64(Vec<u64>),
    /// Floats of 32 bits.
    F32(Vec<f32>),
    /// Floats of 64 bits.
    F64(Vec<f64>),
    /// The integers of decimals.
    Decimal(Vec<i128>),
    /// Text or bytes: the data of all rows, and the offset in it at which each row's data ends.
    Data {
        /// The data of all rows, without separators.
        data: Vec<u8>,
        /// The end of each row's data.
        ends: Vec<usize>,
    },
    /// Lists: the elements of all rows, and the number of the element at which each row's list ends. The elements of
    /// lists of texts are [`ColumnValues::Data`]. In a column of lists of fixed length, a row without a value has as
    /// many zeros.
    List {
        /// The elements of all rows.
        elements: Box<ColumnValues>,
        /// The end of each row's list.
        ends: Vec<usize>,
    },
}

impl ColumnBuffers {
    /// Creates empty buffers for the columns of a projection. `source` is the schema whose columns are projected.
    ///
    /// # Panics
    /// If `source` is not the schema whose columns are projected.
    pub fn new(source: &Schema, projection: &Projection) -> ColumnBuffers {
        assert_eq!(source.id(), projection.source_id(), "the source of the projection");
        let columns = projection.schema().columns().iter().map(|column| ColumnBuffer {
            column: column.clone(),
            values: ColumnValues::of_type(column.column_type),
            is_valid: Vec::new(),
        });
        ColumnBuffers {
            source_id: source.id(),
            positions: projection.positions().into(),
            columns: columns.collect(),
            row_count: 0,
        }
    }

    /// Appends the cells of a row.
    ///
    /// # Errors
    /// [`ColumnError::MalformedCell`] if a cell is not a value of its column. The buffers then contain only complete
    /// rows.
    ///
    /// # Panics
    /// If the row's schema is not the source's schema.
    pub fn push(&mut self, row: &TypedRow<'_>) -> Result<(), ColumnError> {
        assert_eq!(row.schema().id(), self.source_id, "the row is a row of the buffers' source");
        for at in 0..self.columns.len() {
            let position = self.positions[at];
            match row.value(position) {
                Ok(value) => self.columns[at].push(value),
                Err(error) => {
                    self.truncate(self.row_count);
                    return Err(error.in_cell(&self.columns[at].column.name, self.row_count));
                }
            }
        }
        self.row_count += 1;
        Ok(())
    }

    /// Appends a row without values, for a key that the table does not have.
    pub fn push_missing(&mut self) {
        self.columns.iter_mut().for_each(|column| column.push(Value::Null));
        self.row_count += 1;
    }

    /// Returns the ID of the schema whose columns the buffers hold.
    pub fn source_id(&self) -> u64 {
        self.source_id
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns the buffer of a column, by its position in the projection.
    ///
    /// # Panics
    /// If the projection has no such column.
    pub fn column(&self, column: usize) -> &ColumnBuffer {
        &self.columns[column]
    }

    /// Returns the buffers of all columns, in the order of the projection.
    pub fn into_columns(self) -> Vec<ColumnBuffer> {
        self.columns
    }

    /// Discards all rows after the first `row_count`.
    pub fn truncate(&mut self, row_count: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(row_count));
        self.row_count = self.row_count.min(row_count);
    }
}

impl ColumnBuffer {
    /// Returns the name and the type of the column.
    pub fn column(&self) -> &Column {
        &self.column
    }

    /// Returns the type of the column.
    pub fn column_type(&self) -> ColumnType {
        self.column.column_type
    }

    /// Appends a value of the column's type, or null.
    fn push(&mut self, value: Value<'_>) {
        self.is_valid.push(value != Value::Null);
        let len = match self.column.column_type {
            ColumnType::List { len: Some(len), .. } => len as usize,
            _ => 0,
        };
        self.values.push(value, len);
    }

    fn truncate(&mut self, row_count: usize) {
        self.is_valid.truncate(row_count);
        self.values.truncate(row_count);
    }
}

/// Runs an expression with the vector of any type without offsets.
macro_rules! with_vector {
    ([@match $values:expr, $vector:ident => $run:expr, else $rest:pat => $otherwise:expr]
        $($variant:ident $number:ident $value:ident),*) => {
        match $values {
            ColumnValues::Bool($vector) => $run,
            $(ColumnValues::$variant($vector) => $run,)*
            ColumnValues::Decimal($vector) => $run,
            $rest => $otherwise,
        }
    };
    ($values:expr, $vector:ident => $run:expr, else $rest:pat => $otherwise:expr) => {
        for_each_number!(with_vector, @match $values, $vector => $run, else $rest => $otherwise)
    };
}

impl ColumnValues {
    fn of_type(column_type: ColumnType) -> ColumnValues {
        macro_rules! of_type {
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match column_type.stored_as() {
                    ColumnType::Bool => ColumnValues::Bool(Vec::new()),
                    $(ColumnType::$variant => ColumnValues::$variant(Vec::new()),)*
                    ColumnType::Decimal { .. } => ColumnValues::Decimal(Vec::new()),
                    ColumnType::List { element, .. } => {
                        let elements = Box::new(Self::of_type(element.column_type()));
                        ColumnValues::List { elements, ends: Vec::new() }
                    }
                    ColumnType::TextList => {
                        ColumnValues::List { elements: Box::new(Self::of_type(ColumnType::Text)), ends: Vec::new() }
                    }
                    _ => ColumnValues::Data { data: Vec::new(), ends: Vec::new() },
                }
            };
        }
        for_each_number!(of_type)
    }

    /// Appends a value of the vector's type. Null appends zero, `false`, no data, or a list of `null_len` zeros.
    fn push(&mut self, value: Value<'_>, null_len: usize) {
        macro_rules! push {
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match (self, value) {
                    (ColumnValues::Bool(values), value) => values.push(value == Value::Bool(true)),
                    // The layout has the width of the column's type, so no conversion loses bits.
                    $((ColumnValues::$variant(values), Value::$value(value)) => values.push(value as $number),)*
                    (ColumnValues::I32(values), Value::Date(value)) => values.push(value),
                    (ColumnValues::I64(values), Value::Timestamp(value, _)) => values.push(value),
                    (ColumnValues::Decimal(values), Value::Decimal { unscaled, .. }) => values.push(unscaled),
                    (ColumnValues::Data { data, ends }, value) => {
                        match value {
                            Value::Text(text) => data.extend_from_slice(text.as_bytes()),
                            Value::Bytes(bytes) => data.extend_from_slice(bytes),
                            _ => {}
                        }
                        ends.push(data.len());
                    }
                    (ColumnValues::List { elements, ends }, value) => {
                        match value {
                            Value::List(list) => list.iter().for_each(|element| elements.push(element, 0)),
                            Value::TextList(list) => list.iter().for_each(|text| elements.push(Value::Text(&text), 0)),
                            _ => (0..null_len).for_each(|_| elements.push(Value::Null, 0)),
                        }
                        ends.push(elements.len());
                    }
                    (values, _) => with_vector!(values, vector => vector.push(Default::default()), else _ => {}),
                }
            };
        }
        for_each_number!(push);
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        with_vector!(self, vector => vector.len(), else
            ColumnValues::Data { ends, .. } | ColumnValues::List { ends, .. } => ends.len())
    }

    /// Returns the bytes of Booleans or numbers as this machine stores them, and none for data and lists.
    #[doc(hidden)]
    pub fn as_bytes(&self) -> &[u8] {
        with_vector!(self, vector => vector.as_bytes(), else _ => &[])
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Discards all values after the first `count`.
    fn truncate(&mut self, count: usize) {
        let last_end = |ends: &mut Vec<usize>| {
            ends.truncate(count);
            ends.last().copied().unwrap_or(0)
        };
        match self {
            ColumnValues::Data { data, ends } => data.truncate(last_end(ends)),
            ColumnValues::List { elements, ends } => elements.truncate(last_end(ends)),
            values => with_vector!(values, vector => vector.truncate(count), else _ => {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::tests::{lists, row_of};
    use super::super::schema::tests::{schema, schema_of_all_types};
    use super::*;

    /// Returns the value of a row in a buffer, in the form in which it was pushed.
    fn value_at(values: &ColumnValues, row: usize) -> String {
        let range = |ends: &[usize]| (if row == 0 { 0 } else { ends[row - 1] })..ends[row];
        match values {
            ColumnValues::Data { data, ends } => format!("{:?}", &data[range(ends)]),
            ColumnValues::List { elements, ends } => {
                format!("{:?}", range(ends).map(|at| value_at(elements, at)).collect::<Vec<_>>())
            }
            values => with_vector!(values, vector => format!("{:?}", vector[row]), else _ => unreachable!()),
        }
    }

    fn text_of(value: Value<'_>) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("{value:?}"),
            Value::Int(value) | Value::Timestamp(value, _) => format!("{value:?}"),
            Value::Uint(value) => format!("{value:?}"),
            Value::F32(value) => format!("{value:?}"),
            Value::F64(value) => format!("{value:?}"),
            Value::Text(text) => format!("{:?}", text.as_bytes()),
            Value::Bytes(bytes) => format!("{bytes:?}"),
            Value::Date(value) => format!("{value:?}"),
            Value::Decimal { unscaled, .. } => format!("{unscaled:?}"),
            Value::List(list) => format!("{:?}", list.iter().map(text_of).collect::<Vec<_>>()),
            Value::TextList(list) => {
                format!("{:?}", list.iter().map(|text| text_of(Value::Text(&text))).collect::<Vec<_>>())
            }
        }
    }

    #[test]
    fn buffers_have_the_cells_of_all_rows() {
        let schema = schema_of_all_types();
        let mut buffers = ColumnBuffers::new(&schema, &Projection::of_all(&schema));
        let (lists, rows) = (lists(), 50);
        let encoded: Vec<_> = (0..rows).map(|row| row_of(&schema, row, &lists)).collect();
        for bytes in &encoded {
            buffers.push(&TypedRow::new(&schema, bytes).unwrap()).unwrap();
            buffers.push_missing();
        }
        assert_eq!(buffers.row_count(), 2 * rows as usize);
        for (at, column) in schema.columns().iter().enumerate() {
            let buffer = buffers.column(at);
            assert_eq!((buffer.values.len(), buffer.is_valid.len()), (2 * rows as usize, 2 * rows as usize));
            for (row, bytes) in encoded.iter().enumerate() {
                let expected = TypedRow::new(&schema, bytes).unwrap().value(at).unwrap();
                assert_eq!(buffer.is_valid[2 * row..2 * row + 2], [expected != Value::Null, false], "{column}");
                if expected != Value::Null {
                    assert_eq!(value_at(&buffer.values, 2 * row), text_of(expected), "{column}, row {row}");
                }
            }
        }
        let columns = buffers.clone();
        buffers.push_missing();
        buffers.truncate(2 * rows as usize);
        assert_eq!(buffers.into_columns(), columns.into_columns());
    }

    #[test]
    fn a_malformed_row_leaves_complete_rows() {
        let schema = schema("a:u8 b:text");
        let mut buffers = ColumnBuffers::new(&schema, &Projection::of_all(&schema));
        let bytes = [6, 0, 0, 0, 7, b'x'];
        buffers.push(&TypedRow::new(&schema, &bytes).unwrap()).unwrap();
        assert!(buffers.push(&TypedRow::new(&schema, &[9, 0, 0, 0, 7, b'x']).unwrap()).is_err());
        let [a, b] = &buffers.into_columns()[..] else { panic!("two columns") };
        assert_eq!((a.values.len(), &b.values), (1, &ColumnValues::Data { data: b"x".to_vec(), ends: vec![1] }));
    }
}
