//! A table as a mapping.
//!
//! In: a path, then keys. Out: values. Those of a mapped file are copied and verified after the copy; only memory that
//! nobody can change is lent.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};
use zero_kv::client::{self, Row};
use zero_kv::store::{Memory as Held, OpenOptions, Verify};
use zero_kv::{KeyKind, LookupError, MappedStore, Store, StoreError};

use crate::direct::Served;
use crate::errors::{of_lookup, of_store};
use crate::key::{key_of, missing, prefix_bytes, to_python};
use crate::many::{self, Source};
use crate::rows::{Range, RowIterator, Rows, Shows};
use crate::view::Memory;

/// One version of a table, which stays in memory as long as anybody has it.
#[derive(Clone)]
pub(crate) enum Snapshot {
    /// Of a file that was opened.
    File(Arc<MappedStore>),
    /// Of one that a server transferred.
    Served(client::Snapshot),
}

impl Deref for Snapshot {
    type Target = MappedStore;

    #[inline]
    fn deref(&self) -> &MappedStore {
        match self {
            Snapshot::File(table) => table,
            Snapshot::Served(table) => table,
        }
    }
}

/// Where a table comes from.
pub(crate) enum Origin {
    /// One table, whose path is that of its file or of the server that handed it over.
    Fixed {
        table: Snapshot,
        path: PathBuf,
        opened: Option<Opened>,
    },
    Server(Served),
}

/// How a file was opened, to open it again in another process.
pub(crate) struct Opened {
    path: PathBuf,
    verify: String,
    memory: String,
}

/// A table as a mapping: keys are `int`, or `bytes` and `str` (as UTF-8); values are `bytes`.
///
/// Threads share it. A key of the wrong kind raises `KeyKind`, which is a `TypeError`. A file that was changed in place
/// or truncated raises `Damaged`; put new files in place by rename, as `bake` does. Nobody can change a table
/// with `memory="copy"`. A mapped file is verified by its length and modification time: a change is not noticed if
/// somebody restores the modification time, or writes through a mapping that is older than the table's.
#[pyclass(frozen, mapping, subclass, module = "zero_kv")]
pub(crate) struct Table(pub(crate) Origin);

/// Open a baked file, without a server.
///
/// With `verify="full"` the whole file is verified first; with `"touch"` each block is verified when a lookup first reads
/// it, so that the file opens at once. With `memory="map"` all processes share the file's pages, and each value is copied
/// and then verified. With `memory="copy"` this process has a private copy, which nobody can change.
///
/// Raises `OSError` if the file cannot be opened, and `Damaged` if it is not a whole table.
#[pyfunction]
#[pyo3(signature = (path, *, verify = "full", memory = "map"))]
pub(crate) fn open(py: Python<'_>, path: PathBuf, verify: &str, memory: &str) -> PyResult<Table> {
    let verified = match verify {
        "full" => Verify::Full,
        "touch" => Verify::Touch,
        _ => return Err(unknown("verify", verify, "\"full\" or \"touch\"")),
    };
    let (held, options) = (held(memory)?, OpenOptions { verify: verified, ..OpenOptions::default() });
    // Where it lies also when this process is in another folder by then.
    let absolute = std::path::absolute(&path)?;
    let opened = py.detach(|| -> Result<MappedStore, StoreError> {
        match held {
            Held::Map => MappedStore::open_with(&path, &options, &mut |_| ()),
            _ => Ok(Store::open_with(&path, &options, &mut |_| ())?.into()),
        }
    });
    let table = Snapshot::File(Arc::new(opened.map_err(|error| of_store(&error))?));
    let opened = Some(Opened { path: absolute, verify: verify.to_owned(), memory: memory.to_owned() });
    Ok(Table(Origin::Fixed { table, path, opened }))
}

/// Where the bytes of a table are to lie.
pub(crate) fn held(memory: &str) -> PyResult<Held> {
    match memory {
        "map" => Ok(Held::Map),
        "copy" => Ok(Held::Copy),
        _ => Err(unknown("memory", memory, "\"map\" or \"copy\"")),
    }
}

pub(crate) fn unknown(argument: &str, found: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{argument} is {found:?}, where {expected} was expected"))
}

impl Table {
    /// The table as it is now.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        match &self.0 {
            Origin::Fixed { table, .. } => Ok(table.clone()),
            Origin::Server(served) => Ok(Snapshot::Served(served.direct(py)?.snapshot())),
        }
    }

    /// The value of a key.
    #[inline]
    fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        let bytes = |value: Option<&[u8]>| value.map(|value| PyBytes::new(py, value));
        match &self.0 {
            Origin::Fixed { table, .. } => table.get_with(asked, bytes).map_err(of_lookup),
            Origin::Server(served) => served.direct(py)?.get_with(asked, bytes).map_err(of_lookup),
        }
    }

    fn rows(&self, py: Python<'_>, range: Range<'_>, shows: Shows) -> PyResult<Rows> {
        Rows::of(self.snapshot(py)?, range, shows).map_err(of_lookup)
    }
}

