//! The class `Table`: a table as a mapping.
//!
//! In: a path, then keys. Out: values. Values of a mapped file are copied and then verified. Values are borrowed only
//! from memory that nobody can change.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple, PyType};
use zero_kv::client::Row;
use zero_kv::counted::counted;
use zero_kv::store::{self, OpenOptions, Verify};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind, LookupError, MappedStore, Store, StoreError};

use crate::arguments::{table_memory, unknown_value};
use crate::columns::{self, ColumnUse, LookUpColumns, Wanted, look_up_in_table};
use crate::convert::{key_from, kind_name, lookup_key, missing_key, optional_row, prefix_from};
use crate::current_table::CurrentTable;
use crate::errors::{Closed, closed, lookup_exception, store_exception};
use crate::key_batch::KeyBatch;
use crate::many::{self, LookUpMany, Values};
use crate::neighbors::{FindNeighbors, NearestRows, Neighbor, neighbor_many};
use crate::rows::{RowIterator, RowPart, Rows, Selection};
use crate::schema;
use crate::served::ServedTable;
use crate::table_version::TableVersion;
use crate::typed_row::value_object;
use crate::view::Memory;

/// The source of a table's rows.
pub(crate) enum Origin {
    /// One version of a table, and the path of its file or of its server's socket.
    Fixed(FixedTable),
    /// The newest table of a server.
    Server(Box<ServedTable>),
    /// The current generation of a published table.
    #[cfg_attr(not(feature = "object-store"), expect(dead_code, reason = "only the class Published makes it"))]
    Published(Arc<CurrentTable>),
}

/// One version of a table.
pub(crate) struct FixedTable {
    /// `None` after the table was closed.
    table: ArcSwapOption<TableVersion>,
    path: PathBuf,
    opened: Option<OpenArguments>,
}

impl FixedTable {
    pub(crate) fn new(table: TableVersion, path: PathBuf, opened: Option<OpenArguments>) -> FixedTable {
        FixedTable { table: ArcSwapOption::from_pointee(table), path, opened }
    }

    #[inline]
    fn with_table<T>(&self, use_table: impl FnOnce(&MappedStore) -> T) -> PyResult<T> {
        match &*self.table.load() {
            Some(table) => Ok(use_table(table)),
            None => Err(closed(&self.path)),
        }
    }
}

/// The arguments with which another process opens the same file.
pub(crate) struct OpenArguments {
    path: PathBuf,
    verify: String,
    memory: String,
}

/// A table as a mapping: keys are `int`, or `bytes` and `str` (as UTF-8). Values are `bytes`, or, in a typed table,
/// `TypedRow`. Methods that return buffers and arrays of values return the bytes of rows.
///
/// The table does not have a key of the other kind, a number that is negative or has more than 64 bits, `None`, or bytes
/// that are empty or longer than 65535: `in` is false, `get` and `get_many` return the default, and `[]` raises
/// `KeyError`. With `strict=True`, these keys raise `KeyKind` or `TypeError`, `OverflowError`, or `ValueError`. `floor`,
/// `ceiling`, `range`, `prefix`, and `columns` always raise these exceptions.
///
/// Threads can share a table. `with` or `close` ends the use of the table and unmaps its file. Afterward, lookups raise
/// `Closed`. Rows, iterators, and views that exist remain valid, and keep the file mapped.
///
/// A lookup in a file that was changed in place or truncated raises `Damaged`. To replace a file, rename a new file
/// to its name, as `bake` does. Changes of a mapped file are detected by its length and its times. A change is not
/// detected if somebody writes through a mapping that is older than the table's, or, on tmpfs, through any mapping.
/// Nobody can change a table with `memory="copy"`.
#[pyclass(frozen, mapping, subclass, module = "zero_kv")]
pub(crate) struct Table {
    pub(crate) origin: Origin,
    /// Whether a key that the table cannot have is an error.
    pub(crate) is_strict: bool,
}

/// Open a baked file, without a server.
///
/// With `verify="full"`, the whole file is verified before this function returns. With `verify="touch"`, only the
/// file's index is verified before this function returns, and each block is verified when a lookup first reads it.
/// With `memory="map"`, all processes share the file's pages, and each value is copied and then verified. With
/// `memory="copy"`, this process has a private copy, which nobody can change. `strict` is described at `Table`.
///
/// Raises `OSError` if the file cannot be opened, and `Damaged` if the file is not a complete table.
#[pyfunction]
#[pyo3(signature = (path, *, verify = "full", memory = "map", strict = false))]
pub(crate) fn open(py: Python<'_>, path: PathBuf, verify: &str, memory: &str, strict: bool) -> PyResult<Table> {
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
    let opened = Some(OpenArguments { path: absolute, verify: verify.to_owned(), memory: memory.to_owned() });
    Ok(Table { origin: Origin::Fixed(FixedTable::new(table, path, opened)), is_strict: strict })
}

