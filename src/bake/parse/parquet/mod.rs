//! Rows out of Parquet.
//!
//! In: a file. Out: rows, by way of pieces of it that are decoded one after the
//! other and parsed on any thread. Only the columns that are asked for are read.
//! A column is meant by its number from 1 or its name; one inside a group by its path,
//! `group.name`. Lists and maps cannot be taken.
//!
//! What `column` says of types holds for keys and values alike: integers become
//! their decimals, and dates and times their text. Keys must be integers, text or binary.

mod column;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use ::parquet::basic::Compression;
use ::parquet::column::reader::ColumnReader;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use super::pack::Packer;
use super::{RawRow, RowSink, RowSpec, ValueSpec, is_deletion};
use crate::bake::{BakeError, Column, RowFault};
use column::{Cells, ColumnType, Cursor};

/// What a piece is to take up in memory, as far as the file's own sizes tell.
pub(in crate::bake) const PIECE_LEN_BYTES: u64 = 4 << 20;
const PIECE_ROWS_MAX: u64 = 16 << 10;

/// Decodes a file piece by piece.
pub(in crate::bake) struct ParquetPieces {
    name: String,
    file: SerializedFileReader<File>,
    columns: Columns,
    next_group: usize,
    group: Option<Group>,
    /// Rows in the pieces so far.
    rows: u64,
}

/// The columns that are asked for, each once, and which of them are what.
#[derive(Clone)]
struct Columns {
    columns: Vec<ColumnType>,
    key: usize,
    values: Vec<usize>,
    delete: Option<usize>,
    /// If several columns are the value.
    packer: Option<Packer>,
}

/// A row group that is being read.
struct Group {
    readers: Vec<ColumnReader>,
    rows_left: u64,
    piece_rows: u64,
}

/// Some rows, decoded.
pub(in crate::bake) struct Piece {
    /// Counted from 1.
    first_row: u64,
    rows: usize,
    /// In the order of [`Columns`].
    columns: Vec<Cells>,
}

impl Piece {
    pub(in crate::bake) fn first_row(&self) -> u64 {
        self.first_row
    }

    pub(in crate::bake) fn rows(&self) -> usize {
        self.rows
    }
}

impl ParquetPieces {
    pub(in crate::bake) fn open(file: File, spec: &RowSpec, name: &str) -> Result<Self, BakeError> {
        let file = guarded(|| SerializedFileReader::new(file)).map_err(|error| unreadable(name, &error))?;
        let columns = Columns::find(file.metadata().file_metadata().schema_descr(), spec)
            .map_err(|fault| BakeError::Columns { input: name.to_owned(), fault })?;
        Ok(ParquetPieces { name: name.to_owned(), file, columns, next_group: 0, group: None, rows: 0 })
    }

    /// What makes rows of the pieces; each thread has its own.
    pub(in crate::bake) fn parser(&self) -> ParquetParser {
        ParquetParser {
            columns: self.columns.clone(),
            key_text: Vec::new(),
            value_text: Vec::new(),
            delete_text: Vec::new(),
        }
    }

    /// The next rows, or `None` after the last. Nothing can be read after an error.
    pub(in crate::bake) fn next_piece(&mut self) -> Result<Option<Piece>, BakeError> {
        guarded(|| self.read_piece()).map_err(|error| unreadable(&self.name, &error))
    }

    fn read_piece(&mut self) -> Result<Option<Piece>, ParquetError> {
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
        Ok(Some(Piece { first_row, rows, columns }))
    }
}

impl Group {
    fn open(file: &SerializedFileReader<File>, index: usize, columns: &[ColumnType]) -> Result<Group, ParquetError> {
        let group = file.get_row_group(index)?;
        for column in columns {
            let compression = group.metadata().column(column.leaf()).compression();
            if matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
                let expected = "where SNAPPY, GZIP, LZ4, ZSTD or none was expected";
                return Err(ParquetError::General(format!(
                    "{:?} is compressed by {compression}, {expected}",
                    column.name()
                )));
            }
        }
        let readers = columns.iter().map(|column| group.get_column_reader(column.leaf())).collect::<Result<_, _>>()?;
        let rows = u64::try_from(group.metadata().num_rows())
            .map_err(|_| ParquetError::General(format!("row group {index} has a negative number of rows")))?;
        let len_bytes = |group: &RowGroupMetaData, column: &ColumnType| {
            u64::try_from(group.column(column.leaf()).uncompressed_size()).unwrap_or(0)
        };
        let len_bytes =
            columns.iter().fold(0u64, |sum, column| sum.saturating_add(len_bytes(group.metadata(), column)));
        let row_len_bytes = (len_bytes / rows.max(1)).max(1);
        let piece_rows = (PIECE_LEN_BYTES / row_len_bytes).clamp(1, PIECE_ROWS_MAX);
        Ok(Group { readers, rows_left: rows, piece_rows })
    }
}

/// Makes rows of pieces.
#[derive(Clone)]
pub(in crate::bake) struct ParquetParser {
    columns: Columns,
    key_text: Vec<u8>,
    value_text: Vec<u8>,
    delete_text: Vec<u8>,
}

impl ParquetParser {
    pub(in crate::bake) fn parse(
        &mut self,
        piece: &Piece,
        sink: &mut (impl RowSink + ?Sized),
    ) -> Result<(), BakeError> {
        let columns = self.columns.columns.clone();
        let mut cursors: Vec<_> =
            columns.iter().zip(&piece.columns).map(|(column, cells)| Cursor::new(column, cells)).collect();
        for row in 0..piece.rows {
            // All go on together, also if one of them has a fault.
            let next = cursors.iter_mut().map(Cursor::advance).fold(Ok(()), Result::and);
            let line = piece.first_row + row as u64;
            match next.and_then(|()| self.row(line, &cursors)) {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(line, fault, b"")?,
            }
        }
        Ok(())
    }

