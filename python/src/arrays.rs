//! Fills buffers with values. `lib/zero_kv/_arrays.py` makes NumPy and pyarrow arrays from the buffers.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::client::Client;
use crate::key_batch::KeyBatch;
use crate::many::{LookUpMany, Values, detached};
use crate::table::Table;
use crate::view::Memory;

/// The object whose method `get_many` was called.
#[derive(FromPyObject)]
pub(crate) enum LookUpTarget<'py> {
    Table(Bound<'py, Table>),
    Client(Bound<'py, Client>),
}

impl<'py> LookUpTarget<'py> {
    /// Looks up all keys and passes their values to `make`. Other Python threads run during the lookup and during
    /// `make`, unless there are few keys.
    fn look_up<T: Send>(
        &self,
        py: Python<'py>,
        keys: &KeyBatch<'py>,
        make: impl FnOnce(Vec<Option<&[u8]>>) -> T + Send,
    ) -> PyResult<T> {
        let make = |values: &Values<'_>| Ok(detached(py, keys.len(), || make(values.slices())));
        match self {
            LookUpTarget::Table(table) => table.get().look_up_many(py, keys, make),
            LookUpTarget::Client(client) => client.get().look_up_many(py, keys, make),
        }
    }
}

/// Looks up keys, and returns two buffers. The first contains the concatenated values, with zeros for missing keys. The
/// second contains one byte per key, which is 1 if the key was found. All values must have the length `len_bytes`.
#[pyfunction]
pub(crate) fn fill_fixed<'py>(
    py: Python<'py>,
    target: LookUpTarget<'py>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
) -> PyResult<(Memory, Memory)> {
    let keys = KeyBatch::from_object(keys)?;
    let filled = target.look_up(py, &keys, |values| {
        let mut filled = Vec::new();
        // The caller can pass any `len_bytes`. If there is too little memory, this function raises an exception instead
        // of aborting the process.
        let capacity =
            values.len().checked_mul(len_bytes).filter(|capacity| filled.try_reserve_exact(*capacity).is_ok());
        if capacity.is_none() {
            return Err(FillError::Memory(values.len()));
        }
        for (position, value) in values.iter().enumerate() {
            match value {
                Some(value) if value.len() == len_bytes => filled.extend_from_slice(value),
                Some(value) => return Err(FillError::Value(position, value.len())),
                None => filled.resize(filled.len() + len_bytes, 0),
            }
        }
        Ok((filled, values.iter().map(|value| value.is_some().into()).collect()))
    })?;
    match filled {
        Ok((filled, found)) => Ok((Memory::from_bytes(filled), Memory::from_bytes(found))),
        Err(FillError::Memory(count)) => {
            Err(PyMemoryError::new_err(format!("no memory for {count} values of {len_bytes} bytes")))
        }
        Err(FillError::Value(position, found_bytes)) => Err(PyValueError::new_err(format!(
            "the value of key {position} has {found_bytes} bytes, where the dtype has {len_bytes}"
        ))),
    }
}

/// The reason why values cannot be stored in an array of fixed-length values.
enum FillError {
    /// Not enough memory for this number of values.
    Memory(usize),
    /// The position of a key whose value has a wrong length, and the length of this value.
    Value(usize, usize),
}

/// The validity bits, offsets, and data of an Arrow array, its number of nulls, and whether its offsets have 64 bits.
type ArrowParts = (Memory, Memory, Memory, usize, bool);

/// Looks up keys, and returns the buffers of an Arrow array with their values.
///
/// The keys are the non-null elements of an Arrow array: either `numbers`, or `offsets` and `data`. If the array has
/// nulls, `valid` has one byte per element of the array, which is zero for a null. The value of a null key is null.
#[pyfunction]
#[pyo3(signature = (target, numbers, offsets, data, valid))]
pub(crate) fn fill_arrow<'py>(
    py: Python<'py>,
    target: LookUpTarget<'py>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    valid: Option<Bound<'py, PyAny>>,
) -> PyResult<ArrowParts> {
    let keys = match (numbers, offsets, data) {
        (Some(numbers), None, None) => KeyBatch::Numbers(PyBuffer::get(&numbers)?.to_vec(py)?),
        (None, Some(offsets), Some(data)) => {
            KeyBatch::Packed { offsets: PyBuffer::get(&offsets)?.to_vec(py)?, bytes: PyBuffer::get(&data)?.to_vec(py)? }
        }
        _ => return Err(PyTypeError::new_err("numbers, or offsets and data, were expected")),
    };
    let valid: Option<Vec<u8>> = valid.map(|valid| PyBuffer::get(&valid)?.to_vec(py)).transpose()?;
    if valid.as_ref().is_some_and(|valid| valid.iter().filter(|valid| **valid != 0).count() != keys.len()) {
        return Err(PyValueError::new_err("the number of nonzero bytes in valid differs from the number of keys"));
    }
    let parts = target.look_up(py, &keys, |values| match valid {
        None => arrow_parts(&values),
        Some(valid) => {
            let mut values = values.into_iter();
            let value = |valid: u8| if valid == 0 { None } else { values.next().flatten() };
            arrow_parts(&valid.into_iter().map(value).collect::<Vec<_>>())
        }
    })?;
    let (bits, offsets, data, null_count, is_large) = parts;
    let [bits, offsets, data] = [bits, offsets, data].map(Memory::from_bytes);
    Ok((bits, offsets, data, null_count, is_large))
}

fn arrow_parts(values: &[Option<&[u8]>]) -> (Vec<u8>, Vec<u8>, Vec<u8>, usize, bool) {
    let len_bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
    let is_large = i32::try_from(len_bytes).is_err();
    let mut bits = vec![0; values.len().div_ceil(8)];
    let mut data = Vec::with_capacity(len_bytes);
    let mut offsets = Vec::with_capacity((values.len() + 1) * if is_large { 8 } else { 4 });
    let mut null_count = 0;
    let mut push_offset = |end: usize| match is_large {
        true => offsets.extend_from_slice(&(end as i64).to_ne_bytes()),
        false => offsets.extend_from_slice(&(end as i32).to_ne_bytes()),
    };
    push_offset(0);
    for (position, value) in values.iter().enumerate() {
        match value {
            Some(value) => {
                bits[position / 8] |= 1 << (position % 8);
                data.extend_from_slice(value);
            }
            None => null_count += 1,
        }
        push_offset(data.len());
    }
    (bits, offsets, data, null_count, is_large)
}
