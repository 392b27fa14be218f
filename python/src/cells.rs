//! Converts Python objects to the cells of typed tables.
//!
//! In: the objects of one row. Out: the encoded row. Objects of other types, and values that a column's type does not
//! have, raise exceptions that name the column.

use std::sync::Arc;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use zero_kv::for_each_number;
use zero_kv::typed::{
    Column, ColumnType, ElementType, List, RowEncoder, Schema, TextList, TextParser, TimeUnit, Value,
};
use zerocopy::{Immutable, IntoBytes};

use crate::array_nulls::check_unmasked;
use crate::cell::{EPOCH_ORDINAL, epoch, naive};
use crate::convert::type_name;
use crate::errors::BakeFailed;

/// Encodes the rows of a typed table.
pub(crate) struct CellRows {
    schema: Arc<Schema>,
    encoder: RowEncoder<Arc<Schema>>,
}

/// A cell that owns the encoding of a list, and otherwise refers to a Python object.
enum Cell<'o> {
    Value(Value<'o>),
    List(ElementType, Vec<u8>),
    TextList(Vec<u8>),
}

/// Parses columns from pairs of name and type.
pub(crate) fn columns_from(types: Vec<(String, String)>) -> PyResult<Vec<Column>> {
    let column = |(name, text): (String, String)| {
        let (column_type, is_nullable) = match text.strip_suffix('?') {
            Some(column_type) => (column_type, true),
            None => (&*text, false),
        };
        let column_type =
            column_type.parse().map_err(|error| PyValueError::new_err(format!("the column {name:?}: {error}")))?;
        Ok(Column { name, column_type, is_nullable })
    };
    types.into_iter().map(column).collect()
}

impl CellRows {
    pub(crate) fn new(columns: &[Column]) -> PyResult<CellRows> {
        let schema = Schema::new("", columns.to_vec()).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let schema = Arc::new(schema);
        Ok(CellRows { encoder: RowEncoder::new(Arc::clone(&schema)), schema })
    }

    /// Encodes a row: a tuple or list with one object for each column, or a mapping from names of columns to objects.
    /// Columns that a mapping lacks are null.
    pub(crate) fn encode(&mut self, row: &Bound<'_, PyAny>) -> PyResult<&[u8]> {
        let CellRows { schema, encoder } = self;
        let objects = objects_of(row, schema)?;
        let cells = schema.columns().iter().zip(&objects).map(|(column, object)| {
            cell_from(object, column.column_type).or_else(|error| match is_missing(object) {
                true => Ok(Cell::Value(Value::Null)),
                false => Err(in_column(row.py(), column, error)),
            })
        });
        let mut cells = cells.collect::<PyResult<Vec<Cell<'_>>>>()?;
        // Objects without a column, which the encoder counts.
        cells.extend((cells.len()..objects.len()).map(|_| Cell::Value(Value::Null)));
        let values: Vec<Value<'_>> = cells.iter().map(Cell::value).collect();
        encoder.encode(&values).map_err(|error| BakeFailed::new_err(error.to_string()))
    }
}

/// Returns the objects of a row, in the order of the columns.
fn objects_of<'py>(row: &Bound<'py, PyAny>, schema: &Schema) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (py, columns) = (row.py(), schema.columns());
    if let Ok(tuple) = row.cast::<PyTuple>() {
        return Ok(tuple.iter().collect());
    }
    if let Ok(list) = row.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    let (mut objects, mut found) = (Vec::with_capacity(columns.len()), 0);
    let mut push = |object: Option<Bound<'py, PyAny>>| {
        found += usize::from(object.is_some());
        objects.push(object.unwrap_or_else(|| py.None().into_bound(py)));
    };
    let len = if let Ok(dict) = row.cast::<PyDict>() {
        for column in columns {
            push(dict.get_item(&column.name)?);
        }
        dict.len()
    } else if let Ok(mapping) = row.cast::<PyMapping>() {
        for column in columns {
            push(mapping.contains(&column.name)?.then(|| mapping.get_item(&column.name)).transpose()?);
        }
        mapping.len()?
    } else {
        let found = type_name(row);
        let message = format!("the value is of type {found}, where a mapping or a tuple of columns was expected");
        return Err(PyTypeError::new_err(message));
    };
    if found < len {
        return Err(undeclared(row, schema)?);
    }
    Ok(objects)
}

/// Returns the exception for a mapping with a name that is not the name of a column.
fn undeclared(row: &Bound<'_, PyAny>, schema: &Schema) -> PyResult<PyErr> {
    for name in row.try_iter()? {
        let name = name?;
        if !name.extract::<&str>().is_ok_and(|name| schema.position(name).is_some()) {
            let name = name.repr()?;
            let message = format!("the row has the column {name}, which the table does not have: declare its type");
            return Ok(BakeFailed::new_err(message));
        }
    }
    Ok(BakeFailed::new_err("the row has more items than columns"))
}

/// Returns whether an object is `pandas.NA` or `pandas.NaT`.
fn is_missing(object: &Bound<'_, PyAny>) -> bool {
    matches!(&*type_name(object), "NAType" | "NaTType")
}

