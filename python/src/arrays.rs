//! Fills buffers with values. `lib/zero_kv/_arrays.py` makes NumPy and pyarrow arrays from the buffers.

use std::sync::Arc;

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use zero_kv::client::OwnedKey;
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyType};

use crate::columns::projection_of;
use crate::errors::KeyKind;
use crate::key_batch::PossibleKeys;
use crate::key_columns::{KeyColumn, bound_keys};
use crate::lookup_table::{Call, LookupTable};
use crate::many::{CopiedValues, detached};
use crate::neighbors::{NearestRows, Neighbor, RowKeys, RowSchemas};
use crate::received::ReceivedRows;
use crate::schema;
use crate::typed_key::{bound_key, key_object, parsed_key_type};
use crate::view::Memory;

/// Looks up all keys and passes their values to `make`. Other Python threads run during the lookup and during `make`,
/// unless there are few keys.
fn look_up<T: Send>(
    py: Python<'_>,
    call: &Call<'_>,
    keys: &PossibleKeys<'_>,
    make: impl FnOnce(Vec<Option<&[u8]>>) -> T + Send,
) -> PyResult<T> {
    call.look_up_many(py, keys, false, |values, _| Ok(detached(py, keys.len(), || make(values.slices()))))
}

/// Looks up keys, and returns two buffers. The first contains the concatenated values, with zeros for missing keys. The
/// second contains one byte per key, which is 1 if the key was found. All values must have the length `len_bytes`.
#[pyfunction]
pub(crate) fn fill_fixed<'py>(
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
) -> PyResult<(Memory, Memory)> {
    let keys = table.get().repeatable_keys(keys)?;
    table.get().call(table.py(), |call| {
        let keys = call.possible_keys(&keys)?;
        let (filled, found) = look_up(table.py(), call, &keys, |values| fixed_array(&values, len_bytes))??;
        Ok((Memory::from_bytes(filled), Memory::from_bytes(found)))
    })
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
/// `keys` are the elements of an Arrow array that are not null, as `key_column` of `_keys.py` returns them. If the
/// array has nulls, `valid` has one Boolean per element of the array. The value of a null key is null.
#[pyfunction]
#[pyo3(signature = (table, keys, valid))]
pub(crate) fn fill_arrow<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: KeyColumn<'py>,
    valid: Option<Vec<bool>>,
) -> PyResult<ArrowParts> {
    let mut keys = table.get().each_time(keys);
    table.get().call(py, |call| {
        let keys = call.possible_column(py, keys())?;
        if valid.as_ref().is_some_and(|valid| valid.iter().filter(|valid| **valid).count() != keys.len()) {
            return Err(PyValueError::new_err("the number of true elements in valid differs from the number of keys"));
        }
        let array = look_up(py, call, &keys, |values| match &valid {
            None => arrow_array(&values),
            Some(valid) => {
                let mut values = values.into_iter();
                let value = |valid: &bool| if *valid { values.next().flatten() } else { None };
                arrow_array(&valid.iter().map(value).collect::<Vec<_>>())
            }
        })?;
        Ok(array.into())
    })
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

/// Looks up the nearest rows, and returns the type of the keys, and three buffers: the rows' keys as 64-bit numbers,
/// their values, and one byte per requested key, which is 1 if a row was found. Keys and values are zero where no row
/// was found. All values must have the length `len_bytes`.
#[pyfunction]
pub(crate) fn fill_neighbors_fixed<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
    is_floor: bool,
) -> PyResult<(String, Memory, Memory, Memory)> {
    let keys = table.get().repeatable_keys(keys)?;
    table.get().call(py, |call| {
        let keys = call.bound_keys(&keys)?;
        let rows = call.find_neighbors(py, &keys, Neighbor::new(is_floor))?;
        let numbers = fixed_keys(&rows.keys, call.key_type, &rows.values)?;
        let (values, found) = detached(py, keys.len(), || fixed_array(&rows.values.slices(), len_bytes))?;
        let [values, found] = [values, found].map(Memory::from_bytes);
        Ok((call.key_type.to_string(), numbers, values, found))
    })
}

/// Returns keys as 64-bit numbers. A number is 0 where `values` has no value.
fn fixed_keys(keys: &RowKeys, key_type: KeyType, values: &CopiedValues) -> PyResult<Memory> {
    let numbers = keys.numbers(key_type, values).ok_or_else(|| {
        KeyKind::new_err(format!(
            "the table's keys are {key_type}, where a dtype requires numbers, dates, or times: pass a pyarrow array of \
             keys"
        ))
    })?;
    Ok(Memory::from_bytes(number_bytes(&numbers)))
}

