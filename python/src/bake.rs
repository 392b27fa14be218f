//! Bakes rows of Python objects into a file.
//!
//! In: an iterator of pairs. Out: a file and a report. The new file replaces an old file only after the new file is
//! complete. Other Python threads run while rows are sorted and written. Signals are checked regularly, so Ctrl-C stops
//! a bake.

use std::ffi::CString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyIterator, PyList, PyMemoryView, PyString, PyTuple};
use zero_kv::bake::{self, Column, Input, Keys, Options, Progress, RangeEnds, RowPiece, TypedColumns, Warning};
use zero_kv::counted::counted;
use zero_kv::{Key, KeyType, PART_COUNT_MAX, PartType};

use crate::arguments::{self, unknown_value};
use crate::array_nulls::check_unmasked;
use crate::cells::{CellRows, columns_from};
use crate::convert::{bytes_from, key_from, type_name};
use crate::errors::{self, bake_exception, bake_warning};
use crate::raised::{Raised, SIGNALS_EVERY};
use crate::range_rows::RangeForm;
use crate::typed_key::{StoredKey, baked_key};

/// The maximum number of rows that are read before signals are checked and other Python threads run.
const PIECE_ROWS: usize = 4096;

/// The columns of a typed table with their types, the name of the key's column, and whether values of the base are
/// converted.
pub(crate) type DeclaredColumns = (Vec<(String, String)>, Option<String>, bool);

/// Result of a bake.
#[pyclass(frozen, get_all, module = "zero_kv")]
pub(crate) struct Report {
    /// The number of rows in the file.
    rows: u64,
    /// The number of rows that were read.
    rows_read: u64,
    /// The number of rows that were dropped because another row with the same key was kept.
    duplicates_dropped: u64,
    /// The type of the keys, such as `"u64"`, `"ip"`, or, for keys of two parts, `"bytes,date"`.
    key_type: String,
    /// The file's length.
    file_len_bytes: u64,
    /// The total length of the values.
    values_len_bytes: u64,
    /// The table's XXH3-128 digest. It detects accidental changes of the file, but not deliberate changes.
    digest: String,
    /// The duration of the bake in seconds.
    elapsed_s: f64,
}

#[pymethods]
impl Report {
    fn __repr__(&self) -> String {
        let Report { rows, key_type, file_len_bytes, elapsed_s, .. } = self;
        format!("<zero_kv.Report {}, keys {key_type}, {file_len_bytes} bytes, {elapsed_s:.2} s>", counted(rows, "row"))
    }
}

/// Bakes the rows of an iterator. Each row is a pair of a key and a value. `ranges` has the form of ranges, and the
/// policy for those that overlap.
#[pyfunction]
#[pyo3(
    signature = (rows, path, keys, ranges, layout, duplicates, base, memory_bytes, threads, replace, typed, progress)
)]
#[expect(clippy::too_many_arguments, reason = "one for each option; lib/zero_kv/_bake.py has keyword arguments")]
pub(crate) fn bake_rows(
    py: Python<'_>,
    rows: &Bound<'_, PyIterator>,
    path: PathBuf,
    keys: &str,
    ranges: Option<(String, String)>,
    layout: &str,
    duplicates: &str,
    base: Option<PathBuf>,
    memory_bytes: Option<u64>,
    threads: Option<NonZero<usize>>,
    replace: (u64, Option<u8>, bool, bool),
    typed: Option<DeclaredColumns>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let first = rows.clone().next().transpose()?;
    let range_form = ranges.as_ref().map(|(form, _)| RangeForm::from_name(form)).transpose()?;
    let keys = expected_keys(keys, range_form, first.as_ref())?;
    let raised = Raised::default();
    let mut options = Options::default();
    if let Some((_, overlaps)) = &ranges {
        // Rows in memory have no columns. The number is not the name of a typed column.
        options.ranges = Some(RangeEnds::Column(Column::Number(2)));
        options.overlaps = arguments::overlaps(overlaps)?;
    }
    options.keys = match keys {
        Expected::Decimal => Keys::U64,
        Expected::Only(key_type) => key_type.into(),
    };
    options.layout = arguments::layout(layout)?;
    options.duplicates = arguments::duplicates(duplicates)?;
    (options.base, options.memory_bytes, options.threads) = (base, memory_bytes, threads);
    let rules = &mut options.replace;
    (rules.rows_min, rules.shrink_max_percent, rules.allow_empty, rules.allow_key_type_change) = replace;
    options.cancel = raised.cancel.clone();
    let cells = match typed {
        None => None,
        Some((types, key_name, cast)) => {
            let mut columns = TypedColumns::default();
            (columns.types, columns.cast) = (columns_from(types)?, cast);
            let cells = CellRows::new(&columns.types)?;
            (options.typed, options.key) = (Some(columns), key_name.map(Column::Name));
            Some(cells)
        }
    };

    let mut rows_left = PythonRows {
        rows: rows.clone().unbind(),
        first: first.map(Bound::unbind),
        keys,
        range_form,
        cells,
        text: Vec::new(),
        end: Vec::new(),
        taken: 0,
        ended: false,
    };
    let began = Instant::now();
    let baked = py.detach(|| {
        let fill = |piece: &mut RowPiece| raised.guard(|py| rows_left.fill(py, piece));
        let mut looked = Instant::now();
        let mut last_phase = "";
        let mut on_progress = |step: Progress| {
            if let Progress::Warning(warning) = &step {
                // As below, `guard` keeps the exception that a filter of warnings makes of this warning.
                let _ = raised.guard(|py| warn(py, warning));
                return;
            }
            let step = phase_of(&step);
            let is_new = step.is_some_and(|(phase, ..)| phase != last_phase);
            if looked.elapsed() >= SIGNALS_EVERY || is_new && progress.is_some() {
                looked = Instant::now();
                // The error needs no handling here: `guard` has stored the exception and canceled the bake.
                let _ = raised.guard(|py| {
                    if let (Some(callable), Some(step)) = (&progress, step)
                        && !raised.cancel.is_set()
                    {
                        last_phase = step.0;
                        callable.call1(py, step)?;
                    }
                    py.check_signals()
                });
            }
        };
        bake::bake(vec![Input::rows("rows", fill)], &path, options.with_progress(&mut on_progress))
    });
    if let Some(raised) = raised.take() {
        return Err(raised);
    }
    let report = baked.map_err(|error| bake_exception(&error))?;
    Ok(Report {
        rows: report.rows,
        rows_read: report.rows_read,
        duplicates_dropped: report.duplicates_dropped,
        key_type: report.key_type.to_string(),
        file_len_bytes: report.file_len_bytes,
        values_len_bytes: report.values_len_bytes,
        digest: format!("{:032x}", report.digest),
        elapsed_s: began.elapsed().as_secs_f64(),
    })
}

