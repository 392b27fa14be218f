//! `zkv dump` of a typed table as delimited text or JSON Lines.
//!
//! In: rows, and the columns to write. Out: text from which `baker --typed` makes the same rows.

use std::io::{self, Write};

use anyhow::bail;
use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::Key;
use zero_kv::MappedStore;
use zero_kv::csv_text::csv_error;
use zero_kv::store::MappedRows;
use zero_kv::typed::{Column, Value};

use crate::columns::{Columns, text};
use crate::output::{DisplayKey, JsonKey, buffered, csv_writer, json_value, write_json_line};

const NOT_TEXT: &str = "dump the table as CSV (--format csv)";

/// Writes a row with the names of the columns, and a record per row.
pub(crate) fn write_delimited<W: Write>(
    output: W,
    delimiter: u8,
    rows: MappedRows<&MappedStore>,
    columns: &Columns,
) -> anyhow::Result<()> {
    let mut csv = csv_writer(output, delimiter, Key::Bytes(columns.key_name().as_bytes()));
    csv.write_record([columns.key_name()].into_iter().chain(columns.names())).map_err(csv_error)?;
    for row in rows {
        let (key, value) = row?;
        let cells = columns.cells(&value)?;
        write_key(&mut csv, key.as_key())?;
        for (column, cell) in columns.declared().zip(&cells) {
            check_is_not_read_as_null(key.as_key(), column, cell)?;
            csv.write_field(text(cell)).map_err(csv_error)?;
        }
        csv.write_record(None::<&[u8]>).map_err(csv_error)?;
    }
    Ok(csv.flush()?)
}

fn write_key<W: Write>(csv: &mut csv::Writer<W>, key: Key<'_>) -> io::Result<()> {
    match key {
        Key::U64(key) => csv.write_field(itoa::Buffer::new().format(key)),
        Key::Bytes(key) => csv.write_field(key),
    }
    .map_err(csv_error)
}

/// Rejects a cell that is not null, but whose text is the text of null.
fn check_is_not_read_as_null(key: Key<'_>, column: &Column, cell: &Value<'_>) -> anyhow::Result<()> {
    if column.is_nullable && matches!(cell, Value::Text("") | Value::Bytes(b"")) {
        bail!(
            "the value of key {} in column {:?} is empty but not null, which CSV cannot express: dump the table as JSON \
             Lines (--format jsonl)",
            DisplayKey(key),
            column.name
        );
    }
    Ok(())
}

/// Writes a JSON object per row, with a field per column.
pub(crate) fn write_json_lines(
    output: impl Write,
    rows: MappedRows<&MappedStore>,
    columns: &Columns,
) -> anyhow::Result<()> {
    let mut output = buffered(output);
    for row in rows {
        let (key, value) = row?;
        let key = key.as_key();
        let cells = columns.cells(&value)?;
        for cell in &cells {
            if let Value::Bytes(bytes) = cell {
                json_value(key, bytes, NOT_TEXT)?;
            }
        }
        write_json_line(&mut output, &JsonRow { key: JsonKey::new(key, NOT_TEXT)?, columns, cells: &cells })?;
    }
    Ok(output.flush()?)
}

struct JsonRow<'a> {
    key: JsonKey<'a>,
    columns: &'a Columns,
    cells: &'a [Value<'a>],
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.columns.key_name(), &self.key)?;
        self.columns.serialize_cells(&mut map, self.cells)?;
        map.end()
    }
}
