//! Converts column buffers to an Arrow RecordBatch.
//!
//! In: column buffers. Out: a RecordBatch whose arrays own the memory of the buffers. Only Booleans, offsets, and the
//! marks of missing values are copied, because Arrow encodes them in another way.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, LargeBinaryArray, LargeListArray, LargeStringArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit as ArrowTimeUnit};

use super::buffers::{ColumnBuffer, ColumnBuffers, ColumnValues};
use super::types::{ColumnType, TimeUnit};

/// The name of the elements of a list.
const ELEMENT_NAME: &str = "item";

impl ColumnBuffers {
    /// Returns the rows as an Arrow RecordBatch, with a nullable column for each column. A cell without a value, of a
    /// missing key or null, is null. Requires the feature `arrow`.
    ///
    /// Text and bytes become `LargeUtf8` and `LargeBinary`, timestamps have the time zone `UTC`, decimals become
    /// `Decimal128`, and lists become `LargeList`, or `FixedSizeList` if all lists have one length.
    ///
    /// # Errors
    /// [`ArrowError`] if Arrow rejects the values of a column.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let batch = client.get_projected(&[7, 8, 9], &["price", "name"])?.into_buffers()?.into_record_batch()?;
    /// assert_eq!(batch.num_rows(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_record_batch(self) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count()));
        let columns = self.into_columns();
        let field = |buffer: &ColumnBuffer| Field::new(&buffer.column().name, data_type(buffer.column_type()), true);
        let schema = arrow_schema::Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let arrays = columns.into_iter().map(|ColumnBuffer { column, values, is_valid }| {
            array(column.column_type, values, Some(NullBuffer::from(is_valid)))
        });
        RecordBatch::try_new_with_options(Arc::new(schema), arrays.collect::<Result<_, _>>()?, &options)
    }
}

/// Returns the Arrow type of a column.
fn data_type(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::I8 => DataType::Int8,
        ColumnType::I16 => DataType::Int16,
        ColumnType::I32 => DataType::Int32,
        ColumnType::I64 => DataType::Int64,
        ColumnType::U8 => DataType::UInt8,
        ColumnType::U16 => DataType::UInt16,
        ColumnType::U32 => DataType::UInt32,
        ColumnType::U64 => DataType::UInt64,
        ColumnType::F32 => DataType::Float32,
        ColumnType::F64 => DataType::Float64,
        ColumnType::Text => DataType::LargeUtf8,
        ColumnType::Bytes => DataType::LargeBinary,
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp(unit) => {
            let unit = match unit {
                TimeUnit::Millis => ArrowTimeUnit::Millisecond,
                TimeUnit::Micros => ArrowTimeUnit::Microsecond,
                TimeUnit::Nanos => ArrowTimeUnit::Nanosecond,
            };
            DataType::Timestamp(unit, Some("UTC".into()))
        }
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        ColumnType::List { element, len } => {
            let element = Arc::new(Field::new(ELEMENT_NAME, data_type(element.column_type()), false));
            match len {
                Some(len) => DataType::FixedSizeList(element, len as i32),
                None => DataType::LargeList(element),
            }
        }
        ColumnType::TextList => DataType::LargeList(Arc::new(Field::new(ELEMENT_NAME, DataType::LargeUtf8, false))),
    }
}