/// Warns the caller of `bake`.
fn warn(py: Python<'_>, warning: &Warning) -> PyResult<()> {
    let message = CString::new(bake_warning(warning))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 2)
}

/// Returns the phase of a bake, and how many of its items, rows or bytes, are done, and are to be done if that is
/// known.
fn phase_of(progress: &Progress) -> Option<(&'static str, u64, Option<u64>)> {
    Some(match *progress {
        Progress::Read { rows, .. } => ("read", rows, None),
        Progress::Merge { rows, rows_total } => ("merge", rows, Some(rows_total)),
        Progress::Write { rows, rows_total } => ("write", rows, Some(rows_total)),
        Progress::Index { done, total } => ("index", done, Some(total)),
        Progress::Verify { bytes, bytes_total } => ("verify", bytes, Some(bytes_total)),
        _ => return None,
    })
}

/// The keys that rows may have.
#[derive(Clone, Copy)]
enum Expected {
    /// Only numbers: `int`, or text that contains a decimal number.
    Decimal,
    Only(KeyType),
}

impl Expected {
    /// Returns the keys that the last part of a key may be.
    fn last_part(self) -> Expected {
        match self {
            Expected::Only(key_type) => key_type.parts().last().map_or(self, |part| Expected::Only(KeyType::of(*part))),
            Expected::Decimal => self,
        }
    }

    fn key_type(self) -> KeyType {
        match self {
            Expected::Only(key_type) => key_type,
            Expected::Decimal => KeyType::U64,
        }
    }
}

