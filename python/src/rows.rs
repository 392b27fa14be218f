//! Rows of a table in key order.
//!
//! In: one version of a table, and a range of keys. Out: the number of rows, and rows in chunks.

use std::ops::Bound as End;

use pyo3::prelude::*;
use zero_kv::{Key, LookupError};

use crate::convert::{key_from, key_object, row_tuple};
use crate::errors::lookup_exception;
use crate::table_version::TableVersion;
use crate::typed_row::value_object;

/// The maximum number of rows that are converted to Python objects at once.
const CHUNK_ROWS_MAX: usize = 256;
/// The total length of values at which a chunk of rows ends.
const CHUNK_LEN_BYTES: usize = 64 << 10;

/// A selection of a table's keys.
pub(crate) enum Selection<'k> {
    /// The keys from the first key up to, but not including, the second key.
    Between(Option<Key<'k>>, Option<Key<'k>>),
    /// The keys that start with these bytes.
    Prefix(&'k [u8]),
}

impl Selection<'_> {
    pub(crate) const ALL: Selection<'static> = Selection::Between(None, None);
}

/// Whether an iteration returns keys, values, or both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPart {
    Keys,
    Values,
    Both,
}

/// Rows of a table in key order, read during iteration.
///
/// All rows come from one table, even if the server replaces its table during the iteration.
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
            Selection::Between(start, end) => {
                let first = start.map_or(Ok(0), rows_before)?;
                (first, end.map_or(Ok(table.len()), rows_before)?.saturating_sub(first))
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
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.count
    }

    fn __contains__(slf: &Bound<'_, Self>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Rows { table, part, .. } = slf.get();
        if *part == RowPart::Keys {
            let key = key_from(item)?;
            return table.contains(key).map_err(lookup_exception);
        }
        for row in slf.try_iter()? {
            if row?.eq(item)? {
                return Ok(true);
            }
        }
        Ok(false)
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
            let object = match self.part {
                RowPart::Keys => key_object(py, key),
                RowPart::Values => value_object(py, self.table.schema(), &value)?,
                RowPart::Both => row_tuple(py, self.table.schema(), key, &value)?.into_any(),
            };
            chunk.push(object.unbind());
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