impl Table {
    /// Returns the current version of the table.
    pub(crate) fn version(&self, py: Python<'_>) -> PyResult<TableVersion> {
        match &self.origin {
            Origin::Fixed(fixed) => match &*fixed.table.load() {
                Some(table) => Ok(TableVersion::clone(table)),
                None => Err(closed(&fixed.path)),
            },
            Origin::Server(served) => Ok(TableVersion::Served(served.direct(py)?.snapshot())),
            Origin::Published(current) => Ok(TableVersion::File(current.table())),
        }
    }

    /// Runs `look_up` with the current version of the table and a key that a table can have. Returns `None` for other
    /// keys, unless the table is strict.
    #[inline]
    fn with_key<T>(
        &self,
        key: &Bound<'_, PyAny>,
        look_up: impl FnOnce(&MappedStore, Key<'_>) -> Result<T, LookupError>,
    ) -> PyResult<Option<T>> {
        let Some(lookup_key) = lookup_key(key, self.is_strict)? else {
            // A closed table raises an exception for these keys, too.
            return self.version(key.py()).map(|_| None);
        };
        let found = match &self.origin {
            Origin::Fixed(fixed) => fixed.with_table(|table| look_up(table, lookup_key))?,
            Origin::Server(served) => served.direct(key.py())?.with_table(|table| look_up(table, lookup_key)),
            Origin::Published(current) => current.with_table(|table| look_up(table, lookup_key)),
        };
        match found {
            Err(LookupError::KeyKind { .. }) if !self.is_strict => Ok(None),
            found => found.map(Some).map_err(lookup_exception),
        }
    }

    /// Returns the value of a key.
    #[inline]
    fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let found = self.with_key(key, |table, key| {
            table.get_with(key, |value| value.map(|value| value_object(py, table.schema(), value)))
        });
        found?.flatten().transpose()
    }

    fn rows(&self, py: Python<'_>, selection: Selection<'_>, part: RowPart) -> PyResult<Rows> {
        Rows::new(self.version(py)?, selection, part).map_err(lookup_exception)
    }
}

impl LookUpMany for Table {
    fn is_strict(&self) -> bool {
        self.is_strict
    }

    fn table_kind(&self, py: Python<'_>) -> PyResult<KeyKind> {
        Ok(self.version(py)?.key_kind())
    }

    fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        use_values: impl FnOnce(&Values<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let version = self.version(py)?;
        use_values(&Values::from_table(py, &version, keys)?, version.schema())
    }
}

impl FindNeighbors for Table {
    fn find_neighbors(&self, py: Python<'_>, keys: &KeyBatch<'_>, neighbor: Neighbor) -> PyResult<NearestRows> {
        NearestRows::find(py, &*self.version(py)?, keys, neighbor)
    }
}

impl LookUpColumns for Table {
    fn look_up_columns(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        names: Option<&[&str]>,
        use_rows: impl ColumnUse,
    ) -> PyResult<Py<PyAny>> {
        look_up_in_table(py, self.version(py)?, keys, names, use_rows)
    }
}

