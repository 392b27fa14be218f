//! The reasons why a bake fails or rejects a row, and the options that can avoid the failure.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::cidr::BlockError;
use crate::excerpt::excerpt_chars;
use crate::format::FormatError;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key};
use crate::format::key_type::{KeyTextError, KeyType};
use crate::format::record::VALUE_LEN_MAX_BYTES;
use crate::replace::ReplaceError;
use crate::setting::Setting;
use crate::slots::SlotRange;
use crate::store::StoreError;
use crate::typed::{Column, ColumnType};

/// The minimum memory of a bake. With less memory, buffers would be so short that the bake would be slow. The minimum
/// is lower in fuzzing builds, so that even small inputs are spilled to temporary files.
pub const MEMORY_MIN_BYTES: u64 = if cfg!(fuzzing) { 32 << 10 } else { 16 << 20 };

/// The reason why a bake failed. After every failure except [`BakeError::FolderSync`], the output is unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages show what the fields are")]
pub enum BakeError {
    /// An input cannot be read.
    #[error("{input}: {error}")]
    Input {
        input: String,
        #[source]
        error: io::Error,
    },
    /// A baked table was given as an input. A table can be used only as the base or in a merge.
    #[error("{input}: is a baked table: use it as the base, or merge tables")]
    InputIsTable { input: String },
    /// A row is rejected.
    #[error("{input}:{line}: {fault}")]
    Row {
        input: String,
        /// The line on which the row begins, or the row's number in inputs without lines, counted from 1.
        line: u64,
        fault: RowFault,
    },
    /// The chosen columns do not fit the input.
    #[error("{input}: {fault}")]
    Columns { input: String, fault: String, remedies: Vec<Remedy> },
    /// The output cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Output {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A temporary file cannot be written or read.
    #[error("temporary files in {}: {error}: nothing was put in place; choose another folder", folder.display())]
    Temporary {
        folder: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The contents of a temporary file differ from what was written.
    #[error("temporary files in {}: the block at byte {offset_bytes} differs from what was written: nothing was put \
             in place; check the disk, or choose another folder", folder.display())]
    TemporaryDamaged {
        folder: PathBuf,
        /// The offset of the damaged block in the file.
        offset_bytes: u64,
    },
    /// The base or a table to merge is damaged or cannot be read.
    #[error("{0}: nothing was put in place")]
    OldTable(#[source] StoreError),
    /// A row of a table to merge is rejected.
    #[error("{}: row {row}: {fault}", path.display())]
    TableRow {
        path: PathBuf,
        /// The row's number, counted from 0 in key order.
        row: u64,
        fault: RowFault,
    },
    /// Two tables have keys of different kinds.
    #[error("keys of {} are {other_type}, and keys of {} are {key_type}: merge tables whose keys are of one type",
             other.display(), table.display())]
    TableKeys { table: PathBuf, key_type: KeyType, other: PathBuf, other_type: KeyType },
    /// The options select a type of keys that differs from the type of the base's keys.
    #[error(
        "keys of the base {} are {base_type}, and the options say that keys of the input are {input_type}: take keys \
         as the base has them, or choose a base whose keys are {input_type}",
        base.display()
    )]
    BaseKeys { base: PathBuf, base_type: KeyType, input_type: KeyType },
    /// The number of key columns differs from the number of the key's parts.
    #[error(
        "{column_count} key columns are chosen, and keys are {key_type}: give a type for each column, with commas between \
         them"
    )]
    KeyColumns { column_count: usize, key_type: KeyType },
    /// Typed columns are combined with an option that typed tables do not have.
    #[error("typed columns and {other}, which exclude each other: choose one of them")]
    TypedOptions { other: &'static str },
    /// A table of ranges is divided by slots.
    #[error(
        "a table of ranges cannot be divided by slots, because the range that contains a key can begin with a key of \
         any slot: bake one table with all rows"
    )]
    DividedRanges,
    /// A table of ranges and a table of single keys are merged.
    #[error(
        "{} is a table of ranges, and {} is not: merge tables of ranges or tables of single keys",
        ranges.display(), single.display()
    )]
    TableRanges { ranges: PathBuf, single: PathBuf },
    /// The inputs have ranges and the base has single keys, or the reverse.
    #[error(
        "the base {} {}, or choose another base",
        base.display(),
        if *has_ranges { "is a table of ranges: bake ranges as well" } else { "has no ranges: bake single keys" }
    )]
    BaseRanges { base: PathBuf, has_ranges: bool },
    /// The options select ranges, but no type of their keys.
    #[error("ranges need keys of a known type, which the rows do not decide: choose the type")]
    RangeKeysUnknown,
    /// The keys have a type of which there are no ranges.
    #[error("keys are {key_type}, where {expected} was expected for ranges: choose another type")]
    RangeKeys { key_type: KeyType, expected: &'static str },
    /// The layout is compact, but the keys are bytes.
    #[error("keys are {key_type}, where the compact layout requires numbers: choose the fast layout or another type")]
    CompactKeys { key_type: KeyType },
    /// No input has a row from which the types of columns can be inferred.
    #[error("the inputs have no rows, from which the types of columns could be inferred: declare the types")]
    NoTypes,
    /// The options choose typed columns, but the values of the base are not typed.
    #[error("the values of the base {} are not typed: bake values that are not typed, or choose another base",
             base.display())]
    UntypedBase { base: PathBuf },
    /// The base is a typed table, but the options choose no typed columns.
    #[error("the base {} is a typed table: bake typed columns as well", base.display())]
    TypedBase { base: PathBuf },
    /// A column that the base lacks cannot be null.
    #[error(
        "the base {} has no column {:?}, so its rows have no value for it: declare that the column can be null",
        base.display(), column.name
    )]
    AddedColumn { base: PathBuf, column: Box<Column> },
    /// A column has another type than in the base, and [`TypedColumns::cast`](super::TypedColumns::cast) is false.
    #[error(
        "{old} is a column of the base {}, where {new} was expected: declare the type of the base, or convert the \
         values of the base",
        base.display()
    )]
    ChangedColumn { base: PathBuf, old: Box<Column>, new: Box<Column> },
    /// Two tables to merge have different columns.
    #[error(
        "{} has {other_columns}, and {} has {columns}: merge tables with equal columns",
        other.display(), table.display()
    )]
    TableColumns {
        table: PathBuf,
        /// The columns of the first table that the other table lacks, or a description of a table without columns.
        columns: String,
        other: PathBuf,
        /// The columns of the other table that the first table lacks, or a description of a table without columns.
        other_columns: String,
    },
    /// A byte of delimited text would have two meanings.
    #[error("the {role} is {:?}, which is also the {other}: choose another {role}", char::from(*byte))]
    Dialect { role: &'static str, byte: u8, other: &'static str },
    /// The slots are not a range of slots.
    #[error("the slots are {slots}, where a first and a last slot from 0 to 16383 were expected: choose other slots")]
    Slots { slots: SlotRange },
    /// The number of shards is 0 or greater than the limit.
    #[error("{shards} shards, where 1 to {shards_max} were expected: choose another number")]
    ShardCount { shards: u16, shards_max: u16 },
    /// The maximum length of a shard is too short for any rows, or too long.
    #[error("shards of at most {len_bytes} bytes, where 32 KiB to 32 GiB were expected: choose another length")]
    ShardLen { len_bytes: u64 },
    /// The rows of one slot do not fit into a shard.
    #[error(
        "the rows of slot {slot} alone take up to {len_bytes} bytes, but a shard may have only {len_max_bytes}: allow \
         longer shards"
    )]
    ShardSlot {
        slot: u16,
        /// An upper bound on the length of a file with the slot's rows.
        len_bytes: u64,
        len_max_bytes: u64,
    },
    /// The table would have too many shards.
    #[error(
        "{shards} shards of at most {len_max_bytes} bytes would be needed, but only 256 are allowed: allow longer \
         shards"
    )]
    ShardsTooMany { shards: usize, len_max_bytes: u64 },
    /// The folder for the shards has other files than shards of an earlier bake of the same slots.
    #[error(
        "{}: has files, such as {name:?}, where a new or empty folder was expected, or one with only the shards of an \
         earlier bake of the same slots: name another folder",
        folder.display()
    )]
    ShardFolder { folder: PathBuf, name: OsString },
    /// Slots are selected, but the kind of the keys depends on the rows.
    #[error(
        "the rows of these slots do not decide whether the keys of the whole table are numbers or bytes: choose one \
         of them"
    )]
    SlotsKeysUnknown,
    /// A merge was called without tables.
    #[error("no table to merge: name one or more")]
    NoTables,
    /// More tables are given than can be merged at once within the memory limit.
    #[error(
        "{tables} tables, where at most {tables_max} can be merged at once with this memory: merge some of them \
         first, or allow more memory"
    )]
    TooManyTables { tables: usize, tables_max: usize },
    /// More ranges contain one key than fit into memory.
    #[error(
        "the start of the range {range} is in {count} ranges, which take {held_bytes} bytes, where at most {max_bytes} \
         bytes of ranges inside each other are allowed with this memory: allow more memory"
    )]
    NestedRanges { range: String, count: usize, held_bytes: usize, max_bytes: usize },
    /// The system cannot start a thread.
    #[error("threads cannot be started: {error}: allow more processes, or use fewer threads")]
    Threads { error: String },
    /// The memory limit is less than the minimum for a bake.
    #[error("{given_bytes} bytes of memory, where at least {MEMORY_MIN_BYTES} are needed: allow more memory")]
    Memory { given_bytes: u64 },
    /// The number of bad rows exceeds the limit of [`BadRows::Skip`](super::BadRows::Skip).
    #[error(
        "{input}:{line}: {fault}: this is bad row {bad_rows}, where at most {bad_rows_max} are allowed: nothing was \
         put in place; correct the rows, or allow more bad rows"
    )]
    BadRows {
        input: String,
        /// The line of the first bad row beyond the limit, or its row number in inputs without lines.
        line: u64,
        fault: Box<RowFault>,
        bad_rows: u64,
        bad_rows_max: u64,
    },
    /// The file that receives bad rows cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    BadRowsFile {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A rule in [`Options::replace`](super::Options::replace) does not allow the new table to replace the table at the
    /// output's path.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Replace {
        path: PathBuf,
        #[source]
        error: ReplaceError,
    },
    /// The bake was canceled through [`Options::cancel`](super::Options::cancel).
    #[error("stopped: nothing was put in place")]
    Canceled,
    /// The new file has replaced the output, but the output's folder cannot be synced.
    #[error("{}: is in place, but its folder cannot be synced: {error}: a power loss may bring the old file back",
             path.display())]
    FolderSync {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The table exceeds a limit of the file format.
    #[error("{0}: nothing was put in place")]
    Limit(#[from] FormatError),
    /// The new file failed verification.
    #[error("reading the new file back: {0}: nothing was put in place; check disk and memory")]
    Verify(#[source] StoreError),
    /// A block of the new file does not match the checksum that the bake computed before it wrote the block.
    #[error("{}: reading the new file back: the block at byte {offset_bytes} differs from what was written: nothing \
             was put in place; check disk and memory", path.display())]
    Damaged {
        path: PathBuf,
        /// The offset of the damaged block in the file.
        offset_bytes: u64,
    },
    /// A row of the new file differs from the sorted row that it was written from.
    #[error(
        "reading the new file back: row {row} differs from the sorted row: nothing was put in place; check disk and \
         memory"
    )]
    Compare {
        /// The row's number, counted from 0 in key order.
        row: u64,
    },
    /// The number of rows in the new file differs from the number written.
    #[error(
        "reading the new file back: {found_rows} rows, where {expected_rows} were expected: nothing was put in place"
    )]
    ReadBack { expected_rows: u64, found_rows: u64 },
}

