//! The columns of a typed table that a command writes, and rows as CSV and JSON, with or without columns.
//!
//! In: a schema, the names of the chosen columns, and rows. Out: fields of CSV records and JSON objects. This module
//! does not depend on the source of the rows.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::anyhow;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use zero_kv::Key;
use zero_kv::csv_text::csv_error;
use zero_kv::printable::Printable;
use zero_kv::typed::{ColumnError, Projection, Schema, TypedRow, Value, write_text};

use crate::output::{hex, with_text};

/// The name of the key's field if the schema has no name for the key.
const KEY_NAME: &str = "key";

pub(crate) struct Columns {
    schema: Arc<Schema>,
    positions: Vec<usize>,
    key_name: String,
}

impl Columns {
    /// Returns the columns with these names, or all columns if `chosen` is empty. Returns `None` for a table without a
    /// schema.
    pub(crate) fn new(schema: Option<Arc<Schema>>, chosen: &[String]) -> anyhow::Result<Option<Columns>> {
        let Some(schema) = schema else {
            return match chosen {
                [] => Ok(None),
                _ => Err(anyhow!("--columns: the table has no columns, because it is not typed: omit --columns")),
            };
        };
        let positions = match chosen {
            [] => (0..schema.columns().len()).collect(),
            _ => Projection::new(&schema, chosen)?.positions().to_vec(),
        };
        let mut key_name = schema.key_name().unwrap_or(KEY_NAME).to_owned();
        while schema.position(&key_name).is_some() {
            key_name.insert(0, '_');
        }
        Ok(Some(Columns { schema, positions, key_name }))
    }

    /// Returns the name of the key's field: the name in the schema, or `key`. If a column has this name, underscores
    /// precede it.
    pub(crate) fn key_name(&self) -> &str {
        &self.key_name
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.declared().map(|column| column.name.as_str())
    }

    pub(crate) fn declared(&self) -> impl Iterator<Item = &zero_kv::typed::Column> {
        self.positions.iter().map(|position| &self.schema.columns()[*position])
    }

    pub(crate) fn cells<'a>(&'a self, row: &'a [u8]) -> Result<Vec<Value<'a>>, ColumnError> {
        let row = TypedRow::new(&self.schema, row)?;
        self.positions.iter().map(|position| row.value(*position)).collect()
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn cell<'a>(&'a self, row: &'a [u8], at: usize) -> Result<Value<'a>, ColumnError> {
        TypedRow::new(&self.schema, row)?.value(self.positions[at])
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }
}

/// Writes a cell as a field of a JSON object: see [`JsonCell`] and [`serialize_bytes`].
pub(crate) fn serialize_cell<M: SerializeMap>(map: &mut M, name: &str, cell: &Value<'_>) -> Result<(), M::Error> {
    match cell {
        Value::Bytes(bytes) => serialize_bytes(map, name, bytes),
        cell => map.serialize_entry(name, &JsonCell(*cell)),
    }
}

/// Returns the text of a cell. The text of null is empty.
pub(crate) fn text(cell: &Value<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    write_text(cell, &mut text);
    text
}

/// Returns the text of a cell on one line, for people. Null is `null`. Backslashes and unprintable characters are
/// escaped, and in bytes that are not UTF-8, everything except printable ASCII.
pub(crate) fn line_text(cell: &Value<'_>) -> String {
    if *cell == Value::Null {
        return "null".to_owned();
    }
    let text = text(cell);
    match str::from_utf8(&text) {
        // Without escaped backslashes, a text could look like an escaped character.
        Ok(text) => Printable(text.replace('\\', "\\\\")).to_string(),
        Err(_) => text.escape_ascii().to_string(),
    }
}

/// A cell in JSON: a number, a Boolean, null, a string, or an array. Decimals, dates, and timestamps are strings,
/// because a JSON number would lose digits of a decimal in most readers. `NaN`, `inf`, and `-inf` are strings, too.
/// Bytes must be UTF-8.
struct JsonCell<'a>(pub(crate) Value<'a>);

impl Serialize for JsonCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(value),
            Value::Int(value) => serializer.serialize_i64(value),
            Value::Uint(value) => serializer.serialize_u64(value),
            Value::F32(value) if value.is_finite() => serializer.serialize_f32(value),
            Value::F64(value) if value.is_finite() => serializer.serialize_f64(value),
            Value::List(list) => {
                let mut elements = serializer.serialize_seq(Some(list.len()))?;
                list.iter().try_for_each(|element| elements.serialize_element(&JsonCell(element)))?;
                elements.end()
            }
            cell => serializer.serialize_str(&String::from_utf8_lossy(&text(&cell))),
        }
    }
}

pub(crate) enum RowValue<'a> {
    Bytes(&'a [u8]),
    Cells(&'a Columns, Vec<Value<'a>>),
}

impl<'a> RowValue<'a> {
    /// Splits the value into cells if the table has columns.
    pub(crate) fn new(columns: Option<&'a Columns>, value: &'a [u8]) -> Result<RowValue<'a>, ColumnError> {
        Ok(match columns {
            Some(columns) => RowValue::Cells(columns, columns.cells(value)?),
            None => RowValue::Bytes(value),
        })
    }

    /// Calls `write` with the value, or with the text of each cell.
    pub(crate) fn for_each_field(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            RowValue::Bytes(value) => write(value),
            RowValue::Cells(_, cells) => cells.iter().try_for_each(|cell| write(&text(cell))),
        }
    }
}

/// Writes a record with the keys, and the value or the text of each cell.
pub(crate) fn write_csv<W: Write>(
    csv: &mut csv::Writer<W>,
    keys: [Option<Key<'_>>; 2],
    value: Option<&RowValue<'_>>,
) -> io::Result<()> {
    let mut write = |field: &[u8]| csv.write_field(field).map_err(csv_error);
    keys.into_iter().flatten().try_for_each(|key| with_text(key, &mut write))?;
    value.map_or(Ok(()), |value| value.for_each_field(&mut write))?;
    csv.write_record(None::<&[u8]>).map_err(csv_error)
}

/// A JSON object with a field for each key, value, or cell that is written. See [`serialize_bytes`].
pub(crate) struct JsonRow<'a> {
    pub(crate) requested: Option<Key<'a>>,
    pub(crate) key: Option<Key<'a>>,
    pub(crate) value: Option<&'a RowValue<'a>>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let key_name = match self.value {
            Some(RowValue::Cells(columns, _)) => columns.key_name(),
            _ => "key",
        };
        for (name, key) in [("asked", self.requested), (key_name, self.key)] {
            match key {
                None => {}
                Some(Key::U64(number)) => map.serialize_entry(name, &number)?,
                Some(Key::Bytes(bytes)) => serialize_bytes(&mut map, name, bytes)?,
            }
        }
        match self.value {
            None => {}
            Some(RowValue::Bytes(value)) => serialize_bytes(&mut map, "value", value)?,
            Some(RowValue::Cells(columns, cells)) => {
                columns.names().zip(cells).try_for_each(|(name, cell)| serialize_cell(&mut map, name, cell))?;
            }
        }
        map.end()
    }
}

/// Writes bytes as a field of a JSON object: text or, if the bytes are not UTF-8, hexadecimal digits in a field whose
/// name ends in `_hex`.
fn serialize_bytes<M: SerializeMap>(map: &mut M, name: &str, bytes: &[u8]) -> Result<(), M::Error> {
    match str::from_utf8(bytes) {
        Ok(text) => map.serialize_entry(name, text),
        Err(_) => map.serialize_entry(&format!("{name}_hex"), &hex(bytes)),
    }
}
