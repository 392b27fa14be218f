//! Apache Parquet.
//!
//! Only the chosen columns are read. A column is chosen by its number, counted from 1, or by its name. A column in a
//! group is chosen by its path, `group.name`. Maps are rejected, and lists are rejected unless the table is typed. If no
//! key column is chosen, it is the index of a pandas DataFrame: see [`pandas_index`].
//!
//! [`column`] lists the types and their conversions. Dates and times always become text. In keys, and in values that
//! are not packed, integers become decimal text. Keys must be integers, text, binary, dates,
//! or timestamps.

mod arrow_schema;
mod column;
mod list_len;
mod pandas_index;
#[cfg(test)]
mod tests;
mod typed;

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use ::parquet::basic::{Compression, Encoding, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{ByteArray, Int96};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use ::parquet::file::statistics::Statistics;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::deletions::DeletionColumns;
use super::pack::{Packer, ValueColumns};
use super::{ParsePiece, Piece, PieceReader, RowUnit};
use crate::bake::budget::Context;
use crate::bake::columns::{Column, ColumnRole, ColumnsFault, ValueSpec};
use crate::bake::error::{BakeError, Remedy, RowFault, RowPlace};
use crate::bake::input::{InputFacts, OpenInput};
use crate::bake::keys::KeyColumns;
use crate::bake::options::Options;
use crate::bake::row::{Filler, InputRow, RowSink, value_unless_removed};
use crate::bake::typed::TypedPlan;
use crate::bake::warning::Warning;
use crate::format::key_type::{KeyType, PartType};
use arrow_schema::ArrowSchema;
use column::{Cells, ColumnType, Cursor};
use pandas_index::PandasIndex;

/// The target size of a piece in memory. The size of a piece is estimated from the file's metadata.
const PIECE_LEN_BYTES: u64 = 4 << 20;
const PIECE_ROWS_MAX: u64 = 16 << 10;

/// Reads one Parquet input.
pub(super) struct ParquetReader<'i> {
    opened: OpenInput<'i>,
    decoder: Decoder,
}

impl<'i> ParquetReader<'i> {
    pub(super) fn open(mut opened: OpenInput<'i>, context: &Context<'_>) -> Result<Self, BakeError> {
        let file = opened.seekable(&context.budget.temp_dir)?;
        let decoder = Decoder::open(file, context.options, context.typed.as_ref(), opened.name())?;
        Ok(ParquetReader { opened, decoder })
    }
}

impl PieceReader for ParquetReader<'_> {
    fn row_unit(&self) -> RowUnit {
        RowUnit::Row
    }

    fn next_piece(&mut self, _: Vec<u8>) -> Result<Option<Piece>, BakeError> {
        let Some(decoded) = self.decoder.next()? else { return Ok(None) };
        Ok(Some(Piece {
            first_line: decoded.first_row,
            last_line_max: decoded.first_row + decoded.rows as u64,
            len_bytes: PIECE_LEN_BYTES as usize,
            first_row: RowPlace { is_first: decoded.first_row == 1, may_be_header: false },
            warnings: std::mem::take(&mut self.decoder.warnings),
            rows: Box::new(ParquetPiece { columns: self.decoder.columns.clone(), decoded }),
        }))
    }

    fn read_bytes(&self) -> u64 {
        self.opened.read_bytes()
    }

    fn finish(self: Box<Self>) -> Result<InputFacts, BakeError> {
        self.opened.finish()
    }
}

/// Decodes the chosen columns of a file, piece by piece.
struct Decoder {
    name: String,
    file: SerializedFileReader<File>,
    columns: Columns,
    /// What is suspicious about the columns, until it is reported.
    warnings: Vec<Warning>,
    next_group: usize,
    group: Option<Group>,
    /// The number of rows decoded so far.
    rows: u64,
}

/// The chosen columns, without duplicates, and their roles.
#[derive(Clone)]
struct Columns {
    columns: Vec<ColumnType>,
    /// The positions of the key columns in `columns`.
    key: KeyColumns,
    /// The position of the end of ranges in `columns`.
    end: Option<usize>,
    value: ValueColumns,
    delete: Option<usize>,
}