impl BakeError {
    /// Returns the options that can be changed to avoid the failure, in the order in which the message mentions them.
    pub fn remedies(&self) -> Vec<Remedy> {
        let remedies: &[Remedy] = match self {
            BakeError::Columns { remedies, .. } => remedies,
            BakeError::Row { fault, .. } | BakeError::TableRow { fault, .. } => fault.remedies(),
            BakeError::InputIsTable { .. } => &[Remedy::UseAsBase],
            BakeError::Temporary { .. } | BakeError::TemporaryDamaged { .. } => &[Remedy::ChooseTempDir],
            BakeError::NoTypes => &[Remedy::DeclareTypes],
            BakeError::TypedBase { .. } => &[Remedy::UseTypedColumns],
            BakeError::AddedColumn { .. } => &[Remedy::MakeNullable],
            BakeError::ChangedColumn { .. } => &[Remedy::DeclareTypes, Remedy::CastBase],
            BakeError::BaseKeys { .. } => &[Remedy::TakeKeysAsBase],
            BakeError::BaseRanges { has_ranges: true, .. } => &[Remedy::ChooseRanges],
            BakeError::Dialect { role: "delimiter", .. } => &[Remedy::SetDelimiter],
            BakeError::Dialect { role: "quote", .. } => &[Remedy::SetQuote],
            BakeError::Dialect { role: "escape", .. } => &[Remedy::SetEscape],
            BakeError::Dialect { .. } => &[Remedy::SkipComments],
            BakeError::KeyColumns { .. } => &[Remedy::ChooseKeyKind, Remedy::ChooseKey],
            BakeError::SlotsKeysUnknown => &[Remedy::ChooseKeyKind],
            BakeError::RangeKeysUnknown | BakeError::RangeKeys { .. } => &[Remedy::ChooseKeyKind],
            BakeError::CompactKeys { .. } => &[Remedy::ChooseLayout, Remedy::ChooseKeyKind],
            BakeError::ShardCount { .. } | BakeError::ShardLen { .. } => &[Remedy::ChooseShards],
            BakeError::ShardSlot { .. } | BakeError::ShardsTooMany { .. } => &[Remedy::ChooseShards],
            BakeError::TooManyTables { .. } | BakeError::Memory { .. } | BakeError::NestedRanges { .. } => {
                &[Remedy::AllowMoreMemory]
            }
            BakeError::Threads { .. } => &[Remedy::UseFewerThreads],
            BakeError::BadRows { .. } => &[Remedy::AllowMoreBadRows],
            BakeError::Limit(FormatError::Unhashable) => &[Remedy::BakeShards],
            BakeError::Replace { error, .. } => {
                let is_kind = matches!(error, ReplaceError::KeyType { .. });
                let rule = Remedy::ChangeRule(error.setting());
                return is_kind.then_some(Remedy::ChooseKeyKind).into_iter().chain([rule]).collect();
            }
            _ => &[],
        };
        remedies.to_vec()
    }

