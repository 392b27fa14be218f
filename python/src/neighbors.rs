//! The rows nearest to many keys.
//!
//! In: keys, and a table or a client. Out: for each key, the row with the largest key at or below it (`floor`) or the
//! row with the smallest key at or above it (`ceiling`), in buffers from which `arrays` makes arrays, or as a list.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::Lookup;
use zero_kv::client::Row;
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind, KeyType, KeyValue, MappedStore};

use crate::errors::{KeyKind as KeyKindError, schema_changed};
use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, in_chunks, list_of};
use crate::typed_key::row_tuple;

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

    /// Returns the schema of all rows that were found, which have a value in `values`. `None` if they have none, or if
    /// a server sent none because it found no rows.
    pub(crate) fn common(&self, values: &CopiedValues) -> PyResult<Option<Arc<Schema>>> {
        let schemas = match self {
            RowSchemas::Common(schema) => return Ok(schema.clone()),
            RowSchemas::Each(schemas) => schemas,
        };
        let found = schemas.iter().zip(values.slices()).filter(|(_, value)| value.is_some());
        let mut found = found.map(|(schema, _)| schema.as_ref());
        let Some(first) = found.next() else { return Ok(None) };
        match found.all(|other| other.map(|schema| schema.id()) == first.map(|schema| schema.id())) {
            true => Ok(first.cloned()),
            false => Err(schema_changed()),
        }
    }
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

impl RowKeys {
    pub(crate) fn with_capacity(kind: KeyKind, count: usize) -> RowKeys {
        match kind {
            KeyKind::U64 => RowKeys::Numbers(Vec::with_capacity(count)),
            KeyKind::Bytes => RowKeys::Bytes(CopiedValues::with_capacity(count)),
        }
    }

    pub(crate) fn push(&mut self, key: Option<Key<'_>>) {
        match self {
            RowKeys::Numbers(numbers) => numbers.push(key.and_then(|key| key.as_u64()).unwrap_or_default()),
            RowKeys::Bytes(keys) => keys.push(key.and_then(|key| key.as_bytes())),
        }
    }

