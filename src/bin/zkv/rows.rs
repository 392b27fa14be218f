//! Writes rows to standard output in the requested format.
//!
//! In: rows, each optionally preceded by the requested key. Out: text. This module does not depend on the source of the
//! rows.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::Key;
use zero_kv::csv_text::csv_error;

use crate::args::{Format, OutputArgs, Part};
use crate::output::{buffered, csv_writer, write_json_line};

/// The format of rows, and whether keys, values, or both are written.
#[derive(Clone, Copy)]
pub(crate) struct RowFormat {
    format: Format,
    only: Option<Part>,
    terminator: &'static [u8],
}

impl RowFormat {
    /// Returns the format that writes only keys, unchanged.
    pub(crate) fn for_keys(null: bool) -> RowFormat {
        let output = OutputArgs { format: Some(Format::Raw), only: Some(Part::Keys), null };
        RowFormat::for_rows(&output)
    }

    /// Returns the requested format of rows. The default is CSV.
    pub(crate) fn for_rows(args: &OutputArgs) -> RowFormat {
        let terminator = if args.null { &b"\0"[..] } else { b"\n" };
        RowFormat { format: args.format.unwrap_or(Format::Csv), only: args.only, terminator }
    }

    /// Returns the requested format for the lookup of a single key. The default is the unchanged value without a line
    /// end. Unless an option selects keys or values, CSV and JSON write the whole row, and other formats write only the
    /// value.
    pub(crate) fn for_value(args: &OutputArgs) -> RowFormat {
        let format = args.format.unwrap_or(Format::Raw);
        let rows = RowFormat { format, ..RowFormat::for_rows(args) };
        match format {
            Format::Csv | Format::Json => rows,
            Format::Raw if !args.null && args.only.is_none() => {
                RowFormat { only: Some(Part::Values), terminator: b"", ..rows }
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
}

enum StdoutWriter {
    Csv(Box<csv::Writer<File>>),
    Text(BufWriter<File>),
}

impl RowWriter {
    pub(crate) fn new(format: RowFormat) -> RowWriter {
        RowWriter { format, stdout: None }
    }

    /// Writes a row, preceded by the requested key if there is one.
    pub(crate) fn write(&mut self, requested: Option<Key<'_>>, key: Key<'_>, value: &[u8]) -> io::Result<()> {
        let RowFormat { format, only, terminator } = self.format;
        let stdout = match &mut self.stdout {
            Some(stdout) => stdout,
            none => none.insert(open_stdout(format, only, requested.unwrap_or(key))?),
        };
        let (key, value) = ((only != Some(Part::Values)).then_some(key), (only != Some(Part::Keys)).then_some(value));
        match stdout {
            StdoutWriter::Csv(csv) => {
                for key in [requested, key].into_iter().flatten() {
                    with_text(key, |text| csv.write_field(text)).map_err(csv_error)?;
                }
                value.map_or(Ok(()), |value| csv.write_field(value)).map_err(csv_error)?;
                csv.write_record(None::<&[u8]>).map_err(csv_error)
            }
            StdoutWriter::Text(output) if format == Format::Json => {
                write_json_line(output, &JsonRow { requested, key, value })
            }
            StdoutWriter::Text(output) => {
                let mut separator = &b""[..];
                for key in [requested, key].into_iter().flatten() {
                    output.write_all(separator)?;
                    match key {
                        Key::U64(_) => with_text(key, |digits| output.write_all(digits))?,
                        Key::Bytes(key) => write_bytes(output, format, key)?,
                    }
                    separator = b"\t";
                }
                if let Some(value) = value {
                    output.write_all(separator)?;
                    write_bytes(output, format, value)?;
                }
                output.write_all(terminator)
            }
        }
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
    // Writes bypass io::stdout, which flushes at line ends.
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
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

fn write_bytes(output: &mut impl Write, format: Format, bytes: &[u8]) -> io::Result<()> {
    match format {
        Format::Escaped => write!(output, "{}", bytes.escape_ascii()),
        Format::Hex => output.write_all(hex(bytes).as_bytes()),
        _ => output.write_all(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| write!(digits, "{byte:02x}").expect("a String takes any text"));
    digits
}

/// A JSON object with a field for each key or value that is written. If a key or value is not UTF-8, its field contains
/// hexadecimal digits, and the name of the field ends in `_hex`.
struct JsonRow<'a> {
    requested: Option<Key<'a>>,
    key: Option<Key<'a>>,
    value: Option<&'a [u8]>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let names = [("asked", "asked_hex", self.requested), ("key", "key_hex", self.key)];
        let keys = names.into_iter().filter_map(|(name, hex_name, key)| Some((name, hex_name, key?)));
        let parts = keys.chain(self.value.map(|value| ("value", "value_hex", Key::Bytes(value))));
        for (name, hex_name, part) in parts {
            match part {
                Key::U64(number) => map.serialize_entry(name, &number)?,
                Key::Bytes(bytes) => match str::from_utf8(bytes) {
                    Ok(text) => map.serialize_entry(name, text)?,
                    Err(_) => map.serialize_entry(hex_name, &hex(bytes))?,
                },
            }
        }
        map.end()
    }
}
