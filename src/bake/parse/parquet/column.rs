//! Parquet columns: their types, and the conversion of their values.
//!
//! | type | becomes |
//! |---|---|
//! | integers of any width | integer |
//! | string, enum, JSON | text |
//! | binary of variable or fixed length | binary |
//! | UUID | text, `550e8400-e29b-41d4-a716-446655440000` |
//! | boolean, float, double | boolean, float, double; a float of 16 bits becomes a float |
//! | decimal of up to 38 digits | text with all digits of its scale, `-12.50` |
//! | date | text, `2026-11-21` |
//! | time | text, `19:09:38.000`, with 3, 6, or 9 decimal places, depending on the unit |
//! | timestamp | text, `2026-11-21T19:09:38.000Z`, with 3, 6, or 9 decimal places; no `Z` if local or 96-bit |
//!
//! Other types are rejected.

use std::fmt::Write;

use ::parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use ::parquet::errors::ParquetError;
use ::parquet::schema::types::ColumnDescriptor;
use chrono::{DateTime, NaiveTime, SecondsFormat, Utc};
use half::f16;

use crate::bake::columns::{ColumnRole, ColumnsFault};
use crate::bake::error::{Remedy, RowFault};
use crate::bake::parse::pack::Cell;
use crate::format::key_type::PartType;
use crate::typed;

const DECIMAL_DIGITS_MAX: i32 = 38;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// The Julian day number of 1970-01-01. A 96-bit timestamp contains the Julian day number of its day.
const JULIAN_DAY_1970: i64 = 2_440_588;

/// A column and its type.
#[derive(Clone)]
pub(super) struct ColumnType {
    /// The column's position among the leaf columns of the file.
    pub(super) leaf: usize,
    pub(super) name: String,
    pub(super) value_type: ValueType,
    /// The Parquet definition level of values that are not null. Lower definition levels mean null.
    pub(super) max_def_level: i16,
    /// In a column of lists, the definition level of the elements. The level below means an empty list, and lower
    /// levels mean null.
    pub(super) element_level: Option<i16>,
    /// The type of a typed table's column that has these values. `None` if no type has them.
    pub(super) own_type: Option<typed::ColumnType>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueType {
    Bool,
    Int,
    Uint,
    Float,
    Text,
    Binary,
    Uuid,
    Decimal { scale: usize },
    Date,
    Time(TimeUnit),
    Timestamp { unit: TimeUnit, is_utc: bool },
}

/// The non-null values of one column in a piece, and which rows are null.
pub(super) struct Cells {
    pub(super) values: Values,
    /// For each row, the Parquet definition level, which tells whether the row's value is null. `None` if no value can
    /// be null. In a column of lists, there is one level per element, and one level per list without elements.
    pub(super) def_levels: Option<Vec<i16>>,
    /// In a column of lists, the Parquet repetition level of each element: 0 for the first of each row.
    pub(super) rep_levels: Option<Vec<i16>>,
}

pub(super) enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    FixedBytes(Vec<FixedLenByteArray>),
}

impl ColumnType {
    /// Returns the column that `description` describes.
    ///
    /// # Errors
    /// [`ColumnsFault`], if the type of the column is not supported.
    pub(super) fn new(leaf: usize, description: &ColumnDescriptor, role: ColumnRole) -> Result<Self, ColumnsFault> {
        let name = description.path().string();
        let value_type = ValueType::from_column(description).ok_or_else(|| {
            let physical = description.physical_type();
            let logical = description
                .logical_type_ref()
                .map_or_else(|| description.converted_type().to_string(), |logical| format!("{logical:?}"));
            let problem = format!(
                "is of type {physical} ({logical}), which is not supported: convert it, or choose another column"
            );
            ColumnsFault::of_column(role, format_args!("{name:?}"), problem)
        })?;
        let own_type = own_type(description, value_type);
        let max_def_level = description.max_def_level();
        Ok(ColumnType { leaf, name, value_type, max_def_level, element_level: None, own_type })
    }

