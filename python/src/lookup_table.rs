//! The class `LookupTable`: what tables in this process and blocking clients have in common.
//!
//! In: keys. Out: values and rows, from the memory of this process or from servers. Other Python threads run while a
//! server is asked and while many keys are looked up.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple, PyType};
use zero_kv::Lookup;
use zero_kv::client::{ClientError, Row};
use zero_kv::counted::counted;
use zero_kv::store::TypedLookupError;
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind, KeyType, LookupError, MappedStore};

use crate::array_nulls::ArrayNulls;
use crate::client_rows::{ClientRows, RowsSource};
use crate::columns::{self, ColumnUse, Found, Wanted, look_up_in_table};
use crate::connection::{Connection, call};
use crate::connection_pool::{ConnectionPool, EncodedCalls};
use crate::convert::{missing_key, range_kind};
use crate::errors::{self, Closed, lookup_exception, typed_exception};
use crate::key_batch::{KeyBatch, PossibleKeys, SIGNALS_EVERY_KEYS, with_impossible};
use crate::key_columns::{self, KeyColumn};
use crate::local_table::LocalTable;
use crate::many::{CopiedValues, FoundValues, Values, in_chunks, list_of};
use crate::neighbors::{Nearest, NearestRows, Neighbor};
use crate::ranges::FoundRanges;
use crate::received::{ReceivedRows, row_objects};
use crate::rows::{RowPart, Rows, Selection};
use crate::schema;
use crate::table_version::TableVersion;
use crate::typed_key::{bound_key, lookup_key, optional_range, optional_row, prefix_bytes, range_between};
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
/// `ClusterClient`) have in common: the lookups of a mapping. Keys are `int`, or `bytes` and `str` (as UTF-8),
/// or objects of another `key_type`, for which `str` and `bytes` are the written form: addresses of `ipaddress`,
/// `uuid.UUID`, `datetime.date`, `datetime.datetime` (in UTC if it has no time zone), and tuples, whose leading parts
/// are prefixes and ends of ranges. Values are `bytes`, or, in a typed table, `TypedRow`. Methods that return buffers
/// and arrays of values return the bytes of rows.
///
/// A table of `u64` or `bytes` does not have a key of the other kind, a number that is negative or has more than 64
/// bits, `None`, or bytes that are empty or longer than 65535: `in` is false, `get` and `get_many` return the default,
/// and `[]` raises `KeyError`. With `strict=True`, these keys raise `KeyKind` or `TypeError`, `OverflowError`, or
/// `ValueError`. `floor`, `ceiling`, `range`, `prefix`, `count`, and `columns` always raise these exceptions, and so do
/// all methods of other tables for an object that is no key of their type.
///
/// In an array of pyarrow, Polars, or pandas, and in a masked array of NumPy, keys can be null. In all methods, the
/// table has no row for a null key.
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

    /// Makes a call. `make` converts its keys for the type of the table's keys, and is repeated if a server has meanwhile
    /// replaced its table by one with keys of another type.
    pub(crate) fn call<T>(&self, py: Python<'_>, mut make: impl FnMut(&Call<'_>) -> PyResult<T>) -> PyResult<T> {
        let is_strict = self.is_strict;
        match &self.source {
            Source::Local(table) => {
                let version = table.version(py)?;
                let key_type = version.key_type();
                make(&Call { source: CallSource::Local(version), key_type, is_strict })
            }
            Source::Remote(pool) => pool.with_key_type(py, |calls| {
                let key_type = calls.encoding.key_type;
                make(&Call { source: CallSource::Remote(calls), key_type, is_strict })
            }),
        }
    }

    /// Returns the keys of a call that may be repeated: the items of an iterator, which can be taken only once, are kept.
    pub(crate) fn repeatable_keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.source {
            Source::Remote(_) if keys.is_instance_of::<PyIterator>() => {
                Ok(PyList::new(keys.py(), keys.try_iter()?.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            _ => Ok(keys.clone()),
        }
    }

    /// Returns an argument each time that a call is made. Only the calls of clients are repeated.
    pub(crate) fn each_time<T: Clone>(&self, argument: T) -> impl FnMut() -> T + use<T> {
        let (mut argument, is_repeated) = (Some(argument), matches!(self.source, Source::Remote(_)));
        move || {
            let argument = if is_repeated { argument.clone() } else { argument.take() };
            argument.expect("a call of a table in this process is made once")
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
        let found = table.with_table(key.py(), |table| match lookup_key(key, table.key_type(), self.is_strict) {
            Ok(Some(asked)) => look_up(table, asked.as_key()).map(|found| Ok(Some(found))),
            Ok(None) => Ok(Ok(None)),
            Err(error) => Ok(Err(error)),
        })?;
        match found {
            Err(LookupError::KeyKind { .. }) if !self.is_strict => Ok(None),
            found => found.map_err(lookup_exception)?,
        }
    }

    /// Sends a request for a key. Returns `None` for keys that the table cannot have, unless the client is strict.
    fn request<T: Send>(
        &self,
        pool: &ConnectionPool,
        key: &Bound<'_, PyAny>,
        call: impl Fn(&mut Connection, Key<'_>) -> Result<T, ClientError> + Sync,
    ) -> PyResult<Option<T>> {
        pool.check_open()?;
        pool.with_key_type(key.py(), |calls| {
            let asked = lookup_key(key, calls.encoding.key_type, self.is_strict)?;
            let Some(asked) = asked.as_ref().map(|asked| asked.as_key()) else {
                return calls.check_type(key.py()).map(|()| None);
            };
            let found = calls.call_with_kind(key.py(), Some(asked.kind()), |connection| call(connection, asked));
            missing_if_other_kind(key.py(), self.is_strict, found)
        })
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

    fn schema_of(&self, py: Python<'_>) -> PyResult<Option<Arc<Schema>>> {
        match &self.source {
            Source::Local(table) => Ok(table.version(py)?.schema()),
            Source::Remote(pool) => pool.call(py, Connection::schema),
        }
    }

    /// Returns the schema of the table. Raises `NotTyped` if it has none.
    pub(crate) fn typed_schema(&self, py: Python<'_>) -> PyResult<Arc<Schema>> {
        self.schema_of(py)?.ok_or_else(not_typed)
    }

    fn neighbor<'py>(&self, key: &Bound<'py, PyAny>, neighbor: Neighbor) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = key.py();
        self.call(py, |call| {
            let key = bound_key(key, call.key_type)?;
            let key = key.as_key();
            match &call.source {
                CallSource::Local(table) => local_row(py, table, |table| match neighbor {
                    Neighbor::Floor => table.floor(key),
                    Neighbor::Ceiling => table.ceiling(key),
                }),
                CallSource::Remote(calls) => {
                    let look_up = |client: &mut Connection| client.neighbors(&[key], neighbor);
                    received_row(py, call.key_type, calls.call_with_kind(py, Some(key.kind()), look_up)?)
                }
            }
        })
    }

    fn neighbor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
        neighbor: Neighbor,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        if dtype.is_some() || ArrayNulls::of(keys)? != ArrayNulls::None {
            let is_floor = matches!(neighbor, Neighbor::Floor);
            return py.import("zero_kv._arrays")?.getattr("neighbor_many")?.call1((slf, keys, dtype, is_floor));
        }
        let keys = slf.get().repeatable_keys(keys)?;
        slf.get().call(py, |call| {
            let rows = call.find_neighbors(py, &call.bound_keys(&keys)?, neighbor)?;
            Ok(rows.into_list(py, call.key_type)?.into_any())
        })
    }

    /// Returns parts of all rows.
    fn all_rows<'py>(&self, py: Python<'py>, part: RowPart) -> PyResult<Bound<'py, PyAny>> {
        self.rows(py, RowsSource::Between(None, None), part)
    }

    /// Returns rows in key order.
    fn rows<'py>(&self, py: Python<'py>, source: RowsSource, part: RowPart) -> PyResult<Bound<'py, PyAny>> {
        match &self.source {
            Source::Local(table) => {
                let table = table.version(py)?;
                match &source {
                    RowsSource::Prefix(prefix) => {
                        let prefix = prefix_bytes(prefix.bind(py), table.key_type())?;
                        local_rows(&table, py, Selection::Prefix(&prefix), part)
                    }
                    RowsSource::Between(..) => {
                        let range = source.range(py, table.key_type())?;
                        local_rows(&table, py, Selection::Range(&range), part)
                    }
                }
            }
            Source::Remote(pool) => {
                let rows = ClientRows::new(py, Arc::clone(pool), source, part, self.is_strict)?;
                Ok(Bound::new(py, rows)?.into_any())
            }
        }
    }
}

