//! The class `ClientRows`: rows of a server or of a cluster in key order.
//!
//! In: a client, and a range. Out: keys, values, or rows, requested page by page.

use std::sync::Arc;

use pyo3::prelude::*;
use zero_kv::Key;
use zero_kv::client::{KeyRange, OwnedKey};
use zero_kv::typed::Schema;

use crate::client_requests::{Page, Requests};
use crate::connection_pool::ConnectionPool;
use crate::convert::{key_object, lookup_key, range_kind, row_tuple};
use crate::errors::{KeyKind, ServerError};
use crate::rows::RowPart;
use crate::typed_row::value_object;

/// How often a page is requested again because the table was replaced by a table with another schema.
const SCHEMA_CHANGES_MAX: usize = 10;

/// What a client knows about the schema of a table: the schema, or that there is none.
type KnownSchema = Option<Arc<Schema>>;

/// Connections that pages are requested on.
pub(crate) trait RequestPages: Send + Sync {
    /// Returns the name of the server or of the cluster.
    fn name(&self) -> &str;

    /// Requests the first or the last page of a range, between two requests for the schema if it is needed. Returns the
    /// page and both schemas. The first one is not requested if it is known.
    fn request_page(
        &self,
        py: Python<'_>,
        range: &KeyRange,
        is_backward: bool,
        known: Option<KnownSchema>,
        needs_schema: bool,
    ) -> PyResult<(Page, KnownSchema, KnownSchema)>;

    /// Requests whether the table has a key.
    fn request_exists(&self, py: Python<'_>, key: Key<'_>) -> PyResult<bool>;
}

impl<C: Requests> RequestPages for ConnectionPool<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn request_page(
        &self,
        py: Python<'_>,
        range: &KeyRange,
        is_backward: bool,
        known: Option<KnownSchema>,
        needs_schema: bool,
    ) -> PyResult<(Page, KnownSchema, KnownSchema)> {
        self.call_with_kind(py, range_kind(range), |client| {
            let needs_schema = needs_schema && C::ROWS_HAVE_SCHEMA;
            let schema_of = |client: &mut C| if needs_schema { client.schema_of_table() } else { Ok(None) };
            let first = match known {
                Some(schema) => schema,
                None => schema_of(client)?,
            };
            let page = client.page(range, is_backward)?;
            Ok((page, first, schema_of(client)?))
        })
    }

    fn request_exists(&self, py: Python<'_>, key: Key<'_>) -> PyResult<bool> {
        Ok(self.call_with_kind(py, Some(key.kind()), |client| client.exist(&[key]))? == [true])
    }
}

/// The keys, values, or rows of a range in key order, requested page by page during each iteration. The values of a typed
/// table are `TypedRow`.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    source: Arc<dyn RequestPages>,
    range: KeyRange,
    part: RowPart,
    is_strict: bool,
}

impl ClientRows {
    pub(crate) fn new(source: Arc<dyn RequestPages>, range: KeyRange, part: RowPart, is_strict: bool) -> ClientRows {
        ClientRows { source, range, part, is_strict }
    }

    pub(crate) fn iterate(&self, is_backward: bool) -> ClientRowIterator {
        ClientRowIterator {
            source: Arc::clone(&self.source),
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
        let ClientRows { source, part, is_strict, .. } = slf.get();
        if *part == RowPart::Keys {
            // Without `range`, all keys are selected.
            let Some(key) = lookup_key(item, *is_strict)? else { return Ok(false) };
            return match source.request_exists(item.py(), key) {
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
        format!("<zero_kv.ClientRows: {part} from {:?}, requested during iteration>", self.source.name())
    }
}

#[pyclass(module = "zero_kv")]
pub(crate) struct ClientRowIterator {
    source: Arc<dyn RequestPages>,
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
        let mut before = self.schema.take();
        for _ in 0..=SCHEMA_CHANGES_MAX {
            let ((rows, rest), first, last) =
                self.source.request_page(py, range, is_backward, before.take(), needs_schema)?;
            if first.as_ref().map(|schema| schema.id()) == last.as_ref().map(|schema| schema.id()) {
                (self.page, self.rest) = (rows, rest);
                if !is_backward {
                    self.page.reverse();
                }
                self.schema = Some(last);
                return Ok(());
            }
            before = Some(last);
        }
        let message = "the table's schema changed during each request for rows: try again later";
        Err(ServerError::new_err(format!("{}: {message}", self.source.name())))
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
