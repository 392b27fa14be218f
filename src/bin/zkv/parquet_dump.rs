//! `zkv dump` as Apache Parquet.
//!
//! In: rows. Out: one row group after another. A row group is in memory as a whole. Each column of a typed table
//! becomes the column of the file from which `baker` makes the same column. The table has the columns `key` and `value`
//! if it is not typed.

use std::fs::File;
use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use zero_kv::MappedStore;
use zero_kv::client::OwnedKey;
use zero_kv::store::MappedRows;
use zero_kv::typed::{Column, ColumnType, DECIMAL64_PRECISION_MAX, TimeUnit as OwnUnit, Value};
use zero_kv::{Key, KeyKind};

use crate::columns::Columns;

/// The length of the keys and values of a row group, at least.
const GROUP_LEN_BYTES: usize = 8 << 20;
const GROUP_ROWS_MAX: usize = 64 << 10;
/// The length of a decimal of more than 18 digits.
const DECIMAL_LEN_BYTES: usize = size_of::<i128>();

type Result<T> = std::result::Result<T, ParquetError>;

pub(crate) fn write_parquet(
    output: &File,
    rows: MappedRows<&MappedStore>,
    key_kind: KeyKind,
    columns: Option<&Columns>,
) -> anyhow::Result<()> {
    let value = Column { name: "value".to_owned(), column_type: ColumnType::Bytes, is_nullable: false };
    let declared: Vec<Column> = columns.map_or_else(|| vec![value], |columns| columns.declared().cloned().collect());
    let key_type = if key_kind == KeyKind::U64 { ColumnType::U64 } else { ColumnType::Bytes };
    let key_name = columns.map_or("key", Columns::key_name).to_owned();
    let key = Column { name: key_name, column_type: key_type, is_nullable: false };
    let table = TableColumns { key, columns, declared };
    let schema = table.schema().map_err(io_error)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(io_error)?;
    let (mut group, mut len_bytes) = (Vec::new(), 0);
    for row in rows {
        let (key, value) = row?;
        len_bytes += value.len() + key.as_key().as_bytes().map_or(size_of::<u64>(), <[u8]>::len);
        group.push((key, value));
        if len_bytes >= GROUP_LEN_BYTES || group.len() == GROUP_ROWS_MAX {
            write_group(&mut writer, &group, &table)?;
            (group, len_bytes) = (Vec::new(), 0);
        }
    }
    if !group.is_empty() {
        write_group(&mut writer, &group, &table)?;
    }
    writer.close().map_err(io_error)?;
    Ok(())
}

/// Returns the I/O error that caused an error of the crate `parquet`, or the error itself.
fn io_error(error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => (*error).into(),
            Err(cause) => anyhow!("Parquet: {cause}"),
        },
        error => anyhow!("Parquet: {error}"),
    }
}

struct TableColumns<'c> {
    key: Column,
    /// The columns of a typed table.
    columns: Option<&'c Columns>,
    /// The declarations of the columns, or the column `value`.
    declared: Vec<Column>,
}

impl TableColumns<'_> {
    fn schema(&self) -> Result<TypePtr> {
        let fields = [&self.key].into_iter().chain(&self.declared).map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        Type::group_type_builder("rows").with_fields(fields).build().map(Arc::new)
    }
}

fn field(column: &Column) -> Result<Type> {
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let ColumnType::List { element, .. } = column.column_type else {
        return primitive(&column.name, column.column_type, repetition);
    };
    let element = primitive("element", element.column_type(), Repetition::REQUIRED)?;
    let list = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    Type::group_type_builder(&column.name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(list)])
        .build()
}

fn primitive(name: &str, column_type: ColumnType, repetition: Repetition) -> Result<Type> {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED_LEN_BYTE_ARRAY, FLOAT, INT32, INT64};
    let integer = |bits, is_signed| Some(LogicalType::integer(bits, is_signed));
    let (physical, logical) = match column_type {
        ColumnType::Bool => (BOOLEAN, None),
        ColumnType::I8 => (INT32, integer(8, true)),
        ColumnType::I16 => (INT32, integer(16, true)),
        ColumnType::I32 => (INT32, integer(32, true)),
        ColumnType::I64 => (INT64, integer(64, true)),
        ColumnType::U8 => (INT32, integer(8, false)),
        ColumnType::U16 => (INT32, integer(16, false)),
        ColumnType::U32 => (INT32, integer(32, false)),
        ColumnType::U64 => (INT64, integer(64, false)),
        ColumnType::F32 => (FLOAT, None),
        ColumnType::F64 => (DOUBLE, None),
        ColumnType::Text => (BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::Date => (INT32, Some(LogicalType::Date)),
        ColumnType::Timestamp(unit) => (INT64, Some(LogicalType::timestamp(true, time_unit(unit)))),
        ColumnType::Decimal { precision, scale } => {
            let physical = if precision <= DECIMAL64_PRECISION_MAX { INT64 } else { FIXED_LEN_BYTE_ARRAY };
            (physical, Some(LogicalType::decimal(scale.into(), precision.into())))
        }
        ColumnType::Bytes | ColumnType::List { .. } => (BYTE_ARRAY, None),
    };
    let mut builder =
        Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    if let ColumnType::Decimal { precision, scale } = column_type {
        builder = builder.with_precision(precision.into()).with_scale(scale.into());
    }
    if physical == FIXED_LEN_BYTE_ARRAY {
        builder = builder.with_length(DECIMAL_LEN_BYTES as i32);
    }
    builder.build()
}

