//! Lookups of keys and rows.
//!
//! In: a lookup and a table. Out: the result on standard output, and whether all keys were found (for a range, whether
//! any row was found). If an error is an [`io::Error`], a write to standard output failed.

use std::io::{self, BufWriter, IsTerminal, Write};

use zero_kv::printable::Printable;
use zero_kv::typed::Value;
use zero_kv::{Key, KeyType};

use crate::args::{Format, KeysArgs, Lookup, OutputArgs, Part, Presence, RangeArgs};
use crate::batches::{KeySyntax, are_from_stdin, for_each_batch};
use crate::columns::{Columns, JsonRow, RowValue, end_name, key_names, line_text, write_csv};
use crate::output::{RowOutput, buffered, csv_writer, hex, print, with_text, write_json_line, written};
use crate::table::{Neighbor, Scan, Table, TableReplaced};

/// Maximum number of keys in one lookup, whose rows may be in memory at the same time.
const BATCH_KEYS_MAX: usize = 4096;
/// Maximum number of attempts to read rows of one schema from a server that keeps replacing its table.
const ATTEMPTS_MAX: u32 = 10;

pub(crate) fn look_up(table: &mut dyn Table, lookup: &Lookup) -> anyhow::Result<bool> {
    match lookup {
        Lookup::Get { keys, output } => get(table, keys, output),
        Lookup::Exists { keys, print, null } => exists(table, keys, *print, *null),
        Lookup::Floor { keys, output } => neighbors(table, Neighbor::Floor, keys, output),
        Lookup::Ceiling { keys, output } => neighbors(table, Neighbor::Ceiling, keys, output),
        Lookup::Cover { keys, output } => covers(table, keys, output),
        Lookup::First { output } => first_or_last(table, false, output),
        Lookup::Last { output } => first_or_last(table, true, output),
        Lookup::Range { range, reverse, limit, output } => {
            scan(table, &Scan { range, reverse: *reverse, limit: *limit }, output)
        }
        Lookup::Scan { prefix, limit, output } => {
            let range = RangeArgs { prefix: prefix.clone(), ..RangeArgs::default() };
            scan(table, &Scan { range: &range, reverse: false, limit: *limit }, output)
        }
        Lookup::Count { range } => write_count(table.count(range)?),
    }
}

/// Returns whether exactly one key is requested. If so, the output does not repeat the requested key.
fn is_single(keys: &KeysArgs) -> bool {
    keys.keys.len() == 1 && !are_from_stdin(&keys.keys)
}