    /// Returns whether a row may have no value in this column.
    pub(super) fn is_nullable(&self) -> bool {
        self.element_level.map_or(self.max_def_level > 0, |level| level > 1)
    }

    /// Returns the fault of a row whose value in this column has no text or cell.
    pub(super) fn out_of_range(&self) -> RowFault {
        let found = match self.value_type {
            ValueType::Decimal { .. } => "a decimal with too many digits",
            _ => "outside the calendar",
        };
        RowFault::OutOfRange { column: self.name.clone(), found }
    }

    /// Checks that a column of this type can contain keys, or parts of keys, of a type.
    ///
    /// # Errors
    /// [`ColumnsFault`], if the type cannot be a key.
    pub(super) fn check_key(&self, part_type: PartType) -> Result<(), ColumnsFault> {
        use ValueType::{Binary, Date, Int, Text, Timestamp, Uint, Uuid};
        let fault = |problem| ColumnsFault::of_column(ColumnRole::Key, format_args!("{:?}", self.name), problem);
        let found = self.value_type.name();
        match (self.value_type, part_type) {
            (Int | Uint | Text | Binary | Uuid, _)
            | (Date, PartType::Date)
            | (Timestamp { .. }, PartType::Timestamp) => Ok(()),
            (Date | Timestamp { .. }, _) => {
                let own = if self.value_type == Date { PartType::Date } else { PartType::Timestamp };
                let problem = format!(
                    "has {found}, and the type of its keys is {part_type}: choose the type {own}, or another column"
                );
                Err(fault(problem).or(Remedy::ChooseKeyKind))
            }
            _ => Err(fault(format!(
                "has {found}, where integers, text, binary, dates, or timestamps were expected: choose another column, \
                 or convert it"
            ))),
        }
    }

    /// Returns the type of the keys, or of the parts of keys, in a column of this type. Signed integers are numbers
    /// without a sign unless the file says that one of them is negative. Returns `None` if the column cannot contain
    /// keys.
    pub(super) fn key_part(&self, has_negative: impl FnOnce() -> bool) -> Option<PartType> {
        Some(match self.value_type {
            ValueType::Int if has_negative() => PartType::I64,
            ValueType::Int | ValueType::Uint => PartType::U64,
            ValueType::Text | ValueType::Binary => PartType::Bytes,
            ValueType::Uuid => PartType::Uuid,
            ValueType::Date => PartType::Date,
            ValueType::Timestamp { .. } => PartType::Timestamp,
            ValueType::Bool | ValueType::Float | ValueType::Decimal { .. } | ValueType::Time(_) => return None,
        })
    }

    /// Decodes the next `rows` rows of the row group. Returns an error if the row group has fewer rows left.
    pub(super) fn read(&self, reader: &mut ColumnReader, rows: usize) -> Result<Cells, ParquetError> {
        use ColumnReader as R;
        match reader {
            R::BoolColumnReader(reader) => self.read_typed(reader, rows, Values::Bool),
            R::Int32ColumnReader(reader) => self.read_typed(reader, rows, Values::Int32),
            R::Int64ColumnReader(reader) => self.read_typed(reader, rows, Values::Int64),
            R::Int96ColumnReader(reader) => self.read_typed(reader, rows, Values::Int96),
            R::FloatColumnReader(reader) => self.read_typed(reader, rows, Values::Float),
            R::DoubleColumnReader(reader) => self.read_typed(reader, rows, Values::Double),
            R::ByteArrayColumnReader(reader) => self.read_typed(reader, rows, Values::Bytes),
            R::FixedLenByteArrayColumnReader(reader) => self.read_typed(reader, rows, Values::FixedBytes),
        }
    }

