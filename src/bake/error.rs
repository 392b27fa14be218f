//! The reasons why a bake fails.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::limits::MEMORY_MIN_BYTES;
use super::remedy::Remedy;
use super::row_fault::RowFault;
use crate::format::FormatError;
use crate::format::key::KeyKind;
use crate::replace::ReplaceError;
use crate::slots::SlotRange;
use crate::store::StoreError;
use crate::typed::Column;

/// The reason why a bake failed. After every failure except [`BakeError::FolderSync`], the output is unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BakeError {
    /// An input cannot be read.
    #[error("{input}: {error}")]
    Input {
        /// The input's name.
        input: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A baked table was given as an input. A table can be used only as the base or in a merge.
    #[error("{input}: is a baked table: use it as the base, or merge tables")]
    InputIsTable {
        /// The input's name.
        input: String,
    },
    /// A row is rejected.
    #[error("{input}:{line}: {fault}")]
    Row {
        /// The input's name.
        input: String,
        /// The line on which the row begins, or the row's number in inputs without lines, counted from 1.
        line: u64,
        /// The reason why the row is rejected.
        fault: RowFault,
    },
    /// The chosen columns do not fit the input.
    #[error("{input}: {fault}")]
    Columns {
        /// The input's name.
        input: String,
        /// The reason why the columns do not fit.
        fault: String,
        /// The options that can be changed to avoid the failure.
        remedies: Vec<Remedy>,
    },
    /// The output cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Output {
        /// The output's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A temporary file cannot be written or read.
    #[error("temporary files in {}: {error}: nothing was put in place; choose another folder", folder.display())]
    Temporary {
        /// The folder of the temporary files.
        folder: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The contents of a temporary file differ from what was written.
    #[error("temporary files in {}: the block at byte {offset_bytes} differs from what was written: nothing was put in place; check the disk, or choose another folder", folder.display())]
    TemporaryDamaged {
        /// The folder of the temporary files.
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
        /// The table's path.
        path: PathBuf,
        /// The row's number, counted from 0 in key order.
        row: u64,
        /// The reason why the row is rejected.
        fault: RowFault,
    },
    /// Two tables have keys of different kinds.
    #[error("keys of {} are {other_kind}, and keys of {} are {kind}: merge tables whose keys are of one kind", other.display(), table.display())]
    TableKeys {
        /// The path of the first table.
        table: PathBuf,
        /// The kind of the first table's keys.
        kind: KeyKind,
        /// The path of a table whose keys are of another kind.
        other: PathBuf,
        /// The kind of the other table's keys.
        other_kind: KeyKind,
    },
    /// The options select a kind of keys that differs from the kind of the base's keys.
    #[error(
        "keys of the base {} are {base_kind}, and the options say that keys of the input are {input_kind}: take keys as the \
         base has them, or choose a base whose keys are {input_kind}",
        base.display()
    )]
    BaseKeys {
        /// The base's path.
        base: PathBuf,
        /// The kind of the base's keys.
        base_kind: KeyKind,
        /// The kind of keys that the options select for the input.
        input_kind: KeyKind,
    },
    /// Typed columns are combined with an option that typed tables do not have.
    #[error("typed columns and {other}, which exclude each other: choose one of them")]
    TypedOptions {
        /// The other option.
        other: &'static str,
    },
    /// No input has a row from which the types of columns can be inferred.
    #[error("the inputs have no rows, from which the types of columns could be inferred: declare the types")]
    NoTypes,
    /// The options choose typed columns, but the values of the base are not typed.
    #[error("the values of the base {} are not typed: bake values that are not typed, or choose another base", base.display())]
    UntypedBase {
        /// The base's path.
        base: PathBuf,
    },
    /// The base is a typed table, but the options choose no typed columns.
    #[error("the base {} is a typed table: bake typed columns as well", base.display())]
    TypedBase {
        /// The base's path.
        base: PathBuf,
    },
    /// A column that the base lacks cannot be null.
    #[error(
        "the base {} has no column {:?}, so its rows have no value for it: declare that the column can be null",
        base.display(), column.name
    )]
    AddedColumn {
        /// The base's path.
        base: PathBuf,
        /// The added column.
        column: Box<Column>,
    },
    /// A column has another type than in the base, and [`TypedColumns::cast`](super::TypedColumns::cast) is false.
    #[error(
        "{old} is a column of the base {}, where {new} was expected: declare the type of the base, or convert the values of the base",
        base.display()
    )]
    ChangedColumn {
        /// The base's path.
        base: PathBuf,
        /// The column in the base.
        old: Box<Column>,
        /// The column in the new table.
        new: Box<Column>,
    },
    /// Two tables to merge have different columns.
    #[error("{} has {other_columns}, and {} has {columns}: merge tables with equal columns", other.display(), table.display())]
    TableColumns {
        /// The path of the first table.
        table: PathBuf,
        /// The columns of the first table that the other table lacks, or a description of a table without columns.
        columns: String,
        /// The path of a table with other columns.
        other: PathBuf,
        /// The columns of the other table that the first table lacks, or a description of a table without columns.
        other_columns: String,
    },
    /// The chosen delimiter already has another meaning in delimited text.
    #[error("the delimiter is {:?}, but a quote or a line end cannot separate fields: choose another delimiter", char::from(*delimiter))]
    Delimiter {
        /// The chosen delimiter.
        delimiter: u8,
    },
    /// The slots are not a range of slots.
    #[error("the slots are {slots}, where a first and a last slot from 0 to 16383 were expected: choose other slots")]
    Slots {
        /// The slots.
        slots: SlotRange,
    },
    /// The number of shards is 0 or greater than the limit.
    #[error("{shards} shards, where 1 to {shards_max} were expected: choose another number")]
    ShardCount {
        /// The number of shards.
        shards: u16,
        /// The maximum number of shards.
        shards_max: u16,
    },
    /// The maximum length of a shard is too short for any rows, or too long.
    #[error("shards of at most {len_bytes} bytes, where 32 KiB to 32 GiB were expected: choose another length")]
    ShardLen {
        /// The maximum length of a shard.
        len_bytes: u64,
    },
    /// The rows of one slot do not fit into a shard.
    #[error(
        "the rows of slot {slot} alone take up to {len_bytes} bytes, but a shard may have only {len_max_bytes}: allow longer shards"
    )]
    ShardSlot {
        /// The slot.
        slot: u16,
        /// An upper bound on the length of a file with the slot's rows.
        len_bytes: u64,
        /// The maximum length of a shard.
        len_max_bytes: u64,
    },
    /// The table would have too many shards.
    #[error(
        "{shards} shards of at most {len_max_bytes} bytes would be needed, but only 256 are allowed: allow longer shards"
    )]
    ShardsTooMany {
        /// The number of shards.
        shards: usize,
        /// The maximum length of a shard.
        len_max_bytes: u64,
    },
    /// The folder for the shards has files, which could be mistaken for shards of the new table.
    #[error("{}: has files, such as {name:?}, where a new or empty folder was expected: name another folder", folder.display())]
    ShardFolder {
        /// The folder.
        folder: PathBuf,
        /// The name of one of its files.
        name: OsString,
    },
    /// Slots are selected, but the kind of the keys depends on the rows.
    #[error(
        "the rows of these slots do not decide whether the keys of the whole table are numbers or bytes: choose one of them"
    )]
    SlotsKeysUnknown,
    /// A merge was called without tables.
    #[error("no table to merge: name one or more")]
    NoTables,
    /// More tables are given than can be merged at once within the memory limit.
    #[error(
        "{tables} tables, where at most {tables_max} can be merged at once with this memory: merge some of them first, or allow more memory"
    )]
    TooManyTables {
        /// The number of tables given.
        tables: usize,
        /// The maximum number of tables that can be merged at once.
        tables_max: usize,
    },
    /// The system cannot start a thread.
    #[error("threads cannot be started: {error}: allow more processes, or use fewer threads")]
    Threads {
        /// The system's error.
        error: String,
    },
    /// The memory limit is less than the minimum for a bake.
    #[error("{given_bytes} bytes of memory, where at least {MEMORY_MIN_BYTES} are needed: allow more memory")]
    Memory {
        /// The given memory limit.
        given_bytes: u64,
    },
    /// The number of bad rows exceeds the limit of [`BadRows::Skip`](super::BadRows::Skip).
    #[error(
        "{input}:{line}: {fault}: this is bad row {bad_rows}, where at most {bad_rows_max} are allowed: nothing was put in place; correct the rows, or allow more bad rows"
    )]
    BadRows {
        /// The input's name.
        input: String,
        /// The line of the first bad row beyond the limit, or its row number in inputs without lines.
        line: u64,
        /// The reason why this row is rejected.
        fault: Box<RowFault>,
        /// The number of bad rows so far, including this one.
        bad_rows: u64,
        /// The maximum number of bad rows.
        bad_rows_max: u64,
    },
    /// The file that receives bad rows cannot be written.
    #[error("{}: {error}: nothing was put in place", path.display())]
    BadRowsFile {
        /// The path of the file for bad rows.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A rule in [`Options::replace`](super::Options::replace) does not allow the new table to replace the table at the
    /// output's path.
    #[error("{}: {error}: nothing was put in place", path.display())]
    Replace {
        /// The output's path.
        path: PathBuf,
        /// The violated rule.
        #[source]
        error: ReplaceError,
    },
    /// The bake was canceled through [`Options::cancel`](super::Options::cancel).
    #[error("stopped: nothing was put in place")]
    Canceled,
    /// The new file has replaced the output, but the output's folder cannot be synced.
    #[error("{}: is in place, but its folder cannot be synced: {error}: a power loss may bring the old file back", path.display())]
    FolderSync {
        /// The output's path.
        path: PathBuf,
        /// The system's error.
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
    #[error("{}: reading the new file back: the block at byte {offset_bytes} differs from what was written: nothing was put in place; check disk and memory", path.display())]
    Damaged {
        /// The output's path.
        path: PathBuf,
        /// The offset of the damaged block in the file.
        offset_bytes: u64,
    },
    /// A row of the new file differs from the sorted row that it was written from.
    #[error(
        "reading the new file back: row {row} differs from the sorted row: nothing was put in place; check disk and memory"
    )]
    Compare {
        /// The row's number, counted from 0 in key order.
        row: u64,
    },
    /// The number of rows in the new file differs from the number written.
    #[error(
        "reading the new file back: {found_rows} rows, where {expected_rows} were expected: nothing was put in place"
    )]
    ReadBack {
        /// The number of rows written.
        expected_rows: u64,
        /// The number of rows read back.
        found_rows: u64,
    },
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
            BakeError::Delimiter { .. } => &[Remedy::SetDelimiter],
            BakeError::SlotsKeysUnknown => &[Remedy::ChooseKeyKind],
            BakeError::ShardCount { .. } | BakeError::ShardLen { .. } => &[Remedy::ChooseShards],
            BakeError::ShardSlot { .. } | BakeError::ShardsTooMany { .. } => &[Remedy::ChooseShards],
            BakeError::TooManyTables { .. } | BakeError::Memory { .. } => &[Remedy::AllowMoreMemory],
            BakeError::Threads { .. } => &[Remedy::UseFewerThreads],
            BakeError::BadRows { .. } => &[Remedy::AllowMoreBadRows],
            BakeError::Limit(FormatError::Unhashable) => &[Remedy::BakeShards],
            BakeError::Replace { error, .. } => {
                let is_kind = matches!(error, ReplaceError::KeyKind { .. });
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
