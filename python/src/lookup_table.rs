//! The class `LookupTable`: what tables in this process and blocking clients have in common.
//!
//! In: keys. Out: values and rows, from the memory of this process or from servers. Other Python threads run while a
//! server is asked and while many keys are looked up.

use std::ops::Bound as End;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyType};
use zero_kv::Lookup;
use zero_kv::client::{ClientError, KeyRange, Row};
use zero_kv::counted::counted;
use zero_kv::store::TypedLookupError;
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind, LookupError, MappedStore};

use crate::client_rows::ClientRows;
use crate::columns::{self, ColumnUse, Wanted, look_up_in_table};
use crate::connection::{Connection, call};
use crate::connection_pool::ConnectionPool;
use crate::convert::{
    key_from, kind_name, lookup_key, missing_key, optional_row, prefix_from, range_between, range_kind,
    range_with_prefix,
};
use crate::errors::{self, Closed, ServerError, lookup_exception, typed_exception};
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, with_impossible};
use crate::local_table::LocalTable;
use crate::many::{CopiedValues, FoundValues, Values, in_chunks, is_arrow_array, list_of};
use crate::neighbors::{Nearest, NearestRows, Neighbor};
use crate::received::row_objects;
use crate::rows::{RowPart, Rows, Selection};
use crate::schema;
use crate::typed_row::{TypedRow, value_object};

/// Where the rows of a table are.
enum Source {
    Local(LocalTable),
    Remote(Arc<ConnectionPool>),
}

/// The arguments with which another process creates the same table or client.
pub(crate) enum Arguments {
    Of {
        function: Py<PyAny>,
        address: Py<PyAny>,
        keywords: Py<PyDict>,
    },
    /// Why the object cannot be pickled.
    Impossible(&'static str),
}

impl Arguments {
    pub(crate) fn new<'py>(
        function: Bound<'py, PyAny>,
        address: Bound<'py, PyAny>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Arguments> {
        let py = function.py();
        let keywords = keywords.map_or_else(|| Ok(PyDict::new(py)), |keywords| keywords.copy())?.unbind();
        Ok(Arguments::Of { function: function.unbind(), address: address.unbind(), keywords })
    }
}

/// What tables in this process (`Table`, `Direct`, and `Published`) and blocking clients (`Client` and
/// `ClusterClient`) have in common: the lookups of a mapping. Keys are `int`, or `bytes` and `str` (as UTF-8).
/// Values are `bytes`, or, in a typed table, `TypedRow`. Methods that return buffers and arrays of values return the
/// bytes of rows.
///
/// The table does not have a key of the other kind, a number that is negative or has more than 64 bits, `None`, or
/// bytes that are empty or longer than 65535: `in` is false, `get` and `get_many` return the default, and `[]`
/// raises `KeyError`. With `strict=True`, these keys raise `KeyKind` or `TypeError`, `OverflowError`, or
/// `ValueError`. `floor`, `ceiling`, `range`, `prefix`, `count`, and `columns` always raise these exceptions.
#[pyclass(frozen, mapping, subclass, module = "zero_kv")]
pub(crate) struct LookupTable {
    source: Source,
    /// Whether a key that the table cannot have is an error.
    pub(crate) is_strict: bool,
    arguments: Arguments,
}

impl LookupTable {
    pub(crate) fn local(table: LocalTable, is_strict: bool, arguments: Arguments) -> LookupTable {
        LookupTable { source: Source::Local(table), is_strict, arguments }
    }

    pub(crate) fn remote(pool: ConnectionPool, is_strict: bool, arguments: Arguments) -> LookupTable {
        LookupTable { source: Source::Remote(Arc::new(pool)), is_strict, arguments }
    }

    /// Returns the table of an object whose class has one in this process.
    pub(crate) fn table(&self) -> &LocalTable {
        match &self.source {
            Source::Local(table) => table,
            Source::Remote(_) => unreachable!("the constructors of Table and its subclasses set Source::Local"),
        }
    }