    pub(super) fn output(path: &Path, error: io::Error) -> Self {
        BakeError::Output { path: path.to_path_buf(), error }
    }

    pub(super) fn temporary(folder: &Path, error: io::Error) -> Self {
        BakeError::Temporary { folder: folder.to_path_buf(), error }
    }
}

/// The reason why a row is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages show what the fields are")]
pub enum RowFault {
    /// The row has too few or too many fields.
    #[error(
        "{found} field{} where {expected} {} expected: {}",
        if *found == 1 { "" } else { "s" },
        if *expected == 1 { "was" } else { "were" },
        field_count_advice(*expected, *found, *layout)
    )]
    FieldCount { expected: usize, found: usize, layout: RowLayout },
    /// The key is not a number.
    #[error(
        "the key is {found:?} where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected: {}",
        key_advice(*has_spaces, *may_be_header)
    )]
    Key {
        /// The key field, shortened for the message.
        found: String,
        /// Whether the key starts or ends with ASCII white space.
        has_spaces: bool,
        /// Whether the row is the first of its input and the options declare no header, so that the row may be a
        /// header.
        may_be_header: bool,
        /// Whether the row is the first of its input, so that most keys may be text.
        is_first: bool,
    },
    /// The key is not one of the type of the keys.
    #[error("the key {fault}: {}", key_advice(false, *may_be_header))]
    TypedKey {
        /// What is wrong with the key.
        fault: Box<KeyTextError>,
        /// Whether the row is the first of its input and the options declare no header, so that the row may be a
        /// header.
        may_be_header: bool,
    },
    /// The key is empty or too long.
    #[error(
        "a key of {len_bytes} bytes, where 1 to {KEY_LEN_MAX_BYTES} are allowed: correct the row, or choose another \
         key column"
    )]
    KeyLen { len_bytes: usize },
    /// The field in the delete column is not a valid Boolean.
    #[error(
        "the delete column is {found:?}, where true, 1, false, 0, or an empty field was expected: correct the row, or \
         choose another delete column"
    )]
    Deletion {
        /// The field in the delete column, shortened for the message.
        found: String,
    },
    /// An earlier row has the same key.
    #[error("key {key} is already on {first}: remove one, or choose which row to keep")]
    Duplicate {
        /// The key. A key of bytes is quoted, and shortened for the message.
        key: String,
        /// The line or row number of the first row with this key, and its input if the two rows are in different
        /// inputs.
        first: String,
    },
    /// An earlier row has the same range, or one that overlaps it.
    #[error(
        "the range {range} {} {first}: {}",
        if *is_equal { "is already on" } else { "overlaps the one on" },
        if *is_equal { "remove one, or choose which row to keep" } else { "correct one, or choose which row wins" }
    )]
    Overlap {
        /// The written form of one of the ranges.
        range: String,
        /// The line or row number of the earlier row, and its input if the two rows are in different inputs.
        first: String,
        /// Whether the ranges are equal.
        is_equal: bool,
    },
    /// The start or the end of a range is not a key of the type of the keys.
    #[error("the {which} of the range {fault}: {}", range_advice(*may_be_header))]
    RangeKey {
        /// `start` or `end`.
        which: &'static str,
        /// What is wrong with the key.
        fault: Box<KeyTextError>,
        /// Whether the row is the first of its input and the options declare no header, so that the row may be a
        /// header.
        may_be_header: bool,
    },
    /// A range ends before it starts.
    #[error(
        "the range starts at {start} and ends at {end}, before its start: correct the row, or choose other columns"
    )]
    RangeReversed {
        /// The written form of the first key.
        start: String,
        /// The written form of the last key.
        end: String,
    },
    /// The key is not a block of addresses.
    #[error("{fault}: {}", range_advice(*may_be_header))]
    Block {
        /// What is wrong with the block.
        fault: BlockError,
        /// Whether the row is the first of its input and the options declare no header, so that the row may be a
        /// header.
        may_be_header: bool,
    },
    /// The input ends inside a quoted field.
    #[error(
        "a quoted field is not closed before the input ends: add the closing quote, and double each inner quote, or, \
         if quotes are part of the text, read fields without quotes"
    )]
    UnclosedQuote,
    /// Text follows a closing quote.
    #[error(
        "text follows a closing quote: {}",
        if *after_backslash {
            "if a backslash escapes quotes, set it as the escape; otherwise, double each quote inside a quoted field"
        } else {
            "double each quote inside a quoted field, or, if quotes are part of the text, read fields without quotes"
        }
    )]
    TextAfterQuote {
        /// Whether the closing quote follows a backslash.
        after_backslash: bool,
    },
    /// A carriage return outside quotes is not followed by a line feed.
    #[error("a carriage return without a line feed: end lines with LF or CRLF, and quote values that contain CR")]
    BareReturn,
    /// The row exceeds the maximum length of a row.
    #[error(
        "a row of more than {len_max_bytes} bytes begins here: close its quote, split the value, or, if the row has \
         at most {VALUE_LEN_MAX_BYTES} bytes, allow memory of eight times its length"
    )]
    Endless {
        /// The maximum length of a row, which depends on the memory limit of the bake.
        len_max_bytes: usize,
    },
    /// A row is not JSON.
    #[error("invalid JSON at byte {at}: {fault}: an object was expected")]
    Json {
        /// The position of the error in the row, in bytes, counted from 1.
        at: usize,
        fault: String,
    },
    /// A row is JSON, but not an object.
    #[error("the row is {found}, where an object was expected: write one object per line, or a list of objects")]
    NotObject { found: &'static str },
    /// The input ends inside a JSON value or a list of rows.
    #[error("a JSON list or object is not closed before the input ends: copy or export the input again")]
    UnclosedJson,
    /// An object lacks a chosen field.
    #[error("field {field:?} is missing: correct the row, or choose another key or value field")]
    MissingField { field: String },
    /// An object has a chosen field more than once.
    #[error("field {field:?} occurs twice: remove one")]
    FieldTwice { field: String },
    /// The key column has a value of a type that cannot be a key.
    #[error("the key {column:?} is {found}, where a string or a number was expected: choose another key column")]
    KeyType { column: String, found: &'static str },
    /// The key or the value is null.
    #[error(
        "{column:?} is null: give every row a key and a value, or pack the column into the value, which may hold null"
    )]
    Null { column: String },
    /// A field that is packed into the value is not valid UTF-8.
    #[error("{column:?} is not UTF-8 at byte {at}: convert it, or leave it out of the packed columns")]
    NotUtf8 {
        column: String,
        /// The position of the first invalid byte in the field, counted from 1.
        at: usize,
    },
    /// JSON cannot represent a field that is packed into the value: the field is binary, or a float that is not finite.
    #[error(
        "{column:?} is {found}, which JSON cannot represent: leave it out of the packed columns, or bake a typed table"
    )]
    NotInJson { column: String, found: &'static str },
    /// A date, time, or timestamp is outside the range that can be converted to text, or a decimal has too many digits.
    #[error("{column:?} is {found}: correct it, or choose another column")]
    OutOfRange { column: String, found: &'static str },
    /// A value does not fit the type of its column in a typed table.
    #[error(
        "column {column:?} is {found:?}, where {column_type} was expected ({expected}): correct the row, or declare \
         another type{}",
        if *may_be_null { ", or, if this text stands for null, set the null text" } else { "" }
    )]
    Cell {
        column: Box<str>,
        column_type: ColumnType,
        /// The text of the value, shortened for the message.
        found: Box<str>,
        /// What was expected instead.
        expected: &'static str,
        /// Whether the value is a field of delimited text, and programs often write its text for null.
        may_be_null: bool,
    },
    /// A column of a typed table has no value in a row, but every row must have a value of this column.
    #[error(
        "column {column:?} has no value, where {column_type} was expected in every row: correct the row, or declare \
         that the column can be null"
    )]
    NoValue { column: String, column_type: ColumnType },
    /// A value from memory or from a table is not a row of the schema.
    #[error("the value is not a row of the typed columns ({what}): encode it with these columns, in this order")]
    TypedRow { what: String },
    /// The value is too long.
    #[error(transparent)]
    Value(FormatError),
    /// The row does not fit into memory in addition to the rows before it.
    #[error("the rows before this one fill the machine's memory: bake on a larger machine, or split the table")]
    OutOfMemory,
}

