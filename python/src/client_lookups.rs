//! Lookups of rows, columns, and neighbors with a client.
//!
//! In: keys. Out: values, rows, and columns that servers sent. Other Python threads run until the responses have arrived.

use std::ops::Bound as End;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use zero_kv::client::{ClientError, KeyRange, ProjectedRows, RowsOrValues};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind};

use crate::client_requests::{Nearest, Requests};
use crate::client_rows::ClientRows;
use crate::columns::{ColumnUse, LookUpColumns};
use crate::connection_pool::SendRequests;
use crate::convert::{key_from, lookup_key, optional_row};
use crate::errors::{self, ServerError};
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, with_impossible};
use crate::many::{CopiedValues, LookUpMany, Values};
use crate::neighbors::{FindNeighbors, NearestRows, Neighbor};
use crate::received::row_objects;
use crate::rows::RowPart;
use crate::typed_row::{TypedRow, value_object};

/// Calls a method of a connection with keys, which are numbers or slices.
macro_rules! call_with_keys {
    ($client:expr, $py:expr, $keys:expr, |$connection:ident, $found:ident| $call:expr) => {{
        let numbers = if let KeyBatch::Numbers(numbers) = $keys { Some(&numbers[..]) } else { None };
        let slices = $keys.slices()?;
        $client.pool().call_with_kind($py, Some($keys.kind()), |$connection| match numbers {
            Some($found) => $call,
            None => {
                let $found = &slices[..];
                $call
            }
        })
    }};
}

impl<C: SendRequests> LookUpMany for C {
    fn is_strict(&self) -> bool {
        SendRequests::is_strict(self)
    }