/// The row group that is being decoded.
struct Group {
    readers: Vec<ColumnReader>,
    rows_left: u64,
    piece_rows: u64,
}

/// Consecutive decoded rows.
struct DecodedRows {
    /// The number of the first row, counted from 1.
    first_row: u64,
    rows: usize,
    /// The values of each column, in the order of [`Columns::columns`].
    columns: Vec<Cells>,
}

impl Decoder {
    fn open(file: File, options: &Options, plan: Option<&TypedPlan>, name: &str) -> Result<Self, BakeError> {
        let file = catch_panic(|| SerializedFileReader::new(file)).map_err(|error| unreadable(name, None, &error))?;
        let mut warnings = Vec::new();
        let columns = match plan {
            None => Columns::find(&FileSchema::new(&file), options).map_err(|fault| fault.in_input(name))?,
            Some(plan) => Columns::find_typed(&file, options, plan, name, &mut warnings)?,
        };
        let deletions = catch_panic(|| warning_of_possible_deletions(&file, options, plan, name));
        warnings.extend(deletions.map_err(|error| unreadable(name, Some(&file), &error))?);
        Ok(Decoder { name: name.to_owned(), file, columns, warnings, next_group: 0, group: None, rows: 0 })
    }

    /// Returns the next rows, or `None` after the last row. Must not be called again after an error.
    fn next(&mut self) -> Result<Option<DecodedRows>, BakeError> {
        catch_panic(|| self.decode()).map_err(|error| unreadable(&self.name, Some(&self.file), &error))
    }

    fn decode(&mut self) -> Result<Option<DecodedRows>, ParquetError> {
        let group = loop {
            match &mut self.group {
                Some(group) if group.rows_left > 0 => break group,
                _ if self.next_group == self.file.num_row_groups() => return Ok(None),
                _ => {
                    self.group = Some(Group::open(&self.file, self.next_group, &self.columns.columns)?);
                    self.next_group += 1;
                }
            }
        };
        let rows = group.piece_rows.min(group.rows_left) as usize;
        let columns = self.columns.columns.iter().zip(&mut group.readers);
        let columns = columns.map(|(column, reader)| column.read(reader, rows)).collect::<Result<Vec<_>, _>>()?;
        let first_row = self.rows + 1;
        group.rows_left -= rows as u64;
        self.rows += rows as u64;
        Ok(Some(DecodedRows { first_row, rows, columns }))
    }
}

impl Group {
    fn open(file: &SerializedFileReader<File>, index: usize, columns: &[ColumnType]) -> Result<Group, ParquetError> {
        let group = file.get_row_group(index)?;
        for column in columns {
            let compression = group.metadata().column(column.leaf).compression();
            if matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
                let expected = "where SNAPPY, GZIP, LZ4, ZSTD or none was expected";
                return Err(ParquetError::General(format!(
                    "{:?} is compressed by {compression}, {expected}",
                    column.name
                )));
            }
        }
        let readers = columns.iter().map(|column| group.get_column_reader(column.leaf)).collect::<Result<_, _>>()?;
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| ParquetError::General(format!("row group {index} has a negative number of rows")))?;
        let len_bytes = |column: &ColumnType| decoded_len_bytes(group.metadata().column(column.leaf));
        let len_bytes = columns.iter().fold(0_u64, |sum, column| sum.saturating_add(len_bytes(column)));
        // The metadata states the length of the decoded columns before anything is decoded.
        let row_len_bytes = (len_bytes / rows.max(1)).max(1);
        let piece_rows = (PIECE_LEN_BYTES / row_len_bytes).clamp(1, PIECE_ROWS_MAX);
        Ok(Group { readers, rows_left: rows, piece_rows })
    }
}

/// Returns the approximate length of a column of a row group in memory. A few bytes of a file can have many values, if
/// they are equal: lists then have far more values than bytes.
fn decoded_len_bytes(column: &ColumnChunkMetaData) -> u64 {
    let value_len_bytes = match column.column_type() {
        Type::BOOLEAN => size_of::<bool>(),
        Type::INT32 | Type::FLOAT => size_of::<u32>(),
        Type::INT64 | Type::DOUBLE => size_of::<u64>(),
        Type::INT96 => size_of::<Int96>(),
        Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => size_of::<ByteArray>(),
    };
    // A definition level and a repetition level.
    let value_len_bytes = (value_len_bytes + 2 * size_of::<i16>()) as u64;
    let [stored_len_bytes, values] =
        [column.uncompressed_size(), column.num_values()].map(|number| u64::try_from(number).unwrap_or(0));
    stored_len_bytes.max(values.saturating_mul(value_len_bytes))
}