/// The place of a row in its input, for messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowPlace {
    /// Whether the row is the first of its input.
    pub(super) is_first: bool,
    /// Whether the row could be a header that the options do not declare.
    pub(super) may_be_header: bool,
}

/// The facts about a row with a wrong number of fields that determine the advice in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Whether the options choose columns.
    pub columns_chosen: bool,
    /// Whether fields can be quoted.
    pub has_quotes: bool,
    /// Whether the row begins with `#`, as comments do.
    pub is_comment: bool,
}

fn field_count_advice(expected: usize, found: usize, layout: RowLayout) -> &'static str {
    let RowLayout { columns_chosen, has_quotes, is_comment } = layout;
    match (columns_chosen, found < expected) {
        _ if is_comment => "if the line is a comment, skip comments",
        (true, _) if has_quotes => {
            "give every row as many fields as the first, and quote values that hold the delimiter"
        }
        (true, _) => "give every row as many fields as the first, or, if fields are quoted, set the quote",
        (false, true) => "give a key and a value, or set the delimiter between them",
        (false, false) if has_quotes => "quote the value, or choose the key and value columns",
        (false, false) => "choose the key and value columns, or, if fields are quoted, set the quote",
    }
}

fn key_advice(has_spaces: bool, may_be_header: bool) -> &'static str {
    match (has_spaces, may_be_header) {
        (true, _) => "remove the spaces around it",
        (false, true) => "if this row names the columns, read it as a header; if keys are text, take them as bytes",
        (false, false) => "correct the row, choose another key column, or take keys as bytes",
    }
}

