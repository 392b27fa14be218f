//! Apache Parquet.
//!
//! Only the chosen columns are read. A column is chosen by its number, counted from 1, or by its name. A column in a
//! group is chosen by its path, `group.name`. Maps are rejected, and lists are rejected unless the table is typed.
//!
//! [`column`] lists the types and their conversions. Dates and times always become text. In keys, and in values that
//! are not packed, integers become decimal text. Keys must be integers, text, or binary.

mod column;
#[cfg(test)]
mod tests;
mod typed;

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use ::parquet::basic::Compression;
use ::parquet::column::reader::ColumnReader;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use super::pack::{Packer, ValueColumns};
use super::{ParsePiece, Piece, PieceReader, RowUnit};
use crate::bake::budget::Context;
use crate::bake::columns::{Column, ColumnRole, ColumnsFault, ValueSpec};
use crate::bake::error::{BakeError, Remedy, RowFault};
use crate::bake::input::{InputFacts, OpenInput};
use crate::bake::options::Options;
use crate::bake::row::{Filler, InputRow, RowSink, value_unless_removed};
use crate::bake::typed::TypedPlan;
use column::{Cells, ColumnType, Cursor};

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
            may_be_header: false,
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
    next_group: usize,
    group: Option<Group>,
    /// The number of rows decoded so far.
    rows: u64,
}

/// The chosen columns, without duplicates, and their roles.
#[derive(Clone)]
struct Columns {
    columns: Vec<ColumnType>,
    /// The key's position in `columns`.
    key: usize,
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
        let file = catch_panic(|| SerializedFileReader::new(file)).map_err(|error| unreadable(name, &error))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let columns = match plan {
            None => Columns::find(schema, options).map_err(|fault| fault.in_input(name))?,
            Some(plan) => Columns::find_typed(schema, options, plan, name)?,
        };
        Ok(Decoder { name: name.to_owned(), file, columns, next_group: 0, group: None, rows: 0 })
    }

    /// Returns the next rows, or `None` after the last row. Must not be called again after an error.
    fn next(&mut self) -> Result<Option<DecodedRows>, BakeError> {
        catch_panic(|| self.decode()).map_err(|error| unreadable(&self.name, &error))
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
        let len_bytes = |group: &RowGroupMetaData, column: &ColumnType| {
            u64::try_from(group.column(column.leaf).uncompressed_size()).unwrap_or(0)
        };
        let len_bytes =
            columns.iter().fold(0u64, |sum, column| sum.saturating_add(len_bytes(group.metadata(), column)));
        // The metadata states the length of the decoded columns before anything is decoded.
        let row_len_bytes = (len_bytes / rows.max(1)).max(1);
        let piece_rows = (PIECE_LEN_BYTES / row_len_bytes).clamp(1, PIECE_ROWS_MAX);
        Ok(Group { readers, rows_left: rows, piece_rows })
    }
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
    value: Vec<u8>,
    delete: Vec<u8>,
}

impl Columns {
    fn row<'s>(
        &'s mut self,
        line: u64,
        cursors: &'s [Cursor<'_>],
        texts: &'s mut Texts,
    ) -> Result<InputRow<'s>, RowFault> {
        let null = |cursor: &Cursor<'_>| RowFault::Null { column: cursor.column.name.clone() };
        let key = &cursors[self.key];
        let key = key.cell().content(&mut texts.key).ok_or_else(|| null(key))?;
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
        Ok(InputRow { line, key, value, delete, text: b"" })
    }

    fn find(schema: &SchemaDescriptor, options: &Options) -> Result<Columns, ColumnsFault> {
        let mut columns: Vec<ColumnType> = Vec::new();
        let position = |columns: &mut Vec<ColumnType>, role: ColumnRole, column: &Column| {
            let (leaf, description) = leaf_of(schema, column, role)?;
            if let Some(position) = columns.iter().position(|column| column.leaf == leaf) {
                return Ok(position);
            }
            columns.push(ColumnType::new(leaf, &description, role)?);
            Ok::<_, ColumnsFault>(columns.len() - 1)
        };
        let (key, value) = match (&options.key, &options.value) {
            (Some(key), ValueSpec::Packed(packed)) => {
                let key = position(&mut columns, ColumnRole::Key, key)?;
                let packed = packed.iter().map(|column| position(&mut columns, ColumnRole::Packed, column));
                let packed = packed.collect::<Result<Vec<_>, _>>()?;
                let packer = Packer::new(packed.iter().map(|column| columns[*column].name.clone()));
                (key, ValueColumns::Packed(packed, packer))
            }
            (key, value) => {
                let (key, value) = key_and_value(schema, key.as_ref(), value)?;
                let key = position(&mut columns, ColumnRole::Key, &key)?;
                (key, ValueColumns::One(position(&mut columns, ColumnRole::Value, &value)?))
            }
        };
        let delete = options.delete_column.as_ref();
        let delete = delete.map(|delete| position(&mut columns, ColumnRole::Delete, delete)).transpose()?;
        columns[key].check_key()?;
        Ok(Columns { columns, key, value, delete })
    }
}