/// Looks up all keys, and returns whether all were found. `look_up_batch` looks up one batch, and writes nothing if the
/// table was replaced. The output of a batch is flushed before the next batch is read, because a program may write a
/// key and wait for its row.
fn look_up_all(
    table: &mut dyn Table,
    keys: &KeysArgs,
    output: &OutputArgs,
    writer: &mut RowWriter,
    mut look_up_batch: impl FnMut(&mut dyn Table, &[Key<'_>], &mut RowWriter) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let syntax = KeySyntax { escapes: keys.escapes, null: output.null };
    let mut are_found = true;
    let key_type = table.key_type()?;
    writer.set_key_type(key_type);
    for_each_batch(&keys.keys, syntax, key_type, |keys| {
        for keys in keys.chunks(BATCH_KEYS_MAX) {
            are_found &= with_columns(table, output, writer, |table, writer| look_up_batch(table, keys, writer))?;
        }
        Ok(writer.flush()?)
    })?;
    check_key_type(table, key_type)?;
    Ok(are_found)
}

/// Rejects results if the server has replaced its table by one with another type of keys, whose keys they would misread.
fn check_key_type(table: &mut dyn Table, key_type: KeyType) -> anyhow::Result<()> {
    if table.key_type()? == key_type { Ok(()) } else { Err(TableReplaced.into()) }
}

/// Sets the columns of the rows that `look_up` writes. Repeats the lookup if the server replaces its table before any
/// row is written, because the new table may have other columns.
fn with_columns<T>(
    table: &mut dyn Table,
    output: &OutputArgs,
    writer: &mut RowWriter,
    mut look_up: impl FnMut(&mut dyn Table, &mut RowWriter) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let rows_before = writer.row_count();
    for attempt in 1.. {
        if writer.writes_values() || !output.columns.is_empty() {
            writer.set_columns(Columns::new(table.schema()?, &output.columns)?);
        }
        match look_up(table, writer) {
            Err(error)
                if error.is::<TableReplaced>() && writer.row_count() == rows_before && attempt < ATTEMPTS_MAX => {}
            result => return result,
        }
    }
    unreachable!("the last attempt returns its result")
}

fn get(table: &mut dyn Table, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let format = if is_single(keys) { RowFormat::for_value(output) } else { RowFormat::for_rows(output) };
    look_up_all(table, keys, output, &mut RowWriter::new(format), |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.get(keys, &mut |at, value| match value {
            Some(value) if written.is_ok() => written = writer.write(None, keys[at], value),
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn exists(table: &mut dyn Table, keys: &KeysArgs, print: Option<Presence>, null: bool) -> anyhow::Result<bool> {
    let output = OutputArgs::for_keys(null);
    look_up_all(table, keys, &output, &mut RowWriter::new(RowFormat::for_rows(&output)), |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.exists(keys, &mut |at, is_found| {
            are_found &= is_found;
            let presence = if is_found { Presence::Present } else { Presence::Absent };
            if print == Some(presence) && written.is_ok() {
                written = writer.write(None, keys[at], b"");
            }
        })?;
        written?;
        Ok(are_found)
    })
}

fn neighbors(table: &mut dyn Table, neighbor: Neighbor, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let prints_requested_key = !is_single(keys);
    let mut writer = RowWriter::new(RowFormat::for_rows(output));
    look_up_all(table, keys, output, &mut writer, |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.neighbors(neighbor, keys, &mut |at, row| match row {
            Some((key, value)) if written.is_ok() => {
                written = writer.write(prints_requested_key.then_some(keys[at]), key, value);
            }
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn covers(table: &mut dyn Table, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let prints_requested_key = !is_single(keys);
    let mut writer = RowWriter::new(RowFormat::for_rows(output));
    look_up_all(table, keys, output, &mut writer, |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.covers(keys, &mut |at, range| match range {
            Some((start, end, value)) if written.is_ok() => {
                written = writer.write_range(prints_requested_key.then_some(keys[at]), start, Some(end), value);
            }
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn first_or_last(table: &mut dyn Table, reverse: bool, output: &OutputArgs) -> anyhow::Result<bool> {
    scan(table, &Scan { range: &RangeArgs::default(), reverse, limit: Some(1) }, output)
}

fn scan(table: &mut dyn Table, scan: &Scan<'_>, output: &OutputArgs) -> anyhow::Result<bool> {
    let mut writer = RowWriter::new(RowFormat::for_rows(output));
    let key_type = table.key_type()?;
    writer.set_key_type(key_type);
    with_columns(table, output, &mut writer, |table, writer| {
        table.scan(scan, &mut |(key, value)| writer.write(None, key, value))
    })?;
    check_key_type(table, key_type)?;
    writer.finish()
}

fn write_count(count: u64) -> anyhow::Result<bool> {
    print(|stdout| writeln!(stdout, "{count}"))?;
    Ok(count > 0)
}

/// The format of rows, and whether keys, values, or both are written.
#[derive(Clone, Copy)]
struct RowFormat {
    format: Format,
    only: Option<Part>,
    terminator: &'static [u8],
    /// Whether a row of a typed table is written as one line `name: value` per column.
    names_columns: bool,
}

impl RowFormat {
    /// Returns the requested format of rows. The default is CSV.
    fn for_rows(args: &OutputArgs) -> RowFormat {
        let terminator = if args.null { &b"\0"[..] } else { b"\n" };
        RowFormat { format: args.format.unwrap_or(Format::Csv), only: args.only, terminator, names_columns: false }
    }

    /// Returns the requested format for the lookup of a single key. The default is the unchanged value, with a line end
    /// only on a terminal, or in a typed table, the names and values of the columns. Unless an option selects keys or
    /// values, CSV and JSON write the whole row, and other formats write only the value.
    fn for_value(args: &OutputArgs) -> RowFormat {
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

struct RowWriter {
    format: RowFormat,
    /// Standard output. It is opened when the first row is written, because the first key determines whether CSV fields
    /// must be quoted.
    stdout: Option<StdoutWriter>,
    key_type: KeyType,
    /// The columns to write. `None` for a table without a schema.
    columns: Option<Columns>,
    /// The names of the key's parts in JSON.
    key_names: Vec<String>,
    row_count: u64,
    /// Buffers for the written forms of the requested key, the key, and the end of a range.
    texts: [Vec<u8>; 3],
}

enum StdoutWriter {
    Csv(Box<csv::Writer<RowOutput>>),
    Text(BufWriter<RowOutput>),
}

impl RowWriter {
    pub(crate) fn new(format: RowFormat) -> RowWriter {
        RowWriter {
            format,
            stdout: None,
            key_type: KeyType::BYTES,
            columns: None,
            key_names: Vec::new(),
            row_count: 0,
            texts: Default::default(),
        }
    }

    fn set_key_type(&mut self, key_type: KeyType) {
        self.key_type = key_type;
        self.key_names = key_names(key_type, self.columns.as_ref());
    }

    fn set_columns(&mut self, columns: Option<Columns>) {
        self.key_names = key_names(self.key_type, columns.as_ref());
        self.columns = columns;
    }

    fn writes_values(&self) -> bool {
        self.format.only != Some(Part::Keys)
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Writes a row, preceded by the requested key if there is one. Both keys are stored keys, which are written in
    /// their written form.
    pub(crate) fn write(&mut self, requested: Option<Key<'_>>, key: Key<'_>, value: &[u8]) -> anyhow::Result<()> {
        self.write_range(requested, key, None, value)
    }

    /// Writes a row as [`RowWriter::write`] does, with the last key of its range after its key.
    fn write_range(
        &mut self,
        requested: Option<Key<'_>>,
        key: Key<'_>,
        end: Option<Key<'_>>,
        value: &[u8],
    ) -> anyhow::Result<()> {
        let RowFormat { format, only, names_columns, .. } = self.format;
        self.row_count += 1;
        let value = match &self.columns {
            _ if only == Some(Part::Keys) => None,
            columns => Some(RowValue::new(columns.as_ref(), value)?),
        };
        // JSON has a field for each part of the key.
        let texts =
            if format == Format::Json && self.key_type.is_composite() { self.key_type.texts(key) } else { Vec::new() };
        let [requested_text, key_text, end_text] = &mut self.texts;
        let requested = requested.map(|key| written(self.key_type, key, requested_text));
        let key = written(self.key_type, key, key_text);
        let end = end.map(|end| written(self.key_type, end, end_text)).filter(|_| only != Some(Part::Values));
        let stdout = match &mut self.stdout {
            Some(stdout) => stdout,
            none => none.insert(open_stdout(format, only, requested.unwrap_or(key))?),
        };
        let key = (only != Some(Part::Values)).then_some(key);
        let written = match stdout {
            StdoutWriter::Csv(csv) => write_csv(csv, [requested, key, end].into_iter().flatten(), value.as_ref()),
            StdoutWriter::Text(output) if format == Format::Json => {
                let parts: Vec<Key<'_>> = texts.iter().map(|text| Key::Bytes(text)).collect();
                let whole = key.as_slice();
                let key = if parts.is_empty() || key.is_none() { whole } else { &parts };
                let end_name = end_name(&self.key_names, self.columns.as_ref());
                let end = end.map(|end| (&*end_name, end));
                let row = JsonRow { requested, key_names: &self.key_names, key, end, value: value.as_ref() };
                write_json_line(output, &row)
            }
            StdoutWriter::Text(output) => match &value {
                Some(RowValue::Cells(columns, cells)) if names_columns => write_named(output, columns, cells),
                value => {
                    let keys_are_text = !self.key_type.is_plain() && !self.key_type.is_composite();
                    write_fields(output, self.format, [requested, key, end], keys_are_text, value.as_ref())
                }
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

/// Writes the keys, and the value or the text of each cell, with tabs between them. Keys that are text, such as
/// addresses, are written unchanged in each format.
fn write_fields(
    output: &mut impl Write,
    RowFormat { format, terminator, .. }: RowFormat,
    keys: [Option<Key<'_>>; 3],
    keys_are_text: bool,
    value: Option<&RowValue<'_>>,
) -> io::Result<()> {
    let mut separator = &b""[..];
    for key in keys.into_iter().flatten() {
        output.write_all(separator)?;
        match key {
            Key::U64(_) => with_text(key, |digits| output.write_all(digits))?,
            Key::Bytes(key) if keys_are_text => output.write_all(key)?,
            Key::Bytes(key) => write_bytes(output, format, key)?,
        }
        separator = b"\t";
    }
    let mut write = |value: &[u8]| {
        output.write_all(separator)?;
        separator = b"\t";
        write_bytes(output, format, value)
    };
    value.map_or(Ok(()), |value| value.for_each_field(&mut write))?;
    output.write_all(terminator)
}

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
