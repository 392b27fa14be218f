//! Converts between Python objects and the library's numbers, bytes, and facts about a server.

use std::ops::Bound as End;

use pyo3::exceptions::{PyException, PyKeyError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyMemoryView, PySlice, PyString};
use zero_kv::client::{ClientError, Info, KeyRange};
use zero_kv::protocol::native::KEY_LEN_MAX_BYTES;
use zero_kv::{Key, KeyKind};

use crate::errors::client_exception;

/// Converts an `int`, `bytes`, or `str` object to a key that a table can have. A `str` is encoded as UTF-8.
pub(crate) fn key_from<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Key<'a>> {
    checked_key(any_key_from(object)?)
}

/// Raises `ValueError` for bytes of a length that no key can have.
pub(crate) fn checked_key(key: Key<'_>) -> PyResult<Key<'_>> {
    match key {
        Key::Bytes(bytes) if !is_key_len(bytes.len()) => {
            Err(client_exception(&ClientError::KeyLen { len_bytes: bytes.len() }))
        }
        _ => Ok(key),
    }
}

/// Converts an `int`, or `bytes` or `str` of any length.
pub(crate) fn any_key_from<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Key<'a>> {
    if let Ok(number) = object.cast::<PyInt>() {
        return number_from(number).map(Key::U64);
    }
    match bytes_from(object)? {
        Some(bytes) => Ok(Key::Bytes(bytes)),
        // Objects with `__index__` are numbers, for example NumPy's integers.
        None => match index_object(object) {
            Ok(number) => number_from(&number).map(Key::U64),
            Err(error) if error.is_instance_of::<PyException>(object.py()) => Err(not_a_key(object)),
            Err(error) => Err(error),
        },
    }
}

/// Converts an object to a key, as a `dict` would find it: a `float` that is a whole number equals the `int`. Returns
/// `None` for an object that no table can have as a key, such as a negative number or `None`.
///
/// # Errors
/// `TypeError` for an object that a `dict` rejects, such as a list, because the caller probably passed the wrong object.
pub(crate) fn possible_key<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<Key<'a>>> {
    if object.is_instance_of::<PyInt>() {
        return Ok(object.extract().ok().map(Key::U64));
    }
    if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyString>() {
        // Text with lone surrogates is not valid UTF-8.
        let bytes = bytes_from(object).ok().flatten();
        return Ok(bytes.filter(|bytes| is_key_len(bytes.len())).map(Key::Bytes));
    }
    let is_missing = |error: PyErr| match error.is_instance_of::<PyException>(object.py()) {
        true => Ok(None),
        false => Err(error),
    };
    if object.is_instance_of::<PyFloat>() {
        let is_whole = object.call_method0("is_integer")?.is_truthy()?;
        return Ok(if is_whole { object.call_method0("__int__")?.extract().ok().map(Key::U64) } else { None });
    }
    // Since Python 3.12, a slice can be a key of a dict.
    let is_slice = object.is_instance_of::<PySlice>();
    if is_slice || object.is_instance_of::<PyMemoryView>() || object.hash().is_err() {
        return Err(not_a_key(object));
    }
    match index_object(object) {
        Ok(number) => Ok(number.extract().ok().map(Key::U64)),
        Err(error) => is_missing(error),
    }
}

/// Returns the number that an object is. The Booleans of NumPy are numbers as those of Python are, but have no
/// `__index__`.
pub(crate) fn index_object<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let number = object.call_method0("__index__");
    if number.is_ok() {
        return number;
    }
    let class = object.get_type();
    let is_boolean = class.name()?.to_str()?.starts_with("bool") && class.module()? == "numpy";
    if is_boolean { object.call_method0("__int__") } else { number }
}

/// Returns whether keys can have this length.
pub(crate) fn is_key_len(len_bytes: usize) -> bool {
    (1..=KEY_LEN_MAX_BYTES).contains(&len_bytes)
}

/// Returns the bytes of a `bytes` or `str` object, and `None` for other types.
pub(crate) fn bytes_from<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes()));
    }
    match object.cast::<PyString>() {
        Ok(text) => text.to_str().map(|text| Some(text.as_bytes())),
        Err(_) => Ok(None),
    }
}

