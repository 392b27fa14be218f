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

use crate::errors::lookup_exception;
use crate::key_batch::KeyBatch;
use crate::typed_row::value_object;

/// The smallest number of keys for which other Python threads run during a lookup.
const DETACH_KEYS_MIN: usize = 64;

/// An object that looks up many keys: a table, or the client of a server.
pub(crate) trait LookUpMany {
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
        let values = match keys {
            // Without keys there is no key kind to check.
            _ if keys.len() == 0 => Ok(Values::Borrowed(Vec::new())),
            KeyBatch::Numbers(numbers) => detached(py, numbers.len(), || find(table, numbers)),
            _ => {
                let slices = keys.slices()?;
                detached(py, slices.len(), || find(table, &slices))
            }
        };
        values.map_err(lookup_exception)
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

fn find<'t, 'k, K: Into<Key<'k>> + Copy>(table: &'t MappedStore, keys: &[K]) -> Result<Values<'t>, LookupError> {
    if let Some(private) = table.as_private() {
        let mut values = Vec::with_capacity(keys.len());
        private.get_many(keys, |_, value| values.push(value))?;
        return Ok(Values::Borrowed(values));
    }
    let mut values = CopiedValues::with_capacity(keys.len());
    table.get_many_with(keys, |_, value| values.push(value))?;
    Ok(Values::Copied(values))
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
    target.look_up_rows(py, &KeyBatch::from_object(keys)?, |values, schema| {
        let object = |value: Option<&[u8]>| value.map(|value| value_object(py, schema, value)).transpose();
        let values = values.slices().into_iter().map(object).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, values)?.into_any())
    })
}

/// Implements the method `get_bytes_many` of a class.
pub(crate) fn get_bytes_many<'py>(target: &impl LookUpMany, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = keys.py();
    target.look_up_many(py, &KeyBatch::from_object(keys)?, |values, _| {
        PyList::new(py, values.slices().into_iter().map(|value| value.map(|value| PyBytes::new(py, value))))
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
