//! Lookups of rows, columns, and neighbors with a client.
//!
//! In: keys. Out: values, rows, and columns that a server sent. Other Python threads run until the responses have arrived.

use std::sync::Arc;

use pyo3::prelude::*;
use zero_kv::KeyKind;
use zero_kv::client::{self, RowsOrValues};
use zero_kv::typed::Schema;

use crate::client::Client;
use crate::columns::{ColumnUse, LookUpColumns};
use crate::errors::ServerError;
use crate::key_batch::{KeyBatch, SIGNALS_EVERY_KEYS};
use crate::many::{CopiedValues, LookUpMany, Values};
use crate::neighbors::{FindNeighbors, NearestRows, Neighbor};
use crate::typed_row::value_object;

impl LookUpMany for Client {
    fn is_strict(&self) -> bool {
        Client::is_strict(self)
    }

    fn table_kind(&self, py: Python<'_>) -> PyResult<KeyKind> {
        self.call(py, client::Client::key_kind)
    }

    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        self.check_open()?;
        let (mut values, slices) = (CopiedValues::with_capacity(keys.len()), keys.slices()?);
        for part in chunks(keys, &slices) {
            self.call_with_kind(py, keys.kind(), |client| {
                let visit = |_, value: Option<&[u8]>| values.push(value);
                match part {
                    KeyChunk::Numbers(numbers) => client.get_many_with(numbers, visit),
                    KeyChunk::Slices(slices) => client.get_many_with(slices, visit),
                }
            })?;
            py.check_signals()?;
        }
        use_values(&Values::Copied(values), None)
    }

    fn look_up_rows<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        self.check_open()?;
        let slices = keys.slices()?;
        let mut found = Vec::new();
        for part in chunks(keys, &slices) {
            found.push(self.call_with_kind(py, keys.kind(), |client| match part {
                KeyChunk::Numbers(numbers) => client.get_rows_or_values(numbers),
                KeyChunk::Slices(slices) => client.get_rows_or_values(slices),
            })?);
            py.check_signals()?;
        }
        let schemas: Vec<Option<&Schema>> = found.iter().map(schema_of).collect();
        if schemas.windows(2).any(|pair| pair[0].map(Schema::id) != pair[1].map(Schema::id)) {
            let message = "the table was replaced by a table with another schema during the call: try again";
            return Err(ServerError::new_err(message));
        }
        let schema = schemas.first().copied().flatten().cloned().map(Arc::new);
        let values = match found.len() {
            0 => Values::Borrowed(Vec::new()),
            1 => found.remove(0).into(),
            _ => {
                let mut values = CopiedValues::with_capacity(keys.len());
                found
                    .into_iter()
                    .map(Values::from)
                    .for_each(|part| part.slices().into_iter().for_each(|value| values.push(value)));
                Values::Copied(values)
            }
        };
        use_values(&values, schema.as_ref())
    }
}

/// Some keys of a call, which one call of the library looks up.
#[derive(Clone, Copy)]
enum KeyChunk<'k> {
    Numbers(&'k [u64]),
    Slices(&'k [&'k [u8]]),
}

/// Divides keys into chunks, between which signals are checked. `slices` are the keys if they are bytes.
fn chunks<'k>(keys: &'k KeyBatch<'_>, slices: &'k [&'k [u8]]) -> impl Iterator<Item = KeyChunk<'k>> {
    let numbers = if let KeyBatch::Numbers(numbers) = keys { &numbers[..] } else { &[] };
    let numbers = numbers.chunks(SIGNALS_EVERY_KEYS).map(KeyChunk::Numbers);
    numbers.chain(slices.chunks(SIGNALS_EVERY_KEYS).map(KeyChunk::Slices))
}

fn schema_of(found: &RowsOrValues) -> Option<&Schema> {
    match found {
        RowsOrValues::Values(_) => None,
        RowsOrValues::Rows(rows) => Some(rows.schema()),
    }
}

impl From<RowsOrValues> for Values<'_> {
    fn from(found: RowsOrValues) -> Self {
        match found {
            RowsOrValues::Values(values) => Values::Received(values),
            RowsOrValues::Rows(rows) => Values::Rows(rows),
        }
    }
}

impl Client {
    /// Requests the value of a key.
    pub(crate) fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let Some(found) = self.call_for_key(key, |client, key| client.get_rows_or_values(&[key]))? else {
            return Ok(None);
        };
        let schema = schema_of(&found).cloned().map(Arc::new);
        Values::from(found).slices()[0].map(|value| value_object(py, schema.as_ref(), value)).transpose()
    }

    /// Requests the columns with these names, or all columns.
    pub(crate) fn request_columns(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        names: Option<&[&str]>,
    ) -> PyResult<client::ProjectedRows> {
        let numbers = if let KeyBatch::Numbers(numbers) = keys { Some(&numbers[..]) } else { None };
        let slices = keys.slices()?;
        self.call_with_kind(py, keys.kind(), |client| match (names, numbers) {
            (None, Some(numbers)) => client.get_rows(numbers),
            (None, None) => client.get_rows(&slices),
            (Some(names), Some(numbers)) => client.get_columns(numbers, names),
            (Some(names), None) => client.get_columns(&slices, names),
        })
    }
}

impl LookUpColumns for Client {
    fn look_up_columns(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        names: Option<&[&str]>,
        use_rows: impl ColumnUse,
    ) -> PyResult<Py<PyAny>> {
        use_rows.call(py, &self.request_columns(py, keys, names)?)
    }
}

impl FindNeighbors for Client {
    fn find_neighbors(&self, py: Python<'_>, keys: &KeyBatch<'_>, neighbor: Neighbor) -> PyResult<NearestRows> {
        let numbers = if let KeyBatch::Numbers(numbers) = keys { Some(&numbers[..]) } else { None };
        let slices = keys.slices()?;
        self.call_with_kind(py, keys.kind(), |client| {
            let found = match (numbers, neighbor) {
                (Some(numbers), Neighbor::Floor) => client.floor_many(numbers),
                (Some(numbers), Neighbor::Ceiling) => client.ceiling_many(numbers),
                (None, Neighbor::Floor) => client.floor_many(&slices),
                (None, Neighbor::Ceiling) => client.ceiling_many(&slices),
            }?;
            let kind = if numbers.is_some() { KeyKind::U64 } else { KeyKind::Bytes };
            let mut rows = NearestRows::with_capacity(kind, found.len());
            found.iter().for_each(|row| rows.push(row.as_ref().map(|(key, value)| (key.as_key(), &value[..]))));
            Ok(rows)
        })
    }
}
