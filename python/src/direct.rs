//! The class `Direct`: looks keys up in this process, in the table that a server serves.

use std::path::PathBuf;

use pyo3::prelude::*;
use zero_kv::client::{self, DirectOptions, Options};

use crate::arguments::{UserName, duration, table_memory};
use crate::errors::client_exception;
use crate::interrupt;
use crate::served::ServedTable;
use crate::table::{FixedTable, Origin, Table};
use crate::table_version::TableVersion;

/// A server's table, in which this process looks keys up without sending requests.
///
/// The server transfers its file, and all processes share one copy of the file in memory. When the server serves a
/// new table, lookups use the new table within milliseconds. While no server runs, lookups use the last table.
/// Threads can share a `Direct`. After a fork, the child process requests its own transfer at its first lookup.
///
/// With `memory="copy"`, the process has a private copy, which nobody can change. The default of `path` is the value of
/// the environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`. `strict` is described at `Table`. `with` or `close`
/// disconnects from the server.
///
/// Raises `DirectRefused` if the server does not transfer its table, and the exceptions of `Client`.
#[pyclass(frozen, extends = Table, module = "zero_kv")]
pub(crate) struct Direct;

impl Direct {
    fn served<'a>(slf: &'a Bound<'_, Self>) -> &'a ServedTable {
        match &slf.as_super().get().origin {
            Origin::Server(served) => served,
            _ => unreachable!("the constructor sets Origin::Server"),
        }
    }
}

#[pymethods]
impl Direct {
    #[new]
    #[pyo3(signature = (path = None, *, memory = "map", connect_timeout = 1.0, timeout = Some(30.0),
                        server_user = None, strict = false),
           text_signature = "(path=None, *, memory=\"map\", connect_timeout=1.0, timeout=30.0, server_user=None, \
                             strict=False)")]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        memory: &str,
        connect_timeout: f64,
        timeout: Option<f64>,
        server_user: Option<UserName>,
        strict: bool,
    ) -> PyResult<PyClassInitializer<Direct>> {
        let options = DirectOptions {
            memory: table_memory(memory)?,
            client: Options {
                connect_timeout: duration("connect_timeout", connect_timeout)?,
                call_timeout: timeout.map(|timeout| duration("timeout", timeout)).transpose()?,
                server_user: server_user.map(String::from),
                interrupt_check: Some(interrupt::is_raised),
                ..Options::default()
            },
            ..DirectOptions::default()
        };
        let path = path.unwrap_or_else(client::default_address);
        let served = ServedTable::open(py, path, memory.to_owned(), options)?;
        let table = Table { origin: Origin::Server(Box::new(served)), is_strict: strict };
        Ok(PyClassInitializer::from(table).add_subclass(Direct))
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

    /// Return the current table, for several lookups in one version.
    ///
    /// The returned table does not change when the server serves a new table.
    fn snapshot(slf: &Bound<'_, Self>) -> PyResult<Table> {
        let served = Self::served(slf);
        let table = TableVersion::Served(served.direct(slf.py())?.snapshot());
        let fixed = FixedTable::new(table, served.path().to_path_buf(), None);
        Ok(Table { origin: Origin::Fixed(fixed), is_strict: slf.as_super().get().is_strict })
    }
}
