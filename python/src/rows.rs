//! Rows of a table in key order.
//!
//! In: a table and a range of keys. Out: how many rows it has, and these, some at
//! a time. They are those of one table, also when there is a newer one by now.

use std::ops::Bound as End;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zero_kv::{Key, LookupError};

use crate::errors::of_lookup;
use crate::key::{key_of, to_python};
use crate::table::Snapshot;

/// Rows that are made Python objects at once, at most.
const CHUNK_ROWS_MAX: usize = 256;
/// And values of so many bytes together, unless one alone is longer.
const CHUNK_LEN_BYTES: usize = 64 << 10;

/// Which keys are meant.
pub(crate) enum Range<'k> {
    /// From the first on, and before the second.
    Between(Option<Key<'k>>, Option<Key<'k>>),
    Prefix(&'k [u8]),
}

impl Range<'_> {
    pub(crate) const ALL: Range<'static> = Range::Between(None, None);
}

/// What is wanted of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Keys,
    Values,
    Both,
}

/// Rows of a table in key order, read as they are wanted.
///
/// They are those of the table as it was when they were asked for, also when a newer one is served by now.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Rows {
    table: Snapshot,
    shows: Shows,
    /// The number of the first row in the table, counted from 0.
    first: usize,
    count: usize,
}

impl Rows {
    pub(crate) fn of(table: Snapshot, range: Range<'_>, shows: Shows) -> Result<Rows, LookupError> {
        let before = |key: Key<'_>| table.count((End::Unbounded, End::Excluded(key)));
        let (first, count) = match range {
            Range::Between(start, end) => {
                let first = start.map_or(Ok(0), before)?;
                (first, end.map_or(Ok(table.len()), before)?.saturating_sub(first))
            }
            Range::Prefix(prefix) => (before(Key::Bytes(prefix))?, table.prefix(prefix)?.len()),
        };
        Ok(Rows { table, shows, first, count })
    }

    pub(crate) fn iterate(&self, backward: bool) -> RowIterator {
        RowIterator {
            table: self.table.clone(),
            shows: self.shows,
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
        let Rows { table, shows, .. } = slf.get();
        if *shows == Shows::Keys {
            let asked = key_of(item)?;
            return table.contains(asked).map_err(of_lookup);
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
    table: Snapshot,
    shows: Shows,
    /// Rows that are not in `chunk` yet.
    next: usize,
    end: usize,
    backward: bool,
    /// Rows that were read and not given, the next of them last.
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
            let (key, value) = row.unwrap_or(Err(LookupError::Damaged)).map_err(of_lookup)?;
            len_bytes += value.len();
            let key = key.as_key();
            let shown = match self.shows {
                Shows::Keys => to_python(py, key),
                Shows::Values => PyBytes::new(py, &value).into_any(),
                Shows::Both => (to_python(py, key), PyBytes::new(py, &value)).into_pyobject(py)?.into_any(),
            };
            chunk.push(shown.unbind());
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
