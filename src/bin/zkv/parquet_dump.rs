//! `zkv dump` as Apache Parquet.
//!
//! In: rows. Out: one row group after another. A row group is in memory as a whole. Each part of the key, the end of
//! ranges, and each column of a typed table becomes the column of the file from which `baker` makes the same part, end,
//! or column. The value of a table that is not typed becomes the column `value`.

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
use zero_kv::Key;
use zero_kv::client::{OwnedKey, Row};
use zero_kv::format::key_type::{FIXED_KEY_LEN_BYTES, KeyType, KeyValue, PartType};
use zero_kv::typed::{Column, ColumnType, DECIMAL64_PRECISION_MAX, TimeUnit as OwnUnit, Value};

use crate::columns::Columns;
use crate::dump::{DumpedRow, RowForm};
use crate::output::DisplayKey;

/// The length of the keys and values of a row group, at least.
const GROUP_LEN_BYTES: usize = 8 << 20;
const GROUP_ROWS_MAX: usize = 64 << 10;
/// The length of a decimal of more than 18 digits.
const DECIMAL_LEN_BYTES: usize = size_of::<i128>();
/// The length of all values of a fixed length.
const FIXED_LEN_BYTES: usize = {
    assert!(DECIMAL_LEN_BYTES == FIXED_KEY_LEN_BYTES);
    FIXED_KEY_LEN_BYTES
};

type Result<T> = std::result::Result<T, ParquetError>;

pub(crate) fn write_parquet(
    output: &File,
    rows: impl Iterator<Item = DumpedRow>,
    form: &RowForm<'_>,
) -> anyhow::Result<()> {
    let RowForm { key_type, key_names, columns, .. } = form;
    let value = Column { name: "value".to_owned(), column_type: ColumnType::Bytes, is_nullable: false };
    let declared: Vec<Column> = columns.map_or_else(|| vec![value], |columns| columns.declared().cloned().collect());
    // The end of a range has the type of the last part.
    let parts = key_type.parts().iter().chain(key_type.parts().last()).zip(key_names);
    let keys = parts.map(|(part, name)| KeyColumn::new(name, *part));
    let table = TableColumns { key_type: *key_type, keys: keys.collect(), columns: *columns, declared };
    let schema = table.schema().map_err(io_error)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(io_error)?;
    let (mut group, mut len_bytes) = (Vec::new(), 0);
    for row in rows {
        let row = row?;
        let (key, value) = &row.0;
        len_bytes += value.len() + key.as_key().as_bytes().map_or(size_of::<u64>(), <[u8]>::len);
        group.push(row);
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

/// The column of a part of the key or of the end of ranges.
struct KeyColumn {
    part: PartType,
    /// The declaration of the column, apart from UUIDs, which typed tables do not have: their cells are bytes.
    column: Column,
}

impl KeyColumn {
    /// Returns a column from which `baker` makes such a part. Types that Parquet does not have are text.
    fn new(name: &str, part: PartType) -> KeyColumn {
        let column_type = match part {
            PartType::U64 => ColumnType::U64,
            PartType::I64 => ColumnType::I64,
            PartType::Date => ColumnType::Date,
            PartType::Timestamp => ColumnType::Timestamp(OwnUnit::Micros),
            PartType::Bytes | PartType::Uuid => ColumnType::Bytes,
            PartType::Ipv4 | PartType::Ip | PartType::Hex => ColumnType::Text,
        };
        KeyColumn { part, column: Column { name: name.to_owned(), column_type, is_nullable: false } }
    }

    fn field(&self) -> Result<Type> {
        match self.part {
            PartType::Uuid => Type::primitive_type_builder(&self.column.name, PhysicalType::FIXED_LEN_BYTE_ARRAY)
                .with_repetition(Repetition::REQUIRED)
                .with_logical_type(Some(LogicalType::Uuid))
                .with_length(FIXED_LEN_BYTES as i32)
                .build(),
            _ => field(&self.column),
        }
    }
}

struct TableColumns<'c> {
    key_type: KeyType,
    /// The columns of the key's parts and of the end of ranges.
    keys: Vec<KeyColumn>,
    /// The columns of a typed table.
    columns: Option<&'c Columns>,
    /// The declarations of the columns, or the column `value`.
    declared: Vec<Column>,
}

impl TableColumns<'_> {
    fn schema(&self) -> Result<TypePtr> {
        let fields = self.keys.iter().map(KeyColumn::field).chain(self.declared.iter().map(field));
        let fields = fields.map(|field| field.map(Arc::new)).collect::<Result<Vec<_>>>()?;
        Type::group_type_builder("rows").with_fields(fields).build().map(Arc::new)
    }
}