    /// Returns the connections of a client.
    pub(crate) fn pool(&self) -> &ConnectionPool {
        match &self.source {
            Source::Remote(pool) => pool,
            Source::Local(_) => unreachable!("the constructors of clients set Source::Remote"),
        }
    }

    /// Raises `Closed` if the table or client was closed.
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match &self.source {
            Source::Local(table) => table.version(py).map(drop),
            Source::Remote(pool) => pool.check_open(),
        }
    }

    /// Returns a key if a table can have it. Returns `None` for other keys, unless the table is strict.
    #[inline]
    pub(crate) fn possible_key<'k>(&self, key: &'k Bound<'_, PyAny>) -> PyResult<Option<Key<'k>>> {
        let found = lookup_key(key, self.is_strict)?;
        if found.is_none() {
            self.check_open(key.py())?;
        }
        Ok(found)
    }

    /// Returns `None` if the table has keys of another kind, unless the table is strict.
    fn missing_if_other_kind<T>(&self, py: Python<'_>, found: PyResult<T>) -> PyResult<Option<T>> {
        match found {
            Err(error) if !self.is_strict && error.is_instance_of::<errors::KeyKind>(py) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Looks up a key in the current version of a table in this process. Returns `None` for keys that the table cannot
    /// have, unless the table is strict.
    #[inline]
    fn look_up<T>(
        &self,
        table: &LocalTable,
        key: &Bound<'_, PyAny>,
        look_up: impl FnOnce(&MappedStore, Key<'_>) -> Result<T, LookupError>,
    ) -> PyResult<Option<T>> {
        let Some(asked) = self.possible_key(key)? else { return Ok(None) };
        match table.with_table(key.py(), |table| look_up(table, asked))? {
            Err(LookupError::KeyKind { .. }) if !self.is_strict => Ok(None),
            found => found.map(Some).map_err(lookup_exception),
        }
    }

    /// Sends a request for a key. Returns `None` for keys that the table cannot have, unless the client is strict.
    fn request<T: Send>(
        &self,
        pool: &ConnectionPool,
        key: &Bound<'_, PyAny>,
        call: impl FnOnce(&mut Connection, Key<'_>) -> Result<T, ClientError> + Send,
    ) -> PyResult<Option<T>> {
        let Some(asked) = self.possible_key(key)? else { return Ok(None) };
        let found = pool.call_with_kind(key.py(), Some(asked.kind()), |connection| call(connection, asked));
        self.missing_if_other_kind(key.py(), found)
    }

    /// Returns the value of a key.
    #[inline]
    fn value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        match &self.source {
            Source::Local(table) => {
                let found = self.look_up(table, key, |table, key| {
                    table.get_with(key, |value| value.map(|value| value_object(py, table.schema_ref(), value)))
                });
                found?.flatten().transpose()
            }
            Source::Remote(pool) => {
                let found = self.request(pool, key, |connection, key| call!(connection, get_rows_or_values(&[key])))?;
                let Some((values, schema)) = found.map(Values::received) else { return Ok(None) };
                values.slices()[0].map(|value| value_object(py, schema.as_ref(), value)).transpose()
            }
        }
    }

    /// Returns the row of a key in a typed table.
    fn row(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<TypedRow>> {
        match &self.source {
            Source::Local(table) => {
                let found = self.look_up(table, key, |table, key| {
                    let Some(schema) = table.schema_ref() else { return Ok(Err(not_typed())) };
                    table.get_with(key, |row| row.map(|row| TypedRow::new(schema, row)).transpose())
                });
                Ok(found?.transpose()?.flatten())
            }
            Source::Remote(pool) => {
                let rows = self.request(pool, key, |connection, key| connection.columns(&[key], None))?;
                Ok(rows.map(|rows| row_objects(&rows)).transpose()?.and_then(|mut rows| rows.pop()?))
            }
        }
    }

    /// Converts the keys of a call.
    pub(crate) fn possible_keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<PossibleKeys<'py>> {
        PossibleKeys::from_object(keys, self.is_strict, || match &self.source {
            Source::Local(table) => Ok(table.version(keys.py())?.key_kind()),
            Source::Remote(pool) => pool.call(keys.py(), |client| call!(client, key_kind())),
        })
    }

    /// Looks up the keys of a call, and passes their values to `use_values`. Keys that the table cannot have have no
    /// value, unless the table is strict. With `needs_schema`, the schema of a typed table is passed, too, which a
    /// client has to request.
    pub(crate) fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &PossibleKeys<'_>,
        needs_schema: bool,
        use_values: impl FnOnce(&FoundValues<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let version;
        let found = match &self.source {
            Source::Local(table) => {
                version = table.version(py)?;
                Values::from_table(py, &version, &keys.batch).map(|values| (values, version.schema()))
            }
            Source::Remote(pool) if needs_schema => request_rows_or_values(pool, py, &keys.batch),
            Source::Remote(pool) => request_values(pool, py, &keys.batch).map(|values| (values, None)),
        };
        let (values, schema) = self.missing_if_other_kind(py, found)?.unzip();
        use_values(&FoundValues::new(values, keys), schema.flatten().as_ref())
    }

    /// Looks up the nearest rows of all keys.
    pub(crate) fn find_neighbors(
        &self,
        py: Python<'_>,
        keys: &KeyBatch<'_>,
        neighbor: Neighbor,
    ) -> PyResult<NearestRows> {
        match &self.source {
            Source::Local(table) => NearestRows::find(py, &*table.version(py)?, keys, neighbor),
            Source::Remote(pool) => {
                let found = call_with_keys(pool, py, keys, |client, keys| client.neighbors(keys, neighbor))?;
                Ok(NearestRows::received(keys.kind(), found))
            }
        }
    }

    fn neighbor<'py>(&self, key: &Bound<'py, PyAny>, neighbor: Neighbor) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, key) = (key.py(), key_from(key)?);
        match &self.source {
            Source::Local(table) => local_row(py, &*table.version(py)?, |table| match neighbor {
                Neighbor::Floor => table.floor(key),
                Neighbor::Ceiling => table.ceiling(key),
            }),
            Source::Remote(pool) => {
                let found = pool.call_with_kind(py, Some(key.kind()), |client| client.neighbors(&[key], neighbor))?;
                received_row(py, found)
            }
        }
    }

    fn neighbor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
        neighbor: Neighbor,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        if dtype.is_some() || is_arrow_array(keys)? {
            let is_floor = matches!(neighbor, Neighbor::Floor);
            return py.import("zero_kv._arrays")?.getattr("neighbor_many")?.call1((slf, keys, dtype, is_floor));
        }
        let rows = slf.get().find_neighbors(py, &KeyBatch::from_object(keys)?, neighbor)?;
        Ok(rows.into_list(py)?.into_any())
    }

    /// Returns parts of all rows.
    fn all_rows<'py>(&self, py: Python<'py>, part: RowPart) -> PyResult<Bound<'py, PyAny>> {
        let range = KeyRange::new(End::Unbounded, End::Unbounded);
        match &self.source {
            Source::Local(table) => local_rows(table, py, Selection::Range(&range), part),
            Source::Remote(pool) => self.client_rows(py, pool, range, part),
        }
    }

    fn client_rows<'py>(
        &self,
        py: Python<'py>,
        pool: &Arc<ConnectionPool>,
        range: KeyRange,
        part: RowPart,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Bound::new(py, ClientRows::new(Arc::clone(pool), range, part, self.is_strict))?.into_any())
    }
}

