//! A table as a mapping.
//!
//! In: a path, then keys. Out: values, copied or lent, or an exception if the file was found changed in place.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};
use zero_kv::client;
use zero_kv::store::{self, Memory as Held, OpenOptions, Verify};
use zero_kv::{Key, KeyKind, LookupError, Store};

use crate::direct::Served;
use crate::errors::{of_lookup, of_store};
use crate::key::{key_of, missing, prefix_bytes, to_python};
use crate::many::{self, Source};
use crate::rows::{Range, RowIterator, Rows, Shows};
use crate::view::Memory;

/// A table that stays as it is as long as anybody has it.
#[derive(Clone)]
pub(crate) enum Snapshot {
    /// Of a file that was opened.
    File(Arc<Store>),
    /// Of one that a server handed over.
    Served(client::Snapshot),
}

impl Deref for Snapshot {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        match self {
            Snapshot::File(table) => table,
            Snapshot::Served(table) => table,
        }
    }
}

impl Snapshot {
    /// Reads, and makes sure that nobody changed the file meanwhile.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Store) -> PyResult<T>) -> PyResult<T> {
        let epoch = self.epoch();
        let made = read(self)?;
        let is_unchanged = match self {
            Snapshot::File(table) => table.is_unchanged_since(epoch),
            Snapshot::Served(table) => table.is_unchanged(),
        };
        if is_unchanged { Ok(made) } else { Err(of_lookup(LookupError::Damaged)) }
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
/// Threads share it. A key of the wrong kind is a `KeyKind`, which is a `TypeError`. A lookup that finds the file
/// changed in place or truncated raises `Damaged`. A change is not found if the writer restores the file's modification
/// time between two lookups, unless `memory="copy"` or a lease prevents it. Put new files in place by rename, as `bake` does.
#[pyclass(frozen, mapping, subclass, module = "zero_kv")]
pub(crate) struct Table(pub(crate) Origin);

/// Open a baked file, without a server.
///
/// With `verify="full"` all of it is checked first; with `"touch"` each block when a lookup first touches it, so that
/// it opens at once. With `memory="copy"` it is copied, and may be changed or removed.
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
    let options = OpenOptions { verify: verified, memory: held(memory)?, ..OpenOptions::default() };
    // A file that is cut off is an exception then, and not the end of the process.
    store::survive_bus_errors()?;
    // Where it lies also when this process is in another folder by then.
    let absolute = std::path::absolute(&path)?;
    let opened = py.detach(|| Store::open_with(&path, &options, &mut |_| ()));
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

    /// Reads of the table as it is now.
    #[inline]
    pub(crate) fn read<T>(&self, py: Python<'_>, read: impl FnOnce(&Store) -> PyResult<T>) -> PyResult<T> {
        match &self.0 {
            Origin::Fixed { table, .. } => table.read(read),
            Origin::Server(_) => self.snapshot(py)?.read(read),
        }
    }

    /// The value of a key.
    #[inline]
    fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        let bytes = |value: Option<&[u8]>| value.map(|value| PyBytes::new(py, value));
        match &self.0 {
            Origin::Fixed { table, .. } => table.read(|table| table.get(asked).map(bytes).map_err(of_lookup)),
            // Whether the file is unchanged a server tells without asking the system.
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

    /// The value of a key where it lies in the file's mapping, without a copy; `KeyError` if there is none.
    ///
    /// The view keeps its table in memory, also when a newer one is served. It shows what is in the file: somebody
    /// who changes that in place, which `bake` never does, changes what it shows.
    fn view<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, asked) = (key.py(), key_of(key)?);
        let table = self.snapshot(py)?;
        let value = table.read(|_| Memory::of_value(table.clone(), |table| table.get(asked)).map_err(of_lookup))?;
        value.ok_or_else(|| missing(key))?.into_view(py)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let asked = key_of(key)?;
        match &self.0 {
            Origin::Fixed { table, .. } => table.read(|table| table.contains(asked).map_err(of_lookup)),
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
        self.read(py, |table| row(py, table.floor(asked)))
    }

    /// The row with the smallest key that is not below `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        self.read(py, |table| row(py, table.ceiling(asked)))
    }

    /// The row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.read(py, |table| row(py, table.first()))
    }

    /// The row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.read(py, |table| row(py, table.last()))
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
fn row<'py>(
    py: Python<'py>,
    found: Result<Option<(Key<'_>, &[u8])>, LookupError>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let found = found.map_err(of_lookup)?;
    found.map(|(key, value)| (to_python(py, key), PyBytes::new(py, value)).into_pyobject(py)).transpose()
}