fn range_advice(may_be_header: bool) -> &'static str {
    match may_be_header {
        true => {
            "if this row names the columns, read it as a header; otherwise correct it, or choose another type of keys"
        }
        false => "correct the row, or choose another type of keys or other columns",
    }
}

impl RowFault {
    /// Returns the options that can be changed to avoid the fault.
    pub fn remedies(&self) -> &'static [Remedy] {
        match self {
            RowFault::FieldCount { layout: RowLayout { is_comment: true, .. }, .. } => &[Remedy::SkipComments],
            RowFault::FieldCount { layout: RowLayout { columns_chosen: true, has_quotes, .. }, .. } => match has_quotes
            {
                true => &[],
                false => &[Remedy::SetQuote],
            },
            RowFault::FieldCount { expected, found, .. } if found < expected => &[Remedy::SetDelimiter],
            RowFault::FieldCount { layout: RowLayout { has_quotes: true, .. }, .. } => {
                &[Remedy::ChooseKey, Remedy::ChooseValue]
            }
            RowFault::FieldCount { .. } => &[Remedy::ChooseKey, Remedy::ChooseValue, Remedy::SetQuote],
            RowFault::TextAfterQuote { after_backslash: true } => &[Remedy::SetEscape],
            RowFault::TextAfterQuote { .. } | RowFault::UnclosedQuote => &[Remedy::ReadWithoutQuotes],
            RowFault::Key { has_spaces: true, .. } => &[],
            RowFault::Key { may_be_header: true, .. } => &[Remedy::ReadHeader, Remedy::TakeKeysAsBytes],
            RowFault::Key { .. } => &[Remedy::ChooseKey, Remedy::TakeKeysAsBytes],
            RowFault::TypedKey { may_be_header: true, .. } => &[Remedy::ReadHeader, Remedy::TakeKeysAsBytes],
            RowFault::TypedKey { .. } => &[Remedy::TakeKeysAsBytes],
            RowFault::KeyLen { .. } | RowFault::KeyType { .. } => &[Remedy::ChooseKey],
            RowFault::Deletion { .. } => &[Remedy::ChooseDeleteColumn],
            RowFault::Duplicate { .. } | RowFault::Overlap { is_equal: true, .. } => &[Remedy::KeepOneDuplicate],
            RowFault::Overlap { .. } => &[Remedy::ChooseOverlaps],
            RowFault::RangeKey { may_be_header: true, .. } => &[Remedy::ReadHeader, Remedy::ChooseKeyKind],
            RowFault::RangeKey { .. } => &[Remedy::ChooseKeyKind, Remedy::ChooseRanges],
            RowFault::RangeReversed { .. } => &[Remedy::ChooseRanges],
            RowFault::Block { may_be_header: true, .. } => &[Remedy::ReadHeader],
            RowFault::Block { .. } => &[Remedy::ChooseRanges],
            RowFault::Endless { .. } => &[Remedy::AllowMoreMemory],
            RowFault::MissingField { .. } => &[Remedy::ChooseKey, Remedy::ChooseValue],
            RowFault::Null { .. } | RowFault::NotUtf8 { .. } => &[Remedy::ChooseColumns],
            RowFault::NotInJson { .. } => &[Remedy::ChooseColumns, Remedy::UseTypedColumns],
            RowFault::Cell { may_be_null: true, .. } => &[Remedy::DeclareTypes, Remedy::SetNullText],
            RowFault::Cell { .. } => &[Remedy::DeclareTypes],
            RowFault::NoValue { .. } => &[Remedy::MakeNullable],
            RowFault::BareReturn
            | RowFault::UnclosedJson
            | RowFault::Json { .. }
            | RowFault::NotObject { .. }
            | RowFault::FieldTwice { .. }
            | RowFault::OutOfRange { .. }
            | RowFault::TypedRow { .. }
            | RowFault::Value(_)
            | RowFault::OutOfMemory => &[],
        }
    }

    /// Returns the fault for text after a closing quote. `before` is the text before this quote.
    pub(super) fn text_after_quote(before: &[u8]) -> Self {
        RowFault::TextAfterQuote { after_backslash: before.ends_with(b"\\") }
    }

    pub(super) fn key(field: &[u8], place: RowPlace) -> Self {
        let RowPlace { is_first, may_be_header } = place;
        let has_spaces = field.trim_ascii().len() < field.len();
        RowFault::Key { found: shorten(Key::Bytes(field)), has_spaces, may_be_header, is_first }
    }

    pub(super) fn block(fault: BlockError, place: RowPlace) -> Self {
        // The name of a column is no address.
        let may_be_header = place.may_be_header && matches!(fault, BlockError::Address { .. });
        RowFault::Block { fault, may_be_header }
    }

    pub(super) fn range_key(which: &'static str, fault: KeyTextError, place: RowPlace) -> Self {
        RowFault::RangeKey { which, fault: fault.into(), may_be_header: place.may_be_header }
    }

    pub(super) fn typed_key(fault: KeyTextError, place: RowPlace) -> Self {
        RowFault::TypedKey { fault: fault.into(), may_be_header: place.may_be_header }
    }

    /// Returns the fault for an error in a JSON text. The text begins `part_at` bytes after the start of its line.
    pub(super) fn json(error: &serde_json::Error, part_at: usize) -> Self {
        let fault = error.to_string();
        // The parser's message ends with a position in the text. This fault has the position in the line instead.
        let end = fault.rfind(" at line ").unwrap_or(fault.len());
        RowFault::Json { at: part_at + error.column(), fault: fault[..end].to_owned() }
    }

    pub(super) fn cell(column: &Column, found: &[u8], expected: &'static str) -> Self {
        let Column { name, column_type, .. } = column;
        let found = shorten_text(found).into();
        RowFault::Cell { column: name.as_str().into(), column_type: *column_type, found, expected, may_be_null: false }
    }

    /// Returns the fault for a field of delimited text.
    pub(super) fn field(column: &Column, found: &[u8], expected: &'static str) -> Self {
        let mut fault = RowFault::cell(column, found, expected);
        if let RowFault::Cell { may_be_null, .. } = &mut fault {
            let nulls = ["\\N", "null", "na", "n/a", "none", "nil", "0000-00-00", "0000-00-00 00:00:00"];
            *may_be_null = nulls.iter().any(|null| found.eq_ignore_ascii_case(null.as_bytes()));
        }
        fault
    }

    pub(super) fn no_value(column: &Column) -> Self {
        RowFault::NoValue { column: column.name.clone(), column_type: column.column_type }
    }

    pub(super) fn deletion(field: &[u8]) -> Self {
        RowFault::Deletion { found: shorten(Key::Bytes(field)) }
    }
}

