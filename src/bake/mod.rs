//! Rows in, file out.
//!
//! In: delimited text. Out: a baked file, put in place whole or not at all. The
//! stages are apart: `source` passes bytes on and checks their quoting,
//! `csv_rows` makes rows of them, `keys` reads their keys, `rows` holds and sorts them, `table` lays
//! them out as sections, `place` gives the file its name.

mod csv_rows;
mod error;
mod keys;
mod place;
mod rows;
mod slots;
mod source;
mod table;

use std::io::Read;
use std::path::Path;

pub use csv_rows::Column;
pub use error::{BakeError, RowFault};
pub use keys::Keys;

use crate::format::FormatError;
use crate::format::key::KeyKind;
use crate::store::Store;
use csv_rows::CsvRows;
use place::NewFile;
use rows::Rows;
use table::{FinishError, TableWriter};

/// Rows between two calls of the progress function.
const PROGRESS_ROWS: usize = 1 << 14;

/// What to do with rows that have the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse the input.
    #[default]
    Error,
    /// Keep the first of them.
    First,
    /// Keep the last of them.
    Last,
}

/// How to read the input.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What error messages call the input.
    pub input_name: String,
    /// The byte between two fields.
    pub delimiter: u8,
    /// Whether the first row names the columns, and is not data.
    pub header: bool,
    /// The column that holds the key. By default the first of two.
    pub key: Option<Column>,
    /// The column that holds the value. By default the second of two.
    pub value: Option<Column>,
    /// What the keys are.
    pub keys: Keys,
    /// What to do with rows that have the same key.
    pub duplicates: Duplicates,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            input_name: "input".to_owned(),
            delimiter: b',',
            header: false,
            key: None,
            value: None,
            keys: Keys::U64,
            duplicates: Duplicates::Error,
        }
    }
}

/// How far a bake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Reading the input: so much of it, and so many rows, so far.
    Read {
        /// Bytes read.
        input_bytes: u64,
        /// Rows found in them.
        rows: u64,
    },
    /// Sorting so many rows.
    Sort {
        /// All rows.
        rows: u64,
    },
    /// Writing the file: so many of its rows so far.
    Write {
        /// Rows written.
        rows: u64,
        /// All rows.
        rows_total: u64,
    },
    /// Reading the file back, and waiting until the disk has it.
    Settle,
}

/// What was baked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Rows in the file.
    pub rows: u64,
    /// What their keys are.
    pub key_kind: KeyKind,
    /// Rows of the input that another row with the same key displaced.
    pub duplicates_dropped: u64,
    /// The file's length.
    pub file_len_bytes: u64,
    /// The lengths of all values in the file together.
    pub values_len_bytes: u64,
    /// The file's digest: see [`Store::digest`].
    pub digest: u128,
}

impl Report {
    /// Bytes of the file that are not bytes of a value, for each row.
    pub fn overhead_bytes_per_row(&self) -> f64 {
        (self.file_len_bytes - self.values_len_bytes) as f64 / self.rows.max(1) as f64
    }
}

/// Bakes delimited text (RFC 4180) into `output`.
///
/// Keys are unsigned 64-bit decimals, or any bytes ([`Keys`]), values any bytes. Rows may come in any
/// order; they are held in memory. The same rows give the same file. The file is
/// written without a name, read back, synced, and put in place by a rename:
/// whatever fails, what was at `output` before is still there.
///
/// # Errors
/// [`BakeError`]; a bad row is named by its line.
///
/// # Example
/// ```
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let output = folder.path().join("storage.db");
/// let report = bake::bake_csv("2,two\n1,\"one, quoted\"\n".as_bytes(), &output, &Options::default(), &mut |_| ())?;
/// assert_eq!(report.rows, 2);
///
/// let error = bake::bake_csv("1,one\n1,uno\n".as_bytes(), &output, &Options::default(), &mut |_| ()).unwrap_err();
/// assert!(error.to_string().starts_with("input:2: key 1 is already on line 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_csv(
    input: impl Read,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    let new_file = NewFile::beside(output).map_err(|error| BakeError::output(output, error))?;
    let mut rows = read(input, options, progress)?;
    progress(Progress::Sort { rows: rows.len() as u64 });
    let duplicates_dropped = rows.settle(options)?;
    let row_count = rows.len() as u64;
    let values_len_bytes = write(&rows, &new_file, output, progress)?;
    drop(rows);

    progress(Progress::Settle);
    let store = Store::of_file(new_file.file(), output).map_err(BakeError::Verify)?;
    let report = Report {
        rows: row_count,
        key_kind: store.key_kind(),
        duplicates_dropped,
        file_len_bytes: store.file_len_bytes(),
        values_len_bytes,
        digest: store.digest(),
    };
    if store.len() as u64 != row_count {
        return Err(BakeError::ReadBack { expected_rows: row_count, found_rows: store.len() as u64 });
    }
    let folder = new_file.put_in_place().map_err(|error| BakeError::output(output, error))?;
    folder.sync_all().map_err(|error| BakeError::FolderSync { path: output.to_path_buf(), error })?;
    Ok(report)
}

fn read(input: impl Read, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Rows, BakeError> {
    let mut csv = CsvRows::new(input, options)?;
    let kind = options.keys.kind();
    let mut rows = Rows::new(kind);
    let mut last_line = 1;
    while let Some(row) = csv.next_row()? {
        last_line = row.line;
        let fault = |fault| BakeError::row(options, row.line, fault);
        let key = keys::key(kind, row.key, rows.len() == 0 && !options.header).map_err(fault)?;
        rows.push(key, row.value, row.line).map_err(fault)?;
        if rows.len().is_multiple_of(PROGRESS_ROWS) {
            progress(Progress::Read { input_bytes: csv.input_bytes(), rows: rows.len() as u64 });
        }
    }
    match options.keys {
        Keys::Auto => rows.into_numbers().map_err(|fault| BakeError::row(options, last_line, fault)),
        Keys::U64 | Keys::Bytes => Ok(rows),
    }
}

fn write(rows: &Rows, new_file: &NewFile, output: &Path, progress: &mut dyn FnMut(Progress)) -> Result<u64, BakeError> {
    let rows_total = rows.len() as u64;
    let align_bytes = rows.record_align_bytes().ok_or(FormatError::RecordsTooLong)?;
    let mut table = TableWriter::new(new_file.file(), rows.kind(), rows_total, align_bytes, rows.common_len_bytes())?;
    for (written, record) in rows.iter().enumerate() {
        table.push(&record).map_err(|error| BakeError::output(output, error))?;
        if written.is_multiple_of(PROGRESS_ROWS) {
            progress(Progress::Write { rows: written as u64, rows_total });
        }
    }
    table.finish().map_err(|error| match error {
        FinishError::Format(error) => error.into(),
        FinishError::Io(error) => BakeError::output(output, error),
    })
}
