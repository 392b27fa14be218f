//! The exception that stops a long operation.
//!
//! In: work on Python objects, on any thread. Out: the first exception of the work, which cancels the operation.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use zero_kv::bake::Cancel;

/// The interval between two checks of signals while an operation runs.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The exception that stopped an operation.
#[derive(Clone, Default)]
pub(crate) struct Raised {
    error: Arc<Mutex<Option<PyErr>>>,
    /// Cancels the operation.
    pub(crate) cancel: Cancel,
}

impl Raised {
    /// Runs `work` while this thread holds Python's global lock. An exception cancels the operation and is stored.
    pub(crate) fn guard(&self, work: impl FnOnce(Python<'_>) -> PyResult<()>) -> io::Result<()> {
        Python::attach(|py| {
            work(py).map_err(|error| {
                self.cancel.set();
                self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                io::Error::other("an exception was raised")
            })
        })
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
