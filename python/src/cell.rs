//! Converts the cells of typed tables to Python objects.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyType};
use zero_kv::typed::{TimeUnit, Value};

/// The day number of 1970-01-01 in `datetime.date.fromordinal`.
pub(crate) const EPOCH_ORDINAL: i64 = 719_163;
const SECONDS_PER_DAY: i64 = 86_400;

/// Returns a cell as a Python object: `None`, `bool`, `int`, `float`, `str`, `bytes`, `datetime.date`,
/// `datetime.datetime` in UTC, `decimal.Decimal`, or a list. A `datetime` has no nanoseconds, so they are dropped.
pub(crate) fn cell_object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Int(value) => value.into_bound_py_any(py),
        Value::Uint(value) => value.into_bound_py_any(py),
        Value::F32(value) => value.into_bound_py_any(py),
        Value::F64(value) => value.into_bound_py_any(py),
        Value::Text(text) => text.into_bound_py_any(py),
        Value::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Value::Date(days) => date_object(py, days),
        Value::Timestamp(units, unit) => timestamp_object(py, units, unit),
        Value::Decimal { unscaled, scale } => decimal_object(py, unscaled, scale),
        Value::List(list) => {
            let elements = list.iter().map(|element| cell_object(py, element)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, elements)?.into_any())
        }
        Value::TextList(list) => Ok(PyList::new(py, list.iter().collect::<Vec<_>>())?.into_any()),
    }
}

pub(crate) fn date_object(py: Python<'_>, days: i32) -> PyResult<Bound<'_, PyAny>> {
    static DATE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let ordinal = i64::from(days) + EPOCH_ORDINAL;
    let date = DATE.import(py, "datetime", "date")?.call_method1("fromordinal", (ordinal,));
    date.map_err(|_| {
        let message = format!(
            "the date {days} days after 1970-01-01 is outside the years 1 to 9999 of datetime.date: look the column up \
             with columns(), as an array"
        );
        PyOverflowError::new_err(message)
    })
}

fn timestamp_object(py: Python<'_>, units: i64, unit: TimeUnit) -> PyResult<Bound<'_, PyAny>> {
    after(epoch(py)?, units, unit).map_err(|_| {
        let message = format!(
            "the timestamp {units} {unit} after 1970-01-01 is outside the years 1 to 9999 of datetime.datetime: look \
             the column up with columns(), as an array"
        );
        PyOverflowError::new_err(message)
    })
}

/// Returns a time in microseconds since 1970-01-01T00:00:00Z as a `datetime` in UTC without a time zone.
pub(crate) fn naive_time_object(py: Python<'_>, micros: i64) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || naive(epoch(py)?).map(Bound::unbind))?;
    after(epoch.bind(py), micros, TimeUnit::Micros).map_err(|_| {
        let message = format!(
            "the key {micros} us after 1970-01-01 is outside the years 1 to 9999 of datetime.datetime: look it up with \
             floor_many(), as an array"
        );
        PyOverflowError::new_err(message)
    })
}

/// Returns a `datetime` without its time zone.
pub(crate) fn naive<'py>(datetime: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let without_zone = PyDict::new(datetime.py());
    without_zone.set_item("tzinfo", datetime.py().None())?;
    datetime.call_method("replace", (), Some(&without_zone))
}

/// Returns the time that is a number of units after another one.
fn after<'py>(time: &Bound<'py, PyAny>, units: i64, unit: TimeUnit) -> PyResult<Bound<'py, PyAny>> {
    static DELTA: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let seconds = units.div_euclid(unit.per_second());
    let micros = units.rem_euclid(unit.per_second()) * 1_000_000 / unit.per_second();
    let (days, seconds_of_day) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    time.add(DELTA.import(time.py(), "datetime", "timedelta")?.call1((days, seconds_of_day, micros))?)
}

/// Returns 1970-01-01T00:00:00Z as a `datetime`.
pub(crate) fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        Ok(datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, utc))?.unbind())
    })?;
    Ok(epoch.bind(py))
}

fn decimal_object(py: Python<'_>, unscaled: i128, scale: u8) -> PyResult<Bound<'_, PyAny>> {
    static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    // The constructor is exact, whatever the precision of the decimal context is.
    DECIMAL.import(py, "decimal", "Decimal")?.call1((format!("{unscaled}E-{scale}"),))
}
