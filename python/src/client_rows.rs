//! The class `ClientRows`: rows of a server or of a cluster in key order.
//!
//! In: a client, and a range. Out: keys, values, or rows, requested page by page.

use std::sync::Arc;
use std::vec;

use pyo3::prelude::*;
use zero_kv::KeyType;
use zero_kv::client::{KeyRange, Row};

use crate::connection::{Connection, call};
use crate::connection_pool::{ConnectionPool, EncodedCalls, Encoding};
use crate::convert::range_kind;
use crate::errors::KeyKind;
use crate::neighbors::RowSchemas;
use crate::rows::RowPart;
use crate::typed_key::{key_object, lookup_key, range_between, range_with_prefix, row_tuple};
use crate::typed_row::value_object;

/// The keys, values, or rows of a range in key order, requested page by page during each iteration. The values of a typed
/// table are `TypedRow`.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    pool: Arc<ConnectionPool>,
    source: RowsSource,
    part: RowPart,
    is_strict: bool,
}

/// The rows to iterate over, as the caller has selected them. The keys are encoded when an iteration begins.
pub(crate) enum RowsSource {
    /// The rows from a key up to, but not including, another key.
    Between(Option<Py<PyAny>>, Option<Py<PyAny>>),
    Prefix(Py<PyAny>),
}

impl RowsSource {
    /// Returns the range in a table with keys of a type.
    pub(crate) fn range(&self, py: Python<'_>, key_type: KeyType) -> PyResult<KeyRange> {
        match self {
            RowsSource::Between(start, end) => {
                let bind = |end: &Option<Py<PyAny>>| end.as_ref().map(|end| end.bind(py).clone());
                range_between(key_type, bind(start).as_ref(), bind(end).as_ref())
            }
            RowsSource::Prefix(prefix) => range_with_prefix(key_type, prefix.bind(py)),
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> RowsSource {
        let clone = |end: &Option<Py<PyAny>>| end.as_ref().map(|end| end.clone_ref(py));
        match self {
            RowsSource::Between(start, end) => RowsSource::Between(clone(start), clone(end)),
            RowsSource::Prefix(prefix) => RowsSource::Prefix(prefix.clone_ref(py)),
        }
    }
}

impl ClientRows {
    /// Creates an object for rows. Raises the exception of a key that the table cannot have.
    pub(crate) fn new(
        py: Python<'_>,
        pool: Arc<ConnectionPool>,
        source: RowsSource,
        part: RowPart,
        is_strict: bool,
    ) -> PyResult<ClientRows> {
        pool.with_key_type(py, |calls| source.range(py, calls.encoding.key_type).map(drop))?;
        Ok(ClientRows { pool, source, part, is_strict })
    }

    pub(crate) fn iterate(&self, py: Python<'_>, is_backward: bool) -> ClientRowIterator {
        ClientRowIterator {
            pool: Arc::clone(&self.pool),
            next: Next::First(self.source.clone_ref(py)),
            key_type: KeyType::BYTES,
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
    fn __iter__(&self, py: Python<'_>) -> ClientRowIterator {
        self.iterate(py, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> ClientRowIterator {
        self.iterate(py, true)
    }

    fn __contains__(slf: &Bound<'_, Self>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let ClientRows { pool, part, is_strict, .. } = slf.get();
        if *part == RowPart::Keys {
            return pool.with_key_type(item.py(), |calls| {
                // Without `range`, all keys are selected.
                let key = lookup_key(item, calls.encoding.key_type, *is_strict)?;
                let Some(key) = key.as_ref().map(|key| key.as_key()) else {
                    return calls.check_type(item.py()).map(|()| false);
                };
                let look_up = |client: &mut Connection| call!(client, contains_many(&[key]));
                match calls.call_with_kind(item.py(), Some(key.kind()), look_up) {
                    Err(error) if !is_strict && error.is_instance_of::<KeyKind>(item.py()) => Ok(false),
                    found => Ok(found? == [true]),
                }
            });
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
    next: Next,
    /// The type of the keys of the rows.
    key_type: KeyType,
    part: RowPart,
    is_backward: bool,
    /// The rows of a page that have not been returned yet.
    page: vec::IntoIter<Row>,
    /// The number of rows that the page had.
    page_len: usize,
    /// The schemas of the page's rows.
    schemas: RowSchemas,
}

/// The rows that were not requested yet.
enum Next {
    /// All rows.
    First(RowsSource),
    /// A range whose ends are encoded.
    Rest(Encoding, KeyRange),
    End,
}

impl ClientRowIterator {
    /// Requests the next page, and the schema of its rows if values are needed. The first page determines the type of the
    /// keys. An iteration that finds another type later cannot continue, and raises `KeyTypeChanged`.
    fn read_page(&mut self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        let needs_schema = self.part != RowPart::Keys;
        let (pool, is_backward) = (&self.pool, self.is_backward);
        let request = |calls: EncodedCalls<'_>, range: &KeyRange| {
            calls.call_with_kind(py, range_kind(range), |client| client.page(range, is_backward, needs_schema))
        };
        let (encoding, page) = match std::mem::replace(&mut self.next, Next::End) {
            Next::First(source) => pool.with_key_type(py, |calls| {
                let range = source.range(py, calls.encoding.key_type)?;
                Ok((calls.encoding, request(calls, &range)?))
            })?,
            Next::Rest(encoding, range) => (encoding, request(pool.calls(encoding), &range)?),
            Next::End => return Ok(()),
        };
        (self.key_type, self.page_len) = (encoding.key_type, page.rows.len());
        self.next = page.rest.map_or(Next::End, |rest| Next::Rest(encoding, rest));
        (self.page, self.schemas) = (page.rows.into_iter(), page.schemas);
        Ok(())
    }
}

#[pymethods]
impl ClientRowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.page.len() == 0 {
            self.read_page(py)?;
        }
        let row = if self.is_backward { self.page.next_back() } else { self.page.next() };
        let Some((key, value)) = row else { return Ok(None) };
        let position = if self.is_backward { self.page.len() } else { self.page_len - 1 - self.page.len() };
        let schema = self.schemas.of_row(position);
        Ok(Some(match self.part {
            RowPart::Keys => key_object(py, self.key_type, key.as_key())?,
            RowPart::Values => value_object(py, schema, &value)?,
            RowPart::Both => row_tuple(py, self.key_type, schema, key.as_key(), &value)?.into_any(),
        }))
    }
}