/// Returns the values of a column, or the elements of lists, as an array.
fn array(column_type: ColumnType, values: ColumnValues, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let data_type = data_type(column_type);
    Ok(match values {
        ColumnValues::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
        ColumnValues::I8(values) => primitive::<Int8Type>(data_type, values, nulls)?,
        ColumnValues::I16(values) => primitive::<Int16Type>(data_type, values, nulls)?,
        ColumnValues::I32(values) => match column_type {
            ColumnType::Date => primitive::<Date32Type>(data_type, values, nulls)?,
            _ => primitive::<Int32Type>(data_type, values, nulls)?,
        },
        ColumnValues::I64(values) => match column_type {
            ColumnType::Timestamp(TimeUnit::Millis) => primitive::<TimestampMillisecondType>(data_type, values, nulls)?,
            ColumnType::Timestamp(TimeUnit::Micros) => primitive::<TimestampMicrosecondType>(data_type, values, nulls)?,
            ColumnType::Timestamp(TimeUnit::Nanos) => primitive::<TimestampNanosecondType>(data_type, values, nulls)?,
            _ => primitive::<Int64Type>(data_type, values, nulls)?,
        },
        ColumnValues::U8(values) => primitive::<UInt8Type>(data_type, values, nulls)?,
        ColumnValues::U16(values) => primitive::<UInt16Type>(data_type, values, nulls)?,
        ColumnValues::U32(values) => primitive::<UInt32Type>(data_type, values, nulls)?,
        ColumnValues::U64(values) => primitive::<UInt64Type>(data_type, values, nulls)?,
        ColumnValues::F32(values) => primitive::<Float32Type>(data_type, values, nulls)?,
        ColumnValues::F64(values) => primitive::<Float64Type>(data_type, values, nulls)?,
        ColumnValues::Decimal(values) => primitive::<Decimal128Type>(data_type, values, nulls)?,
        ColumnValues::Data { data, ends } => match column_type {
            ColumnType::Text => Arc::new(LargeStringArray::try_new(offsets(&ends), Buffer::from_vec(data), nulls)?),
            _ => Arc::new(LargeBinaryArray::try_new(offsets(&ends), Buffer::from_vec(data), nulls)?),
        },
        ColumnValues::List { elements, ends } => list(data_type, column_type, *elements, &ends, nulls)?,
    })
}

fn primitive<T: ArrowPrimitiveType>(
    data_type: DataType,
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::from(values), nulls)?;
    Ok(Arc::new(array.with_data_type(data_type)))
}

fn list(
    data_type: DataType,
    column_type: ColumnType,
    elements: ColumnValues,
    ends: &[usize],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let element = match column_type {
        ColumnType::List { element, .. } => element.column_type(),
        ColumnType::TextList => ColumnType::Text,
        _ => unreachable!("only lists have elements"),
    };
    let elements = array(element, elements, None)?;
    Ok(match data_type {
        DataType::FixedSizeList(field, len) => Arc::new(FixedSizeListArray::try_new(field, len, elements, nulls)?),
        DataType::LargeList(field) => Arc::new(LargeListArray::try_new(field, offsets(ends), elements, nulls)?),
        _ => unreachable!("the Arrow type of a list"),
    })
}

