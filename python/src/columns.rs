//! Implements the methods `columns`: some columns of many rows, as arrays.
//!
//! In: keys, names of columns, and a table or a client. Out: a NumPy matrix if all columns have one numeric type, and
//! otherwise the parts from which `lib/zero_kv/_columns.py` makes arrays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMapping, PyString};
use zero_kv::Lookup;
use zero_kv::store::TypedLookupError;
use zero_kv::typed::{Column, ColumnBuffers, ColumnType, MatrixNumber, MatrixPlan, Projection, Schema};
use zero_kv::{Key, LookupError, for_each_number};

use crate::arguments::unknown_value;
use crate::array_nulls::ArrayNulls;
use crate::column_parts::{Parts, parts};
use crate::convert::type_name;
use crate::errors::{NotTyped, typed_exception};
use crate::interrupt;
use crate::key_batch::{KeyBatch, SIGNALS_EVERY_KEYS};
use crate::many::detached;
use crate::table_version::TableVersion;
use crate::view::with_elements;

/// The number of selections of columns that are kept for later calls.
const SELECTIONS_KEPT: usize = 16;

/// The columns of the rows of some keys.
pub(crate) trait ColumnRows: Sync {
    /// Returns the columns, in the requested order.
    fn columns(&self) -> &[Column];
    /// Returns the number of keys.
    fn len(&self) -> usize;
    /// Copies the cells into a matrix. Null cells and the rows of missing keys become `fill`. Returns the number of
    /// keys that were found.
    fn fill_matrix<T: MatrixNumber>(&self, fill: T, matrix: &mut [T]) -> Result<usize, TypedLookupError>;
    /// Copies the cells into one buffer for each column.
    fn buffers(&self) -> Result<ColumnBuffers, TypedLookupError>;
}

/// A function with a generic argument.
pub(crate) trait ColumnUse {
    fn call(self, py: Python<'_>, rows: &impl ColumnRows) -> PyResult<Py<PyAny>>;
}

/// A type of numbers in matrices.
trait Number: MatrixNumber + Element + Send + Sync {
    const DTYPE: &str;
    /// The number in the place of missing values, if the type has a suitable one.
    const MISSING: Option<Self>;
    fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self>;
}

macro_rules! numbers {
    ($($Number:ident $dtype:literal $missing:expr,)*) => {
        $(impl Number for $Number {
            const DTYPE: &str = $dtype;
            const MISSING: Option<Self> = $missing;
            fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
                object.extract()
            }
        })*
    };
}

numbers! {
    i8 "int8" None,
    i16 "int16" None,
    i32 "int32" None,
    i64 "int64" None,
    u8 "uint8" None,
    u16 "uint16" None,
    u32 "uint32" None,
    u64 "uint64" None,
    f32 "float32" Some(f32::NAN),
    f64 "float64" Some(f64::NAN),
}

/// The columns that a call selects from a table with this schema.
struct Selection {
    schema: Arc<Schema>,
    projection: Projection,
    /// Whether the call selected all columns without naming them.
    is_all: bool,
}

/// The selections of the latest calls, because creating a projection takes about as long as a lookup of a hundred keys.
/// A thread locks this mutex only while it holds Python's global lock. A thread that forks holds Python's global lock,
/// too, so no child process inherits a locked mutex.
static SELECTIONS: Mutex<VecDeque<Arc<Selection>>> = Mutex::new(VecDeque::new());