fn time_unit(unit: OwnUnit) -> TimeUnit {
    match unit {
        OwnUnit::Millis => TimeUnit::MILLIS,
        OwnUnit::Micros => TimeUnit::MICROS,
        OwnUnit::Nanos => TimeUnit::NANOS,
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<&File>,
    rows: &[(OwnedKey, Vec<u8>)],
    TableColumns { key, columns, declared }: &TableColumns<'_>,
) -> anyhow::Result<()> {
    let mut group = writer.next_row_group().map_err(io_error)?;
    let keys = rows.iter().map(|(key, _)| match key.as_key() {
        Key::U64(key) => Value::Uint(key),
        Key::Bytes(key) => Value::Bytes(key),
    });
    let keys: Vec<Value<'_>> = keys.collect();
    write_column(group.next_column().map_err(io_error)?, &keys, key).map_err(io_error)?;
    for (at, column) in declared.iter().enumerate() {
        let cells = rows.iter().map(|(_, value)| match columns {
            Some(columns) => columns.cell(value, at),
            None => Ok(Value::Bytes(value)),
        });
        let cells = cells.collect::<std::result::Result<Vec<_>, _>>()?;
        write_column(group.next_column().map_err(io_error)?, &cells, column).map_err(io_error)?;
    }
    group.close().map_err(io_error)?;
    Ok(())
}

/// Writes the cells of the next column of a row group.
fn write_column(
    column: Option<SerializedColumnWriter<'_>>,
    cells: &[Value<'_>],
    Column { column_type, is_nullable, .. }: &Column,
) -> Result<()> {
    let Some(mut column) = column else { return Err(ParquetError::General("a column is missing".to_owned())) };
    let is_list = matches!(column_type, ColumnType::List { .. });
    let (values, levels) = if is_list { list_levels(cells, *is_nullable) } else { levels(cells, *is_nullable) };
    match column.untyped() {
        ColumnWriter::BoolColumnWriter(_) => {
            write::<BoolType>(&mut column, &values, &levels, |value| *value == Value::Bool(true))
        }
        ColumnWriter::Int32ColumnWriter(_) => {
            write::<Int32Type>(&mut column, &values, &levels, |value| integer(value) as i32)
        }
        ColumnWriter::Int64ColumnWriter(_) => write::<Int64Type>(&mut column, &values, &levels, integer),
        ColumnWriter::FloatColumnWriter(_) => write::<FloatType>(&mut column, &values, &levels, |value| match value {
            Value::F32(value) => *value,
            _ => 0.0,
        }),
        ColumnWriter::DoubleColumnWriter(_) => {
            write::<DoubleType>(&mut column, &values, &levels, |value| match value {
                Value::F64(value) => *value,
                _ => 0.0,
            })
        }
        ColumnWriter::FixedLenByteArrayColumnWriter(_) => {
            write::<FixedLenByteArrayType>(&mut column, &values, &levels, |value| match value {
                Value::Decimal { unscaled, .. } => FixedLenByteArray::from(unscaled.to_be_bytes().to_vec()),
                _ => FixedLenByteArray::from(vec![0; DECIMAL_LEN_BYTES]),
            })
        }
        _ => write::<ByteArrayType>(&mut column, &values, &levels, |value| match value {
            Value::Text(text) => ByteArray::from(text.as_bytes().to_vec()),
            Value::Bytes(bytes) => ByteArray::from(bytes.to_vec()),
            _ => ByteArray::new(),
        }),
    }?;
    column.close()
}

/// The Parquet levels of a column: which values are null, and where lists begin.
struct Levels {
    definition: Option<Vec<i16>>,
    repetition: Option<Vec<i16>>,
}

/// Returns the values that are not null, and the levels.
fn levels<'v>(cells: &[Value<'v>], is_nullable: bool) -> (Vec<Value<'v>>, Levels) {
    let is_present = |cell: &Value<'_>| *cell != Value::Null;
    let definition = is_nullable.then(|| cells.iter().map(|cell| is_present(cell).into()).collect());
    (cells.iter().copied().filter(is_present).collect(), Levels { definition, repetition: None })
}

/// Returns the elements of lists, and the levels. The definition level of an element is one above the level of an empty
/// list, which is one above the level of null if lists can be null. The repetition level is 0 for the first element of
/// a row, and for a row without elements.
fn list_levels<'v>(cells: &[Value<'v>], is_nullable: bool) -> (Vec<Value<'v>>, Levels) {
    let empty_level = i16::from(is_nullable);
    let (mut elements, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        let before = elements.len();
        if let Value::List(list) = cell {
            elements.extend(list.iter());
        }
        match elements.len() - before {
            0 => {
                definition.push(if *cell == Value::Null { 0 } else { empty_level });
                repetition.push(0);
            }
            count => {
                definition.extend(std::iter::repeat_n(empty_level + 1, count));
                repetition.push(0);
                repetition.extend(std::iter::repeat_n(1, count - 1));
            }
        }
    }
    (elements, Levels { definition: Some(definition), repetition: Some(repetition) })
}

fn write<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[Value<'_>],
    levels: &Levels,
    convert: impl Fn(&Value<'_>) -> T::T,
) -> Result<()> {
    let values: Vec<T::T> = values.iter().map(convert).collect();
    let (definition, repetition) = (levels.definition.as_deref(), levels.repetition.as_deref());
    column.typed::<T>().write_batch(&values, definition, repetition).map(drop)
}

/// Returns the integer of a value. Integers of 32 bits are its low bits.
fn integer(value: &Value<'_>) -> i64 {
    match value {
        Value::Int(value) | Value::Timestamp(value, _) => *value,
        Value::Uint(value) => *value as i64,
        Value::Date(days) => (*days).into(),
        Value::Decimal { unscaled, .. } => *unscaled as i64,
        _ => 0,
    }
}
