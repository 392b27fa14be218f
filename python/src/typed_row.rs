//! The class `TypedRow`: one row of a typed table, as a mapping of columns.
//!
//! In: the value of a row, which may come from a damaged or forged file. Out: Python objects of its cells, which are read
//! when they are requested.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use zero_kv::typed::{self, Schema};

use crate::cell::cell_object;
use crate::errors::column_exception;
use crate::schema::{self, equals_mapping, mapping_view};

/// A row of a typed table, as a read-only mapping from the names of columns to values.
///
/// Values are `bool`, `int`, `float`, `str`, `bytes`, `datetime.date`, `datetime.datetime` in UTC, `decimal.Decimal`, or
/// lists, and `None` for null. A `datetime` has microseconds, so the nanoseconds of a `timestamp(ns)` are dropped.
#[pyclass(frozen, mapping, module = "zero_kv")]
pub(crate) struct TypedRow {
    schema: Arc<Schema>,
    bytes: Box<[u8]>,
}

impl TypedRow {
    /// Copies the value of a row.
    pub(crate) fn new(schema: &Arc<Schema>, bytes: &[u8]) -> PyResult<TypedRow> {
        typed::TypedRow::new(schema, bytes).map_err(|error| column_exception(&error))?;
        Ok(TypedRow { schema: Arc::clone(schema), bytes: bytes.into() })
    }

    fn cell<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let row = typed::TypedRow::new(&self.schema, &self.bytes);
        cell_object(py, row.and_then(|row| row.value(position)).map_err(|error| column_exception(&error))?)
    }
}

/// Returns the value of a row as a Python object: a `TypedRow` if the table has a schema, and otherwise `bytes`.
pub(crate) fn value_object<'py>(
    py: Python<'py>,
    schema: Option<&Arc<Schema>>,
    value: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    match schema {
        None => Ok(PyBytes::new(py, value).into_any()),
        Some(schema) => Ok(Bound::new(py, TypedRow::new(schema, value)?)?.into_any()),
    }
}

#[pymethods]
impl TypedRow {
    fn __getitem__<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let position = name.cast::<PyString>().ok().and_then(|name| self.schema.position(name.to_str().ok()?));
        self.cell(name.py(), position.ok_or_else(|| PyKeyError::new_err(name.clone().unbind()))?)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<&str>().is_ok_and(|name| self.schema.position(name).is_some())
    }

    fn __len__(&self) -> usize {
        self.schema.columns().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names: Vec<&str> = self.schema.columns().iter().map(|column| &*column.name).collect();
        Ok(PyTuple::new(py, names)?.try_iter()?.into_any())
    }

    /// Return the value of a column, or `default` if the table has no column with this name.
    #[pyo3(signature = (name, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.schema.position(name) {
            Some(position) => self.cell(py, position).map(Some),
            None => Ok(default),
        }
    }

    /// Return the names of the columns.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "KeysView")
    }

    /// Return the values of all columns.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "ValuesView")
    }

    /// Return the names and values of all columns.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "ItemsView")
    }

    /// The columns of the row.
    #[getter]
    fn schema(&self) -> schema::Schema {
        schema::Schema(Arc::clone(&self.schema))
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        equals_mapping(slf.as_any(), other)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let cells = (slf.get().schema.columns().iter().enumerate()).map(|(position, column)| {
            Ok(format!("{:?}: {}", column.name, slf.get().cell(slf.py(), position)?.repr()?))
        });
        Ok(format!("<zero_kv.TypedRow {{{}}}>", cells.collect::<PyResult<Vec<_>>>()?.join(", ")))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let decode = py.import("zero_kv._native")?.getattr("decode_row")?;
        (decode, (self.schema(), PyBytes::new(py, &self.bytes))).into_pyobject(py)
    }
}

/// Returns the row that another process pickled.
#[pyfunction]
pub(crate) fn decode_row(schema: &Bound<'_, schema::Schema>, bytes: &[u8]) -> PyResult<TypedRow> {
    TypedRow::new(&schema.get().0, bytes)
}
