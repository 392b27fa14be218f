//! Lookups of many keys.
//!
//! In: keys, and a table to look them up in. Out: their values, from which `lookup_table` makes lists and `arrays`
//! makes arrays.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::Lookup;
use zero_kv::client::{ProjectedRows, ReceivedValues, RowsOrValues};
use zero_kv::typed::Schema;
use zero_kv::{Key, LookupError, MappedStore};

use crate::errors::lookup_exception;
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, with_impossible};

/// The smallest number of keys for which other Python threads run during a lookup.
const DETACH_KEYS_MIN: usize = 64;

/// The values of the keys of a call.
pub(crate) struct FoundValues<'v> {
    /// The values of the possible keys, or `None` if the table has keys of the other kind.
    values: Option<Values<'v>>,
    /// The number of possible keys.
    count: usize,
    is_possible: Option<&'v [bool]>,
}

impl<'v> FoundValues<'v> {
    pub(crate) fn new(values: Option<Values<'v>>, keys: &'v PossibleKeys<'_>) -> FoundValues<'v> {
        FoundValues { values, count: keys.batch.len(), is_possible: keys.is_possible() }
    }

    pub(crate) fn slices(&self) -> Vec<Option<&[u8]>> {
        let found = self.values.as_ref().map_or_else(|| vec![None; self.count], Values::slices);
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
    /// Returns what a server sent, and the schema of rows.
    pub(crate) fn received(found: RowsOrValues) -> (Values<'t>, Option<Arc<Schema>>) {
        match found {
            RowsOrValues::Values(values) => (Values::Received(values), None),
            RowsOrValues::Rows(rows) => {
                let schema = Arc::new(rows.schema().clone());
                (Values::Rows(rows), Some(schema))
            }
        }
    }

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

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Makes the value at a position a missing value.
    pub(crate) fn remove(&mut self, position: usize) {
        self.ranges[position] = None;
    }

    /// Inserts a missing value at each position that is false in `is_valid`.
    pub(crate) fn insert_missing(&mut self, is_valid: &[bool]) {
        self.ranges = with_impossible(std::mem::take(&mut self.ranges), Some(is_valid));
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
        in_chunks(py, keys, |keys| private.get_many(keys).map(|found| values.extend(found)))?;
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
