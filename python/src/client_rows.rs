//! The class `ClientRows`: rows of a server in key order.
//!
//! In: a client, and a range. Out: rows, requested page by page.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use zero_kv::client::{KeyRange, OwnedKey};

use crate::connection_pool::ConnectionPool;
use crate::convert::row_tuple;

/// The rows of a range in key order, requested page by page during each iteration.
///
/// If the server replaces its table during an iteration, the rows come from both the old and the new table.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) range: KeyRange,
}

impl ClientRows {
    fn iterate(&self, backward: bool) -> ClientRowIterator {
        ClientRowIterator { pool: Arc::clone(&self.pool), rest: Some(self.range.clone()), backward, page: Vec::new() }
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
    pool: Arc<ConnectionPool>,
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
            let backward = self.backward;
            let page = self.pool.call(py, |client| match backward {
                false => client.first_page(range.bounds(), 0),
                true => client.last_page(range.bounds(), 0),
            })?;
            self.page = page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
            if !backward {
                self.page.reverse();
            }
            self.rest = page.rest().cloned();
        }
        self.page.pop().map(|(key, value)| row_tuple(py, None, key.as_key(), &value)).transpose()
    }
}
