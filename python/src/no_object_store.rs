//! What a build without object stores has instead of publishing and `Published`.

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

fn missing() -> PyErr {
    PyNotImplementedError::new_err(
        "this build of zero_kv has no object stores: install it with its default features (pip install ./python), or add \
         the feature object-store",
    )
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn publish_files(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn upload_shard(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn commit_entries(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn newest_generation(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn pull_shard(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Raises an error.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn read_generation(_arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    Err(missing())
}

/// Does nothing, because no thread follows a table.
#[pyfunction]
pub(crate) fn stop_following() {}

/// A class without instances.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Entry;

/// A class without instances.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Generation;

/// A class without instances.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Progress;

/// A class without instances.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Published;

#[pymethods]
impl Published {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Published> {
        Err(missing())
    }
}