/// Formats a key for a message. A number is unchanged. Bytes are shortened and quoted, and control characters are
/// escaped.
pub(super) fn display_key(key: Key<'_>) -> String {
    match key {
        Key::U64(_) => key.to_string(),
        Key::Bytes(_) => format!("{:?}", shorten(key)),
    }
}

/// The maximum number of characters of a field in a message.
const SHOWN_CHARS: usize = 40;

/// Shortens a text. Bytes that are not UTF-8 are replaced.
fn shorten_text(text: &[u8]) -> String {
    /// More bytes than the characters shown can have.
    const READ_LEN_BYTES: usize = 256;
    let read = &text[..text.len().min(READ_LEN_BYTES)];
    excerpt_chars(&String::from_utf8_lossy(read), SHOWN_CHARS).into_owned()
}

fn shorten(key: Key<'_>) -> String {
    excerpt_chars(&key.to_string(), SHOWN_CHARS).into_owned()
}

/// An option of a bake that a caller can change to avoid a failure.
///
/// Error messages name no option, because each program presents options in its own way: as fields of
/// [`Options`](super::Options), as command-line flags, or as keyword arguments. Each program appends its own names for
/// the options that [`BakeError::remedies`](super::BakeError::remedies) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// Choose another key column ([`Options::key`](super::Options::key)).
    ChooseKey,
    /// Choose another value column ([`Options::value`](super::Options::value)).
    ChooseValue,
    /// Choose other columns to pack into the value ([`ValueSpec::Packed`](super::ValueSpec::Packed)).
    ChooseColumns,
    /// Bake a typed table ([`Options::typed`](super::Options::typed)).
    UseTypedColumns,
    /// Declare the types of columns ([`TypedColumns::types`](super::TypedColumns::types)).
    DeclareTypes,
    /// Declare that a column can be null ([`Column::is_nullable`](crate::typed::Column::is_nullable) in
    /// [`TypedColumns::types`](super::TypedColumns::types)).
    MakeNullable,
    /// Reject inputs without a column ([`TypedColumns::require_columns`](super::TypedColumns::require_columns)).
    RequireColumns,
    /// Convert the values of the base ([`TypedColumns::cast`](super::TypedColumns::cast)).
    CastBase,
    /// Choose another delete column ([`Options::delete_column`](super::Options::delete_column)).
    ChooseDeleteColumn,
    /// Read column names from the first row ([`Options::header`](super::Options::header)).
    ReadHeader,
    /// Confirm that the first row is a row.
    ReadNoHeader,
    /// Set the byte between fields ([`Options::delimiter`](super::Options::delimiter)).
    SetDelimiter,
    /// Set the byte that encloses fields ([`Options::quote`](super::Options::quote)).
    SetQuote,
    /// Read fields without quotes ([`Quote::None`](super::Quote::None)).
    ReadWithoutQuotes,
    /// Set the byte before escaped bytes ([`Options::escape`](super::Options::escape)).
    SetEscape,
    /// Set the byte with which comments begin ([`Options::comment`](super::Options::comment)).
    SkipComments,
    /// Set the texts that stand for null ([`Options::null_texts`](super::Options::null_texts)).
    SetNullText,
    /// Choose whether keys are numbers or bytes ([`Options::keys`](super::Options::keys)).
    ChooseKeyKind,
    /// Choose other columns for ranges ([`Options::ranges`](super::Options::ranges)).
    ChooseRanges,
    /// Choose which row wins where ranges overlap ([`Options::overlaps`](super::Options::overlaps)).
    ChooseOverlaps,
    /// Read keys as bytes ([`Keys::BYTES`](super::Keys::BYTES)).
    TakeKeysAsBytes,
    /// Read keys as IP addresses ([`PartType::Ip`](crate::PartType::Ip)).
    TakeKeysAsAddresses,
    /// Read keys as UUIDs ([`PartType::Uuid`](crate::PartType::Uuid)).
    TakeKeysAsUuids,
    /// Read keys as the same kind as the base's keys ([`Keys::Auto`](super::Keys::Auto)).
    TakeKeysAsBase,
    /// Choose another layout ([`Options::layout`](super::Options::layout)).
    ChooseLayout,
    /// Keep one of the rows that have the same key ([`Options::duplicates`](super::Options::duplicates)).
    KeepOneDuplicate,
    /// Allow more bad rows ([`BadRows::Skip`](super::BadRows::Skip)).
    AllowMoreBadRows,
    /// Use the input, which is a baked table, as the base ([`Options::base`](super::Options::base)).
    UseAsBase,
    /// Divide the table into shards ([`bake_shards`](super::bake_shards)).
    BakeShards,
    /// Divide the table into another number of shards, or into shards of another length ([`Shards`](super::Shards)).
    ChooseShards,
    /// Allow more memory ([`Options::memory_bytes`](super::Options::memory_bytes)).
    AllowMoreMemory,
    /// Use fewer threads ([`Options::threads`](super::Options::threads)).
    UseFewerThreads,
    /// Choose another folder for temporary files ([`Options::temp_dir`](super::Options::temp_dir)).
    ChooseTempDir,
    /// Change the given rule for replacing a table, which is a field of [`ReplaceRules`](crate::replace::ReplaceRules).
    ChangeRule(Setting),
}