    fn read_typed<T: DataType>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        wrap: impl FnOnce(Vec<T::T>) -> Values,
    ) -> Result<Cells, ParquetError> {
        let mut values = Vec::with_capacity(rows);
        let mut def_levels = (self.max_def_level > 0).then(|| Vec::with_capacity(rows));
        let mut rep_levels = self.element_level.map(|_| Vec::with_capacity(rows));
        let (found_rows, _, _) = reader.read_records(rows, def_levels.as_mut(), rep_levels.as_mut(), &mut values)?;
        let present = match &def_levels {
            Some(levels) => levels.iter().filter(|level| **level == self.max_def_level).count(),
            None => rows,
        };
        let row_levels = match &rep_levels {
            Some(levels) if levels.first().is_none_or(|level| *level == 0) => {
                levels.iter().filter(|level| **level == 0).count()
            }
            Some(_) => 0,
            None => def_levels.as_ref().map_or(rows, Vec::len),
        };
        let lens = rep_levels.as_ref().map(Vec::len).zip(def_levels.as_ref().map(Vec::len));
        // A damaged file can have fewer values than its metadata states.
        if found_rows != rows
            || row_levels != rows
            || lens.is_some_and(|(rep, def)| rep != def)
            || values.len() != present
        {
            let name = &self.name;
            return Err(ParquetError::General(format!("column {name:?} ends before its row group does")));
        }
        Ok(Cells { values: wrap(values), def_levels, rep_levels })
    }
}

impl ValueType {
    fn from_column(column: &ColumnDescriptor) -> Option<ValueType> {
        let physical = column.physical_type();
        let is_bytes = matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
        let is_integer = matches!(physical, Type::INT32 | Type::INT64);
        let value_type = match column.logical_type_ref() {
            Some(logical) => Self::from_logical(logical, column)?,
            None => Self::from_converted(column.converted_type(), column)?,
        };
        let fits = match value_type {
            ValueType::Bool => physical == Type::BOOLEAN,
            ValueType::Float => match physical {
                Type::FIXED_LEN_BYTE_ARRAY => column.type_length() == size_of::<f16>() as i32,
                _ => matches!(physical, Type::FLOAT | Type::DOUBLE),
            },
            ValueType::Int | ValueType::Uint | ValueType::Time(_) => is_integer,
            ValueType::Date => physical == Type::INT32,
            ValueType::Timestamp { .. } => matches!(physical, Type::INT64 | Type::INT96),
            ValueType::Text | ValueType::Binary => is_bytes,
            ValueType::Uuid => physical == Type::FIXED_LEN_BYTE_ARRAY && column.type_length() == 16,
            ValueType::Decimal { .. } => is_integer || is_bytes,
        };
        fits.then_some(value_type)
    }

    fn from_logical(logical: &LogicalType, column: &ColumnDescriptor) -> Option<ValueType> {
        Some(match logical {
            LogicalType::String | LogicalType::Enum | LogicalType::Json => ValueType::Text,
            LogicalType::Bson | LogicalType::Geometry(_) | LogicalType::Geography(_) => ValueType::Binary,
            LogicalType::Uuid => ValueType::Uuid,
            LogicalType::Integer(integer) if integer.is_signed => ValueType::Int,
            LogicalType::Integer(_) => ValueType::Uint,
            LogicalType::Decimal(decimal) => Self::decimal(decimal.precision, decimal.scale)?,
            LogicalType::Date => ValueType::Date,
            LogicalType::Time(time) => ValueType::Time(time.unit),
            LogicalType::Float16 => ValueType::Float,
            LogicalType::Timestamp(timestamp) => {
                ValueType::Timestamp { unit: timestamp.unit, is_utc: timestamp.is_adjusted_to_u_t_c }
            }
            // The program that wrote the file knew no type, because all values of the column are null.
            LogicalType::Unknown => Self::from_converted(ConvertedType::NONE, column)?,
            _ => return None,
        })
    }

