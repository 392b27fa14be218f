//! Reads the rows of Arrow arrays.
//!
//! In: for each batch of rows, the buffers of one array per column, which `lib/zero_kv/_shards.py` has cast to the
//! types of the table. Out: keys and encoded values. A row is not a Python object at any time, and other Python threads
//! run while rows are encoded.

use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
#[cfg(feature = "object-store")]
use zero_kv::bake::RowPiece;
use zero_kv::bake::SlotLens;
use zero_kv::typed::{Column, ColumnType, List, RowEncoder, Schema, TextList, Value};
use zero_kv::{Key, KeyType};

use crate::errors::BakeFailed;
use crate::typed_key::text_exception;

/// The buffers of one array: a byte for each element, which is zero for null; offsets of 64 bits; and data. Elements of
/// fixed length have no offsets.
type ArrayBuffers<'py> = (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);
/// The number of rows of a batch, its keys, and its other columns.
type BatchBuffers<'py> = (usize, ArrayBuffers<'py>, Vec<ArrayBuffers<'py>>);

/// Rows from an iterator over batches.
pub(crate) struct ArrowRows {
    batches: Py<PyIterator>,
    batch: Batch,
    /// The encoder of the rows of a typed table. Without it, the batches have one other column, the values.
    encoder: Option<RowEncoder<Arc<Schema>>>,
    key_type: KeyType,
    /// Whether the keys of the batches are numbers of 64 bits. Otherwise they are bytes, or the written form of keys.
    has_numbers: bool,
    /// The number of rows of the batches before the current one.
    rows_before: u64,
}

#[derive(Default)]
struct Batch {
    len: usize,
    /// The position of the next row.
    next: usize,
    keys: Array,
    cells: Vec<Array>,
}

/// Copies of the buffers of an array. Python code could change the originals while they are read.
#[derive(Default)]
struct Array {
    valid: Option<Vec<u8>>,
    offsets: Option<Vec<i64>>,
    data: Vec<u8>,
}

impl ArrowRows {
    /// `columns` are the columns of a typed table. `has_numbers` is whether the arrays of keys have numbers, and not
    /// bytes.
    pub(crate) fn new(
        batches: Py<PyIterator>,
        columns: Option<&[Column]>,
        key_type: KeyType,
        has_numbers: bool,
    ) -> PyResult<ArrowRows> {
        let encoder = |columns: &[Column]| {
            let schema = Schema::new("", columns.to_vec()).map_err(|error| PyValueError::new_err(error.to_string()))?;
            Ok::<_, PyErr>(RowEncoder::new(Arc::new(schema)))
        };
        let encoder = columns.map(encoder).transpose()?;
        Ok(ArrowRows { batches, batch: Batch::default(), encoder, key_type, has_numbers, rows_before: 0 })
    }

    /// Adds rows to a piece until it is full, or until no rows are left.
    #[cfg(feature = "object-store")]
    pub(crate) fn fill(&mut self, py: Python<'_>, piece: &mut RowPiece) -> PyResult<()> {
        py.check_signals()?;
        while !piece.is_full() {
            if self.batch.next == self.batch.len && !self.next_batch(py)? {
                break;
            }
            py.detach(|| {
                self.take_rows(|key, value| {
                    piece.push(key, value);
                    !piece.is_full()
                })
            })?;
        }
        Ok(())
    }