/// Looks up the ranges that contain keys, and returns the type of the keys, and four buffers: the first keys of the
/// ranges and their last keys as 64-bit numbers, and what `fill_fixed` returns.
#[pyfunction]
pub(crate) fn fill_ranges_fixed<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    len_bytes: usize,
) -> PyResult<(String, Memory, Memory, Memory, Memory)> {
    let keys = table.get().repeatable_keys(keys)?;
    table.get().call(py, |call| {
        let keys = call.bound_keys(&keys)?;
        let ranges = call.find_ranges(py, &keys)?;
        let key_type = call.key_type;
        let firsts = fixed_keys(&ranges.firsts, key_type, &ranges.values)?;
        let lasts = fixed_keys(&ranges.lasts, key_type, &ranges.values)?;
        let (values, found) = detached(py, keys.len(), || fixed_array(&ranges.values.slices(), len_bytes))?;
        let [values, found] = [values, found].map(Memory::from_bytes);
        Ok((key_type.to_string(), firsts, lasts, values, found))
    })
}

/// Looks up the nearest rows, and returns the type of the keys, and the rows' keys and values as buffers of Arrow
/// arrays. The keys are either numbers, which are null where the values are null, or an array of bytes or of the
/// written form of keys. `keys` are those of `fill_arrow`.
#[pyfunction]
pub(crate) fn fill_neighbors_arrow<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: KeyColumn<'py>,
    is_floor: bool,
) -> PyResult<(String, Option<Memory>, Option<ArrowParts>, ArrowParts)> {
    let mut keys = table.get().each_time(keys);
    table.get().call(py, |call| {
        let keys = keys().bounds(py, call.key_type)?;
        let rows = call.find_neighbors(py, &keys, Neighbor::new(is_floor))?;
        let values = detached(py, keys.len(), || arrow_array(&rows.values.slices()));
        let (numbers, texts) = arrow_keys(py, &rows.keys, call.key_type, &rows.values);
        Ok((call.key_type.to_string(), numbers, texts, values.into()))
    })
}

/// Keys as numbers, or as an array of their written form.
type ArrowKeys = (Option<Memory>, Option<ArrowParts>);

fn arrow_keys(py: Python<'_>, keys: &RowKeys, key_type: KeyType, values: &CopiedValues) -> ArrowKeys {
    match keys.numbers(key_type, values) {
        Some(numbers) => (Some(Memory::from_bytes(number_bytes(&numbers))), None),
        None => (None, Some(detached(py, values.len(), || arrow_array(&keys.texts(key_type).slices())).into())),
    }
}

/// Looks up the ranges that contain keys, and returns the type of the keys, and the first keys, the last keys, and the
/// values of the ranges, as `fill_neighbors_arrow` does.
#[pyfunction]
pub(crate) fn fill_ranges_arrow<'py>(
    py: Python<'py>,
    table: &Bound<'py, LookupTable>,
    keys: KeyColumn<'py>,
) -> PyResult<(String, ArrowKeys, ArrowKeys, ArrowParts)> {
    let mut keys = table.get().each_time(keys);
    table.get().call(py, |call| {
        let keys = keys().bounds(py, call.key_type)?;
        let ranges = call.find_ranges(py, &keys)?;
        let values = detached(py, keys.len(), || arrow_array(&ranges.values.slices()));
        let ends = |keys: &RowKeys| arrow_keys(py, keys, call.key_type, &ranges.values);
        Ok((call.key_type.to_string(), ends(&ranges.firsts), ends(&ranges.lasts), values.into()))
    })
}

/// The type of the keys; the keys of the nearest rows, as numbers or as a list; one byte per requested key, which is 1
/// if a row was found; and the rows. A number is zero where no row was found.
type NeighborColumns<'py> = (String, Option<Memory>, Option<Bound<'py, PyList>>, Memory, ReceivedRows);

/// Which of the nearest rows, and which of their columns, a call returns.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NeighborSelection<'py> {
    is_floor: bool,
    /// For each key that is not null, the key that the key of its row must not pass.
    limits: Option<Bound<'py, PyAny>>,
    /// For each key of the call, whether it is not null. `None` if no key is null.
    is_valid: Option<Vec<bool>>,
    /// The names of the columns. `None` means all columns.
    names: Option<Bound<'py, PyAny>>,
    /// Whether keys that are not numbers are returned as their written form, in `bytes`, and not as objects.
    is_written: bool,
}