#[pymethods]
impl LookupTable {
    /// Return the value of a key, or raise `KeyError` if the table does not have the key.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.value(key)?.ok_or_else(|| missing_key(key))
    }

    /// Return the value of a key, or `default` if the table does not have the key. The value is `bytes`, or, in a typed
    /// table, a `TypedRow`.
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
        let found = match &self.source {
            Source::Local(table) => self.look_up(table, key, |table, key| table.get_with(key, bytes))?.flatten(),
            Source::Remote(pool) => bytes(self.request(pool, key, Connection::get)?.flatten().as_deref()),
        };
        Ok(found.or(default))
    }

    /// Return the row of a key in a typed table, or `default` if the table does not have the key.
    ///
    /// Raises `NotTyped` if the table has no schema.
    #[pyo3(signature = (key, default = None, /))]
    fn get_row<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let row = self.row(key)?.map(|row| Bound::new(key.py(), row)).transpose()?;
        Ok(row.map(Bound::into_any).or(default))
    }

    /// Return the values of many keys, in the order of the keys. This method is several times faster than one call
    /// per key.
    ///
    /// For a list, another iterable, or a NumPy array of keys, the result is a list with `None` for keys that the
    /// table does not have. For a pyarrow array or a Polars Series, the result is a pyarrow array of type binary,
    /// with nulls.
    ///
    /// With `dtype`, the result is two NumPy arrays: the values, with zeros for missing keys, and Booleans that are
    /// true for the keys that were found. All values must have the length of `dtype`. With `dtype=(numpy.float32,
    /// 64)`, each value is a row of 64 floats.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, table) = (keys.py(), slf.get());
        if dtype.is_some() || is_arrow_array(keys)? {
            return py.import("zero_kv._arrays")?.getattr("get_many")?.call1((slf, keys, dtype));
        }
        table.look_up_many(py, &table.possible_keys(keys)?, true, |values, schema| {
            let object = |value: Option<&[u8]>| value.map(|value| value_object(py, schema, value)).transpose();
            Ok(list_of(py, values.slices(), object)?.into_any())
        })
    }

    /// Return the bytes of the values or rows of many keys, in the order of the keys. The result has `None` for keys
    /// that the table does not have.
    fn get_bytes_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = keys.py();
        self.look_up_many(py, &self.possible_keys(keys)?, false, |values, _| {
            let object = |value: Option<&[u8]>| Ok(value.map(|value| PyBytes::new(py, value).into_any()));
            list_of(py, values.slices(), object)
        })
    }

    /// Return the rows of many keys in a typed table, in the order of the keys. The result has `None` for keys that the
    /// table does not have.
    ///
    /// Raises `NotTyped` if the table has no schema.
    fn get_rows(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<TypedRow>>> {
        let (py, keys) = (keys.py(), self.possible_keys(keys)?);
        match &self.source {
            Source::Local(table) => {
                let version = table.version(py)?;
                let schema = version.schema_ref().ok_or_else(not_typed)?;
                let found = self.missing_if_other_kind(py, Values::from_table(py, &version, &keys.batch))?;
                let values = FoundValues::new(found, &keys);
                let row = |row: Option<&[u8]>| row.map(|row| TypedRow::new(schema, row)).transpose();
                values.slices().into_iter().map(row).collect()
            }
            Source::Remote(pool) => {
                let found = call_with_keys(pool, py, &keys.batch, |client, keys| client.columns(keys, None));
                let rows = match self.missing_if_other_kind(py, found)? {
                    Some(rows) => row_objects(&rows)?,
                    None => (0..keys.batch.len()).map(|_| None).collect(),
                };
                Ok(with_impossible(rows, keys.is_possible()))
            }
        }
    }

    /// Return some columns of the rows of many keys in a typed table, in the order of the keys. `columns` are the
    /// names of the columns; `None` means all columns. A server sends only these columns.
    ///
    /// With `format="numpy"`, and if all columns have one numeric type, the result is a matrix with a row for each
    /// key: a two-dimensional array in C order. A list of fixed length takes as many columns of the matrix as it has
    /// elements. The matrix is `out` if `out` is given: a writable array in C order with the result's shape and
    /// dtype. Otherwise, the result is a dict with an array for each column: numbers and Booleans as usual, dates as
    /// `datetime64[D]`, timestamps as `datetime64` of their unit, lists of fixed length as two-dimensional arrays,
    /// and other types as objects of the types of `TypedRow`.
    ///
    /// `fill` takes the place of null and of the values of missing keys. For a dict of arrays, `fill` applies to
    /// numbers and Booleans, or is a dict with a value for each column. Without `fill`, the value is `NaN` for
    /// floats, `NaT` for dates and timestamps, and `None` for objects. Integers and Booleans require `fill` if a
    /// column can be null or a key is missing.
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
        let py = slf.py();
        let wanted = Wanted { fill: fill.as_ref(), out: out.as_ref(), format };
        let look_up =
            |keys: &KeyBatch<'_>, names: Option<&[&str]>, use_rows: columns::UseOfRows<'_, '_>| match &slf.get().source
            {
                Source::Local(table) => look_up_in_table(py, table.version(py)?, keys, names, use_rows),
                Source::Remote(pool) => {
                    let rows = call_with_keys(pool, py, keys, |client, keys| client.columns(keys, names))?;
                    use_rows.call(py, &rows)
                }
            };
        columns::columns(slf.as_any(), keys, columns.as_ref(), &wanted, look_up)
    }

    /// Return the columns of a typed table, or `None` if the table's values are bytes.
    fn schema(&self, py: Python<'_>) -> PyResult<Option<schema::Schema>> {
        let schema = match &self.source {
            Source::Local(table) => table.version(py)?.schema(),
            Source::Remote(pool) => pool.call(py, Connection::schema)?,
        };
        Ok(schema.map(schema::Schema))
    }

    /// Return whether the table has a key.
    fn contains(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let found = match &self.source {
            Source::Local(table) => self.look_up(table, key, |table, key| table.contains(key))?,
            Source::Remote(pool) => {
                let found = self.request(pool, key, |connection, key| call!(connection, contains_many(&[key])))?;
                found.map(|found| found == [true])
            }
        };
        Ok(found.unwrap_or(false))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.contains(key)
    }

    /// Return whether the table has each of many keys, in the order of the keys.
    fn contains_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        let (py, keys) = (keys.py(), self.possible_keys(keys)?);
        let found = match &self.source {
            Source::Local(table) => contains_many(py, &*table.version(py)?, &keys.batch),
            Source::Remote(pool) => {
                call_with_keys(pool, py, &keys.batch, |client, keys| call!(client, contains_many(keys)))
            }
        };
        let found = self.missing_if_other_kind(py, found)?.unwrap_or_else(|| vec![false; keys.batch.len()]);
        let found = with_impossible(found.into_iter().map(Some).collect(), keys.is_possible());
        Ok(found.into_iter().map(|found| found.unwrap_or(false)).collect())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.source {
            Source::Local(table) => Ok(table.version(py)?.len()),
            Source::Remote(_) => Ok(usize::try_from(self.count(py, None, None)?)?),
        }
    }

    /// A client is true, because its length would be a request.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.source {
            Source::Local(table) => Ok(!table.version(py)?.is_empty()),
            Source::Remote(_) => Ok(true),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check_open(py)?;
        Ok(self.all_rows(py, RowPart::Keys)?.try_iter()?.into_any())
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check_open(py)?;
        self.all_rows(py, RowPart::Keys)?.call_method0("__reversed__")
    }

    /// Return all keys in ascending order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.all_rows(py, RowPart::Keys)
    }

    /// Return all values, in the order of their keys.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.all_rows(py, RowPart::Values)
    }

    /// Return all rows, in the order of their keys.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.all_rows(py, RowPart::Both)
    }

    /// Return the row with the largest key less than or equal to `key`.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.neighbor(key, Neighbor::Floor)
    }

    /// Return the row with the smallest key greater than or equal to `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.neighbor(key, Neighbor::Ceiling)
    }

    /// Return the result of `floor` for many keys, in the order of the keys. This method is several times faster
    /// than one call per key.
    ///
    /// For a list, another iterable, or a NumPy array of keys, the result is a list of rows, with `None` for keys
    /// without a row. For a pyarrow array or a Polars Series, the result is two pyarrow arrays with nulls: the rows'
    /// keys and their values.
    ///
    /// With `dtype`, the result is three NumPy arrays: the rows' keys, their values, and Booleans that are true for
    /// the keys with a row. Without a row, key and value are zero. The table's keys must be numbers, and all values
    /// must have the length of `dtype`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn floor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::neighbor_many(slf, keys, dtype.as_ref(), Neighbor::Floor)
    }

    /// Return the result of `ceiling` for many keys, in the order of the keys: see `floor_many`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn ceiling_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::neighbor_many(slf, keys, dtype.as_ref(), Neighbor::Ceiling)
    }

    /// Return the row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.source {
            Source::Local(table) => local_row(py, &*table.version(py)?, |table| table.first()),
            Source::Remote(pool) => received_row(py, pool.call(py, Connection::first)?),
        }
    }

    /// Return the row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.source {
            Source::Local(table) => local_row(py, &*table.version(py)?, |table| table.last()),
            Source::Remote(pool) => received_row(py, pool.call(py, Connection::last)?),
        }
    }

    /// Return the rows with keys from `start` up to, but not including, `end`, in key order.
    #[pyo3(signature = (start = None, end = None))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let range = range_between(start, end)?;
        match &self.source {
            Source::Local(table) => local_rows(table, py, Selection::Range(&range), RowPart::Both),
            Source::Remote(pool) => self.client_rows(py, pool, range, RowPart::Both),
        }
    }

    /// Return the rows whose keys start with `prefix`, in key order.
    fn prefix<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = prefix.py();
        match &self.source {
            Source::Local(table) => local_rows(table, py, Selection::Prefix(prefix_from(prefix)?), RowPart::Both),
            Source::Remote(pool) => self.client_rows(py, pool, range_with_prefix(prefix)?, RowPart::Both),
        }
    }

    /// Return the number of keys from `start` up to, but not including, `end`.
    #[pyo3(signature = (start = None, end = None))]
    fn count(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let range = range_between(start, end)?;
        match &self.source {
            Source::Local(table) => {
                let count = table.version(py)?.count(range.bounds()).map_err(lookup_exception)?;
                Ok(count as u64)
            }
            Source::Remote(pool) => {
                pool.call_with_kind(py, range_kind(&range), |client| call!(client, count(range.bounds())))
            }
        }
    }

    /// Return the number of keys that start with `prefix`.
    fn count_prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, prefix) = (prefix.py(), prefix_from(prefix)?);
        match &self.source {
            Source::Local(table) => Ok(table.version(py)?.prefix(prefix).map_err(lookup_exception)?.len() as u64),
            Source::Remote(pool) => {
                pool.call_with_kind(py, Some(KeyKind::Bytes), |client| call!(client, count_prefix(prefix)))
            }
        }
    }

    /// Whether a key that the table cannot have is an error.
    #[getter]
    fn strict(&self) -> bool {
        self.is_strict
    }

    /// End the use of the table or client. Later calls raise `Closed`.
    fn close(&self, py: Python<'_>) {
        match &self.source {
            Source::Local(table) => table.close(py),
            Source::Remote(pool) => pool.close(),
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

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, name) = (slf.py(), slf.get_type().name()?);
        let (path, state) = match &slf.get().source {
            Source::Local(table) => {
                let state = table
                    .version(py)
                    .map(|table| format!(", {}, keys {}", counted(table.len(), "row"), kind_name(table.key_kind())));
                (table.path().display().to_string(), state)
            }
            Source::Remote(pool) => (pool.name.clone(), pool.check_open().map(|()| String::new())),
        };
        let state = match state {
            Err(error) if error.is_instance_of::<Closed>(py) => ", closed".to_owned(),
            state => state?,
        };
        Ok(format!("<zero_kv.{name} {path:?}{state}>"))
    }

    /// Pickles the arguments, including a password. The process that unpickles them opens the table or connects.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.arguments {
            Arguments::Of { function, address, keywords } => {
                let partial = py.import("functools")?.getattr("partial")?;
                let create = partial.call((function,), Some(keywords.bind(py)))?;
                (create, (address,)).into_pyobject(py)
            }
            Arguments::Impossible(reason) => Err(PyTypeError::new_err(*reason)),
        }
    }
}