    fn row<'s>(&'s mut self, line: u64, cursors: &'s [Cursor<'_>]) -> Result<RawRow<'s>, RowFault> {
        let Columns { key, values, delete, packer, .. } = &mut self.columns;
        let null = |cursor: &Cursor<'_>| RowFault::Null { column: cursor.name().to_owned() };
        let key = &cursors[*key];
        let key = key.cell().content(&mut self.key_text).ok_or_else(|| null(key))?;
        let delete = delete.and_then(|delete| cursors[delete].cell().content(&mut self.delete_text));
        let value = match packer {
            Some(packer) => packer.pack(values.iter().map(|value| cursors[*value].cell()))?,
            None => match cursors[values[0]].cell().content(&mut self.value_text) {
                Some(value) => value,
                // Nobody gives a value to what is to be removed.
                None if delete.and_then(is_deletion) == Some(true) => b"",
                None => return Err(null(&cursors[values[0]])),
            },
        };
        Ok(RawRow { line, key, value, delete, text: b"" })
    }
}

impl Columns {
    fn find(schema: &SchemaDescriptor, spec: &RowSpec) -> Result<Columns, String> {
        let (key, values) = match (&spec.key, &spec.value) {
            (Some(key), ValueSpec::Column(value)) => (key.clone(), vec![value.clone()]),
            (Some(key), ValueSpec::Packed(values, _)) => (key.clone(), values.clone()),
            (key, value) => {
                let count = schema.root_schema().get_fields().len();
                let given = match (key, value) {
                    (Some(column), _) | (None, ValueSpec::Column(column)) => Some(column),
                    (None, ValueSpec::Unnamed | ValueSpec::Packed(..)) => None,
                };
                if count != 2 || matches!(value, ValueSpec::Packed(..)) {
                    return Err(format!("rows have {count} columns: choose with --key and with --value or --columns"));
                }
                match given {
                    None => (Column::Number(1), vec![Column::Number(2)]),
                    Some(given) => {
                        let other = Column::Number(2 - root_of(schema, given, "--key or --value")?);
                        if key.is_some() { (given.clone(), vec![other]) } else { (other, vec![given.clone()]) }
                    }
                }
            }
        };
        let mut columns: Vec<ColumnType> = Vec::new();
        let mut position = |option: &str, column: &Column| {
            let (leaf, description) = leaf_of(schema, column, option)?;
            Ok::<_, String>(columns.iter().position(|column| column.leaf() == leaf).unwrap_or({
                columns.push(ColumnType::new(leaf, &description).map_err(|fault| format!("{option} {fault}"))?);
                columns.len() - 1
            }))
        };
        let is_packed = matches!(spec.value, ValueSpec::Packed(..));
        let key = position("--key", &key)?;
        let option = if is_packed { "--columns" } else { "--value" };
        let values = values.iter().map(|value| position(option, value)).collect::<Result<Vec<_>, _>>()?;
        let delete = spec.delete.as_ref().map(|delete| position("--delete-column", delete)).transpose()?;
        columns[key].check_key()?;
        let packer = match &spec.value {
            ValueSpec::Packed(_, pack) => {
                Some(Packer::new(values.iter().map(|value| columns[*value].name().to_owned()), *pack))
            }
            ValueSpec::Unnamed | ValueSpec::Column(_) => None,
        };
        Ok(Columns { columns, key, values, delete, packer })
    }
}

/// Where among the columns of the schema, counted from 0, the one is that has this column.
fn root_of(schema: &SchemaDescriptor, column: &Column, option: &str) -> Result<usize, String> {
    leaf_of(schema, column, option).map(|(leaf, _)| schema.get_column_root_idx(leaf))
}

/// The leaf that a column is, which must hold one value a row.
fn leaf_of(schema: &SchemaDescriptor, column: &Column, option: &str) -> Result<(usize, ColumnDescPtr), String> {
    let root = schema.root_schema().get_fields();
    let name = match column {
        Column::Name(name) => name.clone(),
        Column::Number(number) => match number.checked_sub(1).and_then(|position| root.get(position)) {
            Some(field) => field.name().to_owned(),
            None => return Err(format!("{option} {number} is not a column: rows have {}", root.len())),
        },
    };
    match schema.columns().iter().position(|leaf| leaf.path().string() == name) {
        Some(leaf) if schema.column(leaf).max_rep_level() == 0 => Ok((leaf, schema.column(leaf))),
        Some(_) => {
            Err(format!("{option} {name:?} is a list, of which a row may have many values: choose another column"))
        }
        None if root.iter().any(|field| field.name() == name) => {
            let inside =
                schema.columns().iter().find(|leaf| leaf.path().parts()[0] == name && leaf.max_rep_level() == 0);
            Err(match inside {
                Some(leaf) => {
                    let example = leaf.path().string();
                    format!("{option} {name:?} is a group: name a column inside, as in {example:?}")
                }
                None => format!(
                    "{option} {name:?} is a list or a map, of which a row may have many values: choose another column"
                ),
            })
        }
        None => {
            let names: Vec<_> = root.iter().map(|field| field.name()).collect();
            Err(format!("{option} {name:?} is not a column: rows have {}", names.join(", ")))
        }
    }
}

/// The parquet crate panics at some damaged files; to whoever bakes that is an error like others.
/// What it was reading is not used again, so that no state in between is seen.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panic::catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("it is damaged".to_owned())))
}

fn unreadable(name: &str, error: &ParquetError) -> BakeError {
    let message = format!("cannot be read as Parquet: {error}: write it again");
    BakeError::Input { input: name.to_owned(), error: io::Error::new(io::ErrorKind::InvalidData, message) }
}
