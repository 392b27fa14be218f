//! The rows nearest to many keys.
//!
//! In: keys, and a table or a client. Out: for each key, the row with the largest key at or below it (`floor`) or the row with the
//! smallest key at or above it (`ceiling`), in buffers from which `arrays` makes arrays, or as a list.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::Lookup;
use zero_kv::client::Row;
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind, MappedStore};

use crate::convert::row_tuple;
use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, in_chunks, list_of};

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

/// The row nearest to each of some keys, and their schemas, which servers sent.
pub(crate) type Nearest = (Vec<Option<Row>>, RowSchemas);

/// The schemas of rows.
pub(crate) enum RowSchemas {
    /// All rows have the same schema, or none.
    Common(Option<Arc<Schema>>),
    /// The schema of each row.
    Each(Vec<Option<Arc<Schema>>>),
}

impl RowSchemas {
    /// Returns the schema of the row at a position.
    pub(crate) fn of_row(&self, position: usize) -> Option<&Arc<Schema>> {
        match self {
            RowSchemas::Common(schema) => schema.as_ref(),
            RowSchemas::Each(schemas) => schemas[position].as_ref(),
        }
    }
}

/// The rows that were found for some keys. `keys` and `values` have one element per requested key.
pub(crate) struct NearestRows {
    pub(crate) keys: RowKeys,
    pub(crate) values: CopiedValues,
    schemas: RowSchemas,
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
        let mut rows = NearestRows::with_capacity(keys.kind(), keys.len());
        rows.schemas = RowSchemas::Common(table.schema());
        match keys {
            // Without keys there is no key kind to check.
            KeyBatch::Numbers(numbers) => rows.find_each(py, table, numbers, neighbor)?,
            _ => rows.find_each(py, table, &keys.slices()?, neighbor)?,
        }
        Ok(rows)
    }

    fn find_each<'k, K>(&mut self, py: Python<'_>, table: &MappedStore, keys: &[K], neighbor: Neighbor) -> PyResult<()>
    where
        K: Into<Key<'k>> + Copy + Sync,
    {
        in_chunks(py, keys, |keys| match neighbor {
            Neighbor::Floor => table.floor_many_with(keys, |_, row| self.push(row)),
            Neighbor::Ceiling => table.ceiling_many_with(keys, |_, row| self.push(row)),
        })
    }

    /// Copies the rows that servers sent for keys of this kind.
    pub(crate) fn received(kind: KeyKind, (found, schemas): Nearest) -> NearestRows {
        let mut rows = NearestRows::with_capacity(kind, found.len());
        rows.schemas = schemas;
        found.iter().for_each(|row| rows.push(row.as_ref().map(|(key, value)| (key.as_key(), &value[..]))));
        rows
    }

    fn with_capacity(kind: KeyKind, count: usize) -> NearestRows {
        let keys = match kind {
            KeyKind::U64 => RowKeys::Numbers(Vec::with_capacity(count)),
            KeyKind::Bytes => RowKeys::Bytes(CopiedValues::with_capacity(count)),
        };
        NearestRows { keys, values: CopiedValues::with_capacity(count), schemas: RowSchemas::Common(None) }
    }

    fn push(&mut self, row: Option<(Key<'_>, &[u8])>) {
        let key = row.map(|(key, _)| key);
        match &mut self.keys {
            RowKeys::Numbers(numbers) => numbers.push(key.and_then(|key| key.as_u64()).unwrap_or_default()),
            RowKeys::Bytes(keys) => keys.push(key.and_then(|key| key.as_bytes())),
        }
        self.values.push(row.map(|(_, value)| value));
    }

    pub(crate) fn into_list(self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
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
