//! Rows of a table in key order.
//!
//! In: one version of a table, and a range of keys. Out: the number of rows, and rows in chunks.

use std::ops::Bound as End;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;
use zero_kv::Lookup;
use zero_kv::client::KeyRange;
use zero_kv::{Key, LookupError};

use crate::convert::type_name;
use crate::errors::lookup_exception;
use crate::table_version::TableVersion;
use crate::typed_key::{key_object, lookup_key, row_tuple};
use crate::typed_row::value_object;

/// The maximum number of rows that are converted to Python objects at once.
const CHUNK_ROWS_MAX: usize = 256;
/// The total length of values at which a chunk of rows ends.
const CHUNK_LEN_BYTES: usize = 64 << 10;

/// A selection of a table's keys.
pub(crate) enum Selection<'k> {
    /// The keys from the start up to, but not including, the end.
    Range(&'k KeyRange),
    /// The keys that start with these bytes.
    Prefix(&'k [u8]),
}

/// Whether an iteration returns keys, values, or both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPart {
    Keys,
    Values,
    Both,
}

/// The number of rows that a representation shows.
const SHOWN_ROWS_MAX: usize = 5;
/// The number of characters of a row that a representation shows.
const SHOWN_ROW_LEN_MAX: usize = 60;

/// Keys, values, or rows of a table in key order, read during iteration or by their position, as in a list: `rows[0]` is
/// the first one, `rows[-1]` the last one, and `rows[10:20]` selects ten.
///
/// `len` reads no rows. All rows come from one table, even if the server replaces its table during the iteration.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Rows {
    table: TableVersion,
    part: RowPart,
    /// The index, in the table, of the first row of the range. Indexes are counted from 0.
    first: usize,
    count: usize,
}

impl Rows {
    pub(crate) fn new(table: TableVersion, range: Selection<'_>, part: RowPart) -> Result<Rows, LookupError> {
        let rows_before = |key: Key<'_>| table.count((End::Unbounded, End::Excluded(key)));
        let (first, count) = match range {
            Selection::Range(range) => {
                let (start, end) = range.bounds();
                let index = |bound, default| match bound {
                    End::Included(key) | End::Excluded(key) => rows_before(key),
                    End::Unbounded => Ok(default),
                };
                let first = index(start, 0)?;
                (first, index(end, table.len())?.saturating_sub(first))
            }
            Selection::Prefix(prefix) => (rows_before(Key::Bytes(prefix))?, table.prefix(prefix)?.len()),
        };
        Ok(Rows { table, part, first, count })
    }

    pub(crate) fn iterate(&self, backward: bool) -> RowIterator {
        RowIterator {
            table: self.table.clone(),
            part: self.part,
            next: self.first,
            end: self.first + self.count,
            backward,
            chunk: Vec::new(),
        }
    }

    /// Returns the object at a position below the number of rows.
    fn at<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let row = self.table.iter().nth(self.first + position).unwrap_or(Err(LookupError::Damaged));
        let (key, value) = row.map_err(lookup_exception)?;
        self.part.object(py, &self.table, key.as_key(), &value)
    }

    /// Returns the value of a key that the table has.
    fn value_of<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key_of = lookup_key(key, self.table.key_type(), false)?;
        let value = key_of.map(|key| self.table.get(key.as_key())).transpose().map_err(lookup_exception)?;
        value_object(key.py(), self.table.schema_ref(), &value.flatten().unwrap_or_default())
    }

    /// Returns whether the range has a key.
    fn has_key(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(key) = lookup_key(key, self.table.key_type(), false)? else { return Ok(false) };
        let key = key.as_key();
        if key.kind() != self.table.key_kind() {
            return Ok(false);
        }
        let position = self.table.count((End::Unbounded, End::Excluded(key))).map_err(lookup_exception)?;
        let is_in_range = (self.first..self.first + self.count).contains(&position);
        Ok(is_in_range && self.table.contains(key).map_err(lookup_exception)?)
    }
}

