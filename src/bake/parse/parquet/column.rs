//! Columns of Parquet: their types, and what their values become.
//!
//! | type | becomes |
//! |---|---|
//! | integers of any width | integer |
//! | string, enum, JSON | text |
//! | binary of variable or fixed length | binary |
//! | UUID | text, `550e8400-e29b-41d4-a716-446655440000` |
//! | boolean, float, double | the same |
//! | decimal of up to 38 digits | text with all digits of its scale, `-12.50` |
//! | date | text, `2026-11-21` |
//! | time | text, `19:09:38.000` with as many digits as its unit has |
//! | timestamp | text, `2026-11-21T19:09:38.000Z`; without `Z` if it is local, or of 96 bits |
//!
//! Everything else is refused.

use std::fmt::Write;

use ::parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use ::parquet::errors::ParquetError;
use ::parquet::schema::types::ColumnDescriptor;
use chrono::{DateTime, NaiveTime, SecondsFormat, Utc};

use crate::bake::RowFault;
use crate::bake::parse::pack::Cell;

const DECIMAL_DIGITS_MAX: i32 = 38;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// The day on which 1970 begins, counted as 96-bit timestamps do.
const JULIAN_DAY_1970: i64 = 2_440_588;

/// A column, and what its values are.
#[derive(Clone)]
pub(super) struct ColumnType {
    leaf: usize,
    name: String,
    meaning: Meaning,
    /// The definition level of a value that is there.
    max_def_level: i16,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Bool,
    Int,
    Uint,
    Float,
    Text,
    Binary,
    Uuid,
    Decimal { scale: usize },
    Date,
    Time(Unit),
    Timestamp { unit: Unit, is_utc: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// The values of one column in a piece; nulls take up no place.
pub(super) struct Cells {
    values: Values,
    /// Unless all are there.
    def_levels: Option<Vec<i16>>,
}

enum Values {
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
    /// # Errors
    /// Says of what type it is, if that is refused.
    pub(super) fn new(leaf: usize, description: &ColumnDescriptor) -> Result<Self, String> {
        let name = description.path().string();
        let meaning = Meaning::of(description).ok_or_else(|| {
            let physical = description.physical_type();
            let logical = description.logical_type_ref().map_or_else(
                || description.converted_type().to_string(),
                |logical| format!("{logical:?}"),
            );
            format!("{name:?} is of type {physical} ({logical}), which cannot be taken: convert it, or choose another column")
        })?;
        Ok(ColumnType { leaf, name, meaning, max_def_level: description.max_def_level() })
    }

    /// Which of the file's leaves it is.
    pub(super) fn leaf(&self) -> usize {
        self.leaf
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// Says why it can be no key.
    pub(super) fn check_key(&self) -> Result<(), String> {
        match self.meaning {
            Meaning::Int | Meaning::Uint | Meaning::Text | Meaning::Binary | Meaning::Uuid => Ok(()),
            Meaning::Bool
            | Meaning::Float
            | Meaning::Decimal { .. }
            | Meaning::Date
            | Meaning::Time(_)
            | Meaning::Timestamp { .. } => {
                let found = self.meaning.name();
                Err(format!(
                    "--key {:?} has {found}, where integers, text or binary were expected: choose another column",
                    self.name
                ))
            }
        }
    }

    /// Decodes the next rows, of which there must be so many.
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
        let (found_rows, _, _) = reader.read_records(rows, def_levels.as_mut(), None, &mut values)?;
        let present = match &def_levels {
            Some(levels) => levels.iter().filter(|level| **level == self.max_def_level).count(),
            None => rows,
        };
        if found_rows != rows
            || def_levels.as_ref().is_some_and(|levels| levels.len() != rows)
            || values.len() != present
        {
            let name = &self.name;
            return Err(ParquetError::General(format!("column {name:?} ends before its row group does")));
        }
        Ok(Cells { values: wrap(values), def_levels })
    }
}

impl Meaning {
    fn of(column: &ColumnDescriptor) -> Option<Meaning> {
        let physical = column.physical_type();
        let is_bytes = matches!(physical, Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
        let is_integer = matches!(physical, Type::INT32 | Type::INT64);
        let meaning = match column.logical_type_ref() {
            Some(logical) => Self::of_logical(logical, column)?,
            None => Self::of_converted(column.converted_type(), column)?,
        };
        let fits = match meaning {
            Meaning::Bool => physical == Type::BOOLEAN,
            Meaning::Float => matches!(physical, Type::FLOAT | Type::DOUBLE),
            Meaning::Int | Meaning::Uint | Meaning::Time(_) => is_integer,
            Meaning::Date => physical == Type::INT32,
            Meaning::Timestamp { .. } => matches!(physical, Type::INT64 | Type::INT96),
            Meaning::Text | Meaning::Binary => is_bytes,
            Meaning::Uuid => physical == Type::FIXED_LEN_BYTE_ARRAY && column.type_length() == 16,
            Meaning::Decimal { .. } => is_integer || is_bytes,
        };
        fits.then_some(meaning)
    }

    fn of_logical(logical: &LogicalType, column: &ColumnDescriptor) -> Option<Meaning> {
        Some(match logical {
            LogicalType::String | LogicalType::Enum | LogicalType::Json => Meaning::Text,
            LogicalType::Bson | LogicalType::Geometry(_) | LogicalType::Geography(_) => Meaning::Binary,
            LogicalType::Uuid => Meaning::Uuid,
            LogicalType::Integer(integer) if integer.is_signed => Meaning::Int,
            LogicalType::Integer(_) => Meaning::Uint,
            LogicalType::Decimal(decimal) => Self::decimal(decimal.precision, decimal.scale)?,
            LogicalType::Date => Meaning::Date,
            LogicalType::Time(time) => Meaning::Time(time.unit.into()),
            LogicalType::Timestamp(timestamp) => {
                Meaning::Timestamp { unit: timestamp.unit.into(), is_utc: timestamp.is_adjusted_to_u_t_c }
            }
            // A column of nulls only.
            LogicalType::Unknown => Self::of_converted(ConvertedType::NONE, column)?,
            _ => return None,
        })
    }

    fn of_converted(converted: ConvertedType, column: &ColumnDescriptor) -> Option<Meaning> {
        use ConvertedType as C;
        let timestamp = |unit| Meaning::Timestamp { unit, is_utc: true };
        Some(match converted {
            C::NONE => match column.physical_type() {
                Type::BOOLEAN => Meaning::Bool,
                Type::INT32 | Type::INT64 => Meaning::Int,
                Type::INT96 => Meaning::Timestamp { unit: Unit::Nanos, is_utc: false },
                Type::FLOAT | Type::DOUBLE => Meaning::Float,
                Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => Meaning::Binary,
            },
            C::UTF8 | C::ENUM | C::JSON => Meaning::Text,
            C::BSON => Meaning::Binary,
            C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64 => Meaning::Int,
            C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64 => Meaning::Uint,
            C::DECIMAL => Self::decimal(column.type_precision(), column.type_scale())?,
            C::DATE => Meaning::Date,
            C::TIME_MILLIS => Meaning::Time(Unit::Millis),
            C::TIME_MICROS => Meaning::Time(Unit::Micros),
            C::TIMESTAMP_MILLIS => timestamp(Unit::Millis),
            C::TIMESTAMP_MICROS => timestamp(Unit::Micros),
            C::MAP | C::MAP_KEY_VALUE | C::LIST | C::INTERVAL => return None,
        })
    }

    fn decimal(precision: i32, scale: i32) -> Option<Meaning> {
        let scale = usize::try_from(scale).ok()?;
        (precision <= DECIMAL_DIGITS_MAX && scale <= DECIMAL_DIGITS_MAX as usize).then_some(Meaning::Decimal { scale })
    }

    fn name(self) -> &'static str {
        match self {
            Meaning::Bool => "booleans",
            Meaning::Int | Meaning::Uint => "integers",
            Meaning::Float => "floats",
            Meaning::Text => "text",
            Meaning::Binary => "binary",
            Meaning::Uuid => "UUIDs",
            Meaning::Decimal { .. } => "decimals",
            Meaning::Date => "dates",
            Meaning::Time(_) => "times",
            Meaning::Timestamp { .. } => "timestamps",
        }
    }
}

impl From<TimeUnit> for Unit {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::MILLIS => Unit::Millis,
            TimeUnit::MICROS => Unit::Micros,
            TimeUnit::NANOS => Unit::Nanos,
        }
    }
}

