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
use crate::convert::key_from;
use crate::key_batch::KeyBatch;
use crate::many::{CopiedValues, LookUpMany, Values};
use crate::neighbors::{FindNeighbors, NearestRows, Neighbor};
use crate::typed_row::value_object;

impl LookUpMany for Client {
    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut values = CopiedValues::with_capacity(keys.len());
        let numbers = if let KeyBatch::Numbers(numbers) = keys { Some(&numbers[..]) } else { None };
        let slices = keys.slices()?;
        self.call(py, |client| {
            let visit = |_, value: Option<&[u8]>| values.push(value);
            match numbers {
                Some(numbers) => client.get_many_with(numbers, visit),
                None => client.get_many_with(&slices, visit),
            }
        })?;
        use_values(&Values::Copied(values), None)
    }

    fn look_up_rows<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let numbers = if let KeyBatch::Numbers(numbers) = keys { Some(&numbers[..]) } else { None };
        let slices = keys.slices()?;
        let found = self.call(py, |client| match numbers {
            Some(numbers) => client.get_rows_or_values(numbers),
            None => client.get_rows_or_values(&slices),
        })?;
        match found {
            RowsOrValues::Values(values) => use_values(&Values::Received(values), None),
            RowsOrValues::Rows(rows) => {
                let schema = Arc::new(rows.schema().clone());
                use_values(&Values::Rows(rows), Some(&schema))
            }
        }
    }
}

impl Client {
    /// Requests the value of a key.
    pub(crate) fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), key_from(key)?);
        let (values, schema) = match self.call(py, |client| client.get_rows_or_values(&[key]))? {
            RowsOrValues::Values(values) => (Values::Received(values), None),
            RowsOrValues::Rows(rows) => {
                let schema = Arc::new(rows.schema().clone());
                (Values::Rows(rows), Some(schema))
            }
        };
        values.slices()[0].map(|value| value_object(py, schema.as_ref(), value)).transpose()
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
        self.call(py, |client| match (names, numbers) {
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
        self.call(py, |client| {
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
