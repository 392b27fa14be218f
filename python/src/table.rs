//! A table as a mapping.
//!
//! In: a path, then keys. Out: values, copied or lent.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};
use zero_kv::store::{self, Memory as Held, OpenOptions, Verify};
use zero_kv::{Key, KeyKind, LookupError, Store};

use crate::errors::{of_lookup, of_store};
use crate::key::{key_of, missing, prefix_bytes, to_python};
use crate::many::{self, Source};
use crate::rows::{Range, RowIterator, Rows, Shows};
use crate::view::Memory;

/// A table that stays as it is as long as anybody has it.
#[derive(Clone)]
pub(crate) struct Snapshot(Arc<Store>);

impl Deref for Snapshot {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.0
    }
}

/// How a file was opened, to open it again in another process.
#[derive(Clone)]
struct Opened {
    path: PathBuf,
    verify: String,
    memory: String,
}

#[pyclass(frozen, mapping, module = "zero_kv")]
pub(crate) struct Table {
    table: Snapshot,
    opened: Opened,
}

#[pyfunction]
#[pyo3(signature = (path, *, verify = "full", memory = "map"))]
pub(crate) fn open(py: Python<'_>, path: PathBuf, verify: &str, memory: &str) -> PyResult<Table> {
    let options = OpenOptions {
        verify: match verify {
            "full" => Verify::Full,
            "touch" => Verify::Touch,
            _ => return Err(unknown("verify", verify, "\"full\" or \"touch\"")),
        },
        memory: match memory {
            "map" => Held::Map,
            "copy" => Held::Copy,
            _ => return Err(unknown("memory", memory, "\"map\" or \"copy\"")),
        },
        ..OpenOptions::default()
    };
    // A file that is cut off is an exception then, and not the end of the process.
    store::survive_bus_errors()?;
    let opened = py.detach(|| Store::open_with(&path, &options, &mut |_| ()));
    let table = Snapshot(Arc::new(opened.map_err(|error| of_store(&error))?));
    Ok(Table { table, opened: Opened { path, verify: verify.to_owned(), memory: memory.to_owned() } })
}

pub(crate) fn unknown(argument: &str, found: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{argument} is {found:?}, where {expected} was expected"))
}

impl Table {
    /// The table as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.table.clone()
    }

    fn rows(&self, range: Range<'_>, shows: Shows) -> PyResult<Rows> {
        Rows::of(self.snapshot(), range, shows).map_err(of_lookup)
    }
}

#[pymethods]
impl Table {
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.table.get(key_of(key)?).map_err(of_lookup)?;
        value.map(|value| PyBytes::new(key.py(), value)).ok_or_else(|| missing(key))
    }

    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.table.get(key_of(key)?).map_err(of_lookup)?;
        Ok(value.map(|value| PyBytes::new(key.py(), value).into_any()).or(default))
    }

    fn view<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let asked = key_of(key)?;
        let value = Memory::of_value(self.snapshot(), |table| table.get(asked)).map_err(of_lookup)?;
        value.ok_or_else(|| missing(key))?.into_view(key.py())
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.table.contains(key_of(key)?).map_err(of_lookup)
    }

    fn __len__(&self) -> usize {
        self.table.len()
    }

    fn __iter__(&self) -> PyResult<RowIterator> {
        Ok(self.rows(Range::ALL, Shows::Keys)?.iterate(false))
    }

    fn __reversed__(&self) -> PyResult<RowIterator> {
        Ok(self.rows(Range::ALL, Shows::Keys)?.iterate(true))
    }

    fn keys(&self) -> PyResult<Rows> {
        self.rows(Range::ALL, Shows::Keys)
    }

    fn values(&self) -> PyResult<Rows> {
        self.rows(Range::ALL, Shows::Values)
    }

    fn items(&self) -> PyResult<Rows> {
        self.rows(Range::ALL, Shows::Both)
    }

    #[pyo3(signature = (start = None, end = None))]
    fn range(&self, start: Option<Bound<'_, PyAny>>, end: Option<Bound<'_, PyAny>>) -> PyResult<Rows> {
        let start = start.as_ref().map(key_of).transpose()?;
        let end = end.as_ref().map(key_of).transpose()?;
        self.rows(Range::Between(start, end), Shows::Both)
    }

    fn prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Rows> {
        self.rows(Range::Prefix(prefix_bytes(prefix)?), Shows::Both)
    }

    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(key.py(), self.table.floor(key_of(key)?))
    }

    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(key.py(), self.table.ceiling(key_of(key)?))
    }

    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.table.first())
    }

    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.table.last())
    }

    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get_many(&Source::Table(slf.clone()), keys, dtype.as_ref())
    }

    #[getter]
    fn key_kind(&self) -> &'static str {
        kind_name(self.table.key_kind())
    }

    #[getter]
    fn digest(&self) -> String {
        format!("{:032x}", self.table.digest())
    }

    #[getter]
    fn file_len_bytes(&self) -> u64 {
        self.table.file_len_bytes()
    }

    fn __repr__(&self) -> String {
        let (rows, kind) = (self.table.len(), kind_name(self.table.key_kind()));
        format!("<zero_kv.Table {:?}, {rows} rows, keys {kind}>", self.opened.path)
    }

    /// Tables are handed to other processes by their path.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Opened { path, verify, memory } = &self.opened;
        let reopen = py.import("zero_kv")?.getattr("_reopen")?;
        let path = std::path::absolute(path)?;
        (reopen, (path, verify, memory)).into_pyobject(py)
    }
}

pub(crate) fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::U64 => "u64",
        KeyKind::Bytes => "bytes",
    }
}

/// A row as Python has it.
fn row<'py>(
    py: Python<'py>,
    found: Result<Option<(Key<'_>, &[u8])>, LookupError>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let found = found.map_err(of_lookup)?;
    found.map(|(key, value)| (to_python(py, key), PyBytes::new(py, value)).into_pyobject(py)).transpose()
}