    /// Adds the lengths of all rows.
    pub(crate) fn measure(&mut self, py: Python<'_>, lens: &mut SlotLens) -> PyResult<()> {
        let (key_type, mut rejected) = (self.key_type, None);
        while self.next_batch(py)? {
            py.check_signals()?;
            py.detach(|| {
                self.take_rows(|key, value| {
                    match key.as_bytes().filter(|_| !key_type.is_plain()).map(|text| key_type.parse(text)) {
                        None => lens.add(key_type, key, value.len()),
                        Some(Ok(key)) => lens.add(key_type, key.as_key(), value.len()),
                        Some(Err(error)) => rejected = Some(text_exception(&error)),
                    }
                    rejected.is_none()
                })
            })?;
            if let Some(error) = rejected {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads the next batch. Returns whether there is one.
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(next) = self.batches.bind(py).clone().next().transpose()? else { return Ok(false) };
        let (len, keys, cells): BatchBuffers<'_> = next.extract()?;
        let expected = self.encoder.as_ref().map_or(1, |encoder| encoder.schema().columns().len());
        if cells.len() != expected {
            let message = format!("a batch has {} columns, where {expected} were expected", cells.len());
            return Err(PyValueError::new_err(message));
        }
        let cells = cells.iter().map(Array::copy_of).collect::<PyResult<_>>()?;
        self.rows_before += self.batch.len as u64;
        self.batch = Batch { len, next: 0, keys: Array::copy_of(&keys)?, cells };
        Ok(true)
    }

    /// Passes rows of the current batch to `take`, until it returns false. Keys are numbers, bytes, or written forms.
    fn take_rows(&mut self, mut take: impl FnMut(Key<'_>, &[u8]) -> bool) -> PyResult<()> {
        let ArrowRows { batch, encoder, has_numbers, rows_before, .. } = self;
        let mut values = Vec::with_capacity(batch.cells.len());
        let mut wants_more = true;
        while batch.next < batch.len && wants_more {
            let (row, number) = (batch.next, *rows_before + batch.next as u64 + 1);
            let failed = |problem: String| BakeFailed::new_err(format!("rows:{number}: {problem}"));
            let key = batch.keys.key(row, *has_numbers).map_err(failed)?;
            match encoder {
                Some(encoder) => {
                    values.clear();
                    for (array, column) in batch.cells.iter().zip(encoder.schema().columns()) {
                        let value = array.value(row, column.column_type);
                        values.push(value.ok_or_else(|| failed(short(&column.name)))?);
                    }
                    wants_more = take(key, encoder.encode(&values).map_err(|error| failed(error.to_string()))?);
                }
                None => match batch.cells[0].value(row, ColumnType::Bytes) {
                    Some(Value::Bytes(value)) => wants_more = take(key, value),
                    Some(_) => return Err(failed("the value is null, where bytes or text was expected".to_owned())),
                    None => return Err(failed(short("value"))),
                },
            }
            batch.next += 1;
        }
        Ok(())
    }
}

fn short(column: &str) -> String {
    format!("the buffers of the column {column:?} are shorter than its array")
}

impl Array {
    fn copy_of((valid, offsets, data): &ArrayBuffers<'_>) -> PyResult<Array> {
        let py = data.py();
        let valid = valid.as_ref().map(|valid| PyBuffer::get(valid)?.to_vec(py)).transpose()?;
        let offsets = offsets.as_ref().map(|offsets| PyBuffer::get(offsets)?.to_vec(py)).transpose()?;
        Ok(Array { valid, offsets, data: PyBuffer::get(data)?.to_vec(py)? })
    }

    fn is_null(&self, row: usize) -> bool {
        self.valid.as_ref().is_some_and(|valid| valid.get(row) == Some(&0))
    }

    /// Returns the key of a row, or what is wrong with it.
    fn key(&self, row: usize, is_number: bool) -> Result<Key<'_>, String> {
        if self.is_null(row) {
            return Err("the key is null, where each row needs a key".to_owned());
        }
        let column_type = if is_number { ColumnType::U64 } else { ColumnType::Bytes };
        match self.value(row, column_type) {
            Some(Value::Uint(number)) => Ok(Key::U64(number)),
            Some(Value::Bytes(bytes)) => Ok(Key::Bytes(bytes)),
            _ => Err(short("key")),
        }
    }

    /// Returns the bytes of an element whose elements have a fixed length, or offsets of units of this length.
    fn element(&self, row: usize, len_bytes: usize) -> Option<&[u8]> {
        let bounds = match &self.offsets {
            None => (row, row.checked_add(1)?),
            Some(offsets) => {
                // If the array is a slice, its first offset is greater than 0, and `data` begins there.
                let base = *offsets.first()?;
                let bound = |at: usize| usize::try_from(offsets.get(at)?.checked_sub(base)?).ok();
                (bound(row)?, bound(row + 1)?)
            }
        };
        self.data.get(bounds.0.checked_mul(len_bytes)?..bounds.1.checked_mul(len_bytes)?)
    }

    /// Returns the value of a row, or `None` if the buffers are too short or have invalid text.
    fn value(&self, row: usize, column_type: ColumnType) -> Option<Value<'_>> {
        if self.is_null(row) {
            return Some(Value::Null);
        }
        match column_type {
            ColumnType::Bool => self.element(row, 1).and_then(<[u8]>::first).map(|byte| Value::Bool(*byte != 0)),
            ColumnType::Bytes => self.element(row, 1).map(Value::Bytes),
            ColumnType::Text => self.element(row, 1).and_then(|text| str::from_utf8(text).ok()).map(Value::Text),
            // Arrow's decimals have 128 bits, and those of a column may have 64.
            ColumnType::Decimal { scale, .. } => {
                let unscaled = i128::from_le_bytes(self.element(row, 16)?.try_into().ok()?);
                Some(Value::Decimal { unscaled, scale })
            }
            // The elements are the JSON of lists.
            ColumnType::TextList => self.element(row, 1).and_then(TextList::from_bytes).map(Value::TextList),
            ColumnType::List { element, len } => {
                // Offsets count elements. The encoder checks the length of a list.
                let elements = if self.offsets.is_some() { 1 } else { len? as usize };
                List::new(element, self.element(row, element.len_bytes().checked_mul(elements)?)?).map(Value::List)
            }
            fixed => Value::from_fixed_bytes(fixed, self.element(row, fixed.fixed_len_bytes()?)?),
        }
    }
}
