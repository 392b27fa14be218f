//! Lookups of many keys.
//!
//! In: keys, and a table or a client to look them up with. Out: a list of values, or the values from which `arrays`
//! makes arrays.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use zero_kv::client::{ProjectedRows, ReceivedValues};
use zero_kv::typed::Schema;
use zero_kv::{Key, LookupError, MappedStore};

use crate::errors::{KeyKind, lookup_exception};
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, with_impossible};
use crate::typed_row::value_object;

/// The smallest number of keys for which other Python threads run during a lookup.
const DETACH_KEYS_MIN: usize = 64;

/// An object that looks up many keys: a table, or the client of a server.
pub(crate) trait LookUpMany {
    /// Whether a key that the table cannot have is an error. Otherwise, the key has no value.
    fn is_strict(&self) -> bool;

    /// Returns the kind of the table's keys.
    fn table_kind(&self, py: Python<'_>) -> PyResult<zero_kv::KeyKind>;

    /// Converts the keys of a call.
    fn possible_keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<PossibleKeys<'py>> {
        PossibleKeys::from_object(keys, self.is_strict(), || self.table_kind(keys.py()))
    }

    /// Looks up the keys of a call, and passes their values to `use_values`. Keys that the table cannot have have no value,
    /// unless the object is strict. With `needs_schema`, the schema of a typed table is passed, too.
    fn look_up_possible<T>(
        &self,
        py: Python<'_>,
        keys: &PossibleKeys<'_>,
        needs_schema: bool,
        use_values: impl FnOnce(&FoundValues<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut use_values = Some(use_values);
        let (is_possible, count) = (keys.is_possible(), keys.batch.len());
        let use_found = |values: &Values<'_>, schema: Option<&Arc<Schema>>| {
            let use_values = use_values.take().expect("a lookup passes its values once");
            use_values(&FoundValues { values: Some(values), count, is_possible }, schema)
        };
        let found = match needs_schema {
            true => self.look_up_rows(py, &keys.batch, use_found),
            false => self.look_up_many(py, &keys.batch, use_found),
        };
        match (found, use_values) {
            (Err(error), Some(use_values)) if !self.is_strict() && error.is_instance_of::<KeyKind>(py) => {
                use_values(&FoundValues { values: None, count, is_possible }, None)
            }
            (found, _) => found,
        }
    }

    /// Looks up all keys, and passes their values and the schema of a typed table to `use_values`. Other Python threads
    /// may run during the lookup.
    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T>;

    /// Looks up all keys like [`LookUpMany::look_up_many`], but always passes the schema of a typed table. A client has
    /// to request the schema.
    fn look_up_rows<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        self.look_up_many(py, keys, use_values)
    }
}

/// The values of the keys of a call.
pub(crate) struct FoundValues<'v> {
    /// The values of the possible keys, or `None` if the table has keys of the other kind.
    values: Option<&'v Values<'v>>,
    /// The number of possible keys.
    count: usize,
    is_possible: Option<&'v [bool]>,
}

impl FoundValues<'_> {
    pub(crate) fn slices(&self) -> Vec<Option<&[u8]>> {
        let found = self.values.map_or_else(|| vec![None; self.count], Values::slices);
        with_impossible(found, self.is_possible)
    }
}

/// The values of some keys.
pub(crate) enum Values<'t> {
    /// Borrowed from a table that nobody can change.
    Borrowed(Vec<Option<&'t [u8]>>),
    Copied(CopiedValues),
    /// Values that a server sent.
    Received(ReceivedValues),
    /// Rows of a typed table that a server sent.
    Rows(ProjectedRows),
}

impl<'t> Values<'t> {
    /// Looks up keys in a table, while other Python threads run.
    pub(crate) fn from_table(py: Python<'_>, table: &'t MappedStore, keys: &KeyBatch<'_>) -> PyResult<Values<'t>> {
        match keys {
            // Without keys there is no key kind to check.
            _ if keys.len() == 0 => Ok(Values::Borrowed(Vec::new())),
            KeyBatch::Numbers(numbers) => find(py, table, numbers),
            _ => find(py, table, &keys.slices()?),
        }
    }

    pub(crate) fn slices(&self) -> Vec<Option<&[u8]>> {
        match self {
            Values::Borrowed(values) => values.clone(),
            Values::Copied(values) => values.slices(),
            Values::Received(values) => values.iter().collect(),
            Values::Rows(rows) => rows.iter().map(|row| row.map(|row| row.as_bytes())).collect(),
        }
    }
}

/// Values that a server sent, or that were copied from a mapped file, in one buffer.
pub(crate) struct CopiedValues {
    bytes: Vec<u8>,
    /// For each key, the range in `bytes` of its value, or `None` if the key was not found.
    ranges: Vec<Option<(usize, usize)>>,
}

impl CopiedValues {
    pub(crate) fn with_capacity(count: usize) -> CopiedValues {
        CopiedValues { bytes: Vec::new(), ranges: Vec::with_capacity(count) }
    }

    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        let range = value.map(|value| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(value);
            (start, self.bytes.len())
        });
        self.ranges.push(range);
    }

    pub(crate) fn slices(&self) -> Vec<Option<&[u8]>> {
        self.ranges.iter().map(|range| range.map(|(start, end)| &self.bytes[start..end])).collect()
    }
}

