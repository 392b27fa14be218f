//! Slots of keys: the partition function of published tables and of Redis Cluster.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zero_kv::Key;
use zero_kv::bake::SHARDS_MAX;
use zero_kv::slots::{SlotRange, slot_of};

use crate::arrays::arrow_keys;
use crate::key_batch::KeyBatch;
use crate::many::detached;
use crate::view::Memory;

/// Returns the slots of keys as 16-bit numbers. The keys are `objects`, or the elements of an Arrow array without nulls:
/// see `arrow_keys`.
#[pyfunction]
#[pyo3(signature = (objects, numbers, offsets, data))]
pub(crate) fn fill_slots<'py>(
    py: Python<'py>,
    objects: Option<&Bound<'py, PyAny>>,
    numbers: Option<Bound<'py, PyAny>>,
    offsets: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
) -> PyResult<Memory> {
    let keys = match objects {
        Some(objects) => KeyBatch::from_object(objects)?,
        None => arrow_keys(py, numbers, offsets, data)?,
    };
    let slices = keys.slices()?;
    let slots = match &keys {
        KeyBatch::Numbers(numbers) => detached(py, keys.len(), || bytes_of(numbers.iter().map(|key| Key::U64(*key)))),
        _ => detached(py, keys.len(), || bytes_of(slices.iter().map(|key| Key::Bytes(key)))),
    };
    Ok(Memory::from_bytes(slots))
}

fn bytes_of<'k>(keys: impl Iterator<Item = Key<'k>>) -> Vec<u8> {
    keys.flat_map(|key| slot_of(key).to_ne_bytes()).collect()
}

/// Returns the first and the last slot of each of `count` shards with equal numbers of slots.
#[pyfunction]
pub(crate) fn divide_slots(count: u64) -> PyResult<Vec<(u16, u16)>> {
    let count = u16::try_from(count).ok().filter(|count| (1..=SHARDS_MAX).contains(count)).ok_or_else(|| {
        PyValueError::new_err(format!("the number of shards is {count}, where 1 to {SHARDS_MAX} was expected"))
    })?;
    Ok(SlotRange::ALL.divide(count).iter().map(|slots| (slots.first_slot, slots.last_slot)).collect())
}