    fn from_converted(converted: ConvertedType, column: &ColumnDescriptor) -> Option<ValueType> {
        use ConvertedType as C;
        let timestamp = |unit| ValueType::Timestamp { unit, is_utc: true };
        Some(match converted {
            C::NONE => match column.physical_type() {
                Type::BOOLEAN => ValueType::Bool,
                Type::INT32 | Type::INT64 => ValueType::Int,
                Type::INT96 => ValueType::Timestamp { unit: TimeUnit::NANOS, is_utc: false },
                Type::FLOAT | Type::DOUBLE => ValueType::Float,
                Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => ValueType::Binary,
            },
            C::UTF8 | C::ENUM | C::JSON => ValueType::Text,
            C::BSON => ValueType::Binary,
            C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64 => ValueType::Int,
            C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64 => ValueType::Uint,
            C::DECIMAL => Self::decimal(column.type_precision(), column.type_scale())?,
            C::DATE => ValueType::Date,
            C::TIME_MILLIS => ValueType::Time(TimeUnit::MILLIS),
            C::TIME_MICROS => ValueType::Time(TimeUnit::MICROS),
            C::TIMESTAMP_MILLIS => timestamp(TimeUnit::MILLIS),
            C::TIMESTAMP_MICROS => timestamp(TimeUnit::MICROS),
            C::MAP | C::MAP_KEY_VALUE | C::LIST | C::INTERVAL => return None,
        })
    }

    fn decimal(precision: i32, scale: i32) -> Option<ValueType> {
        let scale = usize::try_from(scale).ok()?;
        (precision <= DECIMAL_DIGITS_MAX && scale <= DECIMAL_DIGITS_MAX as usize)
            .then_some(ValueType::Decimal { scale })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            ValueType::Bool => "booleans",
            ValueType::Int | ValueType::Uint => "integers",
            ValueType::Float => "floats",
            ValueType::Text => "text",
            ValueType::Binary => "binary",
            ValueType::Uuid => "UUIDs",
            ValueType::Decimal { .. } => "decimals",
            ValueType::Date => "dates",
            ValueType::Time(_) => "times",
            ValueType::Timestamp { .. } => "timestamps",
        }
    }
}

/// Returns the type of the typed table's column that has the values of a Parquet column, or of the elements of a list.
fn own_type(column: &ColumnDescriptor, value_type: ValueType) -> Option<typed::ColumnType> {
    use typed::ColumnType as T;
    Some(match value_type {
        ValueType::Bool => T::Bool,
        ValueType::Int | ValueType::Uint => integer_type(column, value_type == ValueType::Int),
        ValueType::Float if column.physical_type() == Type::DOUBLE => T::F64,
        ValueType::Float => T::F32,
        ValueType::Text | ValueType::Uuid | ValueType::Time(_) => T::Text,
        ValueType::Binary => T::Bytes,
        ValueType::Decimal { scale } => {
            let precision = match column.logical_type_ref() {
                Some(LogicalType::Decimal(decimal)) => decimal.precision,
                _ => column.type_precision(),
            };
            let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
            let is_valid = (1..=typed::DECIMAL_PRECISION_MAX).contains(&precision) && scale <= precision;
            return is_valid.then_some(T::Decimal { precision, scale });
        }
        ValueType::Date => T::Date,
        ValueType::Timestamp { unit, .. } => T::Timestamp(time_unit(unit)),
    })
}

fn integer_type(column: &ColumnDescriptor, is_signed: bool) -> typed::ColumnType {
    use typed::ColumnType as T;
    let bits = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(integer)), _) => integer.bit_width.into(),
        (_, ConvertedType::INT_8 | ConvertedType::UINT_8) => 8,
        (_, ConvertedType::INT_16 | ConvertedType::UINT_16) => 16,
        _ if column.physical_type() == Type::INT32 => 32,
        _ => 64,
    };
    match (bits, is_signed) {
        (8, true) => T::I8,
        (16, true) => T::I16,
        (32, true) => T::I32,
        (_, true) => T::I64,
        (8, false) => T::U8,
        (16, false) => T::U16,
        (32, false) => T::U32,
        (_, false) => T::U64,
    }
}

pub(super) fn time_unit(unit: TimeUnit) -> typed::TimeUnit {
    match unit {
        TimeUnit::MILLIS => typed::TimeUnit::Millis,
        TimeUnit::MICROS => typed::TimeUnit::Micros,
        TimeUnit::NANOS => typed::TimeUnit::Nanos,
    }
}