impl NeighborSelection<'_> {
    fn columns<'py>(
        &self,
        py: Python<'py>,
        key_type: KeyType,
        mut rows: NearestRows,
        schema: Arc<Schema>,
    ) -> PyResult<NeighborColumns<'py>> {
        if let Some(limits) = &self.limits {
            rows.apply_limits(&bound_keys(limits, key_type)?, Neighbor::new(self.is_floor))?;
        }
        if let Some(is_valid) = &self.is_valid {
            rows.insert_missing(is_valid);
        }
        let values = rows.values.slices();
        let found = values.iter().map(|value| value.is_some().into()).collect();
        let numbers =
            rows.keys.numbers(key_type, &rows.values).map(|numbers| Memory::from_bytes(number_bytes(&numbers)));
        let keys = match &rows.keys {
            RowKeys::Numbers(_) => None,
            RowKeys::Bytes(_) if self.is_written => {
                let text = |text: Option<&[u8]>| text.map(|text| PyBytes::new(py, text));
                Some(PyList::new(py, rows.keys.texts(key_type).slices().into_iter().map(text))?)
            }
            RowKeys::Bytes(keys) => {
                let object = |key: Option<&[u8]>| key.map(|key| key_object(py, key_type, Key::Bytes(key))).transpose();
                let objects = keys.slices().into_iter().map(object).collect::<PyResult<Vec<_>>>()?;
                Some(PyList::new(py, objects)?)
            }
        };
        let projection = projection_of(&schema, self.names.as_ref())?;
        let values = values.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect();
        let name = key_type.to_string();
        Ok((name, numbers, keys, Memory::from_bytes(found), ReceivedRows::new(schema, projection, values)?))
    }
}

/// Looks up the nearest rows of keys without null, and returns their columns.
#[pyfunction]
pub(crate) fn find_neighbor_columns<'py>(
    table: &Bound<'py, LookupTable>,
    keys: &Bound<'py, PyAny>,
    selection: NeighborSelection<'py>,
) -> PyResult<NeighborColumns<'py>> {
    let py = table.py();
    let keys = table.get().repeatable_keys(keys)?;
    table.get().call(py, |call| {
        let rows = call.find_neighbors(py, &call.bound_keys(&keys)?, Neighbor::new(selection.is_floor))?;
        let schema = match rows.schemas.common(&rows.values)? {
            Some(schema) => schema,
            None => table.get().typed_schema(py)?,
        };
        selection.columns(py, call.key_type, rows, schema)
    })
}

/// Returns the columns of the nearest rows of keys without null, which the asyncio client received from a table with
/// keys of this type and with this schema.
#[pyfunction]
pub(crate) fn received_neighbor_columns<'py>(
    py: Python<'py>,
    key_type: &str,
    schema: &Bound<'py, schema::Schema>,
    keys: &Bound<'py, PyAny>,
    rows: Vec<Option<(Bound<'py, PyAny>, Vec<u8>)>>,
    selection: NeighborSelection<'py>,
) -> PyResult<NeighborColumns<'py>> {
    let schema = Arc::clone(&schema.get().0);
    let key_type = parsed_key_type(key_type)?;
    let row = |(key, value): (Bound<'py, PyAny>, Vec<u8>)| {
        Ok::<_, PyErr>((OwnedKey::from(bound_key(&key, key_type)?.as_key()), value))
    };
    let rows = rows.into_iter().map(|found| found.map(row).transpose()).collect::<PyResult<_>>()?;
    let schemas = RowSchemas::Common(Some(Arc::clone(&schema)));
    let rows = NearestRows::received(bound_keys(keys, key_type)?.kind(), (rows, schemas));
    selection.columns(py, key_type, rows, schema)
}

/// Returns the rows that the asyncio client received from a table with this schema, and the columns with these names.
#[pyfunction]
#[pyo3(signature = (schema, rows, names))]
pub(crate) fn received_rows(
    schema: &Bound<'_, schema::Schema>,
    rows: Vec<Option<Vec<u8>>>,
    names: Option<&Bound<'_, PyAny>>,
) -> PyResult<ReceivedRows> {
    let schema = Arc::clone(&schema.get().0);
    let projection = projection_of(&schema, names)?;
    ReceivedRows::new(schema, projection, rows)
}

fn number_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