/// Returns the offsets of values from their ends. The first offset is 0.
fn offsets(ends: &[usize]) -> OffsetBuffer<i64> {
    OffsetBuffer::new([0].into_iter().chain(ends.iter().map(|end| *end as i64)).collect())
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::{Array, types};

    use super::super::Value;
    use super::super::encode::tests::{lists, row_of};
    use super::super::projection::Projection;
    use super::super::row::TypedRow;
    use super::super::schema::tests::schema_of_all_types;
    use super::*;

    /// Returns the bytes of a list that an array of its elements encodes.
    fn element_bytes(elements: &dyn Array) -> Vec<u8> {
        let data = elements.to_data();
        let width = data.data_type().primitive_width().unwrap();
        data.buffers()[0].as_slice()[data.offset() * width..(data.offset() + data.len()) * width].to_vec()
    }

    /// Checks a cell of an array that is not null.
    fn assert_cell(array: &dyn Array, row: usize, value: Value<'_>) {
        macro_rules! primitive {
            ($Type:ident) => {
                array.as_primitive::<types::$Type>().value(row)
            };
        }
        let integer = |array: &dyn Array| match array.data_type() {
            DataType::Int8 => primitive!(Int8Type).into(),
            DataType::Int16 => primitive!(Int16Type).into(),
            DataType::Int32 => primitive!(Int32Type).into(),
            DataType::Int64 => i128::from(primitive!(Int64Type)),
            DataType::UInt8 => primitive!(UInt8Type).into(),
            DataType::UInt16 => primitive!(UInt16Type).into(),
            DataType::UInt32 => primitive!(UInt32Type).into(),
            DataType::UInt64 => primitive!(UInt64Type).into(),
            DataType::Date32 => primitive!(Date32Type).into(),
            DataType::Decimal128(..) => primitive!(Decimal128Type),
            DataType::Timestamp(ArrowTimeUnit::Millisecond, _) => primitive!(TimestampMillisecondType).into(),
            DataType::Timestamp(ArrowTimeUnit::Microsecond, _) => primitive!(TimestampMicrosecondType).into(),
            DataType::Timestamp(ArrowTimeUnit::Nanosecond, _) => primitive!(TimestampNanosecondType).into(),
            other => unreachable!("{other}"),
        };
        match value {
            Value::Null => unreachable!("the cell is not null"),
            Value::Bool(value) => assert_eq!(array.as_boolean().value(row), value),
            Value::Int(value) | Value::Timestamp(value, _) => assert_eq!(integer(array), value.into()),
            Value::Uint(value) => assert_eq!(integer(array), value.into()),
            Value::F32(value) => assert_eq!(primitive!(Float32Type).to_bits(), value.to_bits()),
            Value::F64(value) => assert_eq!(primitive!(Float64Type).to_bits(), value.to_bits()),
            Value::Text(text) => assert_eq!(array.as_string::<i64>().value(row), text),
            Value::Bytes(bytes) => assert_eq!(array.as_binary::<i64>().value(row), bytes),
            Value::Date(value) => assert_eq!(integer(array), value.into()),
            Value::Decimal { unscaled, .. } => assert_eq!(integer(array), unscaled),
            Value::List(expected) => {
                let elements = match array.data_type() {
                    DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
                    _ => array.as_list::<i64>().value(row),
                };
                assert_eq!(element_bytes(&elements), expected.as_bytes());
            }
            Value::TextList(expected) => {
                let texts = array.as_list::<i64>().value(row);
                assert!(texts.as_string::<i64>().iter().map(Option::unwrap).eq(expected.iter()));
            }
        }
    }

    #[test]
    fn a_record_batch_has_the_cells_of_all_rows() {
        let schema = schema_of_all_types();
        let (lists, rows) = (lists(), 50);
        let encoded: Vec<_> = (0..rows).map(|row| row_of(&schema, row, &lists)).collect();
        let mut buffers = ColumnBuffers::new(&schema, &Projection::of_all(&schema));
        for bytes in &encoded {
            buffers.push(&TypedRow::new(&schema, bytes).unwrap()).unwrap();
            buffers.push_missing();
        }
        let batch = buffers.into_record_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (2 * encoded.len(), schema.columns().len()));
        for (at, column) in schema.columns().iter().enumerate() {
            let (field, array) = (batch.schema().field(at).clone(), batch.column(at));
            assert_eq!((field.name(), field.is_nullable()), (&column.name, true));
            for (row, bytes) in encoded.iter().enumerate() {
                let value = TypedRow::new(&schema, bytes).unwrap().value(at).unwrap();
                assert_eq!(
                    [2 * row, 2 * row + 1].map(|row| array.is_null(row)),
                    [value == Value::Null, true],
                    "{column}"
                );
                if value != Value::Null {
                    assert_cell(array, 2 * row, value);
                }
            }
        }
    }

    #[test]
    fn a_batch_without_rows_has_all_columns() {
        let schema = schema_of_all_types();
        let batch = ColumnBuffers::new(&schema, &Projection::of_all(&schema)).into_record_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (0, schema.columns().len()));
    }

    /// Asserts that Arrow's checks accept an array, including those that its constructors do not make.
    fn assert_valid(array: &dyn Array) {
        array.to_data().validate_full().unwrap();
        if let DataType::Decimal128(precision, _) = array.data_type() {
            array.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision).unwrap();
        }
    }

    /// Any bytes are either rejected with the name of the column, or become valid arrays.
    #[test]
    fn forged_rows_become_valid_arrays_or_errors() {
        use rand::rngs::SmallRng;
        use rand::{RngExt, SeedableRng};

        let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        println!("seed {seed}");
        let (mut random, schema, lists) = (SmallRng::seed_from_u64(seed), schema_of_all_types(), lists());
        let (mut pushed, mut rejected) = (0, 0);
        for column in schema.columns() {
            let projection = Projection::new(&schema, &[&column.name]).unwrap();
            let mut buffers = ColumnBuffers::new(&schema, &projection);
            for number in 0..200 {
                let mut bytes = row_of(&schema, number, &lists);
                for _ in 0..random.random_range(1..40) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] = random.random();
                }
                match buffers.push(&TypedRow::new(&schema, &bytes).unwrap()) {
                    Ok(()) => pushed += 1,
                    Err(error) => {
                        rejected += 1;
                        let place = format!("column {:?} of row {}", column.name, buffers.row_count());
                        assert!(error.to_string().starts_with(&place), "{error}");
                    }
                }
            }
            buffers.into_record_batch().unwrap().columns().iter().for_each(|array| assert_valid(array));
        }
        assert!(pushed > 0 && rejected > 0, "{pushed} rows pushed, {rejected} rejected");
    }
}
