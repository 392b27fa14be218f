//! A table in the memory of this process.
//!
//! In: files, and tables that a server transferred or that are followed in an object store. Out: the current version of
//! the table, for lookups on any thread.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use zero_kv::{LookupError, MappedStore};

use crate::current_table::CurrentTable;
use crate::errors::closed;
use crate::served::ServedTable;
use crate::table_version::TableVersion;

/// A table in the memory of this process.
pub(crate) enum LocalTable {
    /// One version of a table.
    Fixed(FixedTable),
    /// The newest table of a server.
    Served(Box<ServedTable>),
    /// The current generation of a published table.
    #[cfg_attr(not(feature = "object-store"), expect(dead_code, reason = "only the class Published makes it"))]
    Published(Arc<CurrentTable>),
}

/// One version of a table, and the path of its file or of its server's socket.
pub(crate) struct FixedTable {
    /// `None` after the table was closed.
    table: ArcSwapOption<TableVersion>,
    path: PathBuf,
}

impl FixedTable {
    pub(crate) fn new(table: TableVersion, path: PathBuf) -> FixedTable {
        FixedTable { table: ArcSwapOption::from_pointee(table), path }
    }
}

impl LocalTable {
    /// Returns the current version of the table.
    pub(crate) fn version(&self, py: Python<'_>) -> PyResult<TableVersion> {
        match self {
            LocalTable::Fixed(FixedTable { table, path }) => match &*table.load() {
                Some(table) => Ok(TableVersion::clone(table)),
                None => Err(closed(path)),
            },
            LocalTable::Served(served) => Ok(TableVersion::Served(served.direct(py)?.snapshot())),
            LocalTable::Published(current) => Ok(TableVersion::File(current.table())),
        }
    }

    /// Runs `use_table` with the current version of the table, without a change of its number of references if
    /// possible.
    #[inline]
    pub(crate) fn with_table<T>(
        &self,
        py: Python<'_>,
        use_table: impl FnOnce(&MappedStore) -> Result<T, LookupError>,
    ) -> PyResult<Result<T, LookupError>> {
        match self {
            LocalTable::Fixed(FixedTable { table, path }) => match &*table.load() {
                Some(table) => Ok(use_table(table)),
                None => Err(closed(path)),
            },
            LocalTable::Served(served) => Ok(served.direct(py)?.with_table(use_table)),
            LocalTable::Published(current) => Ok(current.with_table(use_table)),
        }
    }

    /// Returns the path or the URL of the table.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            LocalTable::Fixed(fixed) => fixed.path.clone(),
            LocalTable::Served(served) => served.path().to_path_buf(),
            LocalTable::Published(current) => current.url.clone().into(),
        }
    }

    /// Ends the use of the table.
    pub(crate) fn close(&self, py: Python<'_>) {
        match self {
            LocalTable::Fixed(fixed) => {
                let table = fixed.table.swap(None);
                py.detach(|| drop(table));
            }
            LocalTable::Served(served) => served.close(py),
            LocalTable::Published(_) => unreachable!("Published has its own method close"),
        }
    }
}
