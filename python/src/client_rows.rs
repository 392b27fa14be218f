//! The class `ClientRows`: rows of a server or of a cluster in key order.
//!
//! In: a client, and a range. Out: keys, values, or rows, requested page by page.

use std::sync::Arc;
use std::vec;

use pyo3::prelude::*;
use zero_kv::client::{KeyRange, Row};

use crate::connection::call;
use crate::connection_pool::ConnectionPool;
use crate::convert::{key_object, lookup_key, range_kind, row_tuple};
use crate::errors::KeyKind;
use crate::neighbors::RowSchemas;
use crate::rows::RowPart;
use crate::typed_row::value_object;

/// The keys, values, or rows of a range in key order, requested page by page during each iteration. The values of a typed
/// table are `TypedRow`.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    pool: Arc<ConnectionPool>,
    range: KeyRange,
    part: RowPart,
    is_strict: bool,
}

impl ClientRows {
    pub(crate) fn new(pool: Arc<ConnectionPool>, range: KeyRange, part: RowPart, is_strict: bool) -> ClientRows {
        ClientRows { pool, range, part, is_strict }
    }

    pub(crate) fn iterate(&self, is_backward: bool) -> ClientRowIterator {
        ClientRowIterator {
            pool: Arc::clone(&self.pool),
            rest: Some(self.range.clone()),
            part: self.part,
            is_backward,
            page: Vec::new().into_iter(),
            page_len: 0,
            schemas: RowSchemas::Common(None),
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
            let found = pool.call_with_kind(item.py(), Some(key.kind()), |client| call!(client, contains_many(&[key])));
            return match found {
                Err(error) if !is_strict && error.is_instance_of::<KeyKind>(item.py()) => Ok(false),
                found => Ok(found? == [true]),
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
        format!("<zero_kv.ClientRows: {part} from {:?}, requested during iteration>", self.pool.name)
    }
}

#[pyclass(module = "zero_kv")]
pub(crate) struct ClientRowIterator {
    pool: Arc<ConnectionPool>,
    /// The part of the range that has not been requested yet. `None` if the whole range was requested.
    rest: Option<KeyRange>,
    part: RowPart,
    is_backward: bool,
    /// The rows of a page that have not been returned yet.
    page: vec::IntoIter<Row>,
    /// The number of rows that the page had.
    page_len: usize,
    /// The schemas of the page's rows.
    schemas: RowSchemas,
}

impl ClientRowIterator {
    /// Requests the next page, and the schema of its rows if values are needed.
    fn read_page(&mut self, py: Python<'_>, range: &KeyRange) -> PyResult<()> {
        py.check_signals()?;
        let needs_schema = self.part != RowPart::Keys;
        let (pool, is_backward) = (&self.pool, self.is_backward);
        let page =
            pool.call_with_kind(py, range_kind(range), |client| client.page(range, is_backward, needs_schema))?;
        self.page_len = page.rows.len();
        (self.page, self.rest, self.schemas) = (page.rows.into_iter(), page.rest, page.schemas);
        Ok(())
    }
}

#[pymethods]
impl ClientRowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.page.len() == 0
            && let Some(range) = self.rest.take()
        {
            self.read_page(py, &range)?;
        }
        let row = if self.is_backward { self.page.next_back() } else { self.page.next() };
        let Some((key, value)) = row else { return Ok(None) };
        let position = if self.is_backward { self.page.len() } else { self.page_len - 1 - self.page.len() };
        let schema = self.schemas.of_row(position);
        Ok(Some(match self.part {
            RowPart::Keys => key_object(py, key.as_key()),
            RowPart::Values => value_object(py, schema, &value)?,
            RowPart::Both => row_tuple(py, schema, key.as_key(), &value)?.into_any(),
        }))
    }
}
