//! A table that a server transfers to this process.
//!
//! In: a socket's path. Out: the library's `Direct` for this process. After a fork, the child process requests the
//! table again, because a fork does not copy the thread that watches the server.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use zero_kv::client::{Client, Direct, DirectOptions};

use crate::errors::{client_exception, closed};

/// The number of forks between the process that first loaded this module and this process.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts a fork. Python calls this function in each child process.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of forks before this process.
#[cfg(feature = "object-store")]
pub(crate) fn fork_count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// A table that a server transfers.
pub(crate) struct ServedTable {
    path: PathBuf,
    options: DirectOptions,
    /// A thread locks this mutex only while it holds Python's global lock. A thread that forks holds Python's global
    /// lock, too, so no child process inherits a locked mutex.
    ///
    /// `None` after the table was closed.
    transferred: Mutex<Option<Transferred>>,
}

/// The table that the server transferred to one process.
struct Transferred {
    direct: Direct,
    /// The value of `FORKS` at the transfer.
    forks: u64,
}

impl ServedTable {
    pub(crate) fn open(py: Python<'_>, path: PathBuf, options: DirectOptions) -> PyResult<ServedTable> {
        let transferred = Mutex::new(Some(Transferred::open(py, &path, &options)?));
        Ok(ServedTable { path, options, transferred })
    }

    fn transferred(&self) -> MutexGuard<'_, Option<Transferred>> {
        self.transferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the table that the server has transferred to this process. The first call after a fork requests a new
    /// transfer.
    pub(crate) fn direct(&self, py: Python<'_>) -> PyResult<Direct> {
        {
            let transferred = self.transferred();
            let transferred = transferred.as_ref().ok_or_else(|| closed(&self.path))?;
            if transferred.forks == FORKS.load(Ordering::Relaxed) {
                return Ok(transferred.direct.clone());
            }
        }
        let opened = Transferred::open(py, &self.path, &self.options)?;
        let mut transferred = self.transferred();
        let transferred = transferred.as_mut().ok_or_else(|| closed(&self.path))?;
        // Another thread may have replaced the table during the transfer.
        if transferred.forks != opened.forks {
            // Dropping the parent's table would wait for a thread that does not exist in this process.
            mem::forget(mem::replace(transferred, opened));
        }
        Ok(transferred.direct.clone())
    }

    /// Disconnects from the server. Later lookups raise `Closed`.
    pub(crate) fn close(&self, py: Python<'_>) {
        let Some(transferred) = self.transferred().take() else { return };
        match transferred.forks == FORKS.load(Ordering::Relaxed) {
            true => py.detach(|| drop(transferred)),
            // Dropping the parent's table would wait for a thread that does not exist in this process.
            false => mem::forget(transferred),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Transferred {
    fn open(py: Python<'_>, path: &Path, options: &DirectOptions) -> PyResult<Transferred> {
        let forks = FORKS.load(Ordering::Relaxed);
        let opened = py.detach(|| Client::connect_with(path, &options.client)?.direct_with(options));
        Ok(Transferred { direct: opened.map_err(|error| client_exception(&error))?, forks })
    }
}
