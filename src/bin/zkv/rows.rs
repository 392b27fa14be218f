//! Writes rows to standard output in the requested format.
//!
//! In: rows, each optionally preceded by the requested key. Out: text. This module does not depend on the source of the
//! rows.

use std::io::{self, BufWriter, IsTerminal, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::Key;
use zero_kv::csv_text::csv_error;
use zero_kv::printable::Printable;
use zero_kv::typed::Value;

use crate::args::{Format, OutputArgs, Part};
use crate::columns::{Columns, line_text, text};
use crate::output::{RowOutput, buffered, csv_writer, hex, write_json_line};

/// The format of rows, and whether keys, values, or both are written.
#[derive(Clone, Copy)]
pub(crate) struct RowFormat {
    format: Format,
    only: Option<Part>,
    terminator: &'static [u8],
    /// Whether a row of a typed table is written as one line `name: value` per column.
    names_columns: bool,
}

impl RowFormat {
    /// Returns the requested format of rows. The default is CSV.
    pub(crate) fn for_rows(args: &OutputArgs) -> RowFormat {
        let terminator = if args.null { &b"\0"[..] } else { b"\n" };
        RowFormat { format: args.format.unwrap_or(Format::Csv), only: args.only, terminator, names_columns: false }
    }

    /// Returns the requested format for the lookup of a single key. The default is the unchanged value, with a line
    /// end only on a terminal, or in a typed table, the names and values of the columns. Unless an option selects keys or
    /// values, CSV and JSON write the whole row, and other formats write only the value.
    pub(crate) fn for_value(args: &OutputArgs) -> RowFormat {
        let format = args.format.unwrap_or(Format::Raw);
        let rows = RowFormat { format, ..RowFormat::for_rows(args) };
        match format {
            Format::Csv | Format::Json => rows,
            Format::Raw if !args.null && args.only.is_none() => {
                // The prompt of a shell would otherwise follow the value.
                let terminator = if io::stdout().is_terminal() { &b"\n"[..] } else { b"" };
                RowFormat { only: Some(Part::Values), terminator, names_columns: args.format.is_none(), ..rows }
            }
            _ => RowFormat { only: args.only.or(Some(Part::Values)), ..rows },
        }
    }
}

pub(crate) struct RowWriter {
    format: RowFormat,
    /// Standard output. It is opened when the first row is written, because the first key determines whether CSV fields
    /// must be quoted.
    stdout: Option<StdoutWriter>,
    /// The columns to write. `None` for a table without a schema.
    columns: Option<Columns>,
    row_count: u64,
}

/// The value of a row that is written.
enum RowValue<'a> {
    Bytes(&'a [u8]),
    Cells(&'a Columns, Vec<Value<'a>>),
}

enum StdoutWriter {
    Csv(Box<csv::Writer<RowOutput>>),
    Text(BufWriter<RowOutput>),
}

impl RowWriter {
    pub(crate) fn new(format: RowFormat) -> RowWriter {
        RowWriter { format, stdout: None, columns: None, row_count: 0 }
    }

    /// Sets the columns of the rows that follow.
    pub(crate) fn set_columns(&mut self, columns: Option<Columns>) {
        self.columns = columns;
    }

    /// Returns whether values or columns of rows are written.
    pub(crate) fn writes_values(&self) -> bool {
        self.format.only != Some(Part::Keys)
    }

    /// Returns the number of rows that were passed to [`RowWriter::write`].
    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Writes a row, preceded by the requested key if there is one.
    pub(crate) fn write(&mut self, requested: Option<Key<'_>>, key: Key<'_>, value: &[u8]) -> anyhow::Result<()> {
        let RowFormat { format, only, names_columns, .. } = self.format;
        self.row_count += 1;
        let value = match &self.columns {
            _ if only == Some(Part::Keys) => None,
            Some(columns) => Some(RowValue::Cells(columns, columns.cells(value)?)),
            None => Some(RowValue::Bytes(value)),
        };
        let stdout = match &mut self.stdout {
            Some(stdout) => stdout,
            none => none.insert(open_stdout(format, only, requested.unwrap_or(key))?),
        };
        let key = (only != Some(Part::Values)).then_some(key);
        let written = match stdout {
            StdoutWriter::Csv(csv) => write_csv(csv, [requested, key], value.as_ref()),
            StdoutWriter::Text(output) if format == Format::Json => {
                write_json_line(output, &JsonRow { requested, key, value: value.as_ref() })
            }
            StdoutWriter::Text(output) => match &value {
                Some(RowValue::Cells(columns, cells)) if names_columns => write_named(output, columns, cells),
                value => write_fields(output, self.format, [requested, key], value.as_ref()),
            },
        };
        Ok(written?)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.stdout {
            None => Ok(()),
            Some(StdoutWriter::Csv(output)) => output.flush(),
            Some(StdoutWriter::Text(output)) => output.flush(),
        }
    }

    /// Flushes the output, and returns whether any row was written.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.flush()?;
        Ok(self.stdout.is_some())
    }
}

