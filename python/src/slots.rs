//! Slots of keys, and their division into shards.
//!
//! In: keys, or rows as the buffers of Arrow arrays. Out: the slots of keys, the lengths of the rows of each slot, and
//! ranges of slots.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use zero_kv::Key;
use zero_kv::bake::{SHARDS_MAX, SlotLens, parse_types};
use zero_kv::slots::{SlotRange, slot_of_typed};
use zero_kv::typed::Column;

use crate::arrow_rows::ArrowRows;
use crate::cells::columns_from;
use crate::errors::bake_exception;
use crate::key_batch::KeyBatch;
use crate::key_columns::{KeyColumn, bound_keys, possible_keys};
use crate::many::detached;
use crate::typed_key::parsed_key_type;
use crate::view::Memory;

/// Returns the slots of keys of a type as 16-bit numbers. The keys are `objects`, or a `column`: the elements of an Arrow
/// array without nulls, as `key_column` of `_keys.py` returns them.
#[pyfunction]
#[pyo3(signature = (objects, column, key_type))]
pub(crate) fn fill_slots<'py>(
    py: Python<'py>,
    objects: Option<&Bound<'py, PyAny>>,
    column: Option<KeyColumn<'py>>,
    key_type: &str,
) -> PyResult<Memory> {
    let key_type = parsed_key_type(key_type)?;
    let keys = match (objects, column) {
        (Some(objects), _) if key_type.is_plain() => bound_keys(objects, key_type)?,
        (Some(objects), _) => possible_keys(objects, key_type, true)?.batch,
        (None, Some(column)) => column.keys(py, key_type, true)?.batch,
        (None, None) => return Err(PyTypeError::new_err("objects or a column were expected")),
    };
    let slices = keys.slices()?;
    let bytes_of = |keys: &mut dyn Iterator<Item = Key<'_>>| -> Vec<u8> {
        keys.flat_map(|key| slot_of_typed(key_type, key).to_ne_bytes()).collect()
    };
    let slots = match &keys {
        KeyBatch::Numbers(numbers) => {
            detached(py, keys.len(), || bytes_of(&mut numbers.iter().map(|key| Key::U64(*key))))
        }
        _ => detached(py, keys.len(), || bytes_of(&mut slices.iter().map(|key| Key::Bytes(key)))),
    };
    Ok(Memory::from_bytes(slots))
}

/// Returns the first and the last slot of each of `count` shards with equal numbers of slots.
#[pyfunction]
pub(crate) fn divide_slots(count: u64) -> PyResult<Vec<(u16, u16)>> {
    let count = u16::try_from(count).ok().filter(|count| (1..=SHARDS_MAX).contains(count)).ok_or_else(|| {
        PyValueError::new_err(format!("the number of shards is {count}, where 1 to {SHARDS_MAX} was expected"))
    })?;
    Ok(SlotRange::ALL.divide(count).iter().map(|slots| (slots.first_slot, slots.last_slot)).collect())
}

/// Returns upper bounds on the lengths of the rows of each slot in a file, as 64-bit numbers. The arguments are those of
/// `upload_shard`.
#[pyfunction]
pub(crate) fn measure_slots(
    py: Python<'_>,
    batches: &Bound<'_, PyIterator>,
    keys: &str,
    has_numbers: bool,
    columns: Option<Vec<(String, String)>>,
) -> PyResult<Memory> {
    let columns = columns.map(columns_from).transpose()?;
    let mut lens = SlotLens::default();
    ArrowRows::new(batches.clone().unbind(), columns.as_deref(), parsed_key_type(keys)?, has_numbers)?
        .measure(py, &mut lens)?;
    Ok(Memory::from_bytes(lens.as_slice().iter().flat_map(|len_bytes| len_bytes.to_ne_bytes()).collect()))
}

/// Returns the first and the last slot of as few shards as possible whose files have at most `len_max_bytes`. `lens` are
/// results of `measure_slots`, each for some rows of the table.
#[pyfunction]
pub(crate) fn divide_slots_by_length(
    py: Python<'_>,
    lens: Vec<Bound<'_, PyAny>>,
    len_max_bytes: u64,
) -> PyResult<Vec<(u16, u16)>> {
    let mut sum = SlotLens::default();
    for lens in lens {
        let bytes = PyBuffer::<u8>::get(&lens)?.to_vec(py)?;
        let lens: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        let expected = || {
            PyValueError::new_err(format!("{} lengths were given, where one for each slot was expected", lens.len()))
        };
        sum.add_all(&SlotLens::from_slice(&lens).ok_or_else(expected)?);
    }
    let ranges = sum.ranges(len_max_bytes).map_err(|error| bake_exception(&error))?;
    Ok(ranges.iter().map(|slots| (slots.first_slot, slots.last_slot)).collect())
}

/// Parses the text of a list of columns, such as `price:f32,name:text?`, into pairs of name and type.
#[pyfunction]
pub(crate) fn parse_columns(text: &str) -> PyResult<Vec<(String, String)>> {
    let columns = parse_types(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let pair =
        |column: Column| (column.name, format!("{}{}", column.column_type, if column.is_nullable { "?" } else { "" }));
    Ok(columns.into_iter().map(pair).collect())
}