fn split(unit: TimeUnit, units: i64) -> (i64, u32) {
    let per_second = match unit {
        TimeUnit::MILLIS => 1_000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => 1_000_000_000,
    };
    let nanos = units.rem_euclid(per_second) * (1_000_000_000 / per_second);
    (units.div_euclid(per_second), nanos as u32)
}

/// Reads the values of a column in a piece, one row at a time.
pub(super) struct Cursor<'p> {
    pub(super) column: &'p ColumnType,
    pub(super) cells: &'p Cells,
    pub(super) next_row: usize,
    pub(super) next_value: usize,
    /// The position of the current row's value in `cells`, or `None` if the value is null.
    pub(super) value: Option<usize>,
    /// The current row's value as text, if values of this type are converted to text.
    pub(super) text: String,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(column: &'p ColumnType, cells: &'p Cells) -> Self {
        Cursor { column, cells, next_row: 0, next_value: 0, value: None, text: String::new() }
    }

    /// Moves to the next row.
    pub(super) fn advance(&mut self) -> Result<(), RowFault> {
        self.step();
        match self.value {
            Some(value) => self.convert(value),
            None => Ok(()),
        }
    }

    /// Moves to the next row, and converts nothing.
    pub(super) fn step(&mut self) {
        let levels = self.cells.def_levels.as_ref();
        let is_null = levels.is_some_and(|levels| levels[self.next_row] < self.column.max_def_level);
        self.next_row += 1;
        self.value = (!is_null).then_some(self.next_value);
        self.next_value += usize::from(!is_null);
    }

    /// Converts a value to text, if its type requires a conversion.
    pub(super) fn convert(&mut self, value: usize) -> Result<(), RowFault> {
        if self.write_text(value) { Ok(()) } else { Err(self.column.out_of_range()) }
    }

    pub(super) fn cell(&self) -> Cell<'_> {
        let Some(value) = self.value else { return Cell::Null };
        let integer = |value: i64, bits: u32| match self.column.value_type {
            // Unsigned integers are stored in the bits of signed integers.
            ValueType::Uint => Cell::Uint(value as u64 & (u64::MAX >> (64 - bits))),
            _ => Cell::Int(value),
        };
        let bytes =
            |bytes| if self.column.value_type == ValueType::Text { Cell::Text(bytes) } else { Cell::Binary(bytes) };
        let values = &self.cells.values;
        if !self.text.is_empty() {
            return Cell::Text(self.text.as_bytes());
        }
        match values {
            Values::Bool(values) => Cell::Bool(values[value]),
            Values::Int32(values) => integer(values[value].into(), 32),
            Values::Int64(values) => integer(values[value], 64),
            Values::Float(values) => Cell::F32(values[value]),
            Values::Double(values) => Cell::F64(values[value]),
            Values::Bytes(values) => bytes(values[value].data()),
            Values::FixedBytes(_) if self.column.value_type == ValueType::Float => Cell::F32(values.float16(value)),
            Values::FixedBytes(values) => bytes(values[value].data()),
            Values::Int96(_) => unreachable!("timestamps are text"),
        }
    }

    /// Converts a value to text, if its type requires a conversion. Returns false if the value is outside the range
    /// that can be converted.
    fn write_text(&mut self, value: usize) -> bool {
        self.text.clear();
        let values = &self.cells.values;
        match self.column.value_type {
            ValueType::Bool
            | ValueType::Int
            | ValueType::Uint
            | ValueType::Float
            | ValueType::Text
            | ValueType::Binary => true,
            ValueType::Uuid => write_uuid(&mut self.text, values.bytes(value).unwrap_or_default()),
            ValueType::Decimal { scale } => {
                let unscaled = values.integer(value).map(i128::from).or_else(|| from_be_bytes(values.bytes(value)?));
                unscaled.is_some_and(|unscaled| write_decimal(&mut self.text, unscaled, scale))
            }
            ValueType::Date => {
                let days = values.integer(value).unwrap_or_default();
                let date = DateTime::<Utc>::from_timestamp(days * SECONDS_PER_DAY, 0);
                date.is_some_and(|date| write!(self.text, "{}", date.date_naive()).is_ok())
            }
            ValueType::Time(unit) => {
                let (seconds, nanos) = split(unit, values.integer(value).unwrap_or_default());
                let seconds = u32::try_from(seconds).ok();
                let time = seconds.and_then(|seconds| NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos));
                let format = match unit {
                    TimeUnit::MILLIS => "%H:%M:%S%.3f",
                    TimeUnit::MICROS => "%H:%M:%S%.6f",
                    TimeUnit::NANOS => "%H:%M:%S%.9f",
                };
                time.is_some_and(|time| write!(self.text, "{}", time.format(format)).is_ok())
            }
            ValueType::Timestamp { unit, is_utc } => {
                let (seconds, nanos) = match values {
                    Values::Int96(values) => split_96(&values[value]),
                    _ => split(unit, values.integer(value).unwrap_or_default()),
                };
                let format = match unit {
                    TimeUnit::MILLIS => SecondsFormat::Millis,
                    TimeUnit::MICROS => SecondsFormat::Micros,
                    TimeUnit::NANOS => SecondsFormat::Nanos,
                };
                DateTime::<Utc>::from_timestamp(seconds, nanos).is_some_and(|timestamp| {
                    self.text.push_str(timestamp.to_rfc3339_opts(format, true).trim_end_matches('Z'));
                    if is_utc {
                        self.text.push('Z');
                    }
                    true
                })
            }
        }
    }
}

