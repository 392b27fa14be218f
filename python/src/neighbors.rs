//! The rows nearest to many keys.
//!
//! In: keys, and a table or a client. Out: for each key, the row with the largest key at or below it (`floor`) or the row with the
//! smallest key at or above it (`ceiling`), in buffers from which `arrays` makes arrays, or as a list.

use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::{Key, KeyKind, MappedStore};

use crate::client_requests::RowSchemas;
use crate::convert::row_tuple;
use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, in_chunks, is_arrow_array, list_of};

/// The row that a lookup returns for a key.
#[derive(Clone, Copy)]
pub(crate) enum Neighbor {
    /// The row with the largest key less than or equal to the key.
    Floor,
    /// The row with the smallest key greater than or equal to the key.
    Ceiling,
}

impl Neighbor {
    pub(crate) fn new(is_floor: bool) -> Neighbor {
        if is_floor { Neighbor::Floor } else { Neighbor::Ceiling }
    }
}

/// An object that looks up the rows nearest to many keys: a table, or the client of a server.
pub(crate) trait FindNeighbors {
    /// Looks up all keys. Other Python threads may run during the lookup.
    fn find_neighbors(&self, py: Python<'_>, keys: &KeyBatch<'_>, neighbor: Neighbor) -> PyResult<NearestRows>;
}

/// The rows that were found for some keys. `keys` and `values` have one element per requested key.
pub(crate) struct NearestRows {
    pub(crate) keys: RowKeys,
    pub(crate) values: CopiedValues,
    pub(crate) schemas: RowSchemas,
}

pub(crate) enum RowKeys {
    /// A key is 0 if no row was found.
    Numbers(Vec<u64>),
    Bytes(CopiedValues),
}

impl NearestRows {
    /// Looks up keys in one version of a table. Other Python threads run during the lookup.
    pub(crate) fn find(
        py: Python<'_>,
        table: &MappedStore,
        keys: &KeyBatch<'_>,
        neighbor: Neighbor,
    ) -> PyResult<NearestRows> {
        match keys {
            KeyBatch::Numbers(numbers) => find(py, table, numbers, neighbor),
            _ => find(py, table, &keys.slices()?, neighbor),
        }
    }

    pub(crate) fn with_capacity(kind: KeyKind, count: usize) -> NearestRows {
        let keys = match kind {
            KeyKind::U64 => RowKeys::Numbers(Vec::with_capacity(count)),
            KeyKind::Bytes => RowKeys::Bytes(CopiedValues::with_capacity(count)),
        };
        NearestRows { keys, values: CopiedValues::with_capacity(count), schemas: RowSchemas::Common(None) }
    }

    pub(crate) fn push(&mut self, row: Option<(Key<'_>, &[u8])>) {
        let key = row.map(|(key, _)| key);
        match &mut self.keys {
            RowKeys::Numbers(numbers) => numbers.push(key.and_then(|key| key.as_u64()).unwrap_or_default()),
            RowKeys::Bytes(keys) => keys.push(key.and_then(|key| key.as_bytes())),
        }
        self.values.push(row.map(|(_, value)| value));
    }

    fn into_list(self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        let values = self.values.slices();
        let keys: Vec<Option<Key<'_>>> = match &self.keys {
            RowKeys::Numbers(numbers) => numbers.iter().map(|number| Some(Key::U64(*number))).collect(),
            RowKeys::Bytes(keys) => keys.slices().into_iter().map(|key| key.map(Key::Bytes)).collect(),
        };
        let row = |(position, (key, value)): (usize, (Option<Key<'_>>, Option<&[u8]>))| {
            key.zip(value).map(|(key, value)| row_tuple(py, self.schemas.of_row(position), key, value)).transpose()
        };
        let rows = keys.into_iter().zip(values).enumerate().collect();
        list_of(py, rows, |found| Ok(row(found)?.map(Bound::into_any)))
    }
}

fn find<'k, K>(py: Python<'_>, table: &MappedStore, keys: &[K], neighbor: Neighbor) -> PyResult<NearestRows>
where
    K: Into<Key<'k>> + Copy + Sync,
{
    let mut rows = NearestRows::with_capacity(table.key_kind(), keys.len());
    rows.schemas = RowSchemas::Common(table.schema().cloned());
    // Without keys there is no key kind to check.
    in_chunks(py, keys, |keys| match neighbor {
        Neighbor::Floor => table.floor_many_with(keys, |_, row| rows.push(row)),
        Neighbor::Ceiling => table.ceiling_many_with(keys, |_, row| rows.push(row)),
    })?;
    Ok(rows)
}

/// Implements the methods `floor_many` and `ceiling_many` of a class. `target` is the Rust value in `object`.
pub(crate) fn neighbor_many<'py>(
    object: &Bound<'py, PyAny>,
    target: &impl FindNeighbors,
    keys: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    neighbor: Neighbor,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keys.py();
    if dtype.is_some() || is_arrow_array(keys)? {
        let is_floor = matches!(neighbor, Neighbor::Floor);
        return py.import("zero_kv._arrays")?.getattr("neighbor_many")?.call1((object, keys, dtype, is_floor));
    }
    let rows = target.find_neighbors(py, &KeyBatch::from_object(keys)?, neighbor)?;
    Ok(rows.into_list(py)?.into_any())
}