fn not_typed() -> PyErr {
    typed_exception(&TypedLookupError::NotTyped)
}

/// Converts the row that a lookup found to a tuple. Returns `None` if the lookup found no row.
fn local_row<'py>(
    py: Python<'py>,
    table: &MappedStore,
    look_up: impl FnOnce(&MappedStore) -> Result<Option<Row>, LookupError>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    optional_row(py, table.schema_ref(), look_up(table).map_err(lookup_exception)?)
}

fn received_row(py: Python<'_>, (rows, schemas): Nearest) -> PyResult<Option<Bound<'_, PyTuple>>> {
    optional_row(py, schemas.of_row(0), rows.into_iter().next().flatten())
}

fn local_rows<'py>(
    table: &LocalTable,
    py: Python<'py>,
    selection: Selection<'_>,
    part: RowPart,
) -> PyResult<Bound<'py, PyAny>> {
    let rows = Rows::new(table.version(py)?, selection, part).map_err(lookup_exception)?;
    Ok(Bound::new(py, rows)?.into_any())
}

fn contains_many(py: Python<'_>, table: &MappedStore, keys: &KeyBatch<'_>) -> PyResult<Vec<bool>> {
    let mut found = Vec::with_capacity(keys.len());
    match keys {
        // Without keys there is no key kind to check.
        _ if keys.len() == 0 => {}
        KeyBatch::Numbers(keys) => {
            in_chunks(py, keys, |keys| table.get_many_with(keys, |_, value| found.push(value.is_some())))?;
        }
        _ => in_chunks(py, &keys.slices()?, |keys| table.get_many_with(keys, |_, value| found.push(value.is_some())))?,
    }
    Ok(found)
}

