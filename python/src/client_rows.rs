//! The class `ClientRows`: rows of a server in key order.
//!
//! In: a client, and a range. Out: keys, values, or rows, requested page by page.

use std::sync::Arc;

use pyo3::prelude::*;
use zero_kv::client::{Client, ClientError, KeyRange, OwnedKey, RowPage};
use zero_kv::typed::Schema;

use crate::connection_pool::ConnectionPool;
use crate::convert::{key_object, lookup_key, range_kind, row_tuple};
use crate::errors::{KeyKind, ServerError};
use crate::rows::RowPart;
use crate::typed_row::value_object;

/// How often a page is requested again because the table was replaced by a table with another schema.
const SCHEMA_CHANGES_MAX: usize = 10;

/// The keys, values, or rows of a range in key order, requested page by page during each iteration. The values of a typed
/// table are `TypedRow`.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) range: KeyRange,
    pub(crate) part: RowPart,
    pub(crate) is_strict: bool,
}

impl ClientRows {
    pub(crate) fn iterate(&self, is_backward: bool) -> ClientRowIterator {
        ClientRowIterator {
            pool: Arc::clone(&self.pool),
            rest: Some(self.range.clone()),
            part: self.part,
            is_backward,
            schema: None,
            page: Vec::new(),
        }
    }
}

#[pymethods]
impl ClientRows {
    fn __iter__(&self) -> ClientRowIterator {
        self.iterate(false)
    }

    fn __reversed__(&self) -> ClientRowIterator {
        self.iterate(true)
    }

    fn __contains__(slf: &Bound<'_, Self>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let ClientRows { pool, part, is_strict, .. } = slf.get();
        if *part == RowPart::Keys {
            // Without `range`, all keys are selected.
            let Some(key) = lookup_key(item, *is_strict)? else { return Ok(false) };
            return match pool.call_with_kind(item.py(), Some(key.kind()), |client| client.exists(key)) {
                Err(error) if !is_strict && error.is_instance_of::<KeyKind>(item.py()) => Ok(false),
                found => found,
            };
        }
        for row in slf.try_iter()? {
            if row?.eq(item)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let part = match self.part {
            RowPart::Keys => "keys",
            RowPart::Values => "values",
            RowPart::Both => "rows",
        };
        format!("<zero_kv.ClientRows: {part} from {:?}, requested during iteration>", self.pool.address)
    }
}

#[pyclass(module = "zero_kv")]
pub(crate) struct ClientRowIterator {
    pool: Arc<ConnectionPool>,
    /// The part of the range that has not been requested yet. `None` if the whole range was requested.
    rest: Option<KeyRange>,
    part: RowPart,
    is_backward: bool,
    /// The schema of the table when the last page arrived. `None` before the first page.
    schema: Option<Option<Arc<Schema>>>,
    /// Rows that have been received, but not returned yet, in reverse order.
    page: Vec<(OwnedKey, Vec<u8>)>,
}

impl ClientRowIterator {
    /// Requests the next page. Reads the schema before and after the page, so that the rows have this schema.
    fn read_page(&mut self, py: Python<'_>, range: &KeyRange) -> PyResult<()> {
        py.check_signals()?;
        let (is_backward, needs_schema) = (self.is_backward, self.part != RowPart::Keys);
        let schema_of = |client: &mut Client| -> Result<Option<Arc<Schema>>, ClientError> {
            match needs_schema {
                true => client.schema(),
                false => Ok(None),
            }
        };
        let mut before = self.schema.take();
        for _ in 0..=SCHEMA_CHANGES_MAX {
            let kind = range_kind(range);
            let known = before.take();
            let (page, first, last): (RowPage, _, _) = self.pool.call_with_kind(py, kind, |client| {
                let first = match known {
                    Some(schema) => schema,
                    None => schema_of(client)?,
                };
                let page = match is_backward {
                    false => client.first_page(range.bounds(), 0),
                    true => client.last_page(range.bounds(), 0),
                }?;
                Ok((page, first, schema_of(client)?))
            })?;
            if first.as_ref().map(|schema| schema.id()) == last.as_ref().map(|schema| schema.id()) {
                self.page = page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
                if !is_backward {
                    self.page.reverse();
                }
                self.rest = page.rest().cloned();
                self.schema = Some(last);
                return Ok(());
            }
            before = Some(last);
        }
        let message = "the table's schema changed during each request for rows: try again later";
        Err(ServerError::new_err(format!("{}: {message}", self.pool.address.display())))
    }
}

#[pymethods]
impl ClientRowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.page.is_empty()
            && let Some(range) = self.rest.take()
        {
            self.read_page(py, &range)?;
        }
        let Some((key, value)) = self.page.pop() else { return Ok(None) };
        let schema = self.schema.as_ref().and_then(Option::as_ref);
        Ok(Some(match self.part {
            RowPart::Keys => key_object(py, key.as_key()),
            RowPart::Values => value_object(py, schema, &value)?,
            RowPart::Both => row_tuple(py, schema, key.as_key(), &value)?.into_any(),
        }))
    }
}