/// Returns the key column and the value column. Unless the options choose both columns, the file must have exactly two
/// columns.
fn key_and_value(
    schema: &SchemaDescriptor,
    key: Option<&Column>,
    value: &ValueSpec,
) -> Result<(Column, Column), ColumnsFault> {
    if let (Some(key), ValueSpec::Column(value)) = (key, value) {
        return Ok((key.clone(), value.clone()));
    }
    let count = schema.root_schema().get_fields().len();
    if count != 2 || matches!(value, ValueSpec::Packed(..)) {
        let message =
            format!("rows have {count} columns: choose the key column and the value column or packed columns");
        return Err(ColumnsFault::new(message, &[Remedy::ChooseKey, Remedy::ChooseValue, Remedy::ChooseColumns]));
    }
    let other_than = |column: &Column, role| {
        let (leaf, _) = leaf_of(schema, column, role)?;
        Ok::<_, ColumnsFault>(Column::Number(2 - schema.get_column_root_idx(leaf)))
    };
    match (key, value) {
        (Some(key), _) => Ok((key.clone(), other_than(key, ColumnRole::Key)?)),
        (None, ValueSpec::Column(value)) => Ok((other_than(value, ColumnRole::Value)?, value.clone())),
        (None, _) => Ok((Column::Number(1), Column::Number(2))),
    }
}

/// Returns the description of a column, and the column's position among the leaf columns of the file. Rejects a column
/// that can hold several values per row.
fn leaf_of(
    schema: &SchemaDescriptor,
    column: &Column,
    role: ColumnRole,
) -> Result<(usize, ColumnDescPtr), ColumnsFault> {
    let root = schema.root_schema().get_fields();
    let fault = |problem: &dyn Display| Err(ColumnsFault::of_column(role, column, problem));
    let name = match column {
        Column::Name(name) => name.clone(),
        Column::Number(number) => match number.checked_sub(1).and_then(|position| root.get(position)) {
            Some(field) => field.name().to_owned(),
            None => return fault(&format_args!("does not exist: rows have {} columns", root.len())),
        },
    };
    match schema.columns().iter().position(|leaf| leaf.path().string() == name) {
        Some(leaf) if schema.column(leaf).max_rep_level() == 0 => Ok((leaf, schema.column(leaf))),
        Some(_) => fault(&"is a list, which can have several values per row: choose another column"),
        None if root.iter().any(|field| field.name() == name) => {
            let inside =
                schema.columns().iter().find(|leaf| leaf.path().parts()[0] == name && leaf.max_rep_level() == 0);
            match inside {
                Some(leaf) => {
                    let example = leaf.path().string();
                    fault(&format_args!("is a group: choose a column inside, such as {example:?}"))
                }
                None => fault(&"is a list or a map, which can have several values per row: choose another column"),
            }
        }
        None => {
            let names: Vec<_> = root.iter().map(|field| field.name()).collect();
            fault(&format_args!("does not exist: rows have {}", names.join(", ")))
        }
    }
}

/// Turns a panic into an error, because the crate `parquet` panics on some damaged files. The crate's reader must not
/// be used after an error, so its inconsistent state is never observed.
fn catch_panic<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panic::catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the file is damaged".to_owned())))
}

fn unreadable(name: &str, error: &ParquetError) -> BakeError {
    let message = format!("cannot be read as Parquet: {error}: write it again");
    BakeError::Input { input: name.to_owned(), error: io::Error::new(io::ErrorKind::InvalidData, message) }
}
