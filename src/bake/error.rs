//! Why a bake fails.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::budget::MEMORY_MIN_BYTES;
use super::index::FinishError;
use crate::format::FormatError;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key, KeyKind};
use crate::format::record::VALUE_LEN_MAX_BYTES;
use crate::replace::ReplaceError;
use crate::store::StoreError;

/// Why a bake failed. But for [`BakeError::FolderSync`], nothing was put in place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BakeError {
    /// The input cannot be read.
    #[error("{input}: {error}")]
    Input {
        /// The input's name.
        input: String,
        /// What the system said.
        error: io::Error,
    },
    /// A row is not one that a table takes.
    #[error("{input}:{line}: {fault}")]
    Row {
        /// The input's name.
        input: String,
        /// The line on which the row begins, counted from 1.
        line: u64,
        /// What is wrong with it.
        fault: RowFault,
    },
    /// The columns asked for are not in the input.
    #[error("{input}: {fault}")]
    Columns {
        /// The input's name.
        input: String,
        /// What is wrong with them.
        fault: String,
    },
    /// The file cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Rows cannot be put on disk while they are sorted.
    #[error("temporary files in {}: {error}: nothing was put in place; give another folder with --temp-dir", folder.display())]
    Temporary {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What was put on disk while rows are sorted is not what comes back.
    #[error("temporary files in {}: byte {offset_bytes} and on are not what was written: nothing was put in place; check the disk, or give another folder with --temp-dir", folder.display())]
    TemporaryDamaged {
        /// The folder.
        folder: PathBuf,
        /// Where the damaged block begins.
        offset_bytes: u64,
    },
    /// A table that was baked before cannot be read, or is damaged.
    #[error("{0}: nothing was put in place")]
    OldTable(StoreError),
    /// A row of a table that was baked before cannot be taken.
    #[error("{}: row {row}: {fault}", path.display())]
    TableRow {
        /// The table.
        path: PathBuf,
        /// The row, counted from 0 in key order.
        row: u64,
        /// What is wrong with it.
        fault: RowFault,
    },
    /// Two tables have keys of different kinds.
    #[error("keys of {} are {other_kind}, where those of {} are {kind}: merge tables of one kind", other.display(), table.display())]
    TableKeys {
        /// The first table.
        table: PathBuf,
        /// Its keys.
        kind: KeyKind,
        /// The other.
        other: PathBuf,
        /// Its keys.
        other_kind: KeyKind,
    },
    /// The base has keys of another kind than the input is said to have.
    #[error(
        "keys of the base {} are {base_kind}, where those of the input are to be {input_kind}: leave the choice to the base with \
         --keys auto, or give a base of the same kind",
        base.display()
    )]
    BaseKeys {
        /// The base.
        base: PathBuf,
        /// Its keys.
        base_kind: KeyKind,
        /// What the options say.
        input_kind: KeyKind,
    },
    /// Which shard a row belongs to cannot be told.
    #[error("which shard a row belongs to depends on what its key is: give --keys u64 or --keys bytes")]
    ShardKeysUnknown,
    /// The bounds of shards are not keys of the table.
    #[error("the bounds of the shards are {bounds}, where the keys are {keys}: give bounds of the same kind")]
    ShardBounds {
        /// What the bounds are.
        bounds: KeyKind,
        /// What the keys are.
        keys: KeyKind,
    },
    /// There is nothing to merge.
    #[error("no table to merge: name one or more")]
    NoTables,
    /// More tables than can be read at once.
    #[error(
        "{tables} tables, where at most {tables_max} are merged at once in this memory: merge some of them first, or give more with --memory"
    )]
    TooManyTables {
        /// The tables given.
        tables: usize,
        /// How many can be merged.
        tables_max: usize,
    },
    /// Threads cannot be started.
    #[error("threads cannot be started: {error}: allow more processes, or give fewer with --threads")]
    Threads {
        /// What the system said.
        error: String,
    },
    /// The memory is too little to bake with.
    #[error("{given_bytes} bytes of memory, where at least {MEMORY_MIN_BYTES} are needed: give more with --memory")]
    Memory {
        /// The memory given.
        given_bytes: u64,
    },
    /// There are more bad rows than may be put aside.
    #[error(
        "{input}:{line}: {fault}: this is bad row {bad_rows}, and --max-bad-rows is {bad_rows_max}: nothing was put in place"
    )]
    BadRows {
        /// The input's name.
        input: String,
        /// The line of the row that was one too many.
        line: u64,
        /// What is wrong with it.
        fault: RowFault,
        /// Bad rows with it.
        bad_rows: u64,
        /// Bad rows that were allowed.
        bad_rows_max: u64,
    },
    /// The file of bad rows cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    BadRowsFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The table may not replace the one at the output's path.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Replace {
        /// The output.
        path: PathBuf,
        /// The rule that it breaks.
        error: ReplaceError,
    },
    /// The bake was stopped from outside.
    #[error("stopped: nothing was put in place")]
    Cancelled,
    /// The file is in place, but its folder cannot be synced.
    #[error("{}: is in place, but its folder cannot be synced: {error}: a power cut may bring the old file back", path.display())]
    FolderSync {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The table does not fit into a file.
    #[error("{0}: nothing was put in place")]
    Limit(#[from] FormatError),
    /// The file that was written is not what it must be.
    #[error("reading back what was written: {0}: nothing was put in place; check disk and memory")]
    Verify(StoreError),
    /// A block of the file that was written is not what was written.
    #[error("{}: reading back what was written: the block at byte {offset_bytes} has another checksum: nothing was put in place; check disk and memory", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the block begins.
        offset_bytes: u64,
    },
    /// A row of the file that was written is not the one that was sorted.
    #[error(
        "reading back what was written: row {row} is not the one that was to be written: nothing was put in place; check disk and memory"
    )]
    Compare {
        /// The row, counted from 0.
        row: u64,
    },
    /// The file that was written has lost rows.
    #[error(
        "reading back what was written: {found_rows} rows, where {expected_rows} were expected: nothing was put in place"
    )]
    ReadBack {
        /// Rows written.
        expected_rows: u64,
        /// Rows read back.
        found_rows: u64,
    },
}