fn open_stdout(format: Format, only: Option<Part>, first_key: Key<'_>) -> io::Result<StdoutWriter> {
    let stdout = RowOutput::stdout()?;
    Ok(match format {
        // Output without keys is not meant for `baker`, so its first row needs no extra quotes.
        Format::Csv if only == Some(Part::Values) => StdoutWriter::Csv(Box::new(csv_writer(stdout, b',', Key::U64(0)))),
        Format::Csv => StdoutWriter::Csv(Box::new(csv_writer(stdout, b',', first_key))),
        _ => StdoutWriter::Text(buffered(stdout)),
    })
}

/// Calls `use_text` with the decimal digits or the bytes of a key.
fn with_text<T>(key: Key<'_>, use_text: impl FnOnce(&[u8]) -> T) -> T {
    match key {
        Key::U64(key) => use_text(itoa::Buffer::new().format(key).as_bytes()),
        Key::Bytes(key) => use_text(key),
    }
}

/// Writes a record with the keys, and the value or the text of each cell.
fn write_csv(
    csv: &mut csv::Writer<RowOutput>,
    keys: [Option<Key<'_>>; 2],
    value: Option<&RowValue<'_>>,
) -> io::Result<()> {
    let mut write = |field: &[u8]| csv.write_field(field).map_err(csv_error);
    keys.into_iter().flatten().try_for_each(|key| with_text(key, &mut write))?;
    match value {
        None => {}
        Some(RowValue::Bytes(value)) => write(value)?,
        Some(RowValue::Cells(_, cells)) => cells.iter().try_for_each(|cell| write(&text(cell)))?,
    }
    csv.write_record(None::<&[u8]>).map_err(csv_error)
}

/// Writes the keys, and the value or the text of each cell, with tabs between them.
fn write_fields(
    output: &mut impl Write,
    RowFormat { format, terminator, .. }: RowFormat,
    keys: [Option<Key<'_>>; 2],
    value: Option<&RowValue<'_>>,
) -> io::Result<()> {
    let mut separator = &b""[..];
    for key in keys.into_iter().flatten() {
        output.write_all(separator)?;
        match key {
            Key::U64(_) => with_text(key, |digits| output.write_all(digits))?,
            Key::Bytes(key) => write_bytes(output, format, key)?,
        }
        separator = b"\t";
    }
    let mut write = |value: &[u8]| {
        output.write_all(separator)?;
        separator = b"\t";
        write_bytes(output, format, value)
    };
    match value {
        None => {}
        Some(RowValue::Bytes(value)) => write(value)?,
        Some(RowValue::Cells(_, cells)) => cells.iter().try_for_each(|cell| write(&text(cell)))?,
    }
    output.write_all(terminator)
}

/// Writes one line `name: value` per column.
fn write_named(output: &mut impl Write, columns: &Columns, cells: &[Value<'_>]) -> io::Result<()> {
    columns.names().zip(cells).try_for_each(|(name, cell)| writeln!(output, "{}: {}", Printable(name), line_text(cell)))
}

fn write_bytes(output: &mut impl Write, format: Format, bytes: &[u8]) -> io::Result<()> {
    match format {
        Format::Escaped => write!(output, "{}", bytes.escape_ascii()),
        Format::Hex => output.write_all(hex(bytes).as_bytes()),
        _ => output.write_all(bytes),
    }
}

/// A JSON object with a field for each key, value, or cell that is written. If a key or value is not UTF-8, its field
/// contains hexadecimal digits, and the name of the field ends in `_hex`.
struct JsonRow<'a> {
    requested: Option<Key<'a>>,
    key: Option<Key<'a>>,
    value: Option<&'a RowValue<'a>>,
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
            Some(RowValue::Cells(columns, cells)) => columns.serialize_cells(&mut map, cells)?,
        }
        map.end()
    }
}

/// Writes a field with text, or with hexadecimal digits if the bytes are not UTF-8.
fn serialize_bytes<M: SerializeMap>(map: &mut M, name: &str, bytes: &[u8]) -> Result<(), M::Error> {
    match str::from_utf8(bytes) {
        Ok(text) => map.serialize_entry(name, text),
        Err(_) => map.serialize_entry(&format!("{name}_hex"), &hex(bytes)),
    }
}