impl Values {
    pub(super) fn integer(&self, value: usize) -> Option<i64> {
        match self {
            Values::Int32(values) => Some(values[value].into()),
            Values::Int64(values) => Some(values[value]),
            _ => None,
        }
    }

    pub(super) fn int96(&self, value: usize) -> Option<&Int96> {
        match self {
            Values::Int96(values) => Some(&values[value]),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, value: usize) -> Option<&[u8]> {
        match self {
            Values::Bytes(values) => Some(values[value].data()),
            Values::FixedBytes(values) => Some(values[value].data()),
            _ => None,
        }
    }

    /// Returns a float of 16 bits as a float of 32 bits.
    pub(super) fn float16(&self, value: usize) -> f32 {
        let bytes = self.bytes(value).and_then(<[u8]>::first_chunk).copied();
        f16::from_le_bytes(bytes.unwrap_or_default()).into()
    }
}

/// Parses a big-endian two's complement integer. Returns `None` if `bytes` is empty, or if the integer does not fit
/// into 128 bits.
pub(super) fn from_be_bytes(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let (extra, kept) = bytes.split_at(bytes.len().saturating_sub(size_of::<i128>()));
    let mut whole = [fill; size_of::<i128>()];
    whole[size_of::<i128>() - kept.len()..].copy_from_slice(kept);
    let whole = i128::from_be_bytes(whole);
    (extra.iter().all(|byte| *byte == fill) && (whole < 0) == (fill == 0xff)).then_some(whole)
}

fn write_decimal(text: &mut String, unscaled: i128, scale: usize) -> bool {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    write!(text, "{sign}{whole}{point}{fraction}").is_ok()
}

fn write_uuid(text: &mut String, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(index, byte)| {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(text, "{dash}{byte:02x}").is_ok()
    })
}

/// Converts a 96-bit timestamp (the nanoseconds since midnight, and the day) to seconds and nanoseconds since 1970.
pub(super) fn split_96(timestamp: &Int96) -> (i64, u32) {
    let [low, high, day] = *timestamp.data() else { return (i64::MAX, 0) };
    let nanos = u64::from(high) << 32 | u64::from(low);
    let seconds = (i64::from(day) - JULIAN_DAY_1970) * SECONDS_PER_DAY + (nanos / 1_000_000_000) as i64;
    (seconds, (nanos % 1_000_000_000) as u32)
}