impl RowPart {
    /// Returns the key, the value, or both.
    fn object<'py>(
        self,
        py: Python<'py>,
        table: &TableVersion,
        key: Key<'_>,
        value: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            RowPart::Keys => key_object(py, table.key_type(), key)?,
            RowPart::Values => value_object(py, table.schema_ref(), value)?,
            RowPart::Both => row_tuple(py, table.key_type(), table.schema_ref(), key, value)?.into_any(),
        })
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.count
    }

    fn __contains__(slf: &Bound<'_, Self>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let rows = slf.get();
        match rows.part {
            RowPart::Keys => return rows.has_key(item),
            RowPart::Both => {
                // Only the row with this key can be equal.
                let Ok((key, value)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else { return Ok(false) };
                return match rows.has_key(&key)? {
                    true => rows.value_of(&key)?.eq(value),
                    false => Ok(false),
                };
            }
            RowPart::Values => {}
        }
        for row in slf.try_iter()? {
            if row?.eq(item)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Return the row at a position, or the rows of a slice. The step of a slice must be 1.
    fn __getitem__<'py>(&self, position: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = position.py();
        if let Ok(slice) = position.cast::<PySlice>() {
            let found = slice.indices(isize::try_from(self.count)?)?;
            if found.step != 1 {
                let message = format!("the step is {}, where 1 was expected: make a list of the rows", found.step);
                return Err(PyValueError::new_err(message));
            }
            let (table, part) = (self.table.clone(), self.part);
            let (first, count) = (self.first + usize::try_from(found.start)?, found.slicelength);
            return Ok(Bound::new(py, Rows { table, part, first, count })?.into_any());
        }
        let Ok(wanted) = position.extract::<isize>() else {
            let found = type_name(position);
            let message =
                format!("the position is of type {found}, where int or slice was expected: table[key] looks up");
            return Err(PyTypeError::new_err(message));
        };
        let counted = if wanted < 0 { wanted.checked_add_unsigned(self.count) } else { Some(wanted) };
        match counted.and_then(|counted| usize::try_from(counted).ok()).filter(|counted| *counted < self.count) {
            Some(position) => self.at(py, position),
            None => {
                Err(PyIndexError::new_err(format!("the position is {wanted}, where there are {} rows", self.count)))
            }
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut shown = Vec::new();
        for position in 0..self.count.min(SHOWN_ROWS_MAX) {
            let row = self.at(py, position)?.repr()?.to_string();
            shown.push(match row.char_indices().nth(SHOWN_ROW_LEN_MAX) {
                Some((end, _)) => format!("{}...", &row[..end]),
                None => row,
            });
        }
        if self.count > SHOWN_ROWS_MAX {
            shown.push("...".to_owned());
        }
        let part = match self.part {
            RowPart::Keys => "keys",
            RowPart::Values => "values",
            RowPart::Both => "rows",
        };
        Ok(format!("<zero_kv.Rows, {} {part}: [{}]>", self.count, shown.join(", ")))
    }

    fn __iter__(&self) -> RowIterator {
        self.iterate(false)
    }

    fn __reversed__(&self) -> RowIterator {
        self.iterate(true)
    }
}

#[pyclass(module = "zero_kv")]
pub(crate) struct RowIterator {
    table: TableVersion,
    part: RowPart,
    /// The index, in the table, of the first unread row. `end` is the index after the last unread row.
    next: usize,
    end: usize,
    backward: bool,
    /// Rows that have been read, but not returned yet, in reverse order.
    chunk: Vec<Py<PyAny>>,
}

impl RowIterator {
    fn read_chunk(&mut self, py: Python<'_>) -> PyResult<()> {
        // A list or a dict of all rows is made without a step of the interpreter, which would check signals.
        py.check_signals()?;
        let (backward, rows_left) = (self.backward, self.end - self.next);
        let (mut chunk, mut len_bytes, mut rows) = (Vec::new(), 0, self.table.iter());
        while chunk.len() < CHUNK_ROWS_MAX.min(rows_left) && len_bytes < CHUNK_LEN_BYTES {
            let row = match (backward, chunk.is_empty()) {
                (false, true) => rows.nth(self.next),
                (true, true) => rows.nth_back(self.table.len() - self.end),
                (false, false) => rows.next(),
                (true, false) => rows.next_back(),
            };
            let (key, value) = row.unwrap_or(Err(LookupError::Damaged)).map_err(lookup_exception)?;
            len_bytes += value.len();
            let key = key.as_key();
            chunk.push(self.part.object(py, &self.table, key, &value)?.unbind());
        }
        drop(rows);
        match backward {
            false => self.next += chunk.len(),
            true => self.end -= chunk.len(),
        }
        chunk.reverse();
        self.chunk = chunk;
        Ok(())
    }
}

#[pymethods]
impl RowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.chunk.is_empty() && self.next < self.end {
            self.read_chunk(py)?;
        }
        Ok(self.chunk.pop())
    }

    fn __length_hint__(&self) -> usize {
        self.chunk.len() + (self.end - self.next)
    }
}