/// Returns the keys that the argument `keys` names: a key type, in which the first row decides about `auto`.
fn expected_keys(keys: &str, range_form: Option<RangeForm>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Expected> {
    let unknown = || {
        let expected = "\"auto\", or a key type: \"u64\", \"i64\", \"ip\", \"ipv4\", \"uuid\", \"hex\", \"date\", \
                        \"timestamp\", \"bytes\", or the types of several parts, such as \"bytes,date\"";
        unknown_value("keys", keys, expected)
    };
    if keys == "u64" {
        return Ok(Expected::Decimal);
    }
    let names: Vec<&str> = keys.split(',').collect();
    let named: Option<Vec<Option<PartType>>> =
        (names.iter()).map(|name| if *name == "auto" { Some(None) } else { name.parse().ok().map(Some) }).collect();
    let named = named.ok_or_else(unknown)?;
    let Some(first) = first else {
        let default = if range_form == Some(RangeForm::Blocks) { PartType::Ip } else { PartType::U64 };
        let parts: Vec<_> = named.into_iter().map(|part| part.unwrap_or(default)).collect();
        return KeyType::of_parts(&parts).map(Expected::Only).ok_or_else(unknown);
    };
    if !named.contains(&None) {
        return KeyType::of_parts(&named.into_iter().flatten().collect::<Vec<_>>())
            .map(Expected::Only)
            .ok_or_else(unknown);
    }
    let (py, key) = (first.py(), pair(first, 1)?.0);
    let objects = match (range_form, key.cast::<PyTuple>()) {
        (Some(form), _) => form.range(&key).map_err(|error| at_row(py, 1, error))?.0,
        (None, Ok(parts)) => parts.iter().collect(),
        (None, Err(_)) => vec![key.clone()],
    };
    let mut named = if keys == "auto" { vec![None; objects.len()] } else { named };
    if let (Some(RangeForm::Blocks), Some(last)) = (range_form, named.last_mut()) {
        last.get_or_insert(PartType::Ip);
    }
    if named.len() != objects.len() {
        let (found, expected) = (objects.len(), named.len());
        let message = format!("the key has {found} parts, where {expected} were expected: {keys}");
        return Err(at_row(py, 1, PyValueError::new_err(message)));
    }
    let parts = objects.iter().zip(named).map(|(object, part)| part.map_or_else(|| part_of(object), Ok));
    let parts = parts.collect::<PyResult<Vec<_>>>().map_err(|error| at_row(py, 1, error))?;
    let key_type = KeyType::of_parts(&parts).ok_or_else(|| {
        let message = format!("the key has {} parts, where 1 to {PART_COUNT_MAX} were expected", parts.len());
        at_row(py, 1, PyValueError::new_err(message))
    })?;
    Ok(Expected::Only(key_type))
}

/// Returns the type of the keys, or of a part of the keys, of a table whose first row has this key.
fn part_of(key: &Bound<'_, PyAny>) -> PyResult<PartType> {
    if key.is_instance_of::<PyBytes>() || key.is_instance_of::<PyString>() {
        return Ok(PartType::Bytes);
    }
    Ok(match type_name(key).as_str() {
        "IPv4Address" | "IPv6Address" => PartType::Ip,
        "UUID" => PartType::Uuid,
        "date" => PartType::Date,
        "datetime" | "Timestamp" | "datetime64" => PartType::Timestamp,
        _ if key.lt(0).unwrap_or(false) => PartType::I64,
        _ => {
            key_of_row(key)?;
            PartType::U64
        }
    })
}

/// The remaining rows of the iterator.
struct PythonRows {
    rows: Py<PyIterator>,
    first: Option<Py<PyAny>>,
    keys: Expected,
    /// How keys state ranges, in a table of ranges.
    range_form: Option<RangeForm>,
    /// The encoder of the rows of a typed table.
    cells: Option<CellRows>,
    /// The written form of the last key, and of the end of its range.
    text: Vec<u8>,
    end: Vec<u8>,
    /// The number of rows that have been read.
    taken: u64,
    ended: bool,
}

impl PythonRows {
    fn fill(&mut self, py: Python<'_>, piece: &mut RowPiece) -> PyResult<()> {
        py.check_signals()?;
        let mut rows = self.rows.bind(py).clone();
        while !self.ended && !piece.is_full() && piece.len() < PIECE_ROWS {
            let row = match self.first.take() {
                Some(first) => Some(first.into_bound(py)),
                None => rows.next().transpose()?,
            };
            match row {
                Some(row) => self.push(&row, piece)?,
                None => self.ended = true,
            }
        }
        Ok(())
    }

    fn push(&mut self, row: &Bound<'_, PyAny>, piece: &mut RowPiece) -> PyResult<()> {
        self.taken += 1;
        let (key, value) = pair(row, self.taken)?;
        let taken = self.taken;
        let at_row = |error| at_row(row.py(), taken, error);
        let (key, end) = match self.range_form {
            None => (key, None),
            Some(form) => {
                let (mut parts, end) = form.range(&key).map_err(at_row)?;
                let key = match parts.len() {
                    1 => parts.remove(0),
                    _ => PyTuple::new(row.py(), parts)?.into_any(),
                };
                (key, Some(end))
            }
        };
        let key = stored_key(&key, self.keys).map_err(at_row)?;
        self.end.clear();
        if let Some(end) = end {
            let last_part = self.keys.last_part();
            let end = stored_key(&end, last_part).map_err(at_row)?;
            last_part.key_type().write(end.as_key(), &mut self.end);
        }
        let key = match self.keys {
            Expected::Only(key_type) if !key_type.is_plain() => {
                self.text.clear();
                key_type.write(key.as_key(), &mut self.text);
                Key::Bytes(&self.text)
            }
            _ => key.as_key(),
        };
        if let Some(cells) = &mut self.cells {
            piece.push_range(key, &self.end, cells.encode(&value).map_err(at_row)?);
        } else if let Some(bytes) = bytes_from(&value).map_err(at_row)? {
            piece.push_range(key, &self.end, bytes);
        } else {
            piece.push_range(key, &self.end, buffer_of(&value).map_err(at_row)?.as_bytes());
        }
        Ok(())
    }
}

/// Converts the key of a row.
fn stored_key<'a>(key: &'a Bound<'_, PyAny>, expected: Expected) -> PyResult<StoredKey<'a>> {
    let key_type = match expected {
        // The number of an IPv4 address. The type `ip` has no numbers, because addresses of IPv6 have them, too.
        Expected::Only(key_type) if key_type.parts() == [PartType::Ipv4] && key.is_instance_of::<PyInt>() => {
            let address = key.extract::<u32>().map_err(|_| {
                PyOverflowError::new_err(format!("the key is {key}, where the number of an IPv4 address was expected"))
            })?;
            return Ok(StoredKey::Borrowed(Key::U64(address.into())));
        }
        Expected::Only(key_type) if !key_type.is_plain() => return baked_key(key, key_type),
        Expected::Only(key_type) => Some(key_type),
        Expected::Decimal => None,
    };
    let key = key_of_row(key)?;
    match key_type {
        Some(key_type) if key_type.kind() != key.kind() => {
            let found = key.kind();
            Err(errors::KeyKind::new_err(format!("the key is of kind {found}, where {key_type} were expected")))
        }
        _ => Ok(StoredKey::Borrowed(key)),
    }
}

/// Converts a number, or bytes.
fn key_of_row<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Key<'a>> {
    key_from(key).map_err(|error| {
        if key.is_instance_of::<PyTuple>() || key.is_instance_of::<PyList>() {
            let found = type_name(key);
            return PyTypeError::new_err(format!(
                "the key is of type {found}, where int, bytes or str was expected: keys of several parts are tuples, in all \
                 rows, and keys=\"bytes,date\" names the types of the parts"
            ));
        }
        if error.is_instance_of::<PyOverflowError>(key.py()) && key.lt(0).unwrap_or(false) {
            let message = format!("{}: pass keys=\"i64\"", error.value(key.py()));
            return PyOverflowError::new_err(message);
        }
        error
    })
}

