//! Converts between Python objects and the keys, ranges, and rows of tables.
//!
//! In: objects, and the type of a table's keys. Out: stored keys, and the objects of stored keys. The keys of tables of
//! `u64` and of `bytes` are those of `convert`. Other keys are objects of their type, or their written form as `str` or
//! `bytes`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound as End;
use std::sync::Arc;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};
use zero_kv::client::request::{Count, prefix_range};
use zero_kv::client::{ClientError, KeyRange, OwnedKey, RangeRow, Row};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyTextError, KeyType, KeyTypeError, KeyValue, PartType};

use crate::cell;
use crate::cells::micros_of_datetime;
use crate::convert::{
    any_key_from, bytes_from, index_object, is_key_len, key_from, plain_key_object, possible_key, prefix_from,
    type_name,
};
use crate::errors::{Damaged, client_exception};
use crate::typed_row::value_object;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_MICRO: i128 = 1000;

/// Parses the name of a key type.
pub(crate) fn parsed_key_type(name: &str) -> PyResult<KeyType> {
    name.parse().map_err(|error: KeyTypeError| PyValueError::new_err(format!("the key type: {error}")))
}

/// A key as a table stores it.
pub(crate) enum StoredKey<'a> {
    /// The key of an object whose memory is the stored key.
    Borrowed(Key<'a>),
    Owned(OwnedKey),
}

impl StoredKey<'_> {
    pub(crate) fn as_key(&self) -> Key<'_> {
        match self {
            StoredKey::Borrowed(key) => *key,
            StoredKey::Owned(key) => key.as_key(),
        }
    }
}

/// Which keys a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Keys that a table can have.
    Keys,
    /// Keys, and the leading parts of composite keys, which precede all keys that begin with them.
    Bounds,
}

/// Returns the key of a lookup, or `None` if the table cannot have the key. With `is_strict`, raises an exception instead.
///
/// # Errors
/// `TypeError` or `ValueError` for an object that is no key of this type, also if `is_strict` is false, unless keys are
/// `u64` or `bytes`.
#[inline]
pub(crate) fn lookup_key<'a>(
    object: &'a Bound<'_, PyAny>,
    key_type: KeyType,
    is_strict: bool,
) -> PyResult<Option<StoredKey<'a>>> {
    if !key_type.is_plain() {
        return Ok(typed_key(object, key_type, is_strict, Taken::Keys)?.map(StoredKey::Owned));
    }
    let key = if is_strict { key_from(object).map(Some) } else { possible_key(object) };
    Ok(key?.map(StoredKey::Borrowed))
}

/// Returns the key, or the leading parts of a key, that an object is.
pub(crate) fn bound_key<'a>(object: &'a Bound<'_, PyAny>, key_type: KeyType) -> PyResult<StoredKey<'a>> {
    if key_type.is_plain() {
        return key_from(object).map(StoredKey::Borrowed);
    }
    typed_key(object, key_type, true, Taken::Bounds).map(strict)
}

/// Returns the end of a range: a key, or the leading parts of a key. In a table of bytes, it can have any length.
fn range_end(object: &Bound<'_, PyAny>, key_type: KeyType) -> PyResult<OwnedKey> {
    match key_type.is_plain() {
        true => any_key_from(object).map(OwnedKey::from),
        false => Ok(bound_key(object, key_type)?.as_key().into()),
    }
}

/// Returns the range of keys from `start` up to, but not including, `end`.
pub(crate) fn range_between(
    key_type: KeyType,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<KeyRange> {
    let key = |key: Option<&Bound<'_, PyAny>>| key.map(|key| range_end(key, key_type)).transpose();
    let (start, end) = (key(start)?, key(end)?);
    let range = KeyRange::new(start.map_or(End::Unbounded, End::Included), end.map_or(End::Unbounded, End::Excluded));
    // The request checks both keys.
    Count::new(range.bounds()).map_err(|error| client_exception(&error))?;
    Ok(range)
}

/// Returns the range of the keys that start with `prefix`.
pub(crate) fn range_with_prefix(key_type: KeyType, prefix: &Bound<'_, PyAny>) -> PyResult<KeyRange> {
    prefix_range(&prefix_bytes(prefix, key_type)?).map_err(|error| client_exception(&error))
}

fn strict(key: Option<OwnedKey>) -> StoredKey<'static> {
    StoredKey::Owned(key.expect("a strict conversion returns a key or an error"))
}