impl Selection {
    fn new(schema: &Arc<Schema>, names: Option<&[&str]>) -> PyResult<Arc<Selection>> {
        let mut kept = SELECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|selection| selection.is_of(schema, names)) {
            let selection = Arc::clone(&kept[at]);
            if at > 0 {
                kept.swap(at, at - 1);
            }
            return Ok(selection);
        }
        let projection = projection(schema, names)?;
        let selection = Arc::new(Selection { schema: Arc::clone(schema), projection, is_all: names.is_none() });
        kept.truncate(SELECTIONS_KEPT - 1);
        kept.push_front(Arc::clone(&selection));
        Ok(selection)
    }

    fn is_of(&self, schema: &Schema, names: Option<&[&str]>) -> bool {
        let columns = self.projection.schema().columns();
        self.schema.id() == schema.id()
            && match names {
                None => self.is_all,
                Some(names) => !self.is_all && names.iter().eq(columns.iter().map(|column| &column.name)),
            }
    }
}

/// Keys that other threads can read.
enum LookupKeys<'k> {
    Numbers(&'k [u64]),
    Slices(Vec<&'k [u8]>),
}

/// The rows that a lookup finds for keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The rows of the keys.
    Rows,
    /// The ranges that contain the keys.
    Ranges,
}

/// The columns of rows in a table, looked up when they are used.
struct TableRows<'k> {
    table: TableVersion,
    found: Found,
    selection: Arc<Selection>,
    keys: LookupKeys<'k>,
}

impl ColumnRows for TableRows<'_> {
    fn columns(&self) -> &[Column] {
        self.selection.projection.schema().columns()
    }

    fn len(&self) -> usize {
        match &self.keys {
            LookupKeys::Numbers(keys) => keys.len(),
            LookupKeys::Slices(keys) => keys.len(),
        }
    }

    fn fill_matrix<T: MatrixNumber>(&self, fill: T, matrix: &mut [T]) -> Result<usize, TypedLookupError> {
        let plan = MatrixPlan::new(&self.selection.schema, &self.selection.projection, fill)
            .expect("the caller checked the types of the columns");
        match &self.keys {
            // Without keys there is no key kind to check.
            _ if self.len() == 0 => Ok(0),
            LookupKeys::Numbers(keys) => self.fill_in_chunks(keys, &plan, matrix),
            LookupKeys::Slices(keys) => self.fill_in_chunks(keys, &plan, matrix),
        }
    }

    fn buffers(&self) -> Result<ColumnBuffers, TypedLookupError> {
        let mut buffers = ColumnBuffers::new(&self.selection.schema, &self.selection.projection);
        match &self.keys {
            _ if self.len() == 0 => {}
            LookupKeys::Numbers(keys) => in_chunks(keys, |keys| self.append(keys, &mut buffers))?,
            LookupKeys::Slices(keys) => in_chunks(keys, |keys| self.append(keys, &mut buffers))?,
        }
        Ok(buffers)
    }
}

impl TableRows<'_> {
    /// Appends the columns of keys to buffers.
    fn append<'k, K: Into<Key<'k>> + Copy>(
        &self,
        keys: &[K],
        buffers: &mut ColumnBuffers,
    ) -> Result<(), TypedLookupError> {
        match self.found {
            Found::Rows => self.table.fill_columns(keys, buffers),
            Found::Ranges => self.table.cover_fill_columns(keys, buffers),
        }
    }

    /// Fills a matrix with the rows of keys, and returns the number of keys that were found.
    fn fill_in_chunks<'k, K: Into<Key<'k>> + Copy, T: MatrixNumber>(
        &self,
        keys: &[K],
        plan: &MatrixPlan<T>,
        matrix: &mut [T],
    ) -> Result<usize, TypedLookupError> {
        let (mut found, mut begin) = (0, 0);
        in_chunks(keys, |keys| {
            let end = begin + keys.len() * plan.width();
            let filled = &mut matrix[begin..end];
            found += match self.found {
                Found::Rows => self.table.get_matrix(keys, plan, filled)?,
                Found::Ranges => self.table.cover_matrix(keys, plan, filled)?,
            };
            begin = end;
            Ok(())
        })?;
        Ok(found)
    }
}

