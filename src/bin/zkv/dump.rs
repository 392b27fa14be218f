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
use zero_kv::cidr::Block;
use zero_kv::cli::whole_file::WholeFile;
use zero_kv::client::{OwnedKey, Row};
use zero_kv::csv_text::{csv_error, fits_tsv};
use zero_kv::special_file::open_special;
use zero_kv::store::WatchedFile;
use zero_kv::typed::{Column, Value};
use zero_kv::{Key, KeyType, Lookup, LookupError, PartType};

use crate::args::{DumpArgs, DumpFormat};
use crate::columns::{Columns, JsonRow, RowValue, end_name, key_names, write_csv};
use crate::output::{
    DisplayKey, JsonKey, RowOutput, buffered, csv_writer, ignore_closed_pipe, json_value, with_text, write_json_line,
    written,
};
#[cfg(feature = "parquet")]
use crate::parquet_dump::write_parquet;
use crate::table::open_whole;

const AS_CSV: &str = "dump the table as CSV (--format csv)";

pub(crate) fn dump(args: &DumpArgs) -> anyhow::Result<bool> {
    let output = Output::open(&args.output, &args.file)?;
    let store = open_whole(&args.file)?;
    let columns = Columns::new(store.schema(), &args.columns)?;
    let key_type = store.key_type();
    let mut key_names = key_names(key_type, columns.as_ref());
    match (store.has_ranges(), args.cidr) {
        (false, true) => bail!("--cidr: the rows of the table are no ranges: omit --cidr"),
        (true, true) if args.format == DumpFormat::Parquet => {
            bail!("--cidr: a Parquet file has the first and the last key of each range: omit --cidr, or {AS_CSV}")
        }
        (true, true) => match key_type.parts() {
            [.., PartType::Ip | PartType::Ipv4] => {}
            _ => bail!("--cidr: keys are {key_type}, where addresses were expected: omit --cidr"),
        },
        (true, false) => key_names.push(end_name(&key_names, columns.as_ref())),
        (false, false) => {}
    }
    let form = RowForm { key_type, key_names, has_blocks: args.cidr, columns: columns.as_ref() };
    let rows = args.range.rows(&store);
    let written = rows.and_then(|mut rows| {
        write(output.file(), args.format, std::iter::from_fn(move || rows.next_with_end()), &form)
    });
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

/// A row, and the last key of its range in a table of ranges.
pub(crate) type DumpedRow = Result<(Row, Option<OwnedKey>), LookupError>;

/// What the fields of a row are.
pub(crate) struct RowForm<'c> {
    pub(crate) key_type: KeyType,
    /// The names of the key's parts and, in a table of ranges that are not written as blocks, of the end.
    pub(crate) key_names: Vec<String>,
    /// Whether each range becomes blocks of addresses.
    has_blocks: bool,
    /// The columns of a typed table.
    pub(crate) columns: Option<&'c Columns>,
}

/// The fields of a key: the key itself if it is plain, or the written forms of its parts. The end of a range follows.
struct KeyFields<'k> {
    plain: Option<Key<'k>>,
    parts: Vec<Vec<u8>>,
    plain_end: Option<Key<'k>>,
}

impl<'k> KeyFields<'k> {
    fn new(key_type: KeyType, key: Key<'k>) -> KeyFields<'k> {
        match key_type.is_plain() {
            true => KeyFields { plain: Some(key), parts: Vec::new(), plain_end: None },
            false => KeyFields { plain: None, parts: key_type.texts(key), plain_end: None },
        }
    }

    fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        self.plain.into_iter().chain(self.parts.iter().map(|part| Key::Bytes(part))).chain(self.plain_end)
    }
}

impl RowForm<'_> {
    /// Displays a stored key in a message.
    fn display(&self, key: Key<'_>) -> String {
        DisplayKey(written(self.key_type, key, &mut Vec::new())).to_string()
    }

    /// Passes the fields of a row's key and of the end of its range to `write`, or those of each block of the range.
    fn for_each_key(
        &self,
        key: Key<'_>,
        end: Option<OwnedKey>,
        mut write: impl FnMut(&KeyFields<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut fields = KeyFields::new(self.key_type, key);
        let Some(end) = end else { return write(&fields) };
        if self.key_type.is_plain() {
            return write(&KeyFields { plain_end: Some(end.as_key()), ..fields });
        }
        let end = self.key_type.texts(end.as_key()).pop().unwrap_or_default();
        if !self.has_blocks {
            fields.parts.push(end);
            return write(&fields);
        }
        let start = fields.parts.pop().unwrap_or_default();
        let address = |text: &[u8]| String::from_utf8_lossy(text).parse().map_err(|_| LookupError::Damaged);
        for block in Block::of_range(address(&start)?, address(&end)?) {
            fields.parts.push(block.to_string().into_bytes());
            write(&fields)?;
            fields.parts.pop();
        }
        Ok(())
    }
}