/// Converts a `bytes` or `str` object to a prefix of keys.
pub(crate) fn prefix_from<'a>(prefix: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    bytes_from(prefix)?.ok_or_else(|| {
        let found = type_name(prefix);
        PyTypeError::new_err(format!("the prefix is of type {found}, where bytes or str was expected"))
    })
}

/// Returns the kind of the keys at the ends of a range, or `None` if both ends are unbounded.
pub(crate) fn range_kind(range: &KeyRange) -> Option<KeyKind> {
    let (start, end) = range.bounds();
    [start, end].into_iter().find_map(|end| match end {
        End::Included(key) | End::Excluded(key) => Some(key.kind()),
        End::Unbounded => None,
    })
}

fn number_from(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    number.extract().map_err(|_| {
        // Python does not convert numbers of more than a few thousand digits to text.
        let shown = number.str().map_or_else(|_| "too large to write".to_owned(), |shown| shown.to_string());
        PyOverflowError::new_err(format!("the key is {shown}, where 0 to 18446744073709551615 was expected"))
    })
}

fn not_a_key(object: &Bound<'_, PyAny>) -> PyErr {
    let found = type_name(object);
    let hint = match found.as_str() {
        "list" | "tuple" | "set" | "ndarray" => ": call get_many with many keys",
        "bytearray" | "memoryview" => ": convert it with bytes(key)",
        "float" | "float32" | "float64" => ": convert it with int(key)",
        "slice" => ": call range(start, end)",
        "NoneType" | "NAType" | "NaTType" => {
            ": leave it out, or pass many keys as a pyarrow array or a pandas Series, in which a null key has no row"
        }
        _ => "",
    };
    PyTypeError::new_err(format!("the key is of type {found}, where int, bytes or str was expected{hint}"))
}

pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string())
}

/// Returns a key of a table of `u64` or `bytes` as an `int` or `bytes`.
pub(crate) fn plain_key_object<'py>(py: Python<'py>, key: Key<'_>) -> Bound<'py, PyAny> {
    match key {
        Key::U64(key) => key.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any(),
        Key::Bytes(key) => PyBytes::new(py, key).into_any(),
    }
}

/// The facts about a server whose values are text even if they look like numbers.
const TEXT_FACTS: [&str; 31] = [
    "batch_requests_buckets",
    "cluster_file_slots",
    "cluster_file_slots_digits",
    "cluster_node",
    "cluster_slots",
    "cluster_slots_lacking",
    "cluster_topology_refused",
    "digest",
    "file",
    "file_refused",
    "keys",
    "memory",
    "published_error",
    "published_name_problem",
    "published_node",
    "published_slots",
    "published_url",
    "reload_last",
    "service_ns_buckets",
    "socket",
    "state",
    "tcp",
    "thread_problems",
    "tls",
    "tls_refused",
    "user",
    "users",
    "users_refused",
    "verify",
    "version",
    "writers_detected",
];

/// Returns facts about a server as a dict of names and values. Numbers are `int` or `float`, `direct` is `bool`, and
/// other values are `str`.
pub(crate) fn info_dict<'py>(py: Python<'py>, info: &Info) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    for (name, value) in info.iter() {
        if name == "direct" {
            facts.set_item(name, value == "yes")?;
        } else if TEXT_FACTS.contains(&name) {
            facts.set_item(name, value)?;
        } else if name == "published_poll_s" || name.starts_with("service_us_") {
            facts.set_item(name, value.parse::<f64>().ok())?;
        } else if let Ok(number) = value.parse::<u64>() {
            facts.set_item(name, number)?;
        } else {
            facts.set_item(name, value)?;
        }
    }
    Ok(facts)
}

pub(crate) fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::U64 => "u64",
        KeyKind::Bytes => "bytes",
    }
}

/// Returns the `KeyError` for a key that a mapping does not have.
pub(crate) fn missing_key(key: &Bound<'_, PyAny>) -> PyErr {
    // A tuple or `None` would otherwise become the arguments of the exception.
    PyKeyError::new_err((key.clone().unbind(),))
}