/// The table of one call.
pub(crate) struct Call<'t> {
    source: CallSource<'t>,
    pub(crate) key_type: KeyType,
    is_strict: bool,
}

enum CallSource<'t> {
    /// The version of a table in this process.
    Local(TableVersion),
    Remote(EncodedCalls<'t>),
}

impl Call<'_> {
    /// Converts the keys of the call.
    pub(crate) fn possible_keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<PossibleKeys<'py>> {
        let found = key_columns::possible_keys(keys, self.key_type, self.is_strict)?;
        self.check_possible(keys.py(), found)
    }

    /// Converts the keys of the call, or leading parts of composite keys. A key that the table cannot have is an error.
    pub(crate) fn bound_keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<KeyBatch<'py>> {
        key_columns::bound_keys(keys, self.key_type)
    }

    /// Converts the keys of an array, none of which is null.
    pub(crate) fn possible_column<'py>(&self, py: Python<'py>, keys: KeyColumn<'py>) -> PyResult<PossibleKeys<'py>> {
        let found = keys.keys(py, self.key_type, self.is_strict)?;
        self.check_possible(py, found)
    }

    /// Checks the type of the keys if no request will, because the table can have none of them.
    fn check_possible<'py>(&self, py: Python<'_>, keys: PossibleKeys<'py>) -> PyResult<PossibleKeys<'py>> {
        match &self.source {
            CallSource::Remote(calls) if keys.batch.len() == 0 && keys.is_possible().is_some() => {
                calls.check_type(py)?;
            }
            _ => {}
        }
        Ok(keys)
    }

    /// Looks up the keys of the call, and passes their values to `use_values`. Keys that the table cannot have have no
    /// value, unless the table is strict. With `needs_schema`, the schema of a typed table is passed, too, which a
    /// client has to request.
    pub(crate) fn look_up_many<T>(
        &self,
        py: Python<'_>,
        keys: &PossibleKeys<'_>,
        needs_schema: bool,
        use_values: impl FnOnce(&FoundValues<'_>, Option<&Arc<Schema>>) -> PyResult<T>,
    ) -> PyResult<T> {
        let found = match &self.source {
            CallSource::Local(table) => {
                Values::from_table(py, table, &keys.batch).map(|values| (values, table.schema()))
            }
            CallSource::Remote(calls) if needs_schema => request_rows_or_values(calls, py, &keys.batch),
            CallSource::Remote(calls) => request_values(calls, py, &keys.batch).map(|values| (values, None)),
        };
        let (values, schema) = missing_if_other_kind(py, self.is_strict, found)?.unzip();
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
            CallSource::Local(table) => NearestRows::find(py, table, keys, neighbor),
            CallSource::Remote(calls) => {
                let found = call_with_keys(calls, py, keys, |client, keys| client.neighbors(keys, neighbor))?;
                Ok(NearestRows::received(keys.kind(), found))
            }
        }
    }

    /// Looks up the ranges that contain the keys.
    pub(crate) fn find_ranges(&self, py: Python<'_>, keys: &KeyBatch<'_>) -> PyResult<FoundRanges> {
        match &self.source {
            CallSource::Local(table) => FoundRanges::find(py, table, keys),
            CallSource::Remote(calls) => {
                let found = call_with_keys(calls, py, keys, |client, keys| client.ranges(keys))?;
                Ok(FoundRanges::received(keys.kind(), found))
            }
        }
    }
}