fn write(
    output: &File,
    format: DumpFormat,
    rows: impl Iterator<Item = DumpedRow>,
    form: &RowForm<'_>,
) -> anyhow::Result<()> {
    if format == DumpFormat::Parquet {
        return write_parquet(output, rows, form);
    }
    let output = RowOutput::new(output.try_clone()?);
    match format {
        DumpFormat::Csv => write_delimited(output, b',', rows, form),
        DumpFormat::Tsv => write_delimited(output, b'\t', rows, form),
        DumpFormat::Jsonl => write_json_lines(output, rows, form),
        DumpFormat::Parquet => unreachable!("written above"),
    }
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &File, _: impl Iterator<Item = DumpedRow>, _: &RowForm<'_>) -> anyhow::Result<()> {
    bail!(
        "this program was built without the feature parquet: build it with the feature parquet or full, or dump the \
         table as CSV (--format csv)"
    )
}

/// Writes a record per row, after the names of the columns of a typed table.
fn write_delimited(
    output: impl Write,
    delimiter: u8,
    rows: impl Iterator<Item = DumpedRow>,
    form: &RowForm<'_>,
) -> anyhow::Result<()> {
    let RowForm { key_type, key_names, columns, .. } = form;
    let mut rows = rows.peekable();
    let mut csv = match (columns, rows.peek()) {
        (Some(_), _) => csv_writer(output, delimiter, Key::Bytes(key_names[0].as_bytes())),
        (None, Some(Ok(((first_key, _), _)))) => {
            let first = KeyFields::new(*key_type, first_key.as_key());
            csv_writer(output, delimiter, first.iter().next().expect("a key has a part"))
        }
        (None, _) => return rows.next().map_or(Ok(()), |row| Ok(row.map(drop)?)),
    };
    let (is_tsv, mut is_first) = (delimiter == b'\t', true);
    if let Some(columns) = columns {
        let names = || key_names.iter().map(String::as_str).chain(columns.names());
        if let Some((_, name)) = names().enumerate().find(|(i, name)| is_tsv && !fits_tsv(name.as_bytes(), *i == 0)) {
            bail!("the column {name:?} has a tab or a line end in its name, which TSV cannot express: {AS_CSV}");
        }
        is_first = false;
        csv.write_record(names()).map_err(csv_error)?;
    }
    for row in rows {
        let ((key, value), end) = row?;
        let (key, value) = (key.as_key(), RowValue::new(*columns, &value)?);
        check_nulls(form, key, &value)?;
        form.for_each_key(key, end, |fields| {
            if is_tsv {
                check_tsv(form, key, fields, &value, std::mem::take(&mut is_first))?;
            }
            Ok(write_csv(&mut csv, fields.iter(), Some(&value))?)
        })?;
    }
    Ok(csv.flush()?)
}

/// Rejects a row with a field that TSV cannot express. `is_first` tells that the text begins with the row.
fn check_tsv(
    form: &RowForm<'_>,
    key: Key<'_>,
    fields: &KeyFields<'_>,
    value: &RowValue<'_>,
    is_first: bool,
) -> anyhow::Result<()> {
    let mut fits =
        fields.iter().enumerate().all(|(at, key)| with_text(key, |text| fits_tsv(text, is_first && at == 0)));
    value.for_each_field(|field| {
        fits &= fits_tsv(field, false);
        Ok(())
    })?;
    if !fits {
        bail!(
            "the row with key {} has a tab, a line end, or an initial byte order mark, which TSV cannot express: {AS_CSV}",
            form.display(key)
        );
    }
    Ok(())
}

/// Rejects a row with a cell that is not null, but whose text is the text of null.
fn check_nulls(form: &RowForm<'_>, key: Key<'_>, value: &RowValue<'_>) -> anyhow::Result<()> {
    let RowValue::Cells(columns, cells) = value else { return Ok(()) };
    let is_read_as_null = |(column, cell): &(&Column, &Value<'_>)| {
        column.is_nullable && matches!(cell, Value::Text("") | Value::Bytes(b""))
    };
    if let Some((column, _)) = columns.declared().zip(cells).find(is_read_as_null) {
        bail!(
            "the value of key {} in column {:?} is empty but not null, which CSV cannot express: dump the table as \
             JSON Lines (--format jsonl)",
            form.display(key),
            column.name
        );
    }
    Ok(())
}

/// Writes a JSON object per row, with the value or with a field per column.
fn write_json_lines(
    output: impl Write,
    rows: impl Iterator<Item = DumpedRow>,
    form: &RowForm<'_>,
) -> anyhow::Result<()> {
    let (mut output, mut text) = (buffered(output), Vec::new());
    for row in rows {
        let ((key, value), end) = row?;
        let (key, value) = (key.as_key(), RowValue::new(form.columns, &value)?);
        check_is_text(written(form.key_type, key, &mut text), &value)?;
        form.for_each_key(key, end, |fields| {
            let parts: Vec<Key<'_>> = fields.iter().collect();
            let row =
                JsonRow { requested: None, key_names: &form.key_names, key: &parts, end: None, value: Some(&value) };
            Ok(write_json_line(&mut output, &row)?)
        })?;
    }
    Ok(output.flush()?)
}

/// Rejects a row with bytes that are not UTF-8, because `baker` does not decode hexadecimal digits. `key` is a written
/// key.
fn check_is_text(key: Key<'_>, value: &RowValue<'_>) -> anyhow::Result<()> {
    JsonKey::new(key, AS_CSV)?;
    match value {
        RowValue::Bytes(value) => json_value(key, value, AS_CSV).map(drop),
        RowValue::Cells(_, cells) => cells.iter().try_for_each(|cell| match cell {
            Value::Bytes(bytes) => json_value(key, bytes, AS_CSV).map(drop),
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