/// Decoded rows, to be parsed.
struct ParquetPiece {
    columns: Columns,
    decoded: DecodedRows,
}

impl ParsePiece for ParquetPiece {
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        self.parse_into(filler)
    }

    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
        None
    }
}

impl ParquetPiece {
    fn parse_into(&mut self, sink: &mut impl RowSink) -> Result<(), BakeError> {
        if matches!(self.columns.value, ValueColumns::Typed(..)) {
            return self.parse_typed_into(sink);
        }
        let (columns, mut texts) = (self.columns.columns.clone(), Texts::default());
        let mut cursors: Vec<_> =
            columns.iter().zip(&self.decoded.columns).map(|(column, cells)| Cursor::new(column, cells)).collect();
        for row in 0..self.decoded.rows {
            // Every cursor advances, even if another cursor has a fault.
            let next = cursors.iter_mut().map(Cursor::advance).fold(Ok(()), Result::and);
            let line = self.decoded.first_row + row as u64;
            match next.and_then(|()| self.columns.row(line, &cursors, &mut texts)) {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(line, fault, b"")?,
            }
        }
        Ok(())
    }
}

/// Buffers for the text of cells that are not stored as text.
#[derive(Default)]
struct Texts {
    key: Vec<u8>,
    end: Vec<u8>,
    value: Vec<u8>,
    delete: Vec<u8>,
}

impl KeyColumns {
    /// Returns the written form of the key whose parts are the cells of the cursors at its positions.
    fn text_of<'t>(&'t mut self, cursors: &'t [Cursor<'_>], text: &'t mut Vec<u8>) -> Result<&'t [u8], RowFault> {
        let null = |position: usize| RowFault::Null { column: cursors[position].column.name.clone() };
        self.text(
            |position| cursors[position].cell().content(text).ok_or_else(|| null(position)),
            |position| {
                let mut part = Vec::new();
                let part = cursors[position].cell().content(&mut part).map(<[u8]>::to_vec);
                part.ok_or_else(|| null(position))
            },
        )
    }
}

