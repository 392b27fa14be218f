//! Rows on their way to standard output, in the format that was asked for.
//!
//! In: rows, each with the key that it answers where that is not its own. Out: text. It
//! knows neither where rows come from nor why they are written.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::Key;

use crate::args::{Format, OutputArgs, Part};
use crate::output::{buffered, csv_error, csv_writer, write_json};

/// How rows are written.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    format: Format,
    only: Option<Part>,
    end: &'static [u8],
}

impl Style {
    /// Of keys alone, as they are.
    pub(crate) fn of_keys(null: bool) -> Style {
        let output = OutputArgs { format: Some(Format::Raw), only: Some(Part::Keys), null };
        Style::of_rows(&output)
    }

    /// Of rows: with their keys, unless only values are asked for.
    pub(crate) fn of_rows(args: &OutputArgs) -> Style {
        let end = if args.null { &b"\0"[..] } else { b"\n" };
        Style { format: args.format.unwrap_or(Format::Csv), only: args.only, end }
    }

    /// Of the value of one key, which is written alone, and as it is, unless the format has a place for keys.
    pub(crate) fn of_value(args: &OutputArgs) -> Style {
        let format = args.format.unwrap_or(Format::Raw);
        let style = Style { format, ..Style::of_rows(args) };
        match format {
            Format::Csv | Format::Json => style,
            Format::Raw if !args.null && args.only.is_none() => Style { only: Some(Part::Values), end: b"", ..style },
            _ => Style { only: args.only.or(Some(Part::Values)), ..style },
        }
    }
}

pub(crate) struct RowWriter {
    style: Style,
    output: Option<Output>,
}

enum Output {
    Csv(Box<csv::Writer<File>>),
    Text(BufWriter<File>),
}

impl RowWriter {
    pub(crate) fn new(style: Style) -> RowWriter {
        RowWriter { style, output: None }
    }

    /// `asked` is the key that was asked for, if it is to be told.
    pub(crate) fn write(&mut self, asked: Option<Key<'_>>, key: Key<'_>, value: &[u8]) -> io::Result<()> {
        let Style { format, only, end } = self.style;
        let output = match &mut self.output {
            Some(output) => output,
            none => none.insert(open(format, only, asked.unwrap_or(key))?),
        };
        let (key, value) = ((only != Some(Part::Values)).then_some(key), (only != Some(Part::Keys)).then_some(value));
        match output {
            Output::Csv(csv) => {
                for key in [asked, key].into_iter().flatten() {
                    with_text(key, |text| csv.write_field(text)).map_err(csv_error)?;
                }
                value.map_or(Ok(()), |value| csv.write_field(value)).map_err(csv_error)?;
                csv.write_record(None::<&[u8]>).map_err(csv_error)
            }
            Output::Text(output) if format == Format::Json => write_json(output, &JsonRow { asked, key, value }),
            Output::Text(output) => {
                let mut separator = &b""[..];
                for key in [asked, key].into_iter().flatten() {
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
                output.write_all(end)
            }
        }
    }

    /// Whoever waits for what was written has it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            None => Ok(()),
            Some(Output::Csv(output)) => output.flush(),
            Some(Output::Text(output)) => output.flush(),
        }
    }

    /// Whether there were any.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.flush()?;
        Ok(self.output.is_some())
    }
}

fn open(format: Format, only: Option<Part>, first_key: Key<'_>) -> io::Result<Output> {
    // Not io::stdout, which has a buffer of its own and looks for line ends.
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok(match format {
        // A value in front may begin with any bytes, as a key may.
        Format::Csv if only == Some(Part::Values) => Output::Csv(Box::new(csv_writer(stdout, b',', Key::U64(0)))),
        Format::Csv => Output::Csv(Box::new(csv_writer(stdout, b',', first_key))),
        _ => Output::Text(buffered(stdout)),
    })
}

fn with_text<T>(key: Key<'_>, take: impl FnOnce(&[u8]) -> T) -> T {
    match key {
        Key::U64(key) => take(itoa::Buffer::new().format(key).as_bytes()),
        Key::Bytes(key) => take(key),
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

/// An object with a field for each part: bytes that are no UTF-8 are in one whose name ends in `_hex`.
struct JsonRow<'a> {
    asked: Option<Key<'a>>,
    key: Option<Key<'a>>,
    value: Option<&'a [u8]>,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let names = [("asked", "asked_hex", self.asked), ("key", "key_hex", self.key)];
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