/// Returns the key of a row that is baked.
pub(crate) fn baked_key<'a>(object: &'a Bound<'_, PyAny>, key_type: KeyType) -> PyResult<StoredKey<'a>> {
    match key_type.is_plain() {
        true => key_from(object).map(StoredKey::Borrowed),
        false => typed_key(object, key_type, true, Taken::Keys).map(strict),
    }
}

/// Returns the bytes with which the stored keys begin that have a prefix: bytes or text, or a tuple of leading parts.
pub(crate) fn prefix_bytes<'a>(prefix: &'a Bound<'_, PyAny>, key_type: KeyType) -> PyResult<Cow<'a, [u8]>> {
    if key_type.is_plain() {
        return prefix_from(prefix).map(Cow::Borrowed);
    }
    let is_text = prefix.is_instance_of::<PyString>() || prefix.is_instance_of::<PyBytes>();
    if key_type.is_composite() && !is_text {
        let Ok(parts) = prefix.cast::<PyTuple>() else {
            let found = type_name(prefix);
            let message =
                format!("the prefix is of type {found}, where a tuple of leading parts was expected: {key_type}");
            return Err(PyTypeError::new_err(message));
        };
        return Ok(tuple_key(parts, key_type, true)?.unwrap_or_default().into());
    }
    match (prefix.cast::<PyBytes>(), key_type.parts()) {
        (Ok(bytes), [PartType::Hex]) => Ok(bytes.as_bytes().into()),
        _ if is_text => {
            let text = bytes_from(prefix)?.unwrap_or_default();
            key_type.parse_prefix(text).map(Cow::Owned).map_err(|error| text_exception(&error))
        }
        _ => Ok(key_bytes(typed_key(prefix, key_type, true, Taken::Bounds)?).into()),
    }
}

fn key_bytes(key: Option<OwnedKey>) -> Vec<u8> {
    key.as_ref().and_then(|key| key.as_key().as_bytes()).unwrap_or_default().to_vec()
}

/// Converts an object to the key of a table whose keys are neither `u64` nor `bytes`. Without `is_strict`, returns `None`
/// for null, and for a value of the right type that no key can have, such as a number of 65 bits.
pub(crate) fn typed_key(
    object: &Bound<'_, PyAny>,
    key_type: KeyType,
    is_strict: bool,
    taken: Taken,
) -> PyResult<Option<OwnedKey>> {
    if let [part] = key_type.parts() {
        let Some(value) = value_from(object, *part, "the key", is_strict)? else { return Ok(None) };
        return possible(key_type.key([value]), is_strict);
    }
    if let Some(text) = bytes_from(object)? {
        let key = match taken {
            Taken::Keys => key_type.parse(text),
            Taken::Bounds => key_type.parse_prefix(text).map(OwnedKey::Bytes),
        };
        return possible(key, is_strict);
    }
    let Ok(parts) = object.cast::<PyTuple>() else {
        if !is_strict && is_null(object)? {
            return Ok(None);
        }
        let (found, count) = (type_name(object), key_type.parts().len());
        let hint = if found == "list" { ": call tuple(key), or get_many with many keys" } else { "" };
        return Err(PyTypeError::new_err(format!(
            "the key is of type {found}, where a tuple of {count} parts was expected, {key_type}{hint}"
        )));
    };
    let (found, count) = (parts.len(), key_type.parts().len());
    if found != count && (taken == Taken::Keys || found == 0 || found > count) {
        let expected = if taken == Taken::Keys { count.to_string() } else { format!("1 to {count}") };
        let message = format!("the key has {found} parts, where {expected} were expected: {key_type}");
        return Err(PyValueError::new_err(message));
    }
    let Some(bytes) = tuple_key(parts, key_type, is_strict)? else { return Ok(None) };
    match is_key_len(bytes.len()) {
        true => Ok(Some(OwnedKey::Bytes(bytes))),
        false => possible(Err(KeyTextError::Len { len_bytes: bytes.len() }), is_strict),
    }
}

