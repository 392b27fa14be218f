//! Encodes the cells of rows, and rejects cells that do not fit their columns.

use std::sync::Arc;

use memchr::memchr;
use serde_json::value::RawValue;

use crate::bake::error::RowFault;
use crate::format::FormatError;
use crate::typed::{
    Caster, Column, ColumnError, ColumnType, LIST_LEN_EXPECTED, RowEncoder, Schema, TextParser, TypedRow, Value,
    write_text,
};

/// Encodes the rows of a schema, one row at a time.
#[derive(Clone)]
pub(in crate::bake) struct RowBuilder {
    schema: Arc<Schema>,
    encoder: RowEncoder<Arc<Schema>>,
    /// The buffers of each column.
    buffers: Vec<CellBuffers>,
    /// The cells of a row. Empty between rows, to keep their memory.
    cells: Vec<Value<'static>>,
}

/// The buffers that the conversion of a column's cells needs.
#[derive(Clone, Default)]
struct CellBuffers {
    parser: TextParser,
    caster: Caster,
    text: String,
}

impl RowBuilder {
    pub(in crate::bake) fn new(schema: Arc<Schema>) -> RowBuilder {
        let buffers = vec![CellBuffers::default(); schema.columns().len()];
        RowBuilder { encoder: RowEncoder::new(schema.clone()), schema, buffers, cells: Vec::new() }
    }

    /// Encodes the row with these texts, one per column. `None` is null. An empty text is null in a column that can be
    /// null, unless `has_empty_texts` is true and the column has text or bytes.
    pub(in crate::bake) fn texts<'x>(
        &'x mut self,
        texts: impl IntoIterator<Item = Option<&'x [u8]>>,
        has_empty_texts: bool,
    ) -> Result<&'x [u8], RowFault> {
        self.row(texts, |column, buffers, text| {
            let Some(text) = text else { return Ok(Value::Null) };
            let is_text = matches!(column.column_type, ColumnType::Text | ColumnType::Bytes);
            match text {
                [] if column.is_nullable && !(is_text && has_empty_texts) => Ok(Value::Null),
                [] if !is_text => Err(RowFault::no_value(column)),
                _ => {
                    let parsed = buffers.parser.parse(column.column_type, text);
                    parsed.map_err(|fault| RowFault::field(column, text, fault.0))
                }
            }
        })
    }

    /// Encodes the row with these JSON values of a line, one per column. A missing value is null.
    pub(in crate::bake) fn json<'x>(
        &'x mut self,
        line: &'x [u8],
        values: impl IntoIterator<Item = Option<&'x RawValue>>,
    ) -> Result<&'x [u8], RowFault> {
        self.row(values, |column, buffers, value| match value.map(RawValue::get).filter(|json| *json != "null") {
            Some(json) => json_value(column, buffers, line, json),
            None => Ok(Value::Null),
        })
    }

    /// Encodes the row with these values, one per column, and converts values whose types are not those of the columns.
    pub(in crate::bake) fn values<'x>(
        &'x mut self,
        values: impl IntoIterator<Item = Value<'x>>,
    ) -> Result<&'x [u8], RowFault> {
        self.row(values, |column, buffers, value| {
            let cast = buffers.caster.cast(value, column.column_type);
            cast.ok_or_else(|| {
                let mut text = Vec::new();
                write_text(&value, &mut text);
                let expected = match (value, column.column_type) {
                    (Value::List(list), ColumnType::List { len: Some(len), .. }) if list.len() != len as usize => {
                        LIST_LEN_EXPECTED
                    }
                    _ => "a value that fits exactly",
                };
                RowFault::cell(column, &text, expected)
            })
        })
    }

    /// Encodes the row with one cell per item. `convert` returns the cell of a column.
    fn row<'x, T>(
        &'x mut self,
        items: impl IntoIterator<Item = T>,
        convert: impl Fn(&'x Column, &'x mut CellBuffers, T) -> Result<Value<'x>, RowFault>,
    ) -> Result<&'x [u8], RowFault> {
        let RowBuilder { schema, encoder, buffers, cells: kept } = self;
        let mut cells = emptied(std::mem::take(kept));
        for ((column, buffers), item) in schema.columns().iter().zip(buffers).zip(items) {
            match convert(column, buffers, item)? {
                Value::Null if !column.is_nullable => return Err(RowFault::no_value(column)),
                value => cells.push(value),
            }
        }
        let encoded = encoder.encode(&cells);
        *kept = emptied(cells);
        encoded.map_err(|error| match error {
            ColumnError::TooLong { len_bytes } => {
                RowFault::Value(FormatError::ValueTooLong { len_bytes: len_bytes as u64 })
            }
            // Each cell fits its column, so only the total length can be wrong.
            error => RowFault::TypedRow { what: error.to_string() },
        })
    }

    #[cfg(feature = "parquet")]
    pub(in crate::bake) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Checks the value of a row from memory or from a table.
    pub(in crate::bake) fn check(schema: &Schema, row: &[u8]) -> Result<(), RowFault> {
        TypedRow::new(schema, row).and_then(|row| row.check()).map_err(|error| RowFault::typed_row(&error))
    }
}