impl BakeError {
    pub(super) fn output(path: &Path, error: io::Error) -> Self {
        BakeError::Output { path: path.to_path_buf(), error }
    }

    pub(super) fn finish(path: &Path, error: FinishError) -> Self {
        match error {
            FinishError::Format(error) => error.into(),
            FinishError::ReadBack(error) => BakeError::Verify(StoreError::Format { path: path.to_path_buf(), error }),
            FinishError::Io(error) => BakeError::output(path, error),
            FinishError::Temp { folder, error } => BakeError::temporary(&folder, error),
        }
    }

    pub(super) fn temporary(folder: &Path, error: io::Error) -> Self {
        BakeError::Temporary { folder: folder.to_path_buf(), error }
    }
}

/// What is wrong with a row.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFault {
    /// Not as many fields as the rows must have.
    #[error(
        "{found} field{} where {expected} {} expected: {remedy}",
        if *found == 1 { "" } else { "s" },
        if *expected == 1 { "was" } else { "were" }
    )]
    FieldCount {
        /// Fields that a row must have.
        expected: usize,
        /// Fields that it has.
        found: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// The key is no number.
    #[error("the key is {found:?} where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected{remedy}")]
    Key {
        /// The key field, shortened.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The key has no bytes, or too many.
    #[error(
        "a key of {len_bytes} bytes, where 1 to {KEY_LEN_MAX_BYTES} are allowed: correct the row, or choose another column with --key"
    )]
    KeyLen {
        /// The key's length.
        len_bytes: usize,
    },
    /// The delete column says neither yes nor no.
    #[error(
        "the delete column says {found:?}, where true or 1, or false, 0 or nothing was expected: correct the row, or choose another with --delete-column"
    )]
    Deletion {
        /// The field, shortened.
        found: String,
    },
    /// The key is on an earlier line.
    #[error("key {key} is already on {first}: remove one, or choose with --duplicates first or --duplicates last")]
    Duplicate {
        /// The key; if it is text, shortened and in quotes.
        key: String,
        /// Where the first row with it is.
        first: String,
    },
    /// A quoted field is not closed.
    #[error(
        "a quoted field is not closed before the input ends: add the closing quote, and write a quote inside as two"
    )]
    UnclosedQuote,
    /// Something follows a closing quote.
    #[error("text follows a closing quote: write a quote inside a quoted field as two")]
    TextAfterQuote,
    /// A carriage return is no line end.
    #[error("a carriage return without a line feed: end lines with LF or CRLF, and quote values that hold one")]
    BareReturn,
    /// The row is longer than a row may be.
    #[error(
        "a row of more than {len_max_bytes} bytes begins here: close its quote, split the value, or, up to {VALUE_LEN_MAX_BYTES} bytes, give eight times its length with --memory"
    )]
    Endless {
        /// What a row may have.
        len_max_bytes: usize,
    },
    /// A line of JSON Lines is not JSON.
    #[error("invalid JSON at byte {at}: {fault}: one object was expected on each line")]
    Json {
        /// Where in the line, counted from 1.
        at: usize,
        /// What the parser says.
        fault: String,
    },
    /// A line of JSON Lines is JSON, but no object.
    #[error("the line is {found}, where an object was expected: write one object a line")]
    NotObject {
        /// What it is.
        found: &'static str,
    },
    /// An object lacks a field.
    #[error("field {field:?} is missing: correct the row, or choose another field with --key or --value")]
    MissingField {
        /// The field.
        field: String,
    },
    /// An object has a field more than once.
    #[error("field {field:?} is there twice: remove one")]
    FieldTwice {
        /// The field.
        field: String,
    },
    /// What is to be the key can be none.
    #[error("the key {column:?} is {found}, where a string or a number was expected: choose another with --key")]
    KeyType {
        /// The field or column.
        column: String,
        /// What it is.
        found: &'static str,
    },
    /// Key or value are null.
    #[error("{column:?} is null: give every row a key and a value, or take null into the value with --columns")]
    Null {
        /// The field or column.
        column: String,
    },
    /// A value to be packed is not text.
    #[error("{column:?} is not UTF-8 at byte {at}: convert it, or leave it out of --columns")]
    NotUtf8 {
        /// The column.
        column: String,
        /// Where in the field, counted from 1.
        at: usize,
    },
    /// A value to be packed is none that JSON has.
    #[error("{column:?} is {found}, which JSON has no way to write: pack as MessagePack, or leave it out of --columns")]
    NotInJson {
        /// The column.
        column: String,
        /// What it is.
        found: &'static str,
    },
    /// A date or a time beyond all calendars, or a decimal of too many digits.
    #[error("{column:?} is {found}: correct it, or take another column")]
    OutOfRange {
        /// The column.
        column: String,
        /// What it is.
        found: &'static str,
    },
    /// The value is too long.
    #[error(transparent)]
    Value(FormatError),
    /// The rows do not fit into memory.
    #[error("the rows up to here fill the memory: bake on a larger machine, or split the table")]
    OutOfMemory,
}

