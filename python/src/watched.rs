//! Transfers in another thread, while this thread serves Python.
//!
//! In: a transfer. Out: its result. The calling thread passes the progress to a callable, and checks signals, so Ctrl-C
//! cancels a transfer even if the store does not respond.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::progress::{Progress, ReportRate};
use crate::raised::{Raised, SIGNALS_EVERY};

/// A report, and where its recipient confirms that it was delivered.
type Report = (Progress, Sender<()>);

/// Passes the progress of a transfer to the thread that runs Python.
pub(crate) struct Reporter {
    reports: Sender<Report>,
    is_reported: bool,
    rate: ReportRate,
}

impl Reporter {
    /// Reports the progress of the transfer of a file. The transfer waits for the callable, so that its exception
    /// cancels the transfer before the next step.
    pub(crate) fn report(&mut self, progress: zero_kv::publish::TransferProgress, path: Option<&Path>) {
        if !self.is_reported || !self.rate.admits(progress) {
            return;
        }
        let (delivered, wait) = channel();
        if self.reports.send((Progress::new(progress, path.map(Path::to_path_buf)), delivered)).is_ok() {
            let _ = wait.recv();
        }
    }
}

/// Runs a transfer in another thread, while other Python threads run. Returns an error if that thread panicked. The
/// caller must handle the exception that `raised` may have.
pub(crate) fn run_watched<T: Send>(
    py: Python<'_>,
    raised: &Raised,
    callable: Option<&Py<PyAny>>,
    transfer: impl FnOnce(&mut Reporter) -> T + Send,
) -> PyResult<T> {
    let ended = py.detach(|| {
        let (sender, reports) = channel();
        let mut reporter = Reporter { reports: sender, is_reported: callable.is_some(), rate: ReportRate::default() };
        thread::scope(|scope| {
            // The thread drops the sender when it ends.
            let transferring = scope.spawn(move || transfer(&mut reporter));
            while let Some(report) = receive(&reports) {
                // The error needs no handling here: `guard` has stored the exception and canceled the transfer.
                let _ = raised.guard(|py| {
                    if let (Some((progress, _)), Some(callable)) = (&report, callable)
                        && !raised.cancel.is_set()
                    {
                        callable.call1(py, (progress.clone(),))?;
                    }
                    py.check_signals()
                });
                if let Some((_, delivered)) = report {
                    let _ = delivered.send(());
                }
            }
            transferring.join().ok()
        })
    });
    ended.ok_or_else(|| PyRuntimeError::new_err("the thread that transfers has panicked: see standard error"))
}

/// Waits until the next report arrives, or until signals should be checked: then returns `Some(None)`. Returns `None`
/// if no more reports arrive.
fn receive(reports: &Receiver<Report>) -> Option<Option<Report>> {
    match reports.recv_timeout(SIGNALS_EVERY) {
        Ok(report) => Some(Some(report)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}