impl Columns {
    fn row<'s>(
        &'s mut self,
        line: u64,
        cursors: &'s [Cursor<'_>],
        texts: &'s mut Texts,
    ) -> Result<InputRow<'s>, RowFault> {
        let null = |cursor: &Cursor<'_>| RowFault::Null { column: cursor.column.name.clone() };
        let end = self.end.map(|end| {
            let end = &cursors[end];
            end.cell().content(&mut texts.end).ok_or_else(|| null(end))
        });
        let end = end.transpose()?;
        let key = self.key.text_of(cursors, &mut texts.key)?;
        let delete = self.delete.and_then(|delete| cursors[delete].cell().content(&mut texts.delete));
        let value = match &mut self.value {
            ValueColumns::Packed(columns, packer) => {
                packer.pack(columns.iter().map(|column| cursors[*column].cell()))?
            }
            ValueColumns::Typed(..) => unreachable!("typed rows have their own parser"),
            ValueColumns::One(column) => {
                let value = cursors[*column].cell().content(&mut texts.value);
                value_unless_removed(value, delete, || null(&cursors[*column]))?
            }
        };
        Ok(InputRow { line, key, end, value, delete, text: b"" })
    }

    fn find(schema: &FileSchema<'_>, options: &Options) -> Result<Columns, ColumnsFault> {
        let mut columns: Vec<ColumnType> = Vec::new();
        let position = |columns: &mut Vec<ColumnType>, role: ColumnRole, column: &Column| {
            let leaf = leaf_of(schema.parquet, column, role)?;
            if let Some(position) = columns.iter().position(|column| column.leaf == leaf) {
                return Ok(position);
            }
            columns.push(schema.column(leaf, role)?);
            Ok::<_, ColumnsFault>(columns.len() - 1)
        };
        let (key, value) = match (schema.key(options)?, &options.value) {
            (Some(key), ValueSpec::Packed(packed)) => {
                let key = position(&mut columns, ColumnRole::Key, &key)?;
                let packed = packed.iter().map(|column| position(&mut columns, ColumnRole::Packed, column));
                let packed = packed.collect::<Result<Vec<_>, _>>()?;
                let packer = Packer::new(packed.iter().map(|column| columns[*column].name.clone()));
                (key, ValueColumns::Packed(packed, packer))
            }
            (key, value) => {
                let (key, value) = key_and_value(schema.parquet, key.as_ref(), options.end_column(), value)?;
                let key = position(&mut columns, ColumnRole::Key, &key)?;
                (key, ValueColumns::One(position(&mut columns, ColumnRole::Value, &value)?))
            }
        };
        let delete = options.delete_column.as_ref();
        let delete = delete.map(|delete| position(&mut columns, ColumnRole::Delete, delete)).transpose()?;
        let more_keys = options.more_key_columns.iter();
        let more_keys = more_keys.map(|column| position(&mut columns, ColumnRole::Key, column));
        let more_keys = more_keys.collect::<Result<Vec<_>, _>>()?;
        let end = options.end_column();
        let end = end.map(|end| position(&mut columns, ColumnRole::End, end)).transpose()?;
        let parts = options.key_part_types();
        let key = KeyColumns::new(key, more_keys);
        let keys = key.iter().zip(&parts).chain(end.into_iter().zip(parts.last()));
        keys.into_iter().try_for_each(|(key, part)| columns[key].check_key(*part))?;
        Ok(Columns { columns, key, end, value, delete })
    }
}

/// Returns the type of the keys that the key columns of a Parquet file have by their types: dates, timestamps, UUIDs, or
/// integers of which one is negative; for several key columns, any types. Returns `None` if the type of the column leaves
/// the type of the keys open, or if the file is no Parquet file with these columns, which a bake reports.
///
/// # Example
/// ```
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("rows.csv");
/// std::fs::write(&path, "1,one\n")?;
/// assert_eq!(bake::parquet_key_type(&path, &Options::default()), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parquet_key_type(path: &Path, options: &Options) -> Option<KeyType> {
    // Opening and closing a pipe would end the program that writes to it.
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let file = is_file.then(|| File::open(path).ok())??;
    let file = catch_panic(|| SerializedFileReader::new(file)).ok()?;
    let schema = FileSchema::new(&file);
    let first = match schema.key(options).ok()? {
        Some(key) => key,
        None if options.typed.is_some() => return None,
        None => key_and_value(schema.parquet, None, options.end_column(), &options.value).ok()?.0,
    };
    let parts = std::iter::once(&first).chain(&options.more_key_columns).map(|column| {
        let leaf = leaf_of(schema.parquet, column, ColumnRole::Key).ok()?;
        schema.column(leaf, ColumnRole::Key).ok()?.key_part(|| has_negative(&file, leaf))
    });
    let parts = parts.collect::<Option<Vec<_>>>()?;
    match parts[..] {
        [PartType::U64 | PartType::Bytes] => None,
        _ => KeyType::of_parts(&parts),
    }
}

/// Returns whether the statistics of a column of integers have a negative value.
fn has_negative(file: &SerializedFileReader<File>, leaf: usize) -> bool {
    file.metadata().row_groups().iter().any(|group| match group.column(leaf).statistics() {
        Some(Statistics::Int32(of_group)) => of_group.min_opt().is_some_and(|min| *min < 0),
        Some(Statistics::Int64(of_group)) => of_group.min_opt().is_some_and(|min| *min < 0),
        _ => false,
    })
}

