//! `zkv dump`: writes a file's rows as text or Parquet that bakes to the same file.
//!
//! In: a baked file, and a range. Out: rows, on standard output or in a file that gets its name when it is complete.
//! The output is never in memory as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{anyhow, bail};
use zero_kv::cli::whole_file::WholeFile;
use zero_kv::csv_text::csv_error;
use zero_kv::special_file::open_special;
use zero_kv::store::{MappedRows, WatchedFile};
use zero_kv::typed::{Column, Value};
use zero_kv::{Key, KeyKind, Lookup, LookupError, MappedStore};

use crate::args::{DumpArgs, DumpFormat};
use crate::columns::{Columns, JsonRow, RowValue, write_csv};
use crate::output::{
    DisplayKey, JsonKey, RowOutput, buffered, csv_writer, ignore_closed_pipe, json_value, write_json_line,
};
#[cfg(feature = "parquet")]
use crate::parquet_dump::write_parquet;
use crate::table::open_whole;

const NOT_TEXT: &str = "dump the table as CSV (--format csv)";

pub(crate) fn dump(args: &DumpArgs) -> anyhow::Result<bool> {
    let output = Output::open(&args.output, &args.file)?;
    let store = open_whole(&args.file)?;
    let columns = Columns::new(store.schema(), &args.columns)?;
    let rows = args.range.rows(&store);
    let written = rows.and_then(|rows| write(output.file(), args.format, rows, store.key_kind(), columns.as_ref()));
    // If a system call cannot examine the file, a lookup reports that the file was changed. The system call's error,
    // which names the cause, then replaces the lookup's error.
    let written = written.map_err(|error| match store.watched_file().and_then(WatchedFile::system_error) {
        Some(cause) if error.is::<LookupError>() => anyhow!("{}: {cause}", args.file.display()),
        _ => error,
    });
    ignore_closed_pipe(written, (), |error| output.write_error(error))?;
    output.finish()?;
    Ok(true)
}

fn write(
    output: &File,
    format: DumpFormat,
    rows: MappedRows<&MappedStore>,
    key_kind: KeyKind,
    columns: Option<&Columns>,
) -> anyhow::Result<()> {
    if format == DumpFormat::Parquet {
        return write_parquet(output, rows, key_kind, columns);
    }
    let output = RowOutput::new(output.try_clone()?);
    match format {
        DumpFormat::Csv => write_delimited(output, b',', rows, columns),
        DumpFormat::Tsv => write_delimited(output, b'\t', rows, columns),
        DumpFormat::Jsonl => write_json_lines(output, rows, columns),
        DumpFormat::Parquet => unreachable!("written above"),
    }
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &File, _: MappedRows<&MappedStore>, _: KeyKind, _: Option<&Columns>) -> anyhow::Result<()> {
    bail!(
        "this program was built without the feature parquet: build it with the feature parquet or full, or dump the \
         table as CSV (--format csv)"
    )
}

/// Writes a record per row, after the names of the columns of a typed table.
fn write_delimited(
    output: impl Write,
    delimiter: u8,
    rows: MappedRows<&MappedStore>,
    columns: Option<&Columns>,
) -> anyhow::Result<()> {
    let mut rows = rows.peekable();
    let mut csv = match (columns, rows.peek()) {
        (Some(columns), _) => csv_writer(output, delimiter, Key::Bytes(columns.key_name().as_bytes())),
        (None, Some(Ok((first_key, _)))) => csv_writer(output, delimiter, first_key.as_key()),
        (None, _) => return rows.next().map_or(Ok(()), |row| Ok(row.map(drop)?)),
    };
    if let Some(columns) = columns {
        csv.write_record([columns.key_name()].into_iter().chain(columns.names())).map_err(csv_error)?;
    }
    for row in rows {
        let (key, value) = row?;
        let (key, value) = (key.as_key(), RowValue::new(columns, &value)?);
        check_nulls(key, &value)?;
        write_csv(&mut csv, [None, Some(key)], Some(&value))?;
    }
    Ok(csv.flush()?)
}

/// Rejects a row with a cell that is not null, but whose text is the text of null.
fn check_nulls(key: Key<'_>, value: &RowValue<'_>) -> anyhow::Result<()> {
    let RowValue::Cells(columns, cells) = value else { return Ok(()) };
    let is_read_as_null = |(column, cell): &(&Column, &Value<'_>)| {
        column.is_nullable && matches!(cell, Value::Text("") | Value::Bytes(b""))
    };
    if let Some((column, _)) = columns.declared().zip(cells).find(is_read_as_null) {
        bail!(
            "the value of key {} in column {:?} is empty but not null, which CSV cannot express: dump the table as \
             JSON Lines (--format jsonl)",
            DisplayKey(key),
            column.name
        );
    }
    Ok(())
}

/// Writes a JSON object per row, with the value or with a field per column.
fn write_json_lines(
    output: impl Write,
    rows: MappedRows<&MappedStore>,
    columns: Option<&Columns>,
) -> anyhow::Result<()> {
    let mut output = buffered(output);
    for row in rows {
        let (key, value) = row?;
        let (key, value) = (key.as_key(), RowValue::new(columns, &value)?);
        check_is_text(key, &value)?;
        write_json_line(&mut output, &JsonRow { requested: None, key: Some(key), value: Some(&value) })?;
    }
    Ok(output.flush()?)
}

/// Rejects a row with bytes that are not UTF-8, because `baker` does not decode hexadecimal digits.
fn check_is_text(key: Key<'_>, value: &RowValue<'_>) -> anyhow::Result<()> {
    JsonKey::new(key, NOT_TEXT)?;
    match value {
        RowValue::Bytes(value) => json_value(key, value, NOT_TEXT).map(drop),
        RowValue::Cells(_, cells) => cells.iter().try_for_each(|cell| match cell {
            Value::Bytes(bytes) => json_value(key, bytes, NOT_TEXT).map(drop),
            _ => Ok(()),
        }),
    }
}

enum Output {
    /// Standard output or another special file, such as a pipe, and its name for messages.
    Stream(File, String),
    /// A new file, which gets its name when it is complete.
    New(WholeFile),
}

impl Output {
    /// Opens the output. Returns an error if the output is also the input.
    fn open(path: &Path, input: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") {
            // Writes bypass io::stdout, which flushes at line ends.
            let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(crate::output::stdout_error)?;
            return Ok(Output::Stream(stdout.into(), "standard output".to_owned()));
        }
        let name = path.display();
        let identity = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        if identity(path).is_some_and(|output| identity(input) == Some(output)) {
            bail!("{name}: the output is also the input: name another file with -o");
        }
        match open_special(path).map_err(|error| anyhow!("{name}: {error}"))? {
            Some(special) => Ok(Output::Stream(special, name.to_string())),
            None => WholeFile::beside(path).map(Output::New),
        }
    }

    fn file(&self) -> &File {
        match self {
            Output::Stream(file, _) => file,
            Output::New(file) => file.file(),
        }
    }

    fn write_error(&self, error: io::Error) -> anyhow::Error {
        match self {
            Output::Stream(_, name) => anyhow!("{name}: {error}"),
            Output::New(file) => file.write_error(&error),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Output::Stream(..) => Ok(()),
            Output::New(file) => file.put_in_place(),
        }
    }
}