fn pair<'py>(row: &Bound<'py, PyAny>, number: u64) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let items = match row.cast::<PyList>() {
        Ok(list) => list.to_tuple(),
        Err(_) => match row.cast::<PyTuple>() {
            Ok(tuple) => tuple.clone(),
            Err(_) => {
                let found = type_name(row);
                let message = format!(
                    "rows:{number}: the row is of type {found}, where a pair was expected: pass pairs such as (1, \"one\")"
                );
                return Err(PyTypeError::new_err(message));
            }
        },
    };
    match items.len() {
        2 => Ok((items.get_item(0)?, items.get_item(1)?)),
        found => {
            let message = format!(
                "rows:{number}: the row has {found} items, where a key and a value were expected: put several values in one tuple, and pass types"
            );
            Err(PyTypeError::new_err(message))
        }
    }
}

/// Copies the bytes of an object with the buffer protocol.
fn buffer_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    check_unmasked(value)?;
    let Ok(lent) = PyMemoryView::from(value) else {
        let found = type_name(value);
        let expected = "bytes, str or an object with the buffer protocol";
        let remedy = match &*found {
            "NoneType" | "NAType" | "NaTType" => {
                "leave the row out, or bake a typed table with a type that allows null, such as types={\"value\": \"text?\"}"
            }
            "list" | "tuple" => "pass numpy.asarray(value, dtype=\"float32\"), or types={\"value\": \"list(f32)\"}",
            "dict" => "pass types with a type for each column, such as types={\"name\": \"text?\"}",
            _ => "pass types with the type of the value, such as types={\"value\": \"f64\"}",
        };
        let message = format!("the value is of type {found}, where {expected} was expected: {remedy}");
        return Err(PyTypeError::new_err(message));
    };
    Ok(lent.call_method0("tobytes")?.cast_into()?)
}

/// Adds the number of a row to the message of an exception. An exception about text that is not valid UTF-8 becomes
/// `BakeFailed`.
fn at_row(py: Python<'_>, number: u64, error: PyErr) -> PyErr {
    let message = format!("rows:{number}: {}", error.value(py));
    let placed = match error.is_instance_of::<PyUnicodeError>(py) {
        // A UnicodeError cannot be created from a message alone.
        true => errors::BakeFailed::new_err(message),
        false => PyErr::from_type(error.get_type(py), (message,)),
    };
    placed.set_cause(py, error.cause(py));
    placed
}