#[pymethods]
impl Table {
    /// Return the value of a key, or raise `KeyError` if the table does not have the key.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.value(key)?.ok_or_else(|| missing_key(key))
    }

    /// Return the value of a key, or `default` if the table does not have the key.
    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(key)?.or(default))
    }

    /// Return the bytes of a value or row, or `default` if the table does not have the key.
    #[pyo3(signature = (key, default = None, /))]
    fn get_bytes<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let bytes = |value: Option<&[u8]>| value.map(|value| PyBytes::new(py, value).into_any());
        Ok(self.with_key(key, |table, key| table.get_with(key, bytes))?.flatten().or(default))
    }

    /// Return the bytes of the values or rows of many keys, in the order of the keys. The result has `None` for keys that
    /// the table does not have.
    fn get_bytes_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        many::get_bytes_many(self, keys)
    }

    /// Return the value of a key as a read-only `memoryview`, or raise `KeyError` if the table does not have the key.
    ///
    /// If nobody can change the table (`memory="copy"`, or a server's sealed memory), the view refers to the value
    /// in the table. The view then keeps this table in memory, even if the server serves a newer table. For a mapped
    /// file, the view refers to a copy of the value.
    fn view<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, version) = (key.py(), self.version(key.py())?);
        let value = match lookup_key(key, self.is_strict)?.map(|key| Memory::from_value(version, key)) {
            Some(Err(LookupError::KeyKind { .. })) if !self.is_strict => None,
            found => found.transpose().map_err(lookup_exception)?.flatten(),
        };
        value.ok_or_else(|| missing_key(key))?.into_view(py)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.with_key(key, |table, key| table.contains(key))?.unwrap_or(false))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.version(py)?.len())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<RowIterator> {
        Ok(self.rows(py, Selection::ALL, RowPart::Keys)?.iterate(false))
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<RowIterator> {
        Ok(self.rows(py, Selection::ALL, RowPart::Keys)?.iterate(true))
    }

    /// Return all keys in ascending order.
    fn keys(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Selection::ALL, RowPart::Keys)
    }

    /// Return all values, in the order of their keys.
    fn values(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Selection::ALL, RowPart::Values)
    }

    /// Return all rows, in the order of their keys.
    fn items(&self, py: Python<'_>) -> PyResult<Rows> {
        self.rows(py, Selection::ALL, RowPart::Both)
    }

    /// Return the rows with keys from `start` up to, but not including, `end`.
    ///
    /// `len` of the result reads no rows.
    #[pyo3(signature = (start = None, end = None))]
    fn range(&self, py: Python<'_>, start: Option<Bound<'_, PyAny>>, end: Option<Bound<'_, PyAny>>) -> PyResult<Rows> {
        let start = start.as_ref().map(key_from).transpose()?;
        let end = end.as_ref().map(key_from).transpose()?;
        self.rows(py, Selection::Between(start, end), RowPart::Both)
    }

    /// Return the rows whose keys start with `prefix`.
    fn prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Rows> {
        self.rows(prefix.py(), Selection::Prefix(prefix_from(prefix)?), RowPart::Both)
    }

    /// Return the row with the largest key less than or equal to `key`.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, lookup_key) = (key.py(), key_from(key)?);
        let table = self.version(py)?;
        row(py, &table, table.floor(lookup_key))
    }

    /// Return the row with the smallest key greater than or equal to `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, lookup_key) = (key.py(), key_from(key)?);
        let table = self.version(py)?;
        row(py, &table, table.ceiling(lookup_key))
    }

    /// Return the result of `floor` for many keys, in the order of the keys. All rows come from one table.
    ///
    /// This method is several times faster than one call per key. With 64 keys or more, other threads run during the
    /// call.
    ///
    /// For a list, another iterable, or a NumPy array of keys, the result is a list of rows, with `None` for keys
    /// without a row. For a pyarrow array or a Polars Series, the result is two pyarrow arrays with nulls: the rows'
    /// keys and their values.
    ///
    /// With `dtype`, the result is three NumPy arrays: the rows' keys, their values, and Booleans that are true for the
    /// keys with a row. Without a row, key and value are zero. The table's keys must be numbers, and all values must
    /// have the length of `dtype`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn floor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        neighbor_many(slf.as_any(), slf.get(), keys, dtype.as_ref(), Neighbor::Floor)
    }

    /// Return the result of `ceiling` for many keys, in the order of the keys: see `floor_many`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn ceiling_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        neighbor_many(slf.as_any(), slf.get(), keys, dtype.as_ref(), Neighbor::Ceiling)
    }

    /// Return the row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = self.version(py)?;
        row(py, &table, table.first())
    }

    /// Return the row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let table = self.version(py)?;
        row(py, &table, table.last())
    }

    /// Return the values of many keys, in the order of the keys. All values come from one table.
    ///
    /// This method is several times faster than one call per key. With 64 keys or more, other threads run during the
    /// call.
    ///
    /// For a list, another iterable, or a NumPy array of keys, the result is a list with `None` for keys that the
    /// table does not have. For a pyarrow array or a Polars Series, the result is a pyarrow array of type binary,
    /// with nulls.
    ///
    /// With `dtype`, the result is two NumPy arrays: the values, with zeros for missing keys, and Booleans that are
    /// true for the keys that were found. All values must have the length of `dtype`. With `dtype=(numpy.float32, 64)`,
    /// each value is a row of 64 floats.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get_many(slf.as_any(), slf.get(), keys, dtype.as_ref())
    }

    /// Return some columns of the rows of many keys in a typed table, in the order of the keys. All rows come from one
    /// table. `columns` are the names of the columns; `None` means all columns. With 64 keys or more, other threads run
    /// during the call.
    ///
    /// With `format="numpy"`, and if all columns have one numeric type, the result is a matrix with a row for each key: a
    /// two-dimensional array in C order. A list of fixed length takes as many columns of the matrix as it has elements.
    /// The matrix is `out` if `out` is given: a writable array in C order with the result's shape and dtype. Otherwise,
    /// the result is a dict with an array for each column: numbers and Booleans as usual, dates as `datetime64[D]`,
    /// timestamps as `datetime64` of their unit, lists of fixed length as two-dimensional arrays, and other types as
    /// objects of the types of `TypedRow`.
    ///
    /// `fill` takes the place of null and of the values of missing keys. For a dict of arrays, `fill` applies to numbers
    /// and Booleans, or is a dict with a value for each column. Without `fill`, the value is `NaN` for floats, `NaT` for
    /// dates and timestamps, and `None` for objects. Integers and Booleans require `fill` if a column can be null or a key
    /// is missing.
    ///
    /// With `format="arrow"`, the result is a `pyarrow.RecordBatch`, with null for missing values. `"pandas"` and
    /// `"polars"` return DataFrames with the memory of the RecordBatch; the columns of the pandas DataFrame are of
    /// `pandas.ArrowDtype`.
    ///
    /// Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
    #[pyo3(signature = (keys, columns = None, *, fill = None, out = None, format = "numpy"))]
    fn columns<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Bound<'py, PyAny>>,
        fill: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
        format: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = Wanted { fill: fill.as_ref(), out: out.as_ref(), format };
        columns::columns(slf.as_any(), slf.get(), keys, columns.as_ref(), &wanted)
    }

    /// The columns of a typed table, or `None` if the table's values are bytes.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<Option<schema::Schema>> {
        Ok(self.version(py)?.schema().cloned().map(schema::Schema))
    }

    /// Whether a key that the table cannot have is an error.
    #[getter]
    fn strict(&self) -> bool {
        self.is_strict
    }

    /// The kind of the keys.
    #[getter]
    fn key_kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(kind_name(self.version(py)?.key_kind()))
    }

    /// The table's XXH3-128 digest. It detects accidental changes of the file, but not deliberate changes.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("{:032x}", self.version(py)?.digest()))
    }

    /// The file's length in bytes.
    #[getter]
    fn file_len_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.version(py)?.file_len_bytes())
    }

    /// End the use of the table, and unmap its file unless rows, iterators, or views use it. Later lookups raise `Closed`.
    fn close(&self, py: Python<'_>) {
        match &self.origin {
            Origin::Fixed(fixed) => {
                let table = fixed.table.swap(None);
                py.detach(|| drop(table));
            }
            Origin::Server(served) => served.close(py),
            Origin::Published(_) => unreachable!("Published has its own method close"),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        slf.call_method0("close").map(drop)
    }

    /// Returns the class, so that annotations such as `Table[int, bytes]` are valid at run time.
    #[classmethod]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, _types: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        cls.clone()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (name, path) = match &self.origin {
            Origin::Fixed(fixed) => ("Table", fixed.path.as_path()),
            Origin::Server(served) => ("Direct", served.path()),
            Origin::Published(current) => ("Published", current.url.as_ref()),
        };
        match self.version(py) {
            Ok(table) => Ok(format!(
                "<zero_kv.{name} {path:?}, {}, keys {}>",
                counted(table.len(), "row"),
                kind_name(table.key_kind())
            )),
            Err(error) if error.is_instance_of::<Closed>(py) => Ok(format!("<zero_kv.{name} {path:?}, closed>")),
            Err(error) => Err(error),
        }
    }

    /// Pickles the path and options. The process that unpickles them opens the table.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let function = |name: &str| py.import("zero_kv")?.getattr(name);
        match &self.origin {
            Origin::Fixed(FixedTable { opened: Some(OpenArguments { path, verify, memory }), .. }) => {
                (function("_reopen")?, (path, verify, memory, self.is_strict)).into_pyobject(py)
            }
            Origin::Fixed(_) => {
                Err(PyTypeError::new_err("a snapshot cannot be pickled: pickle a Direct, or open the table's file"))
            }
            Origin::Published(_) => Err(PyTypeError::new_err(
                "a Published cannot be pickled: create one in each process, with its own cache",
            )),
            Origin::Server(served) => (function("_redirect")?, served.arguments(self.is_strict)).into_pyobject(py),
        }
    }
}

/// Converts the row that a lookup found to a tuple. Returns `None` if the lookup found no row.
fn row<'py>(
    py: Python<'py>,
    table: &MappedStore,
    found: Result<Option<Row>, LookupError>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    optional_row(py, table.schema(), found.map_err(lookup_exception)?)
}