/// Looks up keys in chunks. Between two chunks, Python's signal handlers run. Their exception ends the lookup: the
/// caller takes it from `interrupt` instead of the error.
fn in_chunks<K>(
    keys: &[K],
    mut look_up: impl FnMut(&[K]) -> Result<(), TypedLookupError>,
) -> Result<(), TypedLookupError> {
    for chunk in keys.chunks(SIGNALS_EVERY_KEYS) {
        look_up(chunk)?;
        if keys.len() > SIGNALS_EVERY_KEYS && interrupt::is_raised() {
            return Err(TypedLookupError::Lookup(LookupError::Damaged));
        }
    }
    Ok(())
}

/// Returns the exception for an error of a lookup, or the exception of a signal handler that has ended the lookup.
fn exception(error: &TypedLookupError) -> PyErr {
    interrupt::take().unwrap_or_else(|| typed_exception(error))
}

/// Selects columns of a table, and passes the rows of the keys to `use_rows`.
pub(crate) fn look_up_in_table(
    py: Python<'_>,
    table: TableVersion,
    keys: &KeyBatch<'_>,
    found: Found,
    names: Option<&[&str]>,
    use_rows: impl ColumnUse,
) -> PyResult<Py<PyAny>> {
    let schema = table.schema_ref().ok_or_else(|| NotTyped::new_err(TypedLookupError::NotTyped.to_string()))?;
    let selection = Selection::new(schema, names)?;
    let keys = match keys {
        KeyBatch::Numbers(numbers) => LookupKeys::Numbers(numbers),
        _ => LookupKeys::Slices(keys.slices()?),
    };
    use_rows.call(py, &TableRows { table, found, selection, keys })
}

/// The types of the results of `columns`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Numpy,
    Arrow,
    Pandas,
    Polars,
}

impl Format {
    const NAMES: [(&str, Format); 4] =
        [("numpy", Format::Numpy), ("arrow", Format::Arrow), ("pandas", Format::Pandas), ("polars", Format::Polars)];
}

/// The arguments of `columns` that do not affect the lookup.
pub(crate) struct Wanted<'a, 'py> {
    pub(crate) fill: Option<&'a Bound<'py, PyAny>>,
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    pub(crate) format: &'a str,
}

/// Implements a method of `table` that returns columns. `look_up` looks up the columns with the given names, or all
/// columns, and passes them to the function that is its last argument.
pub(crate) fn columns<'a, 'py>(
    table: &Bound<'py, PyAny>,
    method: &str,
    keys: &Bound<'py, PyAny>,
    names: Option<&Bound<'py, PyAny>>,
    wanted: &'a Wanted<'a, 'py>,
    look_up: impl FnOnce(Option<&[&str]>, UseOfRows<'a, 'py>) -> PyResult<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keys.py();
    let use_rows = wanted.check()?;
    if ArrayNulls::of(keys)? != ArrayNulls::None {
        let look_up = py.import("zero_kv._columns")?.getattr("with_present_keys")?;
        return look_up.call1((table.getattr(method)?, keys, names, wanted.fill, wanted.out, wanted.format));
    }
    let names = names.map(column_names).transpose()?;
    let names = names.as_ref().map(|names| names.iter().map(|name| name.to_str()).collect::<PyResult<Vec<_>>>());
    Ok(look_up(names.transpose()?.as_deref(), use_rows)?.into_bound(py))
}

/// Returns the projection to the columns with these names, or to all columns.
pub(crate) fn projection_of(schema: &Schema, names: Option<&Bound<'_, PyAny>>) -> PyResult<Projection> {
    let Some(names) = names else { return Ok(Projection::of_all(schema)) };
    let names = column_names(names)?;
    projection(schema, Some(&names.iter().map(|name| name.to_str()).collect::<PyResult<Vec<_>>>()?))
}

pub(crate) fn projection(schema: &Schema, names: Option<&[&str]>) -> PyResult<Projection> {
    match names {
        None => Ok(Projection::of_all(schema)),
        Some(names) => Projection::new(schema, names).map_err(|error| PyValueError::new_err(error.to_string())),
    }
}

