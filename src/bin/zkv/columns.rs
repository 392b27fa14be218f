//! The columns of a typed table that a command writes, and rows as CSV and JSON, with or without columns.
//!
//! In: a schema, the names of the chosen columns, and rows. Out: fields of CSV records and JSON objects. This module
//! does not depend on the source of the rows.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::anyhow;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use zero_kv::csv_text::csv_error;
use zero_kv::format::key_type;
use zero_kv::printable::Printable;
use zero_kv::typed::{ColumnError, Projection, Schema, TypedRow, Value, write_text};
use zero_kv::{Key, KeyType};

use crate::output::{hex, with_text};

/// The name of the key's field if the schema has no name for the key.
const KEY_NAME: &str = "key";

/// Returns the names of the fields with the parts of a key. Without names in the schema, they are `key`, or `key1`, `key2`,
/// and so on for a composite key, with underscores in front if a column has such a name.
pub(crate) fn key_names(key_type: KeyType, columns: Option<&Columns>) -> Vec<String> {
    let count = key_type.parts().len();
    let schema = columns.map(Columns::schema);
    let declared = schema.and_then(Schema::key_name);
    let parts = declared.filter(|_| count > 1).map(|name| key_type::split(name.as_bytes()));
    let mut names: Vec<String> = match (declared, parts) {
        (Some(name), None) => vec![name.to_owned()],
        // A key whose written form was in one column has one name.
        (_, Some(parts)) if parts.len() == count => {
            parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect()
        }
        _ if count > 1 => (1..=count).map(|part| format!("{KEY_NAME}{part}")).collect(),
        _ => vec![KEY_NAME.to_owned()],
    };
    for name in &mut names {
        while schema.is_some_and(|schema| schema.position(name).is_some()) {
            name.insert(0, '_');
        }
    }
    names
}

/// Returns the name of the column with the ends of ranges: `end`, after underscores if another column has this name.
pub(crate) fn end_name(key_names: &[String], columns: Option<&Columns>) -> String {
    let mut name = "end".to_owned();
    while key_names.contains(&name) || columns.is_some_and(|columns| columns.schema().position(&name).is_some()) {
        name.insert(0, '_');
    }
    name
}

pub(crate) struct Columns {
    schema: Arc<Schema>,
    positions: Vec<usize>,
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
        Ok(Some(Columns { schema, positions }))
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
            Value::TextList(list) => serializer.collect_seq(list.iter()),
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

/// Writes a record with the written keys or parts of keys, and the value or the text of each cell.
pub(crate) fn write_csv<'k, W: Write>(
    csv: &mut csv::Writer<W>,
    keys: impl IntoIterator<Item = Key<'k>>,
    value: Option<&RowValue<'_>>,
) -> io::Result<()> {
    let mut write = |field: &[u8]| csv.write_field(field).map_err(csv_error);
    keys.into_iter().try_for_each(|key| with_text(key, &mut write))?;
    value.map_or(Ok(()), |value| value.for_each_field(&mut write))?;
    csv.write_record(None::<&[u8]>).map_err(csv_error)
}

/// A JSON object with a field for each key, part of a key, value, or cell that is written. Keys are written keys. See
/// [`serialize_bytes`].
pub(crate) struct JsonRow<'a> {
    pub(crate) requested: Option<Key<'a>>,
    /// The names of the key's parts.
    pub(crate) key_names: &'a [String],
    /// The parts of the key, or nothing if the key is not written.
    pub(crate) key: &'a [Key<'a>],
    /// The name and the text of the last key of a range.
    pub(crate) end: Option<(&'a str, Key<'a>)>,
    pub(crate) value: Option<&'a RowValue<'a>>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let requested = self.requested.map(|key| ("asked", key));
        let parts = self.key_names.iter().map(String::as_str).zip(self.key.iter().copied());
        for (name, key) in requested.into_iter().chain(parts).chain(self.end) {
            match key {
                Key::U64(number) => map.serialize_entry(name, &number)?,
                Key::Bytes(bytes) => serialize_bytes(&mut map, name, bytes)?,
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
