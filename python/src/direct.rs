//! The class `Direct`: looks keys up in this process, in the table that a server serves.

use std::path::PathBuf;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zero_kv::client::{self, DirectOptions};

use crate::arguments::table_memory;
use crate::errors::client_exception;
use crate::local_table::LocalTable;
use crate::lookup_table::Arguments;
use crate::options::Keywords;
use crate::served::ServedTable;
use crate::table::{Table, table_in};

/// A server's table, in which this process looks keys up without sending requests.
///
/// The server transfers its file, and all processes share one copy of the file in memory. When the server serves a
/// new table, lookups use the new table within milliseconds. While no server runs, lookups use the last table.
/// Threads can share a `Direct`. After a fork, the child process requests its own transfer at its first lookup.
///
/// With `memory="copy"`, the process has a private copy, which nobody can change. The default of `path` is the value of
/// the environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`. `strict` is described at `LookupTable`, and the
/// times at `Client`. `close`, also at the end of `with`, disconnects from the server.
///
/// Raises `DirectRefused` if the server does not transfer its table, and the exceptions of `Client`.
#[pyclass(frozen, extends = Table, module = "zero_kv")]
pub(crate) struct Direct;

impl Direct {
    fn served<'a>(slf: &'a Bound<'_, Self>) -> &'a ServedTable {
        match slf.as_super().as_super().get().table() {
            LocalTable::Served(served) => served,
            _ => unreachable!("the constructor sets LocalTable::Served"),
        }
    }
}

#[pymethods]
impl Direct {
    #[new]
    #[pyo3(signature = (path = None, **options))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Direct>> {
        let path = path.unwrap_or_else(client::default_address);
        let arguments =
            Arguments::new(py.get_type::<Direct>().into_any(), path.as_os_str().into_bound_py_any(py)?, options)?;
        let keywords = Keywords::new(py, options)?;
        let mut options = DirectOptions { client: keywords.client_options()?, ..DirectOptions::default() };
        if let Some(memory) = keywords.take::<String>("memory")? {
            options.memory = table_memory(&memory)?;
        }
        let is_strict = keywords.finish()?;
        let served = ServedTable::open(py, path, options)?;
        Ok(table_in(LocalTable::Served(Box::new(served)), is_strict, arguments).add_subclass(Direct))
    }

    /// The number of the generation that lookups use, as assigned by the server.
    #[getter]
    fn generation(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Ok(Self::served(slf).direct(slf.py())?.generation())
    }

    /// Whether the process is connected to a running server.
    #[getter]
    fn is_connected(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(Self::served(slf).direct(slf.py())?.is_connected())
    }

    /// Wait until lookups use the table that the server serves now.
    fn refresh(slf: &Bound<'_, Self>) -> PyResult<()> {
        let direct = Self::served(slf).direct(slf.py())?;
        slf.py().detach(|| direct.refresh()).map_err(|error| client_exception(&error))
    }
}