    /// Returns all keys. A number where no row was found is 0.
    pub(crate) fn keys(&self) -> Vec<Option<Key<'_>>> {
        match self {
            RowKeys::Numbers(numbers) => numbers.iter().map(|number| Some(Key::U64(*number))).collect(),
            RowKeys::Bytes(keys) => keys.slices().into_iter().map(|key| key.map(Key::Bytes)).collect(),
        }
    }

    /// Returns the keys as numbers: `u64`, IPv4 addresses, and the bits of `i64`, of days, or of microseconds since
    /// 1970. The number is 0 if `values` has no value for a key. Returns `None` if the keys are bytes.
    pub(crate) fn numbers(&self, key_type: KeyType, values: &CopiedValues) -> Option<Vec<u64>> {
        let RowKeys::Numbers(keys) = self else { return None };
        if key_type == KeyType::U64 {
            return Some(keys.clone());
        }
        let number = |key: u64| match key_type.values(Key::U64(key)).as_deref() {
            Some([KeyValue::I64(number) | KeyValue::Timestamp(number)]) => *number as u64,
            Some([KeyValue::Date(days)]) => i64::from(*days) as u64,
            // An IPv4 address is stored as its number.
            _ => key,
        };
        let values = values.slices();
        Some(keys.iter().zip(values).map(|(key, value)| value.map_or(0, |_| number(*key))).collect())
    }

    /// Returns the written forms of the keys.
    pub(crate) fn texts(&self, key_type: KeyType) -> CopiedValues {
        let keys = self.keys();
        let mut texts = CopiedValues::with_capacity(keys.len());
        let mut text = Vec::new();
        for key in keys {
            text.clear();
            if let Some(key) = key {
                key_type.write(key, &mut text);
            }
            texts.push(key.map(|_| &text[..]));
        }
        texts
    }

    /// Inserts a missing key at each position that is false in `is_valid`.
    fn insert_missing(&mut self, is_valid: &[bool]) {
        match self {
            RowKeys::Numbers(keys) => {
                let mut left = std::mem::take(keys).into_iter();
                let key = |is_valid: &bool| if *is_valid { left.next() } else { None }.unwrap_or_default();
                *keys = is_valid.iter().map(key).collect();
            }
            RowKeys::Bytes(keys) => keys.insert_missing(is_valid),
        }
    }
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
        let keys = RowKeys::with_capacity(kind, count);
        NearestRows { keys, values: CopiedValues::with_capacity(count), schemas: RowSchemas::Common(None) }
    }

    fn push(&mut self, row: Option<(Key<'_>, &[u8])>) {
        self.keys.push(row.map(|(key, _)| key));
        self.values.push(row.map(|(_, value)| value));
    }

    /// Drops each row whose key is beyond the limit of its requested key: below it for a floor, above it for a ceiling.
    pub(crate) fn apply_limits(&mut self, limits: &KeyBatch<'_>, neighbor: Neighbor) -> PyResult<()> {
        if limits.len() != self.values.len() {
            let (found, expected) = (limits.len(), self.values.len());
            let message = format!("limit has {found} keys, where {expected}, one for each of the keys, were expected");
            return Err(PyValueError::new_err(message));
        }
        let is_beyond = |found: Key<'_>, limit: Key<'_>| match neighbor {
            Neighbor::Floor => found < limit,
            Neighbor::Ceiling => found > limit,
        };
        let limits = limits.keys()?;
        let beyond: Vec<usize> = match &self.keys {
            _ if limits.is_empty() => Vec::new(),
            RowKeys::Numbers(keys) => {
                let keys = keys.iter().map(|key| Some(Key::U64(*key)));
                positions(keys.zip(&limits), is_beyond)?
            }
            RowKeys::Bytes(keys) => {
                let keys = keys.slices().into_iter().map(|key| key.map(Key::Bytes));
                positions(keys.zip(&limits), is_beyond)?
            }
        };
        beyond.into_iter().for_each(|position| self.remove(position));
        Ok(())
    }

    fn remove(&mut self, position: usize) {
        match &mut self.keys {
            RowKeys::Numbers(keys) => keys[position] = 0,
            RowKeys::Bytes(keys) => keys.remove(position),
        }
        self.values.remove(position);
    }

    /// Inserts a missing row at each position that is false in `is_valid`.
    pub(crate) fn insert_missing(&mut self, is_valid: &[bool]) {
        self.keys.insert_missing(is_valid);
        self.values.insert_missing(is_valid);
    }

    pub(crate) fn into_list(self, py: Python<'_>, key_type: KeyType) -> PyResult<Bound<'_, PyList>> {
        let values = self.values.slices();
        let keys = self.keys.keys();
        let row = |(position, (key, value)): (usize, (Option<Key<'_>>, Option<&[u8]>))| {
            key.zip(value)
                .map(|(key, value)| row_tuple(py, key_type, self.schemas.of_row(position), key, value))
                .transpose()
        };
        let rows = keys.into_iter().zip(values).enumerate().collect();
        list_of(py, rows, |found| Ok(row(found)?.map(Bound::into_any)))
    }
}

/// Returns the positions of the keys that are beyond their limits.
fn positions<'k>(
    keys: impl Iterator<Item = (Option<Key<'k>>, &'k Key<'k>)>,
    is_beyond: impl Fn(Key<'k>, Key<'k>) -> bool,
) -> PyResult<Vec<usize>> {
    let mut positions = Vec::new();
    for (position, (key, limit)) in keys.enumerate() {
        let Some(key) = key else { continue };
        if key.kind() != limit.kind() {
            let (found, expected) = (limit.kind(), key.kind());
            return Err(KeyKindError::new_err(format!(
                "limit has keys of kind {found}, where {expected} were expected"
            )));
        }
        if is_beyond(key, *limit) {
            positions.push(position);
        }
    }
    Ok(positions)
}