/// Returns the names of columns in a list or another iterable.
fn column_names<'py>(names: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    if names.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "columns is a str, where a list of names was expected: put the name in a list",
        ));
    }
    let name = |name: PyResult<Bound<'py, PyAny>>| {
        name?.cast_into::<PyString>().map_err(|error| {
            let found = type_name(&error.into_inner());
            PyTypeError::new_err(format!("the name of a column is of type {found}, where str was expected"))
        })
    };
    names.try_iter()?.map(name).collect()
}

impl<'py> Wanted<'_, 'py> {
    /// Checks the combination of arguments.
    pub(crate) fn check(&self) -> PyResult<UseOfRows<'_, 'py>> {
        let Some((_, format)) = Format::NAMES.iter().find(|(name, _)| *name == self.format) else {
            let expected = "\"numpy\", \"arrow\", \"pandas\", or \"polars\"";
            return Err(unknown_value("format", self.format, expected));
        };
        if *format != Format::Numpy && (self.fill.is_some() || self.out.is_some()) {
            let message = format!(
                "fill and out are for format=\"numpy\", where the format is {:?}: missing values are null",
                self.format
            );
            return Err(PyValueError::new_err(message));
        }
        Ok(UseOfRows { wanted: self, format: *format })
    }
}

/// Checks the arguments of a call that do not affect the lookup.
#[pyfunction]
#[pyo3(signature = (fill, out, format))]
pub(crate) fn check_result(
    fill: Option<&Bound<'_, PyAny>>,
    out: Option<&Bound<'_, PyAny>>,
    format: &str,
) -> PyResult<()> {
    Wanted { fill, out, format }.check().map(drop)
}

/// Returns the columns of rows to the caller in the format that it wants.
#[derive(Clone, Copy)]
pub(crate) struct UseOfRows<'a, 'py> {
    wanted: &'a Wanted<'a, 'py>,
    format: Format,
}

impl ColumnUse for UseOfRows<'_, '_> {
    fn call(self, py: Python<'_>, rows: &impl ColumnRows) -> PyResult<Py<PyAny>> {
        let Wanted { fill, out, format } = self.wanted;
        if self.format == Format::Numpy {
            if let Some(result) = matrix_of(py, rows, *fill, *out)? {
                return Ok(result);
            }
            if out.is_some() {
                let message = "out is given, where the columns have several types, so that the result is no matrix: \
                               choose columns of one numeric type";
                return Err(PyValueError::new_err(message));
            }
        }
        let is_arrow = self.format != Format::Numpy;
        let parts = column_parts(py, rows, is_arrow)?;
        let module = py.import("zero_kv._columns")?;
        let result = match is_arrow {
            false => module.getattr("numpy_arrays")?.call1((parts, rows.len(), fill))?,
            true => module.getattr("from_arrow_parts")?.call1((parts, rows.len(), format))?,
        };
        Ok(result.unbind())
    }
}

/// Returns the cells of all rows, from which Python code makes arrays.
fn column_parts<'py>(py: Python<'py>, rows: &impl ColumnRows, is_arrow: bool) -> PyResult<Parts<'py>> {
    let buffers = detached(py, rows.len(), || rows.buffers()).map_err(|error| exception(&error))?;
    parts(py, rows.columns(), buffers, is_arrow)
}

/// Returns a matrix if all columns have one numeric type. A list of fixed length takes as many columns as it has
/// elements.
fn matrix_of(
    py: Python<'_>,
    rows: &impl ColumnRows,
    fill: Option<&Bound<'_, PyAny>>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    let (mut number_type, mut width) = (None, 0);
    for column in rows.columns() {
        let (element, len) = match column.column_type {
            ColumnType::List { element, len: Some(len) } => (element.column_type(), len as usize),
            other => (other, 1),
        };
        if *number_type.get_or_insert(element) != element {
            return Ok(None);
        }
        width += len;
    }
    macro_rules! matrix_of_numbers {
        ([] $($variant:ident $number:ident $value:ident),*) => {
            match number_type {
                $(Some(ColumnType::$variant) => matrix::<$number>(py, rows, width, fill, out),)*
                _ => return Ok(None),
            }
        };
    }
    for_each_number!(matrix_of_numbers).map(Some)
}

