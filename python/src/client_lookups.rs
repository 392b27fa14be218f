//! Lookups of rows, columns, and neighbors with a client.
//!
//! In: keys. Out: values, rows, and columns that servers sent. Other Python threads run until the responses have arrived.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use zero_kv::KeyKind;
use zero_kv::client::{ProjectedRows, RowsOrValues};
use zero_kv::typed::Schema;

use crate::client_requests::{Requests, SendRequests};
use crate::columns::{ColumnUse, LookUpColumns};
use crate::convert::{key_from, optional_row};
use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, LookUpMany, Values};
use crate::neighbors::{FindNeighbors, NearestRows, Neighbor};
use crate::typed_row::{TypedRow, value_object};

/// Calls a method of a connection with the keys of a batch, which are numbers or slices.
macro_rules! call_with_keys {
    ($client:expr, $py:expr, $keys:expr, |$connection:ident, $found:ident| $call:expr) => {{
        let numbers = if let KeyBatch::Numbers(numbers) = $keys { Some(&numbers[..]) } else { None };
        let slices = $keys.slices()?;
        $client.pool().call($py, |$connection| match numbers {
            Some($found) => $call,
            None => {
                let $found = &slices[..];
                $call
            }
        })
    }};
}

impl<C: SendRequests> LookUpMany for C {
    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut values = CopiedValues::with_capacity(keys.len());
        call_with_keys!(self, py, keys, |client, keys| client.get_each(keys, |value| values.push(value)))?;
        use_values(&Values::Copied(values), None)
    }

    fn look_up_rows<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        match call_with_keys!(self, py, keys, |client, keys| client.rows_or_values(keys))? {
            RowsOrValues::Values(values) => use_values(&Values::Received(values), None),
            RowsOrValues::Rows(rows) => {
                let schema = Arc::new(rows.schema().clone());
                use_values(&Values::Rows(rows), Some(&schema))
            }
        }
    }
}

/// Requests the value of a key.
pub(crate) fn value<'py>(client: &impl SendRequests, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, key) = (key.py(), key_from(key)?);
    let (values, schema) = match client.pool().call(py, |client| client.rows_or_values(&[key]))? {
        RowsOrValues::Values(values) => (Values::Received(values), None),
        RowsOrValues::Rows(rows) => {
            let schema = Arc::new(rows.schema().clone());
            (Values::Rows(rows), Some(schema))
        }
    };
    values.slices()[0].map(|value| value_object(py, schema.as_ref(), value)).transpose()
}

/// Requests the row of a key in a typed table.
pub(crate) fn typed_row(client: &impl SendRequests, key: &Bound<'_, PyAny>) -> PyResult<Option<TypedRow>> {
    let (py, key) = (key.py(), key_from(key)?);
    let rows = client.pool().call(py, |client| client.columns(&[key], None))?;
    let row = rows.row(0).map(|row| row.as_bytes());
    row.map(|bytes| TypedRow::new(&Arc::new(rows.schema().clone()), bytes)).transpose()
}

/// Requests whether the table has each of many keys.
pub(crate) fn exist(client: &impl SendRequests, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    let (py, keys) = (keys.py(), KeyBatch::from_object(keys)?);
    call_with_keys!(client, py, &keys, |client, keys| client.exist(keys))
}

/// Requests the row nearest to a key.
pub(crate) fn neighbor<'py>(
    client: &impl SendRequests,
    key: &Bound<'py, PyAny>,
    neighbor: Neighbor,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let (py, key) = (key.py(), key_from(key)?);
    let found = client.pool().call(py, |client| match neighbor {
        Neighbor::Floor => client.floors(&[key]),
        Neighbor::Ceiling => client.ceilings(&[key]),
    })?;
    optional_row(py, None, found.into_iter().next().flatten())
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
        let kind = if matches!(keys, KeyBatch::Numbers(_)) { KeyKind::U64 } else { KeyKind::Bytes };
        let found = call_with_keys!(self, py, keys, |client, keys| match neighbor {
            Neighbor::Floor => client.floors(keys),
            Neighbor::Ceiling => client.ceilings(keys),
        })?;
        let mut rows = NearestRows::with_capacity(kind, found.len());
        found.iter().for_each(|row| rows.push(row.as_ref().map(|(key, value)| (key.as_key(), &value[..]))));
        Ok(rows)
    }
}
