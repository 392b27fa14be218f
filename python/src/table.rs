//! The class `Table`: a table in the memory of this process.
//!
//! In: a path, then keys. Out: what only tables in this process have: views, a digest, and snapshots. Values of a
//! mapped file are copied and then verified. Values are borrowed only from memory that nobody can change.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};
use zero_kv::Lookup;
use zero_kv::store::{self, OpenOptions, Verify};
use zero_kv::{LookupError, MappedStore, Store, StoreError};

use crate::arguments::{table_memory, unknown_value};
use crate::convert::missing_key;
use crate::errors::{lookup_exception, store_exception};
use crate::local_table::{FixedTable, LocalTable};
use crate::lookup_table::{Arguments, LookupTable};
use crate::table_version::TableVersion;
use crate::typed_key::lookup_key;
use crate::view::Memory;

/// A table in the memory of this process: of a file, and, as a `Direct` or `Published`, the newest one of a server
/// or of an object store.
///
/// All results of a call come from one version of the table. With 64 keys or more, other threads run during a call.
/// Threads can share a table. `close`, also at the end of `with`, unmaps the file. Rows, iterators, and views that
/// exist remain valid, and keep the file mapped. A table is false if it has no rows, like a dict.
///
/// A lookup in a file that was changed in place or truncated raises `Damaged`. To replace a file, rename a new file
/// to its name, as `bake` does. Changes of a mapped file are detected by its length and its times. A change is not
/// detected if somebody writes through a mapping that is older than the table's, or, on tmpfs, through any mapping.
/// Nobody can change a table with `memory="copy"`.
#[pyclass(frozen, extends = LookupTable, subclass, module = "zero_kv")]
pub(crate) struct Table;

/// Open a baked file, without a server.
///
/// With `verify="full"`, the whole file is verified before this function returns. With `verify="touch"`, only the
/// file's index is verified before this function returns, and each block is verified when a lookup first reads it.
/// With `memory="map"`, all processes share the file's pages, and each value is copied and then verified. With
/// `memory="copy"`, this process has a private copy, which nobody can change. `strict` is described at `LookupTable`.
///
/// Raises `OSError` if the file cannot be opened, and `Damaged` if the file is not a complete table.
#[pyfunction]
#[pyo3(signature = (path, *, verify = "full", memory = "map", strict = false))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    verify: &str,
    memory: &str,
    strict: bool,
) -> PyResult<Bound<'py, Table>> {
    let verified = match verify {
        "full" => Verify::Full,
        "touch" => Verify::Touch,
        _ => return Err(unknown_value("verify", verify, "\"full\" or \"touch\"")),
    };
    let (in_memory, options) = (table_memory(memory)?, OpenOptions { verify: verified, ..OpenOptions::default() });
    // The absolute path remains valid if the process changes its working directory.
    let absolute = std::path::absolute(&path)?;
    let opened = py.detach(|| -> Result<MappedStore, StoreError> {
        match in_memory {
            store::Memory::Map => MappedStore::open_with(&path, &options),
            _ => Ok(Store::open_with(&path, &options)?.into()),
        }
    });
    let table = TableVersion::File(Arc::new(opened.map_err(|error| store_exception(&error))?));
    let keywords = PyDict::new(py);
    keywords.set_item("verify", verify)?;
    keywords.set_item("memory", memory)?;
    keywords.set_item("strict", strict)?;
    let arguments = Arguments::new(
        py.import("zero_kv")?.getattr("open")?,
        absolute.as_os_str().into_bound_py_any(py)?,
        Some(&keywords),
    )?;
    Bound::new(py, table_in(LocalTable::Fixed(FixedTable::new(table, path)), strict, arguments))
}

/// Why a snapshot cannot be pickled.
const SNAPSHOT: &str = "a snapshot cannot be pickled: pickle the table itself, or open the table's file";

/// Returns the initializer of a table in this process.
pub(crate) fn table_in(table: LocalTable, is_strict: bool, arguments: Arguments) -> PyClassInitializer<Table> {
    PyClassInitializer::from(LookupTable::local(table, is_strict, arguments)).add_subclass(Table)
}

#[pymethods]
impl Table {
    /// Return the value of a key as a read-only `memoryview`, or raise `KeyError` if the table does not have the key.
    ///
    /// If nobody can change the table (`memory="copy"`, or a server's sealed memory), the view refers to the value
    /// in the table. The view then keeps this table in memory, even if the server serves a newer table. For a mapped
    /// file, the view refers to a copy of the value.
    fn view<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, table) = (key.py(), slf.as_super().get());
        let version = table.table().version(py)?;
        let asked = lookup_key(key, version.key_type(), table.is_strict)?;
        let value = match asked.map(|key| Memory::from_value(version, key.as_key())) {
            Some(Err(LookupError::KeyKind { .. })) if !table.is_strict => None,
            found => found.transpose().map_err(lookup_exception)?.flatten(),
        };
        value.ok_or_else(|| missing_key(key))?.into_view(py)
    }

    /// Return the current version of the table, for several lookups. It does not change when lookups in this table
    /// use a newer version.
    fn snapshot<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Table>> {
        let table = slf.as_super().get();
        let fixed = FixedTable::new(table.table().version(slf.py())?, table.table().path());
        Bound::new(slf.py(), table_in(LocalTable::Fixed(fixed), table.is_strict, Arguments::Impossible(SNAPSHOT)))
    }

    /// The table's XXH3-128 digest. It detects accidental changes of the file, but not deliberate changes.
    #[getter]
    fn digest(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("{:032x}", slf.as_super().get().table().version(slf.py())?.digest()))
    }

    /// The file's length in bytes.
    #[getter]
    fn file_len_bytes(slf: &Bound<'_, Self>) -> PyResult<u64> {
        Ok(slf.as_super().get().table().version(slf.py())?.file_len_bytes())
    }
}