impl RowFault {
    pub(in crate::bake) fn typed_row(error: &ColumnError) -> RowFault {
        match error {
            ColumnError::Malformed { what } => RowFault::TypedRow { what: (*what).to_owned() },
            error => RowFault::TypedRow { what: error.to_string() },
        }
    }
}

/// Empties a vector and keeps its memory, for values of another lifetime.
fn emptied<'n>(mut cells: Vec<Value<'_>>) -> Vec<Value<'n>> {
    cells.clear();
    // The standard library collects in place, so the allocation stays.
    cells.into_iter().map(|_| Value::Null).collect()
}

fn parsed<'b>(column: &Column, parser: &'b mut TextParser, text: &'b [u8]) -> Result<Value<'b>, RowFault> {
    parser.parse(column.column_type, text).map_err(|fault| RowFault::cell(column, text, fault.0))
}

/// Returns the value of a JSON value that is not null.
fn json_value<'b>(
    column: &Column,
    buffers: &'b mut CellBuffers,
    line: &[u8],
    json: &'b str,
) -> Result<Value<'b>, RowFault> {
    let expected = |expected| Err(RowFault::cell(column, json.as_bytes(), expected));
    let CellBuffers { parser, text, .. } = buffers;
    let column_type = column.column_type;
    match (json.as_bytes()[0], column_type) {
        (b'"', ColumnType::List { .. } | ColumnType::TextList) => expected("a list"),
        (b'"', _) => parsed(column, parser, unescaped(line, json, text)?),
        // As in other bakes of JSON Lines, the text of a value that is not a string is its JSON.
        (_, ColumnType::Text) => Ok(Value::Text(json)),
        (b'[', ColumnType::List { .. } | ColumnType::TextList) => parsed(column, parser, json.as_bytes()),
        (_, ColumnType::List { .. } | ColumnType::TextList) => expected("a list"),
        (b't' | b'f', ColumnType::Bool) => parsed(column, parser, json.as_bytes()),
        (_, ColumnType::Bool) => expected("true or false"),
        (_, ColumnType::Bytes | ColumnType::Date | ColumnType::Timestamp(_)) => expected("a string"),
        (b'-' | b'0'..=b'9', _) => parsed(column, parser, json.as_bytes()),
        _ => expected("a number"),
    }
}

/// Returns the text of a JSON string, which is a part of a line. Text with escapes is written to the buffer `text`.
pub(in crate::bake) fn unescaped<'t>(line: &[u8], json: &'t str, text: &'t mut String) -> Result<&'t [u8], RowFault> {
    let inside = &json.as_bytes()[1..json.len() - 1];
    if memchr(b'\\', inside).is_none() {
        return Ok(inside);
    }
    let at = json.as_ptr().addr() - line.as_ptr().addr();
    *text = serde_json::from_str(json).map_err(|error| RowFault::json(&error, at))?;
    Ok(text.as_bytes())
}