fn find<'t, 'k, K>(py: Python<'_>, table: &'t MappedStore, keys: &[K]) -> PyResult<Values<'t>>
where
    K: Into<Key<'k>> + Copy + Sync,
{
    if let Some(private) = table.as_private() {
        let mut values = Vec::with_capacity(keys.len());
        in_chunks(py, keys, |keys| private.get_many(keys, |_, value| values.push(value)))?;
        return Ok(Values::Borrowed(values));
    }
    let mut values = CopiedValues::with_capacity(keys.len());
    in_chunks(py, keys, |keys| table.get_many_with(keys, |_, value| values.push(value)))?;
    Ok(Values::Copied(values))
}

/// Looks up keys in chunks, and checks signals between two chunks, so that Ctrl-C stops a long lookup. Other Python
/// threads run during the lookup.
pub(crate) fn in_chunks<K: Sync>(
    py: Python<'_>,
    keys: &[K],
    mut look_up: impl FnMut(&[K]) -> Result<(), LookupError> + Send,
) -> PyResult<()> {
    for chunk in keys.chunks(SIGNALS_EVERY_KEYS) {
        detached(py, chunk.len(), || look_up(chunk)).map_err(lookup_exception)?;
        if keys.len() > SIGNALS_EVERY_KEYS {
            py.check_signals()?;
        }
    }
    Ok(())
}

/// Makes a list of objects, and checks signals regularly.
pub(crate) fn list_of<'py, T>(
    py: Python<'py>,
    items: Vec<T>,
    mut object: impl FnMut(T) -> PyResult<Option<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyList>> {
    let mut objects = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        if position % SIGNALS_EVERY_KEYS == SIGNALS_EVERY_KEYS - 1 {
            py.check_signals()?;
        }
        objects.push(object(item)?);
    }
    PyList::new(py, objects)
}

/// Runs `work`, and lets other Python threads run at the same time unless there are few keys: for few keys, switching
/// threads would take longer than the work.
pub(crate) fn detached<T: Send>(py: Python<'_>, key_count: usize, work: impl FnOnce() -> T + Send) -> T {
    if key_count < DETACH_KEYS_MIN { work() } else { py.detach(work) }
}

/// Implements the method `get_many` of a class. `target` is the Rust value in `object`.
pub(crate) fn get_many<'py>(
    object: &Bound<'py, PyAny>,
    target: &impl LookUpMany,
    keys: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keys.py();
    if dtype.is_some() || is_arrow_array(keys)? {
        return py.import("zero_kv._arrays")?.getattr("get_many")?.call1((object, keys, dtype));
    }
    target.look_up_possible(py, &target.possible_keys(keys)?, true, |values, schema| {
        let object = |value: Option<&[u8]>| value.map(|value| value_object(py, schema, value)).transpose();
        Ok(list_of(py, values.slices(), object)?.into_any())
    })
}

/// Implements the method `get_bytes_many` of a class.
pub(crate) fn get_bytes_many<'py>(target: &impl LookUpMany, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = keys.py();
    target.look_up_possible(py, &target.possible_keys(keys)?, false, |values, _| {
        let object = |value: Option<&[u8]>| Ok(value.map(|value| PyBytes::new(py, value).into_any()));
        list_of(py, values.slices(), object)
    })
}

/// Returns whether an object is an array of pyarrow or Polars.
pub(crate) fn is_arrow_array(keys: &Bound<'_, PyAny>) -> PyResult<bool> {
    if keys.is_instance_of::<PyList>() {
        return Ok(false);
    }
    let module = keys.get_type().module()?;
    let package = module.to_str()?.split('.').next().unwrap_or_default();
    Ok(package == "pyarrow" || package == "polars")
}