impl Unit {
    fn per_second(self) -> i64 {
        match self {
            Unit::Millis => 1_000,
            Unit::Micros => 1_000_000,
            Unit::Nanos => 1_000_000_000,
        }
    }

    /// So many units as seconds and nanoseconds.
    fn split(self, units: i64) -> (i64, u32) {
        let per_second = self.per_second();
        let nanos = units.rem_euclid(per_second) * (1_000_000_000 / per_second);
        (units.div_euclid(per_second), nanos as u32)
    }
}

/// Goes through the values of a column in a piece, row by row.
pub(super) struct Cursor<'p> {
    column: &'p ColumnType,
    cells: &'p Cells,
    next_row: usize,
    next_value: usize,
    /// The value of the row, unless that is null.
    value: Option<usize>,
    /// The value as text, if it is made.
    text: String,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(column: &'p ColumnType, cells: &'p Cells) -> Self {
        Cursor { column, cells, next_row: 0, next_value: 0, value: None, text: String::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.column.name
    }

    /// Goes to the next row.
    pub(super) fn advance(&mut self) -> Result<(), RowFault> {
        let levels = self.cells.def_levels.as_ref();
        let is_null = levels.is_some_and(|levels| levels[self.next_row] < self.column.max_def_level);
        self.next_row += 1;
        self.value = (!is_null).then_some(self.next_value);
        self.next_value += usize::from(!is_null);
        let Some(value) = self.value else { return Ok(()) };
        if !self.write_text(value) {
            let found = match self.column.meaning {
                Meaning::Decimal { .. } => "a decimal of too many digits",
                _ => "no date or time of a calendar",
            };
            return Err(RowFault::OutOfRange { column: self.column.name.clone(), found });
        }
        Ok(())
    }

    /// The value of the row.
    pub(super) fn cell(&self) -> Cell<'_> {
        let Some(value) = self.value else { return Cell::Null };
        let integer = |value: i64, bits: u32| match self.column.meaning {
            // Unsigned ones are stored with their bits as signed ones.
            Meaning::Uint => Cell::Uint(value as u64 & (u64::MAX >> (64 - bits))),
            _ => Cell::Int(value),
        };
        let bytes = |bytes| if self.column.meaning == Meaning::Text { Cell::Text(bytes) } else { Cell::Binary(bytes) };
        if !self.text.is_empty() {
            return Cell::Text(self.text.as_bytes());
        }
        match &self.cells.values {
            Values::Bool(values) => Cell::Bool(values[value]),
            Values::Int32(values) => integer(values[value].into(), 32),
            Values::Int64(values) => integer(values[value], 64),
            Values::Float(values) => Cell::F32(values[value]),
            Values::Double(values) => Cell::F64(values[value]),
            Values::Bytes(values) => bytes(values[value].data()),
            Values::FixedBytes(values) => bytes(values[value].data()),
            Values::Int96(_) => unreachable!("timestamps are text"),
        }
    }

    /// Makes the text of a value, if its type asks for one; `false` if it has none.
    fn write_text(&mut self, value: usize) -> bool {
        self.text.clear();
        let values = &self.cells.values;
        match self.column.meaning {
            Meaning::Bool | Meaning::Int | Meaning::Uint | Meaning::Float | Meaning::Text | Meaning::Binary => true,
            Meaning::Uuid => write_uuid(&mut self.text, values.bytes(value).unwrap_or_default()),
            Meaning::Decimal { scale } => {
                let unscaled = values.integer(value).map(i128::from).or_else(|| from_be_bytes(values.bytes(value)?));
                unscaled.is_some_and(|unscaled| write_decimal(&mut self.text, unscaled, scale))
            }
            Meaning::Date => {
                let days = values.integer(value).unwrap_or_default();
                let date = DateTime::<Utc>::from_timestamp(days * SECONDS_PER_DAY, 0);
                date.is_some_and(|date| write!(self.text, "{}", date.date_naive()).is_ok())
            }
            Meaning::Time(unit) => {
                let (seconds, nanos) = unit.split(values.integer(value).unwrap_or_default());
                let seconds = u32::try_from(seconds).ok();
                let time = seconds.and_then(|seconds| NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos));
                let format = match unit {
                    Unit::Millis => "%H:%M:%S%.3f",
                    Unit::Micros => "%H:%M:%S%.6f",
                    Unit::Nanos => "%H:%M:%S%.9f",
                };
                time.is_some_and(|time| write!(self.text, "{}", time.format(format)).is_ok())
            }
            Meaning::Timestamp { unit, is_utc } => {
                let (seconds, nanos) = match values {
                    Values::Int96(values) => split_96(&values[value]),
                    _ => unit.split(values.integer(value).unwrap_or_default()),
                };
                let format = match unit {
                    Unit::Millis => SecondsFormat::Millis,
                    Unit::Micros => SecondsFormat::Micros,
                    Unit::Nanos => SecondsFormat::Nanos,
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
    fn integer(&self, value: usize) -> Option<i64> {
        match self {
            Values::Int32(values) => Some(values[value].into()),
            Values::Int64(values) => Some(values[value]),
            _ => None,
        }
    }

    fn bytes(&self, value: usize) -> Option<&[u8]> {
        match self {
            Values::Bytes(values) => Some(values[value].data()),
            Values::FixedBytes(values) => Some(values[value].data()),
            _ => None,
        }
    }
}

/// A big-endian integer of two's complement, if it fits.
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

/// A timestamp of nanoseconds in a day and a day as seconds and nanoseconds since 1970.
fn split_96(timestamp: &Int96) -> (i64, u32) {
    let [low, high, day] = *timestamp.data() else { return (i64::MAX, 0) };
    let nanos = u64::from(high) << 32 | u64::from(low);
    let seconds = (i64::from(day) - JULIAN_DAY_1970) * SECONDS_PER_DAY + (nanos / 1_000_000_000) as i64;
    (seconds, (nanos % 1_000_000_000) as u32)
}