/// Returns a warning if a column seems to mark deletions in the first rows.
fn warning_of_possible_deletions(
    file: &SerializedFileReader<File>,
    options: &Options,
    plan: Option<&TypedPlan>,
    input: &str,
) -> Result<Option<Warning>, ParquetError> {
    let schema = file.metadata().file_metadata().schema_descr();
    let leaves = schema.columns().iter().enumerate().filter(|(_, column)| column.max_rep_level() == 0);
    let deletions = DeletionColumns::new(options, plan, leaves.map(|(leaf, column)| (column.path().string(), leaf)));
    let groups = file.metadata().row_groups();
    let Some(first) = groups.iter().position(|group| group.num_rows() > 0) else { return Ok(None) };
    for leaf in deletions.columns() {
        let Ok(column) = ColumnType::new(leaf, &schema.column(leaf), ColumnRole::Delete) else { continue };
        let mut group = Group::open(file, first, std::slice::from_ref(&column))?;
        let rows = group.piece_rows.min(group.rows_left) as usize;
        let cells = column.read(&mut group.readers[0], rows)?;
        let (mut cursor, mut text) = (Cursor::new(&column, &cells), Vec::new());
        for _ in 0..rows {
            let is_text = cursor.advance().is_ok();
            let value = cursor.cell().content(&mut text).filter(|_| is_text);
            if let Some(warning) = deletions.warning(input, |other| value.filter(|_| other == leaf)) {
                return Ok(Some(warning));
            }
        }
    }
    Ok(None)
}

/// Returns the key column and the value column. Unless the options choose both columns, the file must have exactly these
/// two columns, in addition to the end of ranges.
fn key_and_value(
    schema: &SchemaDescriptor,
    key: Option<&Column>,
    end: Option<&Column>,
    value: &ValueSpec,
) -> Result<(Column, Column), ColumnsFault> {
    if let (Some(key), ValueSpec::Column(value)) = (key, value) {
        return Ok((key.clone(), value.clone()));
    }
    let count = schema.root_schema().get_fields().len();
    let expected = if end.is_some() { 3 } else { 2 };
    if count != expected || matches!(value, ValueSpec::Packed(..)) {
        let message =
            format!("rows have {count} columns: choose the key column and the value column or packed columns");
        return Err(ColumnsFault::new(message, &[Remedy::ChooseKey, Remedy::ChooseValue, Remedy::ChooseColumns]));
    }
    let root = |column: &Column, role| leaf_of(schema, column, role).map(|leaf| schema.get_column_root_idx(leaf));
    let end = end.map(|end| root(end, ColumnRole::End)).transpose()?;
    let other_than = |column: &Column, role| {
        let taken = [Some(root(column, role)?), end];
        let other = (0..count).find(|position| !taken.contains(&Some(*position))).unwrap_or(0);
        Ok::<_, ColumnsFault>(Column::Number(other + 1))
    };
    match (key, value) {
        (Some(key), _) => Ok((key.clone(), other_than(key, ColumnRole::Key)?)),
        (None, ValueSpec::Column(value)) => Ok((other_than(value, ColumnRole::Value)?, value.clone())),
        (None, _) => Ok((Column::Number(1), Column::Number(2))),
    }
}

/// What a file tells about its columns.
struct FileSchema<'f> {
    parquet: &'f SchemaDescriptor,
    arrow: ArrowSchema,
    index: PandasIndex,
}

