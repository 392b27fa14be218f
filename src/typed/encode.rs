//! Encodes the cells of rows.

use super::cell::{Value, fits};
use super::layout::Place;
use super::row::ColumnError;
use super::schema::Schema;
use super::types::ColumnType;
use crate::excerpt::excerpt_chars;
use crate::format::record::VALUE_LEN_MAX_BYTES;

/// Encodes rows of a schema, one after another.
#[derive(Clone, Debug)]
pub struct RowEncoder<S> {
    schema: S,
    row: Vec<u8>,
}

impl<S: AsRef<Schema>> RowEncoder<S> {
    /// Creates an encoder. `schema` is a reference to a schema, or owns one.
    pub fn new(schema: S) -> RowEncoder<S> {
        RowEncoder { schema, row: Vec::new() }
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Schema {
        self.schema.as_ref()
    }

    /// Encodes a row. `cells` has the value of each column, in the order of the schema. An integer may be of any
    /// integer type if its value fits the column's type.
    ///
    /// # Errors
    /// [`ColumnError`] if the number of cells is wrong, or if a cell does not fit its column.
    pub fn encode(&mut self, cells: &[Value<'_>]) -> Result<&[u8], ColumnError> {
        let schema = self.schema.as_ref();
        let (layout, columns) = (schema.layout(), schema.columns());
        if cells.len() != columns.len() {
            return Err(ColumnError::CellCount { expected: columns.len(), found: cells.len() });
        }
        let row = &mut self.row;
        row.clear();
        row.resize(layout.data_offset_bytes, 0);
        for (i, (value, column)) in cells.iter().zip(columns).enumerate() {
            let cell = layout.cell(i);
            match (value, cell.null_bit) {
                (Value::Null, None) => return Err(ColumnError::NullCell { column: column.name.clone() }),
                (Value::Null, Some(bit)) => row[layout.bits_offset_bytes + bit / 8] |= 1 << (bit % 8),
                _ if !fits(value, column.column_type) => {
                    return Err(type_error(&column.name, column.column_type, value));
                }
                _ => match cell.place {
                    Place::Bit(bit) if *value == Value::Bool(true) => {
                        row[layout.bits_offset_bytes + bit / 8] |= 1 << (bit % 8);
                    }
                    Place::Fixed { offset_bytes, len_bytes } => {
                        put(value, column.column_type, &mut row[offset_bytes..offset_bytes + len_bytes]);
                    }
                    Place::Bit(_) | Place::Variable { .. } => {}
                },
            }
        }
        let data_len_bytes: usize = layout.variable.iter().map(|i| data(&cells[*i]).len()).sum();
        if row.len() + data_len_bytes > VALUE_LEN_MAX_BYTES {
            return Err(ColumnError::TooLong { len_bytes: row.len() + data_len_bytes });
        }
        for &i in &layout.variable {
            row.extend_from_slice(data(&cells[i]));
            let end = (row.len() as u32).to_le_bytes();
            if let Place::Variable { end_at, .. } = layout.cell(i).place {
                row[end_at..end_at + end.len()].copy_from_slice(&end);
            }
        }
        Ok(row)
    }
}

fn type_error(column: &str, expected: ColumnType, value: &Value<'_>) -> ColumnError {
    const SHOWN_CHARS: usize = 60;
    let found = excerpt_chars(&format!("{value:?}"), SHOWN_CHARS).into_owned();
    ColumnError::CellType { column: column.to_owned(), expected, found }
}

/// Returns the data of a variable-width cell.
fn data<'a>(value: &Value<'a>) -> &'a [u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        Value::List(list) => list.as_bytes(),
        Value::TextList(list) => list.as_json().as_bytes(),
        _ => &[],
    }
}

/// Writes a value of fixed width, which fits the column's type.
fn put(value: &Value<'_>, column_type: ColumnType, to: &mut [u8]) {
    let len_bytes = to.len();
    match value {
        Value::List(list) => to.copy_from_slice(list.as_bytes()),
        Value::F32(value) if column_type == ColumnType::F64 => {
            to.copy_from_slice(&Value::F64((*value).into()).fixed_bytes()[..len_bytes]);
        }
        value => to.copy_from_slice(&value.fixed_bytes()[..len_bytes]),
    }
}

