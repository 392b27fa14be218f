//! Signals during long calls.
//!
//! In: a call of a client that a signal has interrupted, or a pause of a long lookup. Out: the exception of Python's signal handler, such as `KeyboardInterrupt`.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    /// The exception that ends the call of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs Python's signal handlers, and keeps their exception for `take`. Returns whether there is one.
pub(crate) fn is_raised() -> bool {
    Python::attach(|py| {
        let raised = py.check_signals().err();
        let is_raised = raised.is_some();
        RAISED.set(raised);
        is_raised
    })
}

/// Returns the exception that ended the last call of this thread.
pub(crate) fn take() -> Option<PyErr> {
    RAISED.take()
}