impl RowFault {
    pub(super) fn key(field: &[u8], may_be_header: bool) -> Self {
        let found = shown(Key::Bytes(field));
        let remedy = match (may_be_header, field.trim_ascii().len() < field.len()) {
            (_, true) => ": remove the spaces around it",
            (true, _) => ": if this row names the columns, pass --header; if keys are text, --keys bytes",
            (false, _) => ": correct the row, choose another column with --key, or take keys as text with --keys bytes",
        };
        RowFault::Key { found, remedy }
    }

    /// From an error in a part of a line that begins so many bytes behind the line's start.
    pub(super) fn json(error: &serde_json::Error, part_at: usize) -> Self {
        let fault = error.to_string();
        // It ends with its position, which is that in the part.
        let end = fault.rfind(" at line ").unwrap_or(fault.len());
        RowFault::Json { at: part_at + error.column(), fault: fault[..end].to_owned() }
    }

    pub(super) fn deletion(field: &[u8]) -> Self {
        RowFault::Deletion { found: shown(Key::Bytes(field)) }
    }

    pub(super) fn field_count(expected: usize, found: usize, chosen: bool) -> Self {
        let remedy = match (chosen, found < expected) {
            (true, _) => "give every row as many fields as the first, and quote values that hold the delimiter",
            (false, true) => "give a key and a value, or say with --delimiter what is between them",
            (false, false) => "quote the value, or choose columns with --key and --value",
        };
        RowFault::FieldCount { expected, found, remedy }
    }
}

/// A key in a message: a number, or text in quotes, with line ends and the like escaped.
pub(super) fn named(key: Key<'_>) -> String {
    match key {
        Key::U64(_) => key.to_string(),
        Key::Bytes(_) => format!("{:?}", shown(key)),
    }
}

/// As much of a key as one wants to read.
fn shown(key: Key<'_>) -> String {
    const SHOWN_CHARS: usize = 40;
    let text = key.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