    fn table_kind(&self, py: Python<'_>) -> PyResult<KeyKind> {
        self.pool().call(py, Requests::kind_of_keys)
    }

    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        self.pool().check_open()?;
        let (mut values, slices) = (CopiedValues::with_capacity(keys.len()), keys.slices()?);
        for part in chunks(keys, &slices) {
            self.pool().call_with_kind(py, Some(keys.kind()), |client| {
                let visit = |value: Option<&[u8]>| values.push(value);
                match part {
                    KeyChunk::Numbers(numbers) => client.get_each(numbers, visit),
                    KeyChunk::Slices(slices) => client.get_each(slices, visit),
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
        self.pool().check_open()?;
        let slices = keys.slices()?;
        let mut found = Vec::new();
        for part in chunks(keys, &slices) {
            found.push(self.pool().call_with_kind(py, Some(keys.kind()), |client| match part {
                KeyChunk::Numbers(numbers) => client.rows_or_values(numbers),
                KeyChunk::Slices(slices) => client.rows_or_values(slices),
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

/// Makes a call for a key that a table can have. Returns `None` for other keys, unless the client is strict.
pub(crate) fn call_for_key<C: SendRequests, T: Send>(
    client: &C,
    key: &Bound<'_, PyAny>,
    call: impl FnOnce(&mut C::Connection, Key<'_>) -> Result<T, ClientError> + Send,
) -> PyResult<Option<T>> {
    let Some(asked) = lookup_key(key, SendRequests::is_strict(client))? else {
        return client.pool().check_open().map(|()| None);
    };
    missing_if_other_kind(
        client,
        key.py(),
        client.pool().call_with_kind(key.py(), Some(asked.kind()), |connection| call(connection, asked)),
    )
}

/// Returns `None` if a table has keys of another kind, unless the client is strict.
fn missing_if_other_kind<T>(client: &impl SendRequests, py: Python<'_>, found: PyResult<T>) -> PyResult<Option<T>> {
    match found {
        Err(error) if !SendRequests::is_strict(client) && error.is_instance_of::<errors::KeyKind>(py) => Ok(None),
        found => found.map(Some),
    }
}

/// Requests the value of a key.
pub(crate) fn value<'py>(client: &impl SendRequests, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(found) = call_for_key(client, key, |client, key| client.rows_or_values(&[key]))? else {
        return Ok(None);
    };
    let schema = schema_of(&found).cloned().map(Arc::new);
    Values::from(found).slices()[0].map(|value| value_object(key.py(), schema.as_ref(), value)).transpose()
}

/// Requests the row of a key in a typed table.
pub(crate) fn typed_row(client: &impl SendRequests, key: &Bound<'_, PyAny>) -> PyResult<Option<TypedRow>> {
    let Some(rows) = call_for_key(client, key, |client, key| client.columns(&[key], None))? else { return Ok(None) };
    let row = rows.row(0).map(|row| row.as_bytes());
    row.map(|bytes| TypedRow::new(&Arc::new(rows.schema().clone()), bytes)).transpose()
}

/// Requests the rows of many keys in a typed table.
pub(crate) fn typed_rows(client: &impl SendRequests, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<TypedRow>>> {
    let (py, keys) = (keys.py(), possible_keys(client, keys)?);
    let found = missing_if_other_kind(client, py, request_columns(client, py, &keys.batch, None))?;
    let rows = match found {
        Some(rows) => row_objects(&rows)?,
        None => (0..keys.batch.len()).map(|_| None).collect(),
    };
    Ok(with_impossible(rows, keys.is_possible()))
}

fn possible_keys<'py>(client: &impl SendRequests, keys: &Bound<'py, PyAny>) -> PyResult<PossibleKeys<'py>> {
    LookUpMany::possible_keys(client, keys)
}

/// Requests whether the table has a key.
pub(crate) fn exists(client: &impl SendRequests, key: &Bound<'_, PyAny>) -> PyResult<bool> {
    let found = call_for_key(client, key, |client, key| client.exist(&[key]))?;
    Ok(found.is_some_and(|found| found == [true]))
}

/// Requests whether the table has each of many keys.
pub(crate) fn exist(client: &impl SendRequests, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    let (py, keys) = (keys.py(), possible_keys(client, keys)?);
    let batch = &keys.batch;
    let found = call_with_keys!(client, py, batch, |client, keys| client.exist(keys));
    let found = missing_if_other_kind(client, py, found)?.unwrap_or_else(|| vec![false; batch.len()]);
    let found = with_impossible(found.into_iter().map(Some).collect(), keys.is_possible());
    Ok(found.into_iter().map(|found| found.unwrap_or(false)).collect())
}

/// Requests the row nearest to a key.
pub(crate) fn neighbor<'py>(
    client: &impl SendRequests,
    key: &Bound<'py, PyAny>,
    neighbor: Neighbor,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let (py, key) = (key.py(), key_from(key)?);
    let found = client.pool().call_with_kind(py, Some(key.kind()), |client| match neighbor {
        Neighbor::Floor => client.floors(&[key]),
        Neighbor::Ceiling => client.ceilings(&[key]),
    })?;
    only_row(py, found)
}

/// Requests the row with the smallest key.
pub(crate) fn first_row<'py>(client: &impl SendRequests, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    only_row(py, client.pool().call(py, Requests::first)?)
}

/// Requests the row with the largest key.
pub(crate) fn last_row<'py>(client: &impl SendRequests, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    only_row(py, client.pool().call(py, Requests::last)?)
}

fn only_row(py: Python<'_>, (rows, schemas): Nearest) -> PyResult<Option<Bound<'_, PyTuple>>> {
    optional_row(py, schemas.of_row(0), rows.into_iter().next().flatten())
}

/// Returns parts of the rows of a range, which are requested during iterations.
pub(crate) fn rows(client: &impl SendRequests, range: KeyRange, part: RowPart) -> ClientRows {
    let pool = Arc::clone(client.pool());
    ClientRows::new(pool, range, part, SendRequests::is_strict(client))
}

pub(crate) fn all_rows(client: &impl SendRequests, part: RowPart) -> ClientRows {
    rows(client, KeyRange::new(End::Unbounded, End::Unbounded), part)
}

/// Requests the columns with these names, or all columns.
pub(crate) fn request_columns(
    client: &impl SendRequests,
    py: Python<'_>,
    keys: &KeyBatch<'_>,
    names: Option<&[&str]>,
) -> PyResult<ProjectedRows> {
    call_with_keys!(client, py, keys, |client, keys| client.columns(keys, names))
}

impl<C: SendRequests> LookUpColumns for C {
    fn look_up_columns(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        names: Option<&[&str]>,
        use_rows: impl ColumnUse,
    ) -> PyResult<Py<PyAny>> {
        use_rows.call(py, &request_columns(self, py, keys, names)?)
    }
}

impl<C: SendRequests> FindNeighbors for C {
    fn find_neighbors(&self, py: Python<'_>, keys: &KeyBatch<'_>, neighbor: Neighbor) -> PyResult<NearestRows> {
        let (found, schemas) = call_with_keys!(self, py, keys, |client, keys| match neighbor {
            Neighbor::Floor => client.floors(keys),
            Neighbor::Ceiling => client.ceilings(keys),
        })?;
        let mut rows = NearestRows::with_capacity(keys.kind(), found.len());
        rows.schemas = schemas;
        found.iter().for_each(|row| rows.push(row.as_ref().map(|(key, value)| (key.as_key(), &value[..]))));
        Ok(rows)
    }
}
