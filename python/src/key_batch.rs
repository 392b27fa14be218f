//! Many keys of one kind.
//!
//! In: a list, another iterable, a NumPy array, or the buffers of an Arrow array. Out: slices of keys. The keys are
//! copied, or referenced if they are immutable objects, so that other Python threads cannot change them during a
//! lookup.

use std::fmt::Display;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};
use zero_kv::Key;
use zero_kv::client::OwnedKey;

use crate::convert::{key_from, type_name};
use crate::errors::KeyKind;

/// Many keys of one kind.
pub(crate) enum KeyBatch<'py> {
    Numbers(Vec<u64>),
    /// `bytes` and `str` objects.
    Objects(Vec<Bound<'py, PyAny>>),
    /// Concatenated keys, and the offsets of their boundaries. `bytes` begins at the first offset, which may be greater
    /// than 0.
    Packed {
        bytes: Vec<u8>,
        offsets: Vec<i64>,
    },
}

impl<'py> KeyBatch<'py> {
    pub(crate) fn from_object(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = keys.cast::<PyList>() {
            return Self::from_objects(list.iter());
        }
        if let Ok(tuple) = keys.cast::<PyTuple>() {
            return Self::from_objects(tuple.iter());
        }
        if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyByteArray>()
        {
            let found = type_name(keys);
            return Err(PyTypeError::new_err(format!("keys are of type {found}, where many keys were expected")));
        }
        if let Ok(numbers) = PyBuffer::<u64>::get(keys)
            && is_native_endian(&numbers)
        {
            return Ok(KeyBatch::Numbers(copy_buffer(&numbers, keys)?));
        }
        let narrower =
            [numbers_from::<i64>, numbers_from::<u32>, numbers_from::<i32>, numbers_from::<u16>, numbers_from::<i16>];
        if let Some(numbers) = narrower.iter().find_map(|numbers_from| numbers_from(keys)) {
            return numbers.map(KeyBatch::Numbers);
        }
        let objects: Vec<Bound<'py, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        Self::from_objects(objects.into_iter())
    }

    fn from_objects(objects: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> PyResult<Self> {
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        let count = objects.len();
        for (position, object) in objects.enumerate() {
            match key_from(&object)? {
                Key::U64(number) => {
                    numbers.reserve(count - position);
                    numbers.push(number);
                }
                Key::Bytes(_) => {
                    others.reserve(count - position);
                    others.push(object);
                }
            }
            if !numbers.is_empty() && !others.is_empty() {
                let message = format!(
                    "key {position} is of another kind than the keys before it: use numbers or bytes, not both"
                );
                return Err(KeyKind::new_err(message));
            }
        }
        Ok(if others.is_empty() { KeyBatch::Numbers(numbers) } else { KeyBatch::Objects(others) })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            KeyBatch::Numbers(numbers) => numbers.len(),
            KeyBatch::Objects(objects) => objects.len(),
            KeyBatch::Packed { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// Returns the keys if they are bytes, otherwise an empty list.
    pub(crate) fn slices(&self) -> PyResult<Vec<&[u8]>> {
        match self {
            KeyBatch::Numbers(_) => Ok(Vec::new()),
            KeyBatch::Objects(objects) => objects.iter().map(slice_from).collect(),
            KeyBatch::Packed { bytes, offsets } => {
                let first = offsets.first().copied().unwrap_or_default();
                let index = |offset: i64| usize::try_from(offset.checked_sub(first)?).ok();
                let slice = |ends: &[i64]| match ends {
                    [start, end] => bytes.get(index(*start)?..index(*end)?),
                    _ => None,
                };
                let slices = offsets.windows(2).map(slice).collect::<Option<Vec<&[u8]>>>();
                slices.ok_or_else(|| PyValueError::new_err("the keys' offsets are beyond the end of their data"))
            }
        }
    }

    /// Returns copies of the keys.
    pub(crate) fn owned(&self) -> PyResult<Vec<OwnedKey>> {
        Ok(match self {
            KeyBatch::Numbers(numbers) => numbers.iter().copied().map(OwnedKey::U64).collect(),
            _ => self.slices()?.into_iter().map(|key| OwnedKey::Bytes(key.to_vec())).collect(),
        })
    }
}

fn slice_from<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    Ok(key_from(object)?.as_bytes().unwrap_or_default())
}

/// Returns whether the numbers of a buffer have the machine's byte order. The element type `T` does not imply the byte
/// order.
fn is_native_endian<T: Element>(buffer: &PyBuffer<T>) -> bool {
    !matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'))
}

/// Returns the numbers of a buffer with elements of type `T`, and `None` for other objects.
fn numbers_from<T>(keys: &Bound<'_, PyAny>) -> Option<PyResult<Vec<u64>>>
where
    T: Element + Display + TryInto<u64>,
{
    let numbers = PyBuffer::<T>::get(keys).ok().filter(is_native_endian)?;
    Some(copy_buffer(&numbers, keys).and_then(|numbers| {
        let number = |(position, number): (usize, T)| {
            number.try_into().map_err(|_| {
                let expected = "0 to 18446744073709551615";
                PyOverflowError::new_err(format!("key {position} is {number}, where {expected} was expected"))
            })
        };
        numbers.into_iter().enumerate().map(number).collect()
    }))
}

fn copy_buffer<T: Element>(buffer: &PyBuffer<T>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    match buffer.dimensions() {
        1 => buffer.to_vec(keys.py()),
        found => Err(PyValueError::new_err(format!("keys have {found} dimensions, where 1 was expected"))),
    }
}