#[pymethods]
impl Table {
    /// The value of a key; `KeyError` if the table does not have it.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.value(key)?.ok_or_else(|| missing(key))
    }

    /// The value of a key, or `default` if the table does not have it.
    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(key)?.map(Bound::into_any).or(default))
    }

    /// The value of a key as a read-only `memoryview`; `KeyError` if there is none.
    ///
    /// A table that nobody can change (`memory="copy"`, or a server's sealed memory) lends the value without a copy, and
    /// the view keeps that table in memory, also when a newer one is served. The view of a mapped file is a copy of the
    /// value.
    fn view<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, asked) = (key.py(), key_of(key)?);
        let value = Memory::of_value(self.snapshot(py)?, asked).map_err(of_lookup)?;
        value.ok_or_else(|| missing(key))?.into_view(py)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let asked = key_of(key)?;
        match &self.0 {
            Origin::Fixed { table, .. } => table.contains(asked).map_err(of_lookup),
            Origin::Server(served) => served.direct(key.py())?.exists(asked).map_err(of_lookup),
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.snapshot(py)?.len())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<RowIterator> {
        Ok(self.rows(py, Range::ALL, Shows::Keys)?.iterate(false))
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<RowIterator> {
        Ok(self.rows(py, Range::ALL, Shows::Keys)?.iterate(true))
    }

    /// All keys in their order.
    fn keys(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Range::ALL, Shows::Keys)
    }

    /// All values, in the order of their keys.
    fn values(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Range::ALL, Shows::Values)
    }

    /// All rows, in the order of their keys.
    fn items(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Range::ALL, Shows::Both)
    }

    /// The rows from `start` on and before `end`, like a slice: `end` is not among them.
    ///
    /// Their number, `len`, is known before any is read.
    #[pyo3(signature = (start = None, end = None))]
    fn range(&self, py: Python<'_>, start: Option<Bound<'_, PyAny>>, end: Option<Bound<'_, PyAny>>) -> PyResult<Rows> {
        let start = start.as_ref().map(key_of).transpose()?;
        let end = end.as_ref().map(key_of).transpose()?;
        self.rows(py, Range::Between(start, end), Shows::Both)
    }

    /// The rows whose keys begin with `prefix`.
    fn prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Rows> {
        self.rows(prefix.py(), Range::Prefix(prefix_bytes(prefix)?), Shows::Both)
    }

    /// The row with the largest key that is not above `key`.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        row(py, self.snapshot(py)?.floor(asked))
    }

    /// The row with the smallest key that is not below `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        row(py, self.snapshot(py)?.ceiling(asked))
    }

    /// The row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.snapshot(py)?.first())
    }

    /// The row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.snapshot(py)?.last())
    }

    /// The values of many keys, in their order, all of one table: several times faster than one by one.
    ///
    /// A list, another iterable or a NumPy array of keys gives a list, with `None` where a key is not in the table. A
    /// pyarrow array, or a Series of Polars, gives a pyarrow array of binary, with nulls.
    ///
    /// With `dtype`, all values must have its length: the result is a NumPy array of it, zeros where a key is not in
    /// the table, and an array that says where it is. `dtype=(numpy.float32, 64)` gives rows of 64 floats.
    ///
    /// Other threads run meanwhile, from 64 keys on.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get_many(&Source::Table(slf.clone()), keys, dtype.as_ref())
    }

    /// What the keys are.
    #[getter]
    fn key_kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(kind_name(self.snapshot(py)?.key_kind()))
    }

    /// The table's XXH3-128 digest: files with different bytes have different ones. It detects accidents, and gives no
    /// protection against somebody who wants two files with the same digest.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("{:032x}", self.snapshot(py)?.digest()))
    }

    /// The file's length.
    #[getter]
    fn file_len_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.snapshot(py)?.file_len_bytes())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let table = self.snapshot(py)?;
        let (name, path) = match &self.0 {
            Origin::Fixed { path, .. } => ("Table", path.as_path()),
            Origin::Server(served) => ("Direct", served.path()),
        };
        Ok(format!("<zero_kv.{name} {path:?}, {} rows, keys {}>", table.len(), kind_name(table.key_kind())))
    }

    /// Tables are handed to other processes by their path.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let again = |name: &str| py.import("zero_kv")?.getattr(name);
        match &self.0 {
            Origin::Fixed { opened: Some(Opened { path, verify, memory }), .. } => {
                (again("_reopen")?, (path, verify, memory)).into_pyobject(py)
            }
            Origin::Fixed { .. } => {
                Err(PyTypeError::new_err("a snapshot of a Direct stays in its process: hand the Direct over"))
            }
            Origin::Server(served) => (again("_redirect")?, served.arguments()).into_pyobject(py),
        }
    }
}

pub(crate) fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::U64 => "u64",
        KeyKind::Bytes => "bytes",
    }
}

/// A row as Python has it.
fn row(py: Python<'_>, found: Result<Option<Row>, LookupError>) -> PyResult<Option<Bound<'_, PyTuple>>> {
    let found = found.map_err(of_lookup)?;
    found.map(|(key, value)| (to_python(py, key.as_key()), PyBytes::new(py, &value)).into_pyobject(py)).transpose()
}
