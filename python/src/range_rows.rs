//! Rows of tables of ranges.
//!
//! In: the keys of rows, which state a range by its first and its last key, or by a block of addresses. Out: the first
//! and the last key, as objects.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use zero_kv::cidr::{Block, BlockError};

use crate::arguments::unknown_value;
use crate::convert::{bytes_from, type_name};

/// How the keys of rows state ranges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeForm {
    /// A tuple that ends with the first and the last key. The items before them are the leading parts of both.
    Ends,
    /// A block of addresses, or a tuple that ends with one.
    Blocks,
}

impl RangeForm {
    pub(crate) fn from_name(name: &str) -> PyResult<RangeForm> {
        match name {
            "ends" => Ok(RangeForm::Ends),
            "blocks" => Ok(RangeForm::Blocks),
            _ => Err(unknown_value("the form of ranges", name, "\"ends\" or \"blocks\"")),
        }
    }

    /// Returns the parts of the first key of a range, and the last part of its last key.
    pub(crate) fn range<'py>(self, key: &Bound<'py, PyAny>) -> PyResult<(Vec<Bound<'py, PyAny>>, Bound<'py, PyAny>)> {
        let items = match key.cast::<PyList>() {
            Ok(list) => Some(list.to_tuple()),
            Err(_) => key.cast::<PyTuple>().ok().cloned(),
        };
        let mut parts: Vec<_> = items.as_ref().map_or_else(|| vec![key.clone()], |items| items.iter().collect());
        match (self, parts.pop()) {
            (RangeForm::Ends, Some(last)) if !parts.is_empty() => Ok((parts, last)),
            (RangeForm::Blocks, Some(block)) => {
                let block = parsed_block(&block)?;
                let [first, last] = [block.first(), block.last()]
                    .map(|address| PyString::new(key.py(), &address.to_canonical().to_string()).into_any());
                parts.push(first);
                Ok((parts, last))
            }
            _ => {
                let found = type_name(key);
                Err(PyTypeError::new_err(format!(
                    "the key is of type {found}, where a tuple with the first and the last key of a range was \
                     expected, such as (1, 9): ranges=(\"start\", \"end\") names columns, and cidr takes blocks"
                )))
            }
        }
    }
}

fn parsed_block(block: &Bound<'_, PyAny>) -> PyResult<Block> {
    let text = match type_name(block).as_str() {
        "IPv4Network" | "IPv6Network" | "IPv4Address" | "IPv6Address" => Some(block.str()?.into_any()),
        _ => None,
    };
    let Some(text) = bytes_from(text.as_ref().unwrap_or(block))? else {
        let found = type_name(block);
        return Err(PyTypeError::new_err(format!(
            "the block of addresses is of type {found}, where text or a network of ipaddress was expected, such as \
             \"192.0.2.0/24\": ranges takes first and last keys"
        )));
    };
    Block::parse(text).map_err(|error| match error {
        BlockError::HostBits { .. } => PyValueError::new_err(error.to_string()),
        _ => PyValueError::new_err(format!("{error}: correct the block, or take blocks from another column")),
    })
}