/// Returns the cells of all rows in a new matrix, or in `out`.
fn matrix<T: Number>(
    py: Python<'_>,
    rows: &impl ColumnRows,
    width: usize,
    fill: Option<&Bound<'_, PyAny>>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (given, by_column) = match fill.map(|fill| (fill, fill_number::<T>(fill))) {
        None => (T::MISSING, None),
        Some((_, Ok(number))) => (Some(number), None),
        Some((fill, Err(_))) if fill.cast::<PyMapping>().is_ok() => (None, Some(fill)),
        Some((_, Err(error))) => return Err(error),
    };
    let result = match out {
        Some(out) => out.clone(),
        None => EMPTY.import(py, "numpy", "empty")?.call1(((rows.len(), width), T::DTYPE))?,
    };
    let buffer = checked_out::<T>(&result, rows.len(), width)?;
    // A matrix does not show which cells were null, so that the columns are copied one by one.
    if by_column.is_some() || given.is_none() && rows.columns().iter().any(|column| column.is_nullable) {
        let parts = column_parts(py, rows, false)?;
        let copy = py.import("zero_kv._columns")?.getattr("fill_matrix")?;
        return Ok(copy.call1((result, parts, rows.len(), by_column))?.unbind());
    }
    let found = with_elements(&buffer, |elements| {
        detached(py, rows.len(), || rows.fill_matrix(given.unwrap_or_else(T::new_zeroed), elements))
    });
    let found = found.ok_or_else(|| PyValueError::new_err("out is read-only or not in C order"))?;
    let found = found.map_err(|error| exception(&error))?;
    if given.is_none() && found < rows.len() {
        return Err(PyValueError::new_err(format!(
            "the table does not have {} of {} keys, where {} has no value for a missing row: pass fill",
            rows.len() - found,
            rows.len(),
            T::DTYPE
        )));
    }
    Ok(result.unbind())
}

fn fill_number<T: Number>(fill: &Bound<'_, PyAny>) -> PyResult<T> {
    T::from_object(fill).map_err(|_| {
        let found = fill.repr().map_or_else(|_| type_name(fill), |shown| shown.to_string());
        PyValueError::new_err(format!("fill is {found}, where a number of type {} was expected", T::DTYPE))
    })
}

/// Returns the buffer of a writable array in C order with these dimensions.
fn checked_out<T: Number>(out: &Bound<'_, PyAny>, row_count: usize, width: usize) -> PyResult<PyBuffer<T>> {
    let expected = format!("a writable array of {} with shape ({row_count}, {width}) in C order", T::DTYPE);
    let wrong = |found: String| PyValueError::new_err(format!("out {found}, where {expected} was expected"));
    let buffer = PyBuffer::<T>::get(out).map_err(|_| match out.getattr("dtype") {
        Ok(dtype) => wrong(format!("has the dtype {dtype}")),
        Err(_) => wrong(format!("is of type {}", type_name(out))),
    })?;
    if matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!')) {
        return Err(wrong("has the other order of bytes".to_owned()));
    }
    if buffer.shape() != [row_count, width] {
        return Err(wrong(format!("has the shape {:?}", buffer.shape())));
    }
    match (buffer.readonly(), buffer.is_c_contiguous()) {
        (true, _) => Err(wrong("is read-only".to_owned())),
        (_, false) => Err(wrong("is not in C order".to_owned())),
        _ => Ok(buffer),
    }
}