/// Returns `None` if the table has keys of another kind, unless the table is strict.
fn missing_if_other_kind<T>(py: Python<'_>, is_strict: bool, found: PyResult<T>) -> PyResult<Option<T>> {
    match found {
        Err(error) if !is_strict && error.is_instance_of::<errors::KeyKind>(py) => Ok(None),
        found => found.map(Some),
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
        let py = keys.py();
        if dtype.is_some() || ArrayNulls::of(keys)? == ArrayNulls::Arrow {
            return py.import("zero_kv._arrays")?.getattr("get_many")?.call1((slf, keys, dtype));
        }
        let keys = slf.get().repeatable_keys(keys)?;
        slf.get().call(py, |call| {
            call.look_up_many(py, &call.possible_keys(&keys)?, true, |values, schema| {
                let object = |value: Option<&[u8]>| value.map(|value| value_object(py, schema, value)).transpose();
                Ok(list_of(py, values.slices(), object)?.into_any())
            })
        })
    }

    /// Return the bytes of the values or rows of many keys, in the order of the keys. The result has `None` for keys
    /// that the table does not have.
    fn get_bytes_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = keys.py();
        let keys = self.repeatable_keys(keys)?;
        self.call(py, |call| {
            call.look_up_many(py, &call.possible_keys(&keys)?, false, |values, _| {
                let object = |value: Option<&[u8]>| Ok(value.map(|value| PyBytes::new(py, value).into_any()));
                list_of(py, values.slices(), object)
            })
        })
    }

    /// Return the rows of many keys in a typed table, in the order of the keys. The result has `None` for keys that the
    /// table does not have.
    ///
    /// Raises `NotTyped` if the table has no schema.
    fn get_rows(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<TypedRow>>> {
        let py = keys.py();
        let keys = self.repeatable_keys(keys)?;
        self.call(py, |call| {
            let keys = call.possible_keys(&keys)?;
            match &call.source {
                CallSource::Local(table) => {
                    let schema = table.schema_ref().ok_or_else(not_typed)?;
                    let found = Values::from_table(py, table, &keys.batch);
                    let found = missing_if_other_kind(py, self.is_strict, found)?;
                    let values = FoundValues::new(found, &keys);
                    let row = |row: Option<&[u8]>| row.map(|row| TypedRow::new(schema, row)).transpose();
                    values.slices().into_iter().map(row).collect()
                }
                CallSource::Remote(calls) => {
                    let found = call_with_keys(calls, py, &keys.batch, |client, keys| client.columns(keys, None));
                    let rows = match missing_if_other_kind(py, self.is_strict, found)? {
                        Some(rows) => row_objects(&rows)?,
                        None => (0..keys.batch.len()).map(|_| None).collect(),
                    };
                    Ok(with_impossible(rows, keys.is_possible()))
                }
            }
        })
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
    /// `fill` takes the place of null and of the values of missing keys, but not of a stored `NaN`. It is one value
    /// for all columns of numbers and Booleans, or a dict with the values of some columns. By default, it is `NaN` for
    /// floats, `NaT` for dates and timestamps, and `None` for objects. Integers and Booleans have no default: if a
    /// value is null or a key is missing, their columns require `fill`.
    ///
    /// With `format="arrow"`, the result is a `pyarrow.RecordBatch`, with null for missing values. `"pandas"` and
    /// `"polars"` return DataFrames with the memory of the RecordBatch; the columns of the pandas DataFrame are of
    /// `pandas.ArrowDtype`, apart from timestamps, which are `datetime64` of their unit. Timestamps have no time zone.
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
        columns_of(slf, ColumnsOf::Found(Found::Rows), keys, (columns, None, fill, out, format))
    }

    /// Return the columns of a typed table, or `None` if the table's values are bytes.
    fn schema(&self, py: Python<'_>) -> PyResult<Option<schema::Schema>> {
        Ok(self.schema_of(py)?.map(schema::Schema))
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
        let py = keys.py();
        let keys = self.repeatable_keys(keys)?;
        self.call(py, |call| {
            let keys = call.possible_keys(&keys)?;
            let found = match &call.source {
                CallSource::Local(table) => contains_many(py, table, &keys.batch),
                CallSource::Remote(calls) => {
                    call_with_keys(calls, py, &keys.batch, |client, keys| call!(client, contains_many(keys)))
                }
            };
            let found = missing_if_other_kind(py, self.is_strict, found)?;
            let found = found.unwrap_or_else(|| vec![false; keys.batch.len()]);
            let found = with_impossible(found.into_iter().map(Some).collect(), keys.is_possible());
            Ok(found.into_iter().map(|found| found.unwrap_or(false)).collect())
        })
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

    /// Return the range that contains `key`, in a table of ranges: its first key, its last key, and its value.
    ///
    /// Without ranges, a table raises `ValueError`, and a client `ServerError`.
    fn cover<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = key.py();
        self.call(py, |call| {
            let key = bound_key(key, call.key_type)?;
            let key = key.as_key();
            match &call.source {
                CallSource::Local(table) => {
                    let range = table.cover(key).map_err(lookup_exception)?;
                    optional_range(py, call.key_type, table.schema_ref(), range)
                }
                CallSource::Remote(calls) => {
                    let look_up = |client: &mut Connection| client.ranges(&[key]);
                    let (ranges, schemas) = calls.call_with_kind(py, Some(key.kind()), look_up)?;
                    optional_range(py, call.key_type, schemas.of_row(0), ranges.into_iter().next().flatten())
                }
            }
        })
    }

    /// Return the result of `cover` for many keys, in the order of the keys. This method is several times faster
    /// than one call per key.
    ///
    /// For a list, another iterable, or a NumPy array of keys, the result is a list of ranges, with `None` for keys
    /// that no range contains. For a pyarrow array or a Polars Series, the result is three pyarrow arrays with nulls:
    /// the first keys of the ranges, their last keys, and their values.
    ///
    /// With `dtype`, the result is four NumPy arrays: the first keys of the ranges, their last keys, their values, and
    /// Booleans that are true for the keys that a range contains. Without a range, keys and value are zero. The table's
    /// keys must be numbers, and all values must have the length of `dtype`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn cover_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        if dtype.is_some() || ArrayNulls::of(keys)? != ArrayNulls::None {
            return py.import("zero_kv._arrays")?.getattr("cover_many")?.call1((slf, keys, dtype));
        }
        let keys = slf.get().repeatable_keys(keys)?;
        slf.get().call(py, |call| {
            let ranges = call.find_ranges(py, &call.bound_keys(&keys)?)?;
            Ok(ranges.into_list(py, call.key_type)?.into_any())
        })
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

    /// Return some columns of the rows that `floor` finds for many keys, in the order of the keys: for each key the
    /// row with the largest key less than or equal to it. `columns`, `fill`, `out`, and `format` are the arguments of
    /// `columns`. A server sends whole rows.
    ///
    /// `limit` has a key for each of the keys: the row of a key is missing if the row's key is less than its limit. In
    /// a table whose keys begin with an entity and end with a time, the limit of a key is the entity, or the entity and
    /// the earliest time, so that no key gets a row of another entity or an older row.
    ///
    /// With `format="numpy"`, the result is three objects: an array of the rows' keys, the columns, and an array of
    /// Booleans that are true for the keys with a row. Without a row, a key is zero or `None`. With another format, the
    /// result is the rows' keys, with nulls, and the columns.
    ///
    /// Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
    #[pyo3(signature = (keys, columns = None, *, limit = None, fill = None, out = None, format = "numpy"))]
    fn floor_columns<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Bound<'py, PyAny>>,
        limit: Option<Bound<'py, PyAny>>,
        fill: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
        format: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        columns_of(slf, ColumnsOf::Nearest(Neighbor::Floor), keys, (columns, limit, fill, out, format))
    }

    /// Return some columns of the rows that `ceiling` finds for many keys: see `floor_columns`. The row of a key is
    /// missing if the row's key is greater than its limit.
    #[pyo3(signature = (keys, columns = None, *, limit = None, fill = None, out = None, format = "numpy"))]
    fn ceiling_columns<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Bound<'py, PyAny>>,
        limit: Option<Bound<'py, PyAny>>,
        fill: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
        format: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        columns_of(slf, ColumnsOf::Nearest(Neighbor::Ceiling), keys, (columns, limit, fill, out, format))
    }

    /// Return some columns of the ranges that contain many keys, in the order of the keys. A key that no range
    /// contains has no values. The arguments and the result are those of `columns`. A server sends whole rows.
    ///
    /// Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
    #[pyo3(signature = (keys, columns = None, *, fill = None, out = None, format = "numpy"))]
    fn cover_columns<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Bound<'py, PyAny>>,
        fill: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
        format: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        columns_of(slf, ColumnsOf::Found(Found::Ranges), keys, (columns, None, fill, out, format))
    }

    /// Return the row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.source {
            Source::Local(table) => local_row(py, &*table.version(py)?, |table| table.first()),
            Source::Remote(pool) => end_row(py, pool, Connection::first),
        }
    }

    /// Return the row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.source {
            Source::Local(table) => local_row(py, &*table.version(py)?, |table| table.last()),
            Source::Remote(pool) => end_row(py, pool, Connection::last),
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
        let end_of = |end: Option<&Bound<'py, PyAny>>| end.map(|end| end.clone().unbind());
        self.rows(py, RowsSource::Between(end_of(start), end_of(end)), RowPart::Both)
    }

    /// Return the rows whose keys start with `prefix`, in key order.
    fn prefix<'py>(&self, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.rows(prefix.py(), RowsSource::Prefix(prefix.clone().unbind()), RowPart::Both)
    }

    /// Return the number of keys from `start` up to, but not including, `end`.
    #[pyo3(signature = (start = None, end = None))]
    fn count(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        self.call(py, |call| {
            let range = range_between(call.key_type, start, end)?;
            match &call.source {
                CallSource::Local(table) => Ok(table.count(range.bounds()).map_err(lookup_exception)? as u64),
                CallSource::Remote(calls) => {
                    calls.call_with_kind(py, range_kind(&range), |client| call!(client, count(range.bounds())))
                }
            }
        })
    }

    /// Return the number of keys that start with `prefix`.
    fn count_prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = prefix.py();
        self.call(py, |call| {
            let prefix = prefix_bytes(prefix, call.key_type)?;
            match &call.source {
                CallSource::Local(table) => Ok(table.prefix(&prefix).map_err(lookup_exception)?.len() as u64),
                CallSource::Remote(calls) => {
                    calls.call_with_kind(py, Some(KeyKind::Bytes), |client| call!(client, count_prefix(&prefix)))
                }
            }
        })
    }

    /// The type of the keys, such as `"u64"`, `"ip"`, or, for keys of two parts, `"bytes,date"`. A client requests it
    /// once, and again when the server has rejected keys because the type has changed.
    #[getter]
    fn key_type(&self, py: Python<'_>) -> PyResult<String> {
        self.call(py, |call| Ok(call.key_type.to_string()))
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
                    .map(|table| format!(", {}, keys {}", counted(table.len(), "row"), table.key_type()));
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

/// The rows whose columns a method returns.
#[derive(Clone, Copy)]
enum ColumnsOf {
    Found(Found),
    Nearest(Neighbor),
}

/// The arguments of the methods that return columns, after the keys: `columns`, `limit`, `fill`, `out`, and `format`.
type ColumnArguments<'a, 'py> = (
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    &'a str,
);

/// Implements the methods that return columns.
fn columns_of<'py>(
    table: &Bound<'py, LookupTable>,
    rows: ColumnsOf,
    keys: &Bound<'py, PyAny>,
    (columns, limit, fill, out, format): ColumnArguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let wanted = Wanted { fill: fill.as_ref(), out: out.as_ref(), format };
    let found = match rows {
        ColumnsOf::Found(found) => found,
        ColumnsOf::Nearest(neighbor) => {
            wanted.check()?;
            let is_floor = matches!(neighbor, Neighbor::Floor);
            let function = py.import("zero_kv._columns")?.getattr("neighbor_columns")?;
            return function.call1((table, keys, columns, limit, fill, out, format, is_floor));
        }
    };
    let look_up = |names: Option<&[&str]>, use_rows: columns::UseOfRows<'_, '_>| {
        let keys = table.get().repeatable_keys(keys)?;
        table.get().call(py, |call| {
            let keys = call.bound_keys(&keys)?;
            match (&call.source, found) {
                (CallSource::Local(version), _) => look_up_in_table(py, version.clone(), &keys, found, names, use_rows),
                (CallSource::Remote(calls), Found::Rows) => {
                    let rows = call_with_keys(calls, py, &keys, |client, keys| client.columns(keys, names))?;
                    use_rows.call(py, &rows)
                }
                (CallSource::Remote(_), Found::Ranges) => {
                    let ranges = call.find_ranges(py, &keys)?;
                    let schema = match ranges.schemas.common(&ranges.values)? {
                        Some(schema) => schema,
                        None => table.get().typed_schema(py)?,
                    };
                    let rows = ranges.values.slices().into_iter().map(|row| row.map(<[u8]>::to_vec)).collect();
                    let projection = columns::projection(&schema, names)?;
                    use_rows.call(py, &ReceivedRows::new(schema, projection, rows)?)
                }
            }
        })
    };
    let method = if found == Found::Rows { "columns" } else { "cover_columns" };
    columns::columns(table.as_any(), method, keys, columns.as_ref(), &wanted, look_up)
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
    optional_row(py, table.key_type(), table.schema_ref(), look_up(table).map_err(lookup_exception)?)
}