fn field(column: &Column) -> Result<Type> {
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let element = match column.column_type {
        ColumnType::List { element, .. } => element.column_type(),
        ColumnType::TextList => ColumnType::Text,
        other => return primitive(&column.name, other, repetition),
    };
    let element = primitive("element", element, Repetition::REQUIRED)?;
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
        ColumnType::Bytes | ColumnType::List { .. } | ColumnType::TextList => (BYTE_ARRAY, None),
    };
    let mut builder =
        Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    if let ColumnType::Decimal { precision, scale } = column_type {
        builder = builder.with_precision(precision.into()).with_scale(scale.into());
    }
    if physical == FIXED_LEN_BYTE_ARRAY {
        builder = builder.with_length(FIXED_LEN_BYTES as i32);
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
    rows: &[(Row, Option<OwnedKey>)],
    TableColumns { key_type, keys, columns, declared }: &TableColumns<'_>,
) -> anyhow::Result<()> {
    let mut group = writer.next_row_group().map_err(io_error)?;
    let mut values: Vec<Vec<KeyValue<'_>>> = Vec::with_capacity(rows.len());
    for ((key, _), end) in rows {
        let mut of_row = values_of(*key_type, key.as_key())?;
        if let Some(end) = end {
            of_row.extend(values_of(*key_type, end.as_key())?.pop());
        }
        values.push(of_row);
    }
    for (at, KeyColumn { part, column }) in keys.iter().enumerate() {
        let texts: Vec<String> = match column.column_type {
            ColumnType::Text => values.iter().map(|values| values[at].text(*part)).collect(),
            _ => Vec::new(),
        };
        let cells = values.iter().enumerate().map(|(row, values)| match &values[at] {
            KeyValue::U64(number) => Value::Uint(*number),
            KeyValue::I64(number) => Value::Int(*number),
            KeyValue::Date(days) => Value::Date(*days),
            KeyValue::Timestamp(micros) => Value::Timestamp(*micros, OwnUnit::Micros),
            KeyValue::Uuid(bytes) => Value::Bytes(bytes),
            KeyValue::Bytes(bytes) if column.column_type == ColumnType::Bytes => Value::Bytes(bytes),
            KeyValue::Ip(_) | KeyValue::Bytes(_) => Value::Text(&texts[row]),
        });
        let cells: Vec<Value<'_>> = cells.collect();
        write_column(group.next_column().map_err(io_error)?, &cells, column).map_err(io_error)?;
    }
    for (at, column) in declared.iter().enumerate() {
        let cells = rows.iter().map(|((_, value), _)| match columns {
            Some(columns) => columns.cell(value, at),
            None => Ok(Value::Bytes(value)),
        });
        let cells = cells.collect::<std::result::Result<Vec<_>, _>>()?;
        write_column(group.next_column().map_err(io_error)?, &cells, column).map_err(io_error)?;
    }
    group.close().map_err(io_error)?;
    Ok(())
}

/// Returns the values of a stored key's parts.
fn values_of(key_type: KeyType, key: Key<'_>) -> anyhow::Result<Vec<KeyValue<'_>>> {
    key_type
        .values(key)
        .ok_or_else(|| anyhow!("the key {} is not a key of the type {key_type}: bake the table again", DisplayKey(key)))
}

/// Writes the cells of the next column of a row group.
fn write_column(
    column: Option<SerializedColumnWriter<'_>>,
    cells: &[Value<'_>],
    Column { column_type, is_nullable, .. }: &Column,
) -> Result<()> {
    let Some(mut column) = column else { return Err(ParquetError::General("a column is missing".to_owned())) };
    let (values, levels) = match column_type {
        ColumnType::List { .. } => list_levels(cells, *is_nullable, |cell, elements| {
            if let Value::List(list) = cell {
                elements.extend(list.iter());
            }
        }),
        ColumnType::TextList => {
            let (texts, levels) = list_levels(cells, *is_nullable, |cell, texts: &mut Vec<ByteArray>| {
                if let Value::TextList(list) = cell {
                    texts.extend(list.iter().map(|text| ByteArray::from(text.as_bytes().to_vec())));
                }
            });
            write_values::<ByteArrayType>(&mut column, &texts, &levels)?;
            return column.close();
        }
        _ => levels(cells, *is_nullable),
    };
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
                Value::Bytes(bytes) => FixedLenByteArray::from(bytes.to_vec()),
                _ => FixedLenByteArray::from(vec![0; FIXED_LEN_BYTES]),
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
/// a row, and for a row without elements. `extend` appends the elements of a list.
fn list_levels<'v, E>(
    cells: &[Value<'v>],
    is_nullable: bool,
    extend: impl Fn(&Value<'v>, &mut Vec<E>),
) -> (Vec<E>, Levels) {
    let empty_level = i16::from(is_nullable);
    let (mut elements, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        let before = elements.len();
        extend(cell, &mut elements);
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
    write_values::<T>(column, &values.iter().map(convert).collect::<Vec<_>>(), levels)
}

fn write_values<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: &[T::T], levels: &Levels) -> Result<()> {
    let (definition, repetition) = (levels.definition.as_deref(), levels.repetition.as_deref());
    column.typed::<T>().write_batch(values, definition, repetition).map(drop)
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
