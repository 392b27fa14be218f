//! Keys: numbers are `int`, bytes are `bytes` or, in UTF-8, `str`.

use pyo3::exceptions::{PyException, PyKeyError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use zero_kv::Key;

/// The key that an object is.
pub(crate) fn key_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Key<'a>> {
    if let Ok(number) = object.cast::<PyInt>() {
        return number_of(number).map(Key::U64);
    }
    match bytes_of(object)? {
        Some(bytes) => Ok(Key::Bytes(bytes)),
        // What is an index is a number: those of NumPy are.
        None => match object.call_method0("__index__") {
            Ok(number) => number_of(&number).map(Key::U64),
            Err(error) if error.is_instance_of::<PyException>(object.py()) => Err(no_key(object)),
            Err(error) => Err(error),
        },
    }
}

/// The bytes of `bytes` or `str`.
pub(crate) fn bytes_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes()));
    }
    match object.cast::<PyString>() {
        Ok(text) => text.to_str().map(|text| Some(text.as_bytes())),
        Err(_) => Ok(None),
    }
}

/// The bytes that keys begin with.
pub(crate) fn prefix_bytes<'a>(prefix: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    bytes_of(prefix)?.ok_or_else(|| {
        let found = type_name(prefix);
        PyTypeError::new_err(format!("the prefix is of type {found}, where bytes or str was expected"))
    })
}

fn number_of(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    number.extract().map_err(|_| {
        // Python refuses to write more than some thousand digits.
        let shown = number.str().map_or_else(|_| "too large to write".to_owned(), |shown| shown.to_string());
        PyOverflowError::new_err(format!("the key is {shown}, where 0 to 18446744073709551615 was expected"))
    })
}

fn no_key(object: &Bound<'_, PyAny>) -> PyErr {
    let found = type_name(object);
    PyTypeError::new_err(format!("the key is of type {found}, where int, bytes or str was expected"))
}

pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string())
}

/// What a key is in Python: an `int` or `bytes`.
pub(crate) fn to_python<'py>(py: Python<'py>, key: Key<'_>) -> Bound<'py, PyAny> {
    match key {
        Key::U64(key) => key.into_pyobject(py).unwrap_or_else(|never| match never {}).into_any(),
        Key::Bytes(key) => PyBytes::new(py, key).into_any(),
    }
}

/// The exception of a mapping that does not have a key.
pub(crate) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}