/// Returns the stored form of leading parts.
fn tuple_key(parts: &Bound<'_, PyTuple>, key_type: KeyType, is_strict: bool) -> PyResult<Option<Vec<u8>>> {
    let objects: Vec<_> = parts.iter().collect();
    let mut values = Vec::with_capacity(objects.len());
    for (position, object) in objects.iter().enumerate() {
        let Some(part) = key_type.parts().get(position) else {
            let (found, count) = (objects.len(), key_type.parts().len());
            let message = format!("the prefix has {found} parts, where a key has {count}: {key_type}");
            return Err(PyValueError::new_err(message));
        };
        match value_from(object, *part, &format!("part {} of the key", position + 1), is_strict)? {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    let mut bytes = Vec::new();
    key_type.write_prefix(&values, &mut bytes).map_err(|error| text_exception(&error))?;
    Ok(Some(bytes))
}

/// Returns `None` for a key of a length that no key can have, unless the table is strict.
fn possible(key: Result<OwnedKey, KeyTextError>, is_strict: bool) -> PyResult<Option<OwnedKey>> {
    match key {
        Ok(key) => Ok(Some(key)),
        Err(KeyTextError::Len { .. }) if !is_strict => Ok(None),
        Err(error) => Err(text_exception(&error)),
    }
}

/// Returns the exception for a text or a value that is no key.
pub(crate) fn text_exception(error: &KeyTextError) -> PyErr {
    match error {
        KeyTextError::Len { len_bytes } => client_exception(&ClientError::KeyLen { len_bytes: *len_bytes }),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Converts an object to a value of a part. `what` names it in messages.
pub(crate) fn value_from<'a>(
    object: &'a Bound<'_, PyAny>,
    part: PartType,
    what: &str,
    is_strict: bool,
) -> PyResult<Option<KeyValue<'a>>> {
    let error = match any_value_from(object, part, what, is_strict) {
        Ok(value) => return Ok(Some(value)),
        Err(error) => error,
    };
    let is_impossible =
        || error.is_instance_of::<PyOverflowError>(object.py()) || error.is_instance_of::<PyUnicodeError>(object.py());
    match !is_strict && (is_impossible() || is_null(object)?) {
        true => Ok(None),
        false => Err(error),
    }
}

/// Raises `OverflowError` or `UnicodeError` for a value of the right type that no key can have.
fn any_value_from<'a>(
    object: &'a Bound<'_, PyAny>,
    part: PartType,
    what: &str,
    is_strict: bool,
) -> PyResult<KeyValue<'a>> {
    if let Some(text) = bytes_from(object)? {
        return written_value(text, part, object.is_instance_of::<PyBytes>());
    }
    let unexpected = || unexpected(object, part, what);
    match part {
        PartType::U64 | PartType::I64 => {
            let number = match object.is_instance_of::<PyInt>() {
                true => object.clone(),
                // A dict finds the key 1 for 1.0, too.
                false if object.is_instance_of::<PyFloat>() && !is_strict => {
                    match object.call_method0("is_integer")?.is_truthy()? {
                        true => object.call_method0("__int__")?,
                        false => return Err(PyOverflowError::new_err("the key is not a whole number")),
                    }
                }
                false => index_object(object).map_err(|_| unexpected())?,
            };
            let value = match part {
                PartType::U64 => number.extract().map(KeyValue::U64),
                _ => number.extract().map(KeyValue::I64),
            };
            value.map_err(|_| {
                let shown = number.str().map_or_else(|_| "too large to write".to_owned(), |shown| shown.to_string());
                PyOverflowError::new_err(format!("{what} is {shown}, where {} was expected", part.expected()))
            })
        }
        PartType::Ipv4 | PartType::Ip => address_from(object)?.map(KeyValue::Ip).ok_or_else(unexpected),
        PartType::Uuid => match object.is_instance(uuid_class(object.py())?)? {
            true => Ok(KeyValue::Uuid(object.getattr("bytes")?.extract()?)),
            false => Err(unexpected()),
        },
        PartType::Date | PartType::Timestamp if type_name(object) == "datetime64" => {
            let (count, nanos_per_unit) = numpy_time(object)?;
            time_value(count, nanos_per_unit, part)
        }
        // A datetime is a date, too, but would lose its time.
        PartType::Date if object.hasattr("toordinal")? && !object.hasattr("hour")? => {
            let ordinal: i64 = object.call_method0("toordinal")?.extract()?;
            Ok(KeyValue::Date((ordinal - cell::EPOCH_ORDINAL) as i32))
        }
        PartType::Timestamp if object.hasattr("tzinfo")? && object.hasattr("toordinal")? => {
            // A time with nanoseconds, which pandas has, is a time that no key can have.
            let micros =
                micros_of_datetime(object).map_err(|error| match error.is_instance_of::<PyValueError>(object.py()) {
                    true => PyOverflowError::new_err(format!("{what}: {}", error.value(object.py()))),
                    false => error,
                });
            micros.map(KeyValue::Timestamp)
        }
        PartType::Date | PartType::Timestamp | PartType::Hex | PartType::Bytes => Err(unexpected()),
    }
}

