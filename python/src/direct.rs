//! The table that a server serves, looked up in this process.
//!
//! In: a socket's path. Out: the newest table that the server handed over. A child
//! process has its own handed over, for threads are not forked.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use zero_kv::client::{self, Client, DirectOptions, Options};

use crate::client::{UserName, duration};
use crate::errors::of_client;
use crate::table::{Origin, Snapshot, Table, held};

/// How many forks lie between the first process that loaded this module and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Called in each child of a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// What a server hands over.
pub(crate) struct Served {
    path: PathBuf,
    memory: String,
    options: DirectOptions,
    /// Only locked while Python is attached, which a fork by Python waits for: no child finds it locked.
    mapped: Mutex<Mapped>,
}

struct Mapped {
    direct: client::Direct,
    /// As many forks had been when it was handed over.
    forks: u64,
}

impl Served {
    fn open(py: Python<'_>, path: PathBuf, memory: String, options: DirectOptions) -> PyResult<Served> {
        let mapped = Mutex::new(Mapped::open(py, &path, &options)?);
        Ok(Served { path, memory, options, mapped })
    }

    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process has mapped.
    pub(crate) fn direct(&self, py: Python<'_>) -> PyResult<client::Direct> {
        {
            let mapped = self.mapped();
            if mapped.forks == FORKS.load(Ordering::Relaxed) {
                return Ok(mapped.direct.clone());
            }
        }
        let opened = Mapped::open(py, &self.path, &self.options)?;
        let mut mapped = self.mapped();
        // Unless another thread was faster.
        if mapped.forks != opened.forks {
            // The parent's thread is not in this process, so nothing here ends it.
            mem::forget(mem::replace(&mut *mapped, opened));
        }
        Ok(mapped.direct.clone())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What another process makes its own of.
    pub(crate) fn arguments(&self) -> (&Path, &str, f64, Option<f64>, Option<&str>) {
        let Options { connect_timeout, call_timeout, server_user, .. } = &self.options.client;
        let call_timeout_s = call_timeout.map(|timeout| timeout.as_secs_f64());
        (&self.path, &self.memory, connect_timeout.as_secs_f64(), call_timeout_s, server_user.as_deref())
    }
}

impl Mapped {
    fn open(py: Python<'_>, path: &Path, options: &DirectOptions) -> PyResult<Mapped> {
        let forks = FORKS.load(Ordering::Relaxed);
        let opened = py.detach(|| Client::connect_with(path, &options.client)?.direct_with(options));
        Ok(Mapped { direct: opened.map_err(|error| of_client(&error))?, forks })
    }
}

/// The table that a server serves, looked up in this process: no question is sent, and no value copied twice.
///
/// The server hands its file over, and all processes share that one copy. When it serves a new table, lookups are in
/// that within milliseconds; while there is no server, in what is there. Threads share it; a child process has the
/// table handed over to itself when it first looks up.
///
/// With `memory="copy"` the process has a copy, which nobody can change in place.
///
/// Raises `DirectRefused` if the server does not hand its table over, and what `Client` raises.
#[pyclass(frozen, extends = Table, module = "zero_kv")]
pub(crate) struct Direct;

impl Direct {
    fn served<'a>(slf: &'a Bound<'_, Self>) -> &'a Served {
        match &slf.as_super().get().0 {
            Origin::Server(served) => served,
            Origin::Fixed { .. } => unreachable!("no Direct is made of a file"),
        }
    }
}

#[pymethods]
impl Direct {
    #[new]
    #[pyo3(signature = (path = "/tmp/zero-kv.sock".into(), *, memory = "map", connect_timeout = 5.0, timeout = Some(30.0),
                        server_user = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        memory: &str,
        connect_timeout: f64,
        timeout: Option<f64>,
        server_user: Option<UserName>,
    ) -> PyResult<PyClassInitializer<Direct>> {
        let options = DirectOptions {
            memory: held(memory)?,
            client: Options {
                connect_timeout: duration("connect_timeout", connect_timeout)?,
                call_timeout: timeout.map(|timeout| duration("timeout", timeout)).transpose()?,
                server_user: server_user.map(String::from),
                ..Options::default()
            },
            ..DirectOptions::default()
        };
        let served = Served::open(py, path, memory.to_owned(), options)?;
        Ok(PyClassInitializer::from(Table(Origin::Server(served))).add_subclass(Direct))
    }

    /// The server's number of the table that is looked up in.
    #[getter]
    fn generation(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Ok(Self::served(slf).direct(slf.py())?.generation())
    }

    /// Whether there is a server.
    #[getter]
    fn is_connected(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(Self::served(slf).direct(slf.py())?.is_connected())
    }

    /// Have what is served now handed over, if it is another table, and wait for it.
    fn refresh(slf: &Bound<'_, Self>) -> PyResult<()> {
        let direct = Self::served(slf).direct(slf.py())?;
        slf.py().detach(|| direct.refresh()).map_err(|error| of_client(&error))
    }

    /// The table as it is now, which stays as it is: several lookups in one and the same.
    fn snapshot(slf: &Bound<'_, Self>) -> PyResult<Table> {
        let served = Self::served(slf);
        let table = Snapshot::Served(served.direct(slf.py())?.snapshot());
        Ok(Table(Origin::Fixed { table, path: served.path.clone(), opened: None }))
    }
}
