//! The class `Schema`: the columns of a typed table.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use zero_kv::typed;

/// The columns of a typed table, as a mapping from names to types, in the order of the table.
///
/// A type is a text such as `"f32"`, `"text"`, `"timestamp(us)"`, `"decimal(10,2)"`, or `"list(f32,128)"`. The types of
/// columns that can be null end with `?`. The key is not a column.
#[pyclass(frozen, mapping, module = "zero_kv")]
pub(crate) struct Schema(pub(crate) Arc<typed::Schema>);

/// Returns the type of a column as text.
fn type_text(column: &typed::Column) -> String {
    format!("{}{}", column.column_type, if column.is_nullable { "?" } else { "" })
}

/// Returns a view of a mapping: an object of the class `name` of `collections.abc`.
pub(crate) fn mapping_view<'py>(mapping: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    mapping.py().import("collections.abc")?.getattr(name)?.call1((mapping,))
}

/// Returns whether a mapping has the items of another object, which may be of any type.
pub(crate) fn equals_mapping(mapping: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = mapping.py();
    if !other.is_instance(&py.import("collections.abc")?.getattr("Mapping")?)? {
        return Ok(false);
    }
    let dict = py.get_type::<pyo3::types::PyDict>();
    dict.call1((mapping,))?.eq(dict.call1((other,))?)
}

#[pymethods]
impl Schema {
    fn __getitem__(&self, name: &str) -> PyResult<String> {
        let position = self.0.position(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(type_text(&self.0.columns()[position]))
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<&str>().is_ok_and(|name| self.0.position(name).is_some())
    }

    fn __len__(&self) -> usize {
        self.0.columns().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names: Vec<&str> = self.0.columns().iter().map(|column| &*column.name).collect();
        Ok(PyTuple::new(py, names)?.try_iter()?.into_any())
    }

    /// Return the type of a column, or `default` if the table has no column with this name.
    #[pyo3(signature = (name, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.0.position(name) {
            Some(position) => type_text(&self.0.columns()[position]).into_bound_py_any(py).map(Some),
            None => Ok(default),
        }
    }

    /// Return the names of the columns.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "KeysView")
    }

    /// Return the types of the columns.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "ValuesView")
    }

    /// Return the names and types of the columns.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        mapping_view(slf.as_any(), "ItemsView")
    }

    /// The name that the key had in the rows from which the table was baked, or `None`.
    #[getter]
    fn key_name(&self) -> Option<&str> {
        self.0.key_name()
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Schema>() {
            Ok(other) => Ok(slf.get().0 == other.get().0),
            Err(_) => equals_mapping(slf.as_any(), other),
        }
    }

    fn __hash__(&self) -> u64 {
        self.0.id()
    }

    fn __repr__(&self) -> String {
        format!("<zero_kv.Schema {}>", self.0)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let decode = py.import("zero_kv._native")?.getattr("decode_schema")?;
        (decode, (PyBytes::new(py, &self.0.encode()),)).into_pyobject(py)
    }
}

/// Returns the schema that another process pickled.
#[pyfunction]
pub(crate) fn decode_schema(bytes: &[u8]) -> PyResult<Schema> {
    let schema = typed::Schema::decode(bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Schema(Arc::new(schema)))
}
