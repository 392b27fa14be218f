//! The memory of columns, from which `lib/zero_kv/_columns.py` makes NumPy and Arrow arrays.

use pyo3::prelude::*;
use pyo3::types::PyList;
use zero_kv::typed::{Column, ColumnBuffer, ColumnBuffers, ColumnType, ColumnValues, List, Value};
use zerocopy::IntoBytes;

use crate::cell::cell_object;
use crate::view::Memory;

/// The parts of all columns.
pub(crate) type Parts<'py> = Vec<Part<'py>>;

/// The memory of one column.
#[derive(IntoPyObject)]
pub(crate) struct Part<'py> {
    name: String,
    /// The name of the type, without `?`.
    kind: String,
    null_count: usize,
    /// For NumPy one byte for each row, and for Arrow one bit, which is 1 if the row has a value.
    valid: Memory,
    /// The values, or the data of all values.
    values: Option<Memory>,
    /// The boundaries of the data of each value, or of each list, as 64-bit integers.
    offsets: Option<Memory>,
    /// The boundaries of the texts of all lists, as 64-bit integers, if the column has lists of texts.
    text_offsets: Option<Memory>,
    /// The values as Python objects, in the place of `values`, for types that no NumPy array has.
    objects: Option<Bound<'py, PyList>>,
}

/// Returns the parts of all columns. For NumPy, types of variable length and decimals become objects.
pub(crate) fn parts<'py>(
    py: Python<'py>,
    columns: &[Column],
    buffers: ColumnBuffers,
    is_arrow: bool,
) -> PyResult<Parts<'py>> {
    columns.iter().zip(buffers.into_columns()).map(|(column, buffer)| part(py, column, buffer, is_arrow)).collect()
}

fn part<'py>(py: Python<'py>, column: &Column, buffer: ColumnBuffer, is_arrow: bool) -> PyResult<Part<'py>> {
    let valid = match is_arrow {
        true => bits(&buffer.is_valid),
        false => buffer.is_valid.as_bytes().to_vec(),
    };
    let mut part = Part {
        name: column.name.clone(),
        kind: column.column_type.to_string(),
        null_count: buffer.is_valid.iter().filter(|is_valid| !**is_valid).count(),
        valid: Memory::from_bytes(valid),
        values: None,
        offsets: None,
        text_offsets: None,
        objects: None,
    };
    let is_object = column.column_type.is_variable() || matches!(column.column_type, ColumnType::Decimal { .. });
    if is_object && !is_arrow {
        part.objects = Some(objects(py, column.column_type, &buffer)?);
        return Ok(part);
    }
    let offsets = |ends: Vec<usize>| {
        let offsets: Vec<i64> = std::iter::once(0).chain(ends.into_iter().map(|end| end as i64)).collect();
        Memory::from_bytes(offsets.as_bytes().to_vec())
    };
    let (values, ends) = match buffer.values {
        ColumnValues::Data { data, ends } => (data, Some(ends)),
        ColumnValues::List { elements, ends } => match *elements {
            ColumnValues::Data { data, ends: text_ends } => {
                part.text_offsets = Some(offsets(text_ends));
                (data, Some(ends))
            }
            elements => (bytes_of(&elements, is_arrow), Some(ends)),
        },
        values => (bytes_of(&values, is_arrow), None),
    };
    part.values = Some(Memory::from_bytes(values));
    let has_offsets = column.column_type.is_variable();
    part.offsets = ends.filter(|_| has_offsets).map(offsets);
    Ok(part)
}

/// Returns the bytes of numbers or Booleans. For Arrow, a Boolean is one bit.
fn bytes_of(values: &ColumnValues, is_arrow: bool) -> Vec<u8> {
    match values {
        ColumnValues::Bool(values) if is_arrow => bits(values),
        values => values.as_bytes().to_vec(),
    }
}

/// Packs Booleans as bits, least significant first.
fn bits(values: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, value| byte << 1 | u8::from(*value));
    values.chunks(8).map(byte).collect()
}

/// Returns the cells of a column as Python objects.
fn objects<'py>(py: Python<'py>, column_type: ColumnType, buffer: &ColumnBuffer) -> PyResult<Bound<'py, PyList>> {
    let list_bytes = match &buffer.values {
        ColumnValues::List { elements, .. } => bytes_of(elements, false),
        _ => Vec::new(),
    };
    let object = |(row, is_valid): (usize, &bool)| {
        if !is_valid {
            return Ok(py.None().into_bound(py));
        }
        let range = |ends: &[usize], item_len: usize| {
            (if row == 0 { 0 } else { ends[row - 1] * item_len })..ends[row] * item_len
        };
        match (&buffer.values, column_type) {
            (ColumnValues::Data { data, ends }, ColumnType::Text) => {
                // The text was checked when the row was read.
                cell_object(py, Value::Text(&String::from_utf8_lossy(&data[range(ends, 1)])))
            }
            (ColumnValues::Data { data, ends }, _) => cell_object(py, Value::Bytes(&data[range(ends, 1)])),
            (ColumnValues::Decimal(values), ColumnType::Decimal { scale, .. }) => {
                cell_object(py, Value::Decimal { unscaled: values[row], scale })
            }
            (ColumnValues::List { elements, ends }, ColumnType::TextList) => {
                let ColumnValues::Data { data, ends: text_ends } = &**elements else {
                    unreachable!("the elements are texts")
                };
                let texts = range(ends, 1).map(|text| {
                    let start = if text == 0 { 0 } else { text_ends[text - 1] };
                    String::from_utf8_lossy(&data[start..text_ends[text]])
                });
                Ok(PyList::new(py, texts.collect::<Vec<_>>())?.into_any())
            }
            (ColumnValues::List { ends, .. }, ColumnType::List { element, .. }) => {
                let bytes = &list_bytes[range(ends, element.len_bytes())];
                let list = List::new(element, bytes).expect("the length is a multiple of the length of an element");
                cell_object(py, Value::List(list))
            }
            _ => unreachable!("other types have arrays"),
        }
    };
    PyList::new(py, buffer.is_valid.iter().enumerate().map(object).collect::<PyResult<Vec<_>>>()?)
}
