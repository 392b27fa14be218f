//! A file's rows as text that bakes to the same file.
//!
//! In: a baked file, and the rows that are wanted. Out: text, on standard output
//! or in a file that is put in place whole. Holds no more than a buffer of it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde::Serialize;
use zero_kv::MappedStore;
use zero_kv::store::MappedRows;

use crate::args::{DumpArgs, DumpFormat};
use crate::output::{JsonKey, buffered, csv_writer, json_value, settle, write_json, write_record};
use crate::special_file::open_special;
use crate::whole_file::WholeFile;

const NOT_TEXT: &str = "dump the table as CSV (--format csv)";

#[derive(Serialize)]
struct Line<'a> {
    key: JsonKey<'a>,
    value: &'a str,
}

pub(crate) fn dump(args: &DumpArgs) -> anyhow::Result<bool> {
    let output = Output::at(&args.output, &args.file)?;
    let store = MappedStore::open(&args.file)?;
    let rows = args.range.rows(&store)?;
    let written = match args.format {
        DumpFormat::Csv => write_delimited(output.file(), b',', rows),
        DumpFormat::Tsv => write_delimited(output.file(), b'\t', rows),
        DumpFormat::Jsonl => write_lines(output.file(), rows),
    };
    settle(written, (), |error| output.unwritten(error))?;
    output.finish()?;
    Ok(true)
}

fn write_delimited(output: &File, delimiter: u8, rows: MappedRows<'_>) -> anyhow::Result<()> {
    let mut rows = rows.peekable();
    let Some(Ok((first_key, _))) = rows.peek() else { return rows.next().map_or(Ok(()), |row| Ok(row.map(drop)?)) };
    let mut csv = csv_writer(output, delimiter, first_key.as_key());
    for row in rows {
        let (key, value) = row?;
        write_record(&mut csv, key.as_key(), &value)?;
    }
    Ok(csv.flush()?)
}

fn write_lines(output: &File, rows: MappedRows<'_>) -> anyhow::Result<()> {
    let mut output = buffered(output);
    for row in rows {
        let (key, value) = row?;
        let key = key.as_key();
        let line = Line { key: JsonKey::of(key, NOT_TEXT)?, value: json_value(key, &value, NOT_TEXT)? };
        write_json(&mut output, &line)?;
    }
    Ok(output.flush()?)
}

/// Where text goes.
enum Output {
    /// Standard output, or something else that cannot be replaced, and its name.
    Stream(File, String),
    /// A file that gets its name at the end.
    New(WholeFile),
}

impl Output {
    /// `input` is the file that must not be written to.
    fn at(path: &Path, input: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") {
            // Not io::stdout, which has a buffer of its own and looks for line ends.
            let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(crate::output::unwritten)?;
            return Ok(Output::Stream(stdout.into(), "standard output".to_owned()));
        }
        let name = path.display();
        let identity = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        if identity(path).is_some_and(|output| identity(input) == Some(output)) {
            bail!("{name}: is also the input: name another file with -o");
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

    fn unwritten(&self, error: io::Error) -> anyhow::Error {
        match self {
            Output::Stream(_, name) => anyhow!("{name}: {error}"),
            Output::New(file) => file.unwritten(&error),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Output::Stream(..) => Ok(()),
            Output::New(file) => file.put_in_place(),
        }
    }
}