impl AsRef<Schema> for Schema {
    fn as_ref(&self) -> &Schema {
        self
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cell::List;
    use super::super::row::TypedRow;
    use super::super::schema::tests::{schema, schema_of_all_types};
    use super::super::text_list::TextList;
    use super::super::types::Column;
    use super::super::types::TimeUnit;
    use super::*;
    use crate::for_each_number;

    /// Returns a value of a type that depends on a number.
    pub(in crate::typed) fn value_of(column_type: ColumnType, number: u64, lists: &[u8]) -> Value<'_> {
        let bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        macro_rules! value_of {
            (@number F32 $number:ident) => { Value::F32(number as f32 / 3.0) };
            (@number F64 $number:ident) => { Value::F64(number as f64 / 3.0) };
            (@number $value:ident $number:ident) => { Value::$value((bits as $number).into()) };
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match column_type {
                    ColumnType::Bool => Value::Bool(number.is_multiple_of(2)),
                    $(ColumnType::$variant => value_of!(@number $value $number),)*
                    ColumnType::Text => Value::Text(&"täxt"[..(number % 3 * 3) as usize % 5]),
                    ColumnType::Bytes => Value::Bytes(&lists[..(number % 40) as usize]),
                    ColumnType::Date => Value::Date(bits as i32),
                    ColumnType::Timestamp(unit) => Value::Timestamp(bits as i64, unit),
                    ColumnType::Decimal { precision, scale } => {
                        let max = 10_i128.pow(precision.into()) - 1;
                        let unscaled = if number.is_multiple_of(2) { max } else { -max };
                        Value::Decimal { unscaled, scale }
                    }
                    ColumnType::List { element, len } => {
                        let len = len.map_or(number as usize % 5, |len| len as usize);
                        Value::List(List::new(element, &lists[..len * element.len_bytes()]).unwrap())
                    }
                    ColumnType::TextList => {
                        let texts = ["[]", "[\"\"]", "[\"ä\",\"b\"]", "[\"\\\"\",\",\",\"\\u0001\"]"];
                        let json = texts[number as usize % texts.len()];
                        Value::TextList(TextList::from_bytes(json.as_bytes()).unwrap())
                    }
                }
            };
        }
        for_each_number!(value_of)
    }

    /// Returns the bytes that the lists of [`row_of`] consist of.
    pub(in crate::typed) fn lists() -> Vec<u8> {
        (0..64).collect()
    }

    fn cells_of<'a>(schema: &Schema, number: u64, lists: &'a [u8]) -> Vec<Value<'a>> {
        let cell = |(column, number): (&Column, u64)| match column.is_nullable && number.is_multiple_of(3) {
            true => Value::Null,
            false => value_of(column.column_type, number, lists),
        };
        schema.columns().iter().zip(number * 7..).map(cell).collect()
    }

    /// Returns a row whose cells depend on a number.
    pub(in crate::typed) fn row_of(schema: &Schema, number: u64, lists: &[u8]) -> Vec<u8> {
        RowEncoder::new(schema).encode(&cells_of(schema, number, lists)).unwrap().to_vec()
    }

    #[test]
    fn rows_of_all_types_are_read_back() {
        let schema = schema_of_all_types();
        let lists = lists();
        let mut encoder = RowEncoder::new(&schema);
        for row in 0..200 {
            let cells = cells_of(&schema, row, &lists);
            let bytes = encoder.encode(&cells).unwrap();
            let row = TypedRow::new(&schema, bytes).unwrap();
            row.check().unwrap();
            for ((found, expected), column) in row.values().zip(&cells).zip(schema.columns()) {
                assert_eq!(found.unwrap(), *expected, "{column}");
            }
        }
    }

    #[test]
    fn a_value_that_does_not_fit_its_column_is_rejected() {
        for (column, value) in [
            ("a:i8", Value::Int(128)),
            ("a:i8", Value::Int(-129)),
            ("a:u8", Value::Int(-1)),
            ("a:u64", Value::Int(-1)),
            ("a:i64", Value::Uint(1 << 63)),
            ("a:f32", Value::F64(1.0)),
            ("a:f32", Value::Int(1)),
            ("a:text", Value::Bytes(b"x")),
            ("a:bool", Value::Uint(1)),
            ("a:date", Value::Int(1)),
            ("a:timestamp(ms)", Value::Timestamp(1, TimeUnit::Micros)),
            ("a:decimal(3,1)", Value::Decimal { unscaled: 1000, scale: 1 }),
            ("a:decimal(3,1)", Value::Decimal { unscaled: 1, scale: 0 }),
        ] {
            let schema = schema(column);
            let error = RowEncoder::new(&schema).encode(&[value]).unwrap_err();
            assert!(matches!(error, ColumnError::CellType { .. }), "{column}: {error}");
        }
        let schema = schema("a:i8 b:i8?");
        let mut encoder = RowEncoder::new(&schema);
        assert_eq!(
            encoder.encode(&[Value::Null, Value::Null]).unwrap_err(),
            ColumnError::NullCell { column: "a".to_owned() }
        );
        assert_eq!(encoder.encode(&[Value::Int(1)]).unwrap_err(), ColumnError::CellCount { expected: 2, found: 1 });
        assert_eq!(encoder.encode(&[Value::Uint(127), Value::Null]).unwrap(), [127, 0, 1]);
    }
}