/// Parses the written form of a value. The bytes of `hex` and `bytes`, and the 16 bytes of a UUID, are the value itself.
pub(crate) fn written_value(text: &[u8], part: PartType, is_bytes: bool) -> PyResult<KeyValue<'_>> {
    match part {
        PartType::Bytes => Ok(KeyValue::Bytes(text.into())),
        PartType::Hex if is_bytes => Ok(KeyValue::Bytes(text.into())),
        PartType::Uuid if is_bytes && text.len() == 16 => {
            Ok(KeyValue::Uuid(text.try_into().expect("the length is checked")))
        }
        _ => part.parse(text).ok_or_else(|| match KeyType::of(part).parse(text) {
            Err(error) => text_exception(&error),
            Ok(_) => unreachable!("a text that no part has is no key"),
        }),
    }
}

fn unexpected(object: &Bound<'_, PyAny>, part: PartType, what: &str) -> PyErr {
    let found = type_name(object);
    let hint = match found.as_str() {
        "list" | "tuple" | "set" | "ndarray" => ": call get_many with many keys",
        "bytearray" | "memoryview" => ": convert it with bytes(key)",
        "datetime" if part == PartType::Date => ": call key.date()",
        "slice" => ": call range(start, end)",
        _ => "",
    };
    PyTypeError::new_err(format!("{what} is of type {found}, where {} was expected{hint}", part.expected()))
}

/// Returns whether an object is a missing value: `None`, `NaN`, or a missing value of pandas or NumPy.
pub(crate) fn is_null(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(match type_name(object).as_str() {
        "NoneType" | "NAType" | "NaTType" => true,
        // These are equal to themselves unless they are missing.
        "float" | "float64" | "float32" | "datetime64" => object.ne(object)?,
        _ => false,
    })
}

fn class<'py>(
    cell: &'static PyOnceLock<Py<PyType>>,
    py: Python<'py>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, module, name)
}

fn ipv4_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(&CLASS, py, "ipaddress", "IPv4Address")
}

fn ipv6_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(&CLASS, py, "ipaddress", "IPv6Address")
}

fn uuid_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    class(&CLASS, py, "uuid", "UUID")
}

/// Returns the address of an object of the module `ipaddress`.
fn address_from(object: &Bound<'_, PyAny>) -> PyResult<Option<IpAddr>> {
    let py = object.py();
    if object.is_instance(ipv4_class(py)?)? {
        let octets: [u8; 4] = object.getattr("packed")?.extract()?;
        return Ok(Some(Ipv4Addr::from(octets).into()));
    }
    if !object.is_instance(ipv6_class(py)?)? {
        return Ok(None);
    }
    if !object.getattr("scope_id")?.is_none() {
        let message = format!("the key is {object}, where an address without a zone was expected: leave %... out");
        return Err(PyValueError::new_err(message));
    }
    let octets: [u8; 16] = object.getattr("packed")?.extract()?;
    Ok(Some(Ipv6Addr::from(octets).into()))
}

/// Returns the number of units since 1970 of a scalar of NumPy, and the length of a unit.
fn numpy_time(object: &Bound<'_, PyAny>) -> PyResult<(i64, i128)> {
    let nanos = object.py().import("zero_kv._keys")?.getattr("nanos_per_unit")?;
    let nanos: i64 = nanos.call1((object.getattr("dtype")?,))?.extract()?;
    Ok((object.call_method1("astype", ("int64",))?.extract()?, nanos.into()))
}