fn in_column(py: Python<'_>, column: &Column, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let message = format!("column {:?} is {}: {}", column.name, column.column_type, error.value(py));
    let named = if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(format!("{message}: convert the value, or declare another type with types"))
    } else {
        BakeFailed::new_err(message)
    };
    named.set_cause(py, Some(error));
    named
}

impl Cell<'_> {
    fn value(&self) -> Value<'_> {
        match self {
            Cell::Value(value) => *value,
            Cell::List(element, bytes) => {
                Value::List(List::new(*element, bytes).expect("the bytes are whole elements"))
            }
            Cell::TextList(bytes) => Value::TextList(TextList::from_bytes(bytes).expect("encoded texts")),
        }
    }
}

fn cell_from<'o>(object: &'o Bound<'_, PyAny>, column_type: ColumnType) -> PyResult<Cell<'o>> {
    match column_type {
        _ if object.is_none() => Ok(Cell::Value(Value::Null)),
        ColumnType::Text => match object.cast::<PyString>() {
            Ok(text) => Ok(Cell::Value(Value::Text(text.to_str()?))),
            Err(_) => Err(unexpected(object, "str")),
        },
        ColumnType::Bytes => match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Cell::Value(Value::Bytes(bytes.as_bytes()))),
            Err(_) => Err(unexpected(object, "bytes")),
        },
        ColumnType::List { element, .. } => Ok(Cell::List(element, elements_from(object, element)?)),
        ColumnType::TextList => texts_from(object).map(Cell::TextList),
        scalar => scalar_from(object, scalar).map(Cell::Value),
    }
}

fn unexpected(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let found = type_name(object);
    PyTypeError::new_err(format!("the value is of type {found}, where {expected} was expected"))
}

/// Converts an object to a value that is neither text, nor bytes, nor a list.
fn scalar_from(object: &Bound<'_, PyAny>, column_type: ColumnType) -> PyResult<Value<'static>> {
    macro_rules! from_object {
        (@number F32 $number:ident) => { f32_from(object.extract()?).map(Value::F32) };
        (@number $value:ident $number:ident) => { Ok(Value::$value(object.extract::<$number>()?.into())) };
        ([] $($variant:ident $number:ident $value:ident),*) => {
            match column_type {
                ColumnType::Bool => Ok(Value::Bool(object.extract()?)),
                $(ColumnType::$variant => from_object!(@number $value $number),)*
                ColumnType::Date => date_from(object).map(Value::Date),
                ColumnType::Timestamp(unit) => Ok(Value::Timestamp(timestamp_from(object, unit)?, unit)),
                ColumnType::Decimal { .. } => decimal_from(object, column_type),
                ColumnType::Text | ColumnType::Bytes | ColumnType::List { .. } | ColumnType::TextList => {
                    unreachable!("these types borrow from the object")
                }
            }
        };
    }
    for_each_number!(from_object)
}

/// Rounds a float to 32 bits.
fn f32_from(value: f64) -> PyResult<f32> {
    let rounded = value as f32;
    if rounded.is_infinite() && value.is_finite() {
        return Err(PyValueError::new_err(format!("{value:e} is too large for 32 bits")));
    }
    Ok(rounded)
}

/// Parses the text of a date, a timestamp, or a decimal.
fn parsed(text: &str, column_type: ColumnType) -> PyResult<Value<'static>> {
    let mut parser = TextParser::default();
    let fault = |expected| PyValueError::new_err(format!("the value is {text:?}, where {expected} was expected"));
    match parser.parse(column_type, text.as_bytes()).map_err(|error| fault(error.0))? {
        Value::Date(days) => Ok(Value::Date(days)),
        Value::Timestamp(units, unit) => Ok(Value::Timestamp(units, unit)),
        Value::Decimal { unscaled, scale } => Ok(Value::Decimal { unscaled, scale }),
        _ => Err(fault("a date, a time, or a decimal")),
    }
}

/// Converts a `datetime.date`, a number of days since 1970-01-01, or text.
fn date_from(object: &Bound<'_, PyAny>) -> PyResult<i32> {
    if let Ok(text) = object.cast::<PyString>() {
        return match parsed(text.to_str()?, ColumnType::Date)? {
            Value::Date(days) => Ok(days),
            _ => unreachable!("the text of a date is a date"),
        };
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract();
    }
    // A datetime is a date, too, but would lose its time.
    if object.hasattr("hour")? || !object.hasattr("toordinal")? {
        return Err(unexpected(object, "datetime.date, an int of days since 1970-01-01, or str"));
    }
    let ordinal: i64 = object.call_method0("toordinal")?.extract()?;
    Ok((ordinal - EPOCH_ORDINAL) as i32)
}