impl<'f> FileSchema<'f> {
    fn new(file: &'f SerializedFileReader<File>) -> FileSchema<'f> {
        let metadata = file.metadata().file_metadata();
        let (parquet, entries) = (metadata.schema_descr(), metadata.key_value_metadata());
        let is_column = |name: &str| parquet.root_schema().get_fields().iter().any(|field| field.name() == name);
        FileSchema { parquet, arrow: ArrowSchema::new(entries), index: PandasIndex::new(entries, is_column) }
    }

    /// Returns the key column that the options choose. If they choose none, the index of a pandas DataFrame is the key,
    /// unless it is chosen as the value.
    fn key(&self, options: &Options) -> Result<Option<Column>, ColumnsFault> {
        if options.key.is_some() {
            return Ok(options.key.clone());
        }
        let Some(index) = self.index.key()?.map(|name| Column::Name(name.to_owned())) else { return Ok(None) };
        if let ValueSpec::Column(value) = &options.value
            && leaf_of(self.parquet, value, ColumnRole::Value)? == leaf_of(self.parquet, &index, ColumnRole::Key)?
        {
            return Ok(None);
        }
        Ok(Some(index))
    }

    /// Returns a leaf column of a table that is not typed, or a column of keys or of marks of deletions.
    fn column(&self, leaf: usize, role: ColumnRole) -> Result<ColumnType, ColumnsFault> {
        let column = ColumnType::new(leaf, &self.parquet.column(leaf), role)?;
        match self.arrow.facts(&column.name).duration_unit {
            None => Ok(column),
            Some(unit) => {
                let problem = format!(
                    "has durations in {unit}, which are not supported: convert it to an integer, or choose another \
                     column"
                );
                Err(ColumnsFault::of_column(role, format_args!("{:?}", column.name), problem))
            }
        }
    }
}

/// Returns the position of a column among the leaf columns of the file. Rejects a column that can hold several values
/// per row.
fn leaf_of(schema: &SchemaDescriptor, column: &Column, role: ColumnRole) -> Result<usize, ColumnsFault> {
    let root = schema.root_schema().get_fields();
    let fault = |problem: &dyn Display| Err(ColumnsFault::of_column(role, column, problem));
    let leaves = 0..schema.num_columns();
    let (name, found): (&str, Vec<usize>) = match column {
        Column::Name(name) => (name, leaves.filter(|leaf| schema.column(*leaf).path().string() == *name).collect()),
        Column::Number(number) => {
            match number.checked_sub(1).and_then(|position| Some((position, root.get(position)?))) {
                Some((position, field)) => {
                    let is_own = |leaf: &usize| {
                        schema.get_column_root_idx(*leaf) == position && schema.column(*leaf).path().parts().len() == 1
                    };
                    (field.name(), leaves.filter(is_own).collect())
                }
                None => return fault(&format_args!("does not exist: rows have {} columns", root.len())),
            }
        }
    };
    match found[..] {
        [leaf] if schema.column(leaf).max_rep_level() == 0 => Ok(leaf),
        [_] => fault(
            &"is a list, which can have several values per row: choose another column; only typed columns can be lists",
        ),
        [_, _, ..] => fault(&several(role)),
        [] if root.iter().any(|field| field.name() == name) => {
            let inside =
                schema.columns().iter().find(|leaf| leaf.path().parts()[0] == name && leaf.max_rep_level() == 0);
            match inside {
                Some(leaf) => {
                    let example = leaf.path().string();
                    fault(&format_args!("is a group: choose a column inside, such as {example:?}"))
                }
                None => fault(
                    &"is a list or a map, which can have several values per row: choose another column; only typed \
                      columns can be lists",
                ),
            }
        }
        [] => {
            let names: Vec<_> = root.iter().map(|field| field.name()).collect();
            fault(&format_args!("does not exist: rows have {}", names.join(", ")))
        }
    }
}

/// Returns the problem of a name that several columns have. The columns of a typed table have names, so a number does
/// not help there.
fn several(role: ColumnRole) -> &'static str {
    match role {
        ColumnRole::Typed => "appears several times in the file: rename one of the columns",
        _ => "appears several times in the file: choose it by number",
    }
}

/// Turns a panic into an error, because the crate `parquet` panics on some damaged files. The crate's reader must not
/// be used after an error, so its inconsistent state is never observed.
fn catch_panic<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panic::catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the file is damaged".to_owned())))
}

fn unreadable(name: &str, file: Option<&SerializedFileReader<File>>, error: &ParquetError) -> BakeError {
    let remedy = match file.is_some_and(has_deltas) {
        true => "write it again without delta encoding, in DuckDB with PARQUET_VERSION v1",
        false => "write it again",
    };
    let message = format!("cannot be read as Parquet: {error}: {remedy}");
    BakeError::Input { input: name.to_owned(), error: io::Error::new(io::ErrorKind::InvalidData, message) }
}

/// Returns whether integers of a file are encoded as their differences. Some writers encode differences that are wider
/// than the integers, which Parquet does not allow.
fn has_deltas(file: &SerializedFileReader<File>) -> bool {
    let groups = file.metadata().row_groups().iter();
    groups
        .flat_map(RowGroupMetaData::columns)
        .any(|column| column.encodings().any(|encoding| matches!(encoding, Encoding::DELTA_BINARY_PACKED)))
}