/// Returns the date or the time of a number of units since 1970.
///
/// # Errors
/// `OverflowError` for a time that no key can have, and `ValueError` for a time where a date was expected.
pub(crate) fn time_value(count: i64, nanos_per_unit: i128, part: PartType) -> PyResult<KeyValue<'static>> {
    let nanos = i128::from(count) * nanos_per_unit;
    if count == i64::MIN {
        return Err(PyOverflowError::new_err("the key is NaT, where each key needs a value"));
    }
    if part == PartType::Date {
        let days = i32::try_from(nanos.div_euclid(NANOS_PER_DAY));
        if nanos % NANOS_PER_DAY != 0 {
            let message =
                "the key has a time of day, where a date, such as 2026-11-21 was expected: round it down to days";
            return Err(PyValueError::new_err(message));
        }
        return days.map(KeyValue::Date).map_err(|_| PyOverflowError::new_err("the key is beyond all dates"));
    }
    match i64::try_from(nanos.div_euclid(NANOS_PER_MICRO)) {
        Ok(micros) if nanos % NANOS_PER_MICRO == 0 => Ok(KeyValue::Timestamp(micros)),
        _ => Err(PyOverflowError::new_err("the key is not a whole number of microseconds of 64 bits")),
    }
}

/// Returns a stored key as an object: see the table in `README.md`.
pub(crate) fn key_object<'py>(py: Python<'py>, key_type: KeyType, key: Key<'_>) -> PyResult<Bound<'py, PyAny>> {
    if key_type.is_plain() {
        return Ok(plain_key_object(py, key));
    }
    let Some(values) = key_type.values(key) else {
        return Err(Damaged::new_err(format!(
            "a key of the table is not of the type {key_type}: bake the table again"
        )));
    };
    match &values[..] {
        [value] => part_object(py, value),
        values => {
            let objects = values.iter().map(|value| part_object(py, value)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, objects)?.into_any())
        }
    }
}

fn part_object<'py>(py: Python<'py>, value: &KeyValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        KeyValue::U64(number) => Ok(number.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any()),
        KeyValue::I64(number) => Ok(number.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any()),
        KeyValue::Ip(IpAddr::V4(address)) => ipv4_class(py)?.call1((address.to_bits(),)),
        KeyValue::Ip(IpAddr::V6(address)) => ipv6_class(py)?.call1((PyBytes::new(py, &address.octets()),)),
        KeyValue::Uuid(bytes) => {
            let keywords = PyDict::new(py);
            keywords.set_item("bytes", PyBytes::new(py, bytes))?;
            uuid_class(py)?.call((), Some(&keywords))
        }
        KeyValue::Date(days) => cell::date_object(py, *days),
        KeyValue::Timestamp(micros) => cell::naive_time_object(py, *micros),
        KeyValue::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
    }
}

/// Returns a key and its value as a tuple. `schema` is the schema of a typed table.
pub(crate) fn row_tuple<'py>(
    py: Python<'py>,
    key_type: KeyType,
    schema: Option<&Arc<Schema>>,
    key: Key<'_>,
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    (key_object(py, key_type, key)?, value_object(py, schema, value)?).into_pyobject(py)
}

/// Converts a range to a tuple of its first key, its last key, and its value.
pub(crate) fn range_tuple<'py>(
    py: Python<'py>,
    key_type: KeyType,
    schema: Option<&Arc<Schema>>,
    (start, end, value): (Key<'_>, Key<'_>, &[u8]),
) -> PyResult<Bound<'py, PyTuple>> {
    let (start, end) = (key_object(py, key_type, start)?, key_object(py, key_type, end)?);
    (start, end, value_object(py, schema, value)?).into_pyobject(py)
}

/// Converts a range to a tuple. Returns `None` if there is no range.
pub(crate) fn optional_range<'py>(
    py: Python<'py>,
    key_type: KeyType,
    schema: Option<&Arc<Schema>>,
    range: Option<RangeRow>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let tuple =
        |(first, last, value): RangeRow| range_tuple(py, key_type, schema, (first.as_key(), last.as_key(), &value));
    range.map(tuple).transpose()
}

/// Converts a row to a tuple. Returns `None` if there is no row.
pub(crate) fn optional_row<'py>(
    py: Python<'py>,
    key_type: KeyType,
    schema: Option<&Arc<Schema>>,
    row: Option<Row>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    row.map(|(key, value)| row_tuple(py, key_type, schema, key.as_key(), &value)).transpose()
}
