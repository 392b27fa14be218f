//! The class `ClientRows`: rows of a server or of a cluster in key order.
//!
//! In: a client, and a range. Out: rows, requested page by page.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use zero_kv::client::{KeyRange, OwnedKey};

use crate::client_requests::{Page, Requests, SendRequests};
use crate::convert::row_tuple;

/// Requests a page of rows of a range from one of its ends, which is the last one if the second argument is true.
type RequestPage = dyn Fn(Python<'_>, &KeyRange, bool) -> PyResult<Page> + Send + Sync;

/// The rows of a range in key order, requested page by page during each iteration.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    request_page: Arc<RequestPage>,
    range: KeyRange,
}

impl ClientRows {
    pub(crate) fn new<C: SendRequests>(client: &C, range: KeyRange) -> ClientRows
    where
        C::Connection: 'static,
    {
        let pool = Arc::clone(client.pool());
        let request_page = Arc::new(move |py: Python<'_>, range: &KeyRange, backward: bool| {
            pool.call(py, |connection| connection.page(range, backward))
        });
        ClientRows { request_page, range }
    }

    fn iterate(&self, backward: bool) -> ClientRowIterator {
        let request_page = Arc::clone(&self.request_page);
        ClientRowIterator { request_page, rest: Some(self.range.clone()), backward, page: Vec::new() }
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
}

#[pyclass(module = "zero_kv")]
pub(crate) struct ClientRowIterator {
    request_page: Arc<RequestPage>,
    /// The part of the range that has not been requested yet. `None` if the whole range was requested.
    rest: Option<KeyRange>,
    backward: bool,
    /// Rows that have been received, but not returned yet, in reverse order.
    page: Vec<(OwnedKey, Vec<u8>)>,
}

#[pymethods]
impl ClientRowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.page.is_empty()
            && let Some(range) = self.rest.take()
        {
            (self.page, self.rest) = (self.request_page)(py, &range, self.backward)?;
            if !self.backward {
                self.page.reverse();
            }
        }
        self.page.pop().map(|(key, value)| row_tuple(py, None, key.as_key(), &value)).transpose()
    }
}