fn received_row(py: Python<'_>, key_type: KeyType, (rows, schemas): Nearest) -> PyResult<Option<Bound<'_, PyTuple>>> {
    optional_row(py, key_type, schemas.of_row(0), rows.into_iter().next().flatten())
}

/// Returns the first or the last row of a server's table.
fn end_row<'py>(
    py: Python<'py>,
    pool: &ConnectionPool,
    request: fn(&mut Connection) -> Result<Nearest, ClientError>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    pool.with_key_type(py, |calls| received_row(py, calls.encoding.key_type, calls.call_with_kind(py, None, request)?))
}

fn local_rows<'py>(
    table: &TableVersion,
    py: Python<'py>,
    selection: Selection<'_>,
    part: RowPart,
) -> PyResult<Bound<'py, PyAny>> {
    let rows = Rows::new(table.clone(), selection, part).map_err(lookup_exception)?;
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
    calls: &EncodedCalls<'_>,
    py: Python<'_>,
    keys: &KeyBatch<'_>,
    call: impl FnOnce(&mut Connection, &[Key<'_>]) -> Result<T, ClientError> + Send,
) -> PyResult<T> {
    let (kind, keys) = (keys.kind(), keys.keys()?);
    calls.call_with_kind(py, Some(kind), |connection| call(connection, &keys))
}

/// Requests the bytes of values. Signals are checked between two parts of the keys.
fn request_values<'t>(calls: &EncodedCalls<'_>, py: Python<'_>, keys: &KeyBatch<'_>) -> PyResult<Values<'t>> {
    calls.check_open()?;
    let mut values = CopiedValues::with_capacity(keys.len());
    for part in keys.keys()?.chunks(SIGNALS_EVERY_KEYS) {
        calls.call_with_kind(py, Some(keys.kind()), |client| client.get_each(part, |value| values.push(value)))?;
        py.check_signals()?;
    }
    Ok(Values::Copied(values))
}

/// Requests the rows of a typed table and their schema, or the values of another table.
fn request_rows_or_values<'t>(
    calls: &EncodedCalls<'_>,
    py: Python<'_>,
    keys: &KeyBatch<'_>,
) -> PyResult<(Values<'t>, Option<Arc<Schema>>)> {
    calls.check_open()?;
    let mut found = Vec::new();
    for part in keys.keys()?.chunks(SIGNALS_EVERY_KEYS) {
        let received = calls.call_with_kind(py, Some(keys.kind()), |client| call!(client, get_rows_or_values(part)))?;
        found.push(Values::received(received));
        py.check_signals()?;
    }
    let schema = found.first().and_then(|(_, schema)| schema.clone());
    if found
        .iter()
        .any(|(_, other)| other.as_ref().map(|other| other.id()) != schema.as_ref().map(|schema| schema.id()))
    {
        return Err(errors::schema_changed());
    }
    if found.len() == 1 {
        return Ok((found.remove(0).0, schema));
    }
    let mut values = CopiedValues::with_capacity(keys.len());
    found.iter().flat_map(|(part, _)| part.slices()).for_each(|value| values.push(value));
    Ok((Values::Copied(values), schema))
}