/// Converts a `datetime.datetime`, a number of units since 1970-01-01T00:00:00Z, or text. A `datetime` without a time
/// zone is in UTC.
fn timestamp_from(object: &Bound<'_, PyAny>, unit: TimeUnit) -> PyResult<i64> {
    if let Ok(text) = object.cast::<PyString>() {
        return match parsed(text.to_str()?, ColumnType::Timestamp(unit))? {
            Value::Timestamp(units, _) => Ok(units),
            _ => unreachable!("the text of a timestamp is a timestamp"),
        };
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract();
    }
    if !object.hasattr("tzinfo")? || !object.hasattr("toordinal")? {
        return Err(unexpected(object, "datetime.datetime, an int of units since 1970-01-01, or str"));
    }
    units_of_datetime(object, unit)
}

/// Returns the microseconds since 1970-01-01T00:00:00Z of a `datetime.datetime`, or of a time of pandas.
pub(crate) fn micros_of_datetime(datetime: &Bound<'_, PyAny>) -> PyResult<i64> {
    units_of_datetime(datetime, TimeUnit::Micros)
}

fn units_of_datetime(object: &Bound<'_, PyAny>, unit: TimeUnit) -> PyResult<i64> {
    let epoch = epoch(object.py())?;
    let since = match object.getattr("tzinfo")?.is_none() {
        true => object.sub(naive(epoch)?)?,
        false => object.sub(epoch)?,
    };
    let part = |name: &str| -> PyResult<i128> { since.getattr(name)?.extract::<i64>().map(i128::from) };
    // A pandas.Timestamp has nanoseconds.
    let nanos = if since.hasattr("nanoseconds")? { part("nanoseconds")? } else { 0 };
    let seconds = part("days")? * 86_400 + part("seconds")?;
    let total_nanos = seconds * 1_000_000_000 + part("microseconds")? * 1000 + nanos;
    let nanos_per_unit = i128::from(1_000_000_000 / unit.per_second());
    match i64::try_from(total_nanos / nanos_per_unit) {
        Ok(units) if total_nanos % nanos_per_unit == 0 => Ok(units),
        _ => {
            let shown = object.str()?;
            Err(PyValueError::new_err(format!("{shown} is not a whole number of {unit} of 64 bits")))
        }
    }
}

/// Converts a `decimal.Decimal`, an `int`, or text.
fn decimal_from(object: &Bound<'_, PyAny>, column_type: ColumnType) -> PyResult<Value<'static>> {
    if let Ok(text) = object.cast::<PyString>() {
        return parsed(text.to_str()?, column_type);
    }
    if object.is_instance_of::<PyFloat>() || !(object.is_instance_of::<PyInt>() || object.hasattr("as_tuple")?) {
        return Err(unexpected(object, "decimal.Decimal, int, or str"));
    }
    let text = match object.is_instance_of::<PyInt>() {
        true => object.str()?,
        // The format f has no exponent.
        false => object.call_method1("__format__", ("f",))?.cast_into()?,
    };
    parsed(text.to_str()?, column_type)
}

/// Returns the encoded texts of a list, or of another iterable of `str`.
fn texts_from(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(unexpected(object, "a list of str"));
    }
    let mut texts: Vec<Bound<'_, PyString>> = Vec::new();
    for item in object.try_iter()? {
        let item = item?;
        match item.cast::<PyString>() {
            Ok(text) => texts.push(text.clone()),
            Err(_) => return Err(unexpected(&item, "str in the list")),
        }
    }
    let texts = texts.iter().map(|text| text.to_str()).collect::<PyResult<Vec<_>>>()?;
    let mut bytes = Vec::new();
    TextList::encode(texts, &mut bytes);
    Ok(bytes)
}

/// Returns the encoded elements of a list, of another iterable, or of a one-dimensional array. Dates and timestamps in
/// an array are integers.
fn elements_from(object: &Bound<'_, PyAny>, element: ElementType) -> PyResult<Vec<u8>> {
    fn array<T: Element + IntoBytes + Immutable>(object: &Bound<'_, PyAny>) -> Option<PyResult<Vec<u8>>> {
        let buffer = PyBuffer::<T>::get(object).ok().filter(|buffer| buffer.dimensions() == 1)?;
        let is_native = !matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'));
        is_native.then(|| Ok(buffer.to_vec(object.py())?.as_bytes().to_vec()))
    }
    check_unmasked(object)?;
    let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    macro_rules! copied {
        ([] $($variant:ident $number:ident $value:ident),*) => {
            match element.column_type().stored_as() {
                _ if is_list => None,
                $(ColumnType::$variant => array::<$number>(object),)*
                _ => unreachable!("the elements of a list are numbers"),
            }
        };
    }
    let copied = for_each_number!(copied);
    if let Some(copied) = copied {
        return copied;
    }
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(unexpected(object, "a list"));
    }
    let mut bytes = Vec::new();
    for item in object.try_iter()? {
        let value = scalar_from(&item?, element.column_type())?;
        let encoded = match value {
            Value::Int(value) | Value::Timestamp(value, _) => value as u64,
            Value::Uint(value) => value,
            Value::Date(days) => i64::from(days) as u64,
            Value::F32(value) => value.to_bits().into(),
            Value::F64(value) => value.to_bits(),
            _ => unreachable!("lists have no elements of other types"),
        };
        bytes.extend_from_slice(&encoded.to_le_bytes()[..element.len_bytes()]);
    }
    Ok(bytes)
}
