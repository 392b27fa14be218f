//! Arrays with elements that can be null: those of pyarrow, Polars, and pandas, and the masked arrays of NumPy.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};

/// Which elements of an array can be null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayNulls {
    /// Those of an array of pyarrow or Polars. Results for its elements are arrays of pyarrow.
    Arrow,
    /// Those of a masked array of NumPy, or of an array of pandas. Results for its elements are arrays of NumPy.
    Masked,
    /// None, because the object is a list or another object.
    None,
}

impl ArrayNulls {
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<ArrayNulls> {
        /// The class of NumPy's arrays without a mask. Reading the name of a module takes as long as some lookups.
        static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let (py, class) = (array.py(), array.get_type());
        if array.is_instance_of::<PyList>() || ARRAY.get(py).is_some_and(|plain| class.is(plain)) {
            return Ok(ArrayNulls::None);
        }
        let module = class.module()?;
        let mut packages = module.to_str()?.split('.');
        Ok(match (packages.next(), packages.next()) {
            (Some("pyarrow" | "polars"), _) => ArrayNulls::Arrow,
            (Some("pandas"), _) | (Some("numpy"), Some("ma")) => ArrayNulls::Masked,
            (Some("numpy"), None) if class.name()? == "ndarray" => {
                ARRAY.get_or_init(py, || class.unbind());
                ArrayNulls::None
            }
            _ => ArrayNulls::None,
        })
    }
}

/// Raises `ValueError` for a masked array with masked elements. Its memory has values for these elements, too.
pub(crate) fn check_unmasked(array: &Bound<'_, PyAny>) -> PyResult<()> {
    if ArrayNulls::of(array)? == ArrayNulls::Masked
        && array.py().import("numpy.ma")?.call_method1("is_masked", (array,))?.is_truthy()?
    {
        let message = "the value is an array with masked elements, where each element needs a value: fill them, as in \
                       array.filled(0)";
        return Err(PyValueError::new_err(message));
    }
    Ok(())
}
