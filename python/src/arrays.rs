//! Fills buffers with values. `lib/zero_kv/_arrays.py` makes NumPy and pyarrow arrays from the buffers.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::KeyKind;
use crate::key_batch::{KeyBatch, PossibleKeys};
use crate::lookup_table::LookupTable;
use crate::many::detached;
use crate::neighbors::{Neighbor, RowKeys};
use crate::view::Memory;

/// Looks up all keys and passes their values to `make`. Other Python threads run during the lookup and during `make`,
/// unless there are few keys.
fn look_up<T: Send>(
    table: &Bound<'_, LookupTable>,
    keys: &PossibleKeys<'_>,
    make: impl FnOnce(Vec<Option<&[u8]>>) -> T + Send,
) -> PyResult<T> {
    let py = table.py();
    table.get().look_up_many(py, keys, false, |values, _| Ok(detached(py, keys.len(), || make(values.slices()))))
}

/// Looks up keys, and returns two buffers. The first contains the concatenated values, with zeros for missing keys. The
/// second contains one byte per key, which is 1 if the key was found. All values must have the length `len_bytes`.
#[pyfunction]
pub(crate) fn fill_fixed<'py>(
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
) -> PyResult<(Memory, Memory)> {
    let keys = table.get().possible_keys(keys)?;
    let (filled, found) = look_up(table, &keys, |values| fixed_array(&values, len_bytes))??;
    Ok((Memory::from_bytes(filled), Memory::from_bytes(found)))
}

/// Concatenates values of `len_bytes` bytes, with zeros for missing values. Also returns one byte per value, which is 1
/// if the value is not missing.
fn fixed_array(values: &[Option<&[u8]>], len_bytes: usize) -> PyResult<(Vec<u8>, Vec<u8>)> {
    let mut filled = Vec::new();
    // The caller can pass any `len_bytes`. If there is too little memory, this function returns an error instead of
    // aborting the process.
    let capacity = values.len().checked_mul(len_bytes).filter(|capacity| filled.try_reserve_exact(*capacity).is_ok());
    if capacity.is_none() {
        return Err(PyMemoryError::new_err(format!("no memory for {} values of {len_bytes} bytes", values.len())));
    }
    for (position, value) in values.iter().enumerate() {
        match value {
            Some(value) if value.len() == len_bytes => filled.extend_from_slice(value),
            Some(value) => {
                return Err(PyValueError::new_err(format!(
                    "the value of key {position} has {} bytes, where the dtype has {len_bytes}",
                    value.len()
                )));
            }
            None => filled.resize(filled.len() + len_bytes, 0),
        }
    }
    Ok((filled, values.iter().map(|value| value.is_some().into()).collect()))
}

/// The validity bits, offsets, and data of an Arrow array, its number of nulls, and whether its offsets have 64 bits.
type ArrowParts = (Memory, Memory, Memory, usize, bool);

/// Looks up keys, and returns the buffers of an Arrow array with their values.
///
/// The keys are the non-null elements of an Arrow array: either `numbers`, or `offsets` and `data`. If the array has
/// nulls, `valid` has one byte per element of the array, which is zero for a null. The value of a null key is null.
#[pyfunction]
#[pyo3(signature = (table, numbers, offsets, data, valid))]
pub(crate) fn fill_arrow<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    valid: Option<Bound<'py, PyAny>>,
) -> PyResult<ArrowParts> {
    let keys = arrow_keys(py, numbers, offsets, data)?;
    let valid: Option<Vec<u8>> = valid.map(|valid| PyBuffer::get(&valid)?.to_vec(py)).transpose()?;
    if valid.as_ref().is_some_and(|valid| valid.iter().filter(|valid| **valid != 0).count() != keys.len()) {
        return Err(PyValueError::new_err("the number of nonzero bytes in valid differs from the number of keys"));
    }
    let keys = match table.get().is_strict {
        true => PossibleKeys::from(keys.checked()?),
        false => PossibleKeys::from_batch(keys)?,
    };
    let array = look_up(table, &keys, |values| match valid {
        None => arrow_array(&values),
        Some(valid) => {
            let mut values = values.into_iter();
            let value = |valid: u8| if valid == 0 { None } else { values.next().flatten() };
            arrow_array(&valid.into_iter().map(value).collect::<Vec<_>>())
        }
    })?;
    Ok(array.into())
}