/// Makes a call with the keys of a batch.
fn call_with_keys<T: Send>(
    pool: &ConnectionPool,
    py: Python<'_>,
    keys: &KeyBatch<'_>,
    call: impl FnOnce(&mut Connection, &[Key<'_>]) -> Result<T, ClientError> + Send,
) -> PyResult<T> {
    let (kind, keys) = (keys.kind(), keys.keys()?);
    pool.call_with_kind(py, Some(kind), |connection| call(connection, &keys))
}

/// Requests the bytes of values. Signals are checked between two parts of the keys.
fn request_values<'t>(pool: &ConnectionPool, py: Python<'_>, keys: &KeyBatch<'_>) -> PyResult<Values<'t>> {
    pool.check_open()?;
    let mut values = CopiedValues::with_capacity(keys.len());
    for part in keys.keys()?.chunks(SIGNALS_EVERY_KEYS) {
        pool.call_with_kind(py, Some(keys.kind()), |client| client.get_each(part, |value| values.push(value)))?;
        py.check_signals()?;
    }
    Ok(Values::Copied(values))
}

/// Requests the rows of a typed table and their schema, or the values of another table.
fn request_rows_or_values<'t>(
    pool: &ConnectionPool,
    py: Python<'_>,
    keys: &KeyBatch<'_>,
) -> PyResult<(Values<'t>, Option<Arc<Schema>>)> {
    pool.check_open()?;
    let mut found = Vec::new();
    for part in keys.keys()?.chunks(SIGNALS_EVERY_KEYS) {
        let received = pool.call_with_kind(py, Some(keys.kind()), |client| call!(client, get_rows_or_values(part)))?;
        found.push(Values::received(received));
        py.check_signals()?;
    }
    let schema = found.first().and_then(|(_, schema)| schema.clone());
    if found
        .iter()
        .any(|(_, other)| other.as_ref().map(|other| other.id()) != schema.as_ref().map(|schema| schema.id()))
    {
        let message = "the table was replaced by a table with another schema during the call: try again";
        return Err(ServerError::new_err(message));
    }
    if found.len() == 1 {
        return Ok((found.remove(0).0, schema));
    }
    let mut values = CopiedValues::with_capacity(keys.len());
    found.iter().flat_map(|(part, _)| part.slices()).for_each(|value| values.push(value));
    Ok((Values::Copied(values), schema))
}