/// Copies the keys of an Arrow array: either `numbers`, or `offsets` and `data`.
pub(crate) fn arrow_keys<'py>(
    py: Python<'py>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
) -> PyResult<KeyBatch<'py>> {
    match (numbers, offsets, data) {
        (Some(numbers), None, None) => Ok(KeyBatch::Numbers(PyBuffer::get(&numbers)?.to_vec(py)?)),
        (None, Some(offsets), Some(data)) => {
            let (offsets, bytes) = (PyBuffer::get(&offsets)?.to_vec(py)?, PyBuffer::get(&data)?.to_vec(py)?);
            Ok(KeyBatch::Packed { offsets, bytes })
        }
        _ => Err(PyTypeError::new_err("numbers, or offsets and data, were expected")),
    }
}

/// The buffers of an Arrow array of binary values.
struct ArrowArray {
    bits: Vec<u8>,
    offsets: Vec<u8>,
    data: Vec<u8>,
    null_count: usize,
    is_large: bool,
}

impl From<ArrowArray> for ArrowParts {
    fn from(array: ArrowArray) -> ArrowParts {
        let [bits, offsets, data] = [array.bits, array.offsets, array.data].map(Memory::from_bytes);
        (bits, offsets, data, array.null_count, array.is_large)
    }
}

/// Returns the buffers of an Arrow array with these values. A missing value is null.
fn arrow_array(values: &[Option<&[u8]>]) -> ArrowArray {
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
    ArrowArray { bits, offsets, data, null_count, is_large }
}

/// Looks up the nearest rows, and returns three buffers: the rows' keys as 64-bit numbers, their values, and one byte
/// per requested key, which is 1 if a row was found. Keys and values are zero where no row was found. All values must
/// have the length `len_bytes`.
#[pyfunction]
pub(crate) fn fill_neighbors_fixed<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
    is_floor: bool,
) -> PyResult<(Memory, Memory, Memory)> {
    let keys = KeyBatch::from_object(keys)?;
    let rows = table.get().find_neighbors(py, &keys, Neighbor::new(is_floor))?;
    let RowKeys::Numbers(numbers) = rows.keys else {
        let message = "the table's keys are bytes, where a dtype requires numbers: pass a pyarrow array of keys";
        return Err(KeyKind::new_err(message));
    };
    let (values, found) = detached(py, keys.len(), || fixed_array(&rows.values.slices(), len_bytes))?;
    Ok((Memory::from_bytes(number_bytes(&numbers)), Memory::from_bytes(values), Memory::from_bytes(found)))
}

/// Looks up the nearest rows, and returns their keys and values as buffers of Arrow arrays. The keys are either numbers,
/// which are null where the values are null, or an array of bytes. `numbers`, `offsets`, and `data` are the arguments of
/// `fill_arrow`.
#[pyfunction]
#[pyo3(signature = (table, numbers, offsets, data, is_floor))]
pub(crate) fn fill_neighbors_arrow<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    is_floor: bool,
) -> PyResult<(Option<Memory>, Option<ArrowParts>, ArrowParts)> {
    let keys = arrow_keys(py, numbers, offsets, data)?.checked()?;
    let rows = table.get().find_neighbors(py, &keys, Neighbor::new(is_floor))?;
    let values = detached(py, keys.len(), || arrow_array(&rows.values.slices()));
    Ok(match rows.keys {
        RowKeys::Numbers(numbers) => (Some(Memory::from_bytes(number_bytes(&numbers))), None, values.into()),
        RowKeys::Bytes(keys) => (None, Some(arrow_array(&keys.slices()).into()), values.into()),
    })
}

fn number_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
