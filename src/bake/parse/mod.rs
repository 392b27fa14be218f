//! Input formats.
//!
//! In: inputs. Out: rows, whose keys and values are bytes. Each format cuts its input into pieces ([`PieceReader`]) and
//! parses the pieces ([`ParsePiece`]). CONTRIBUTING.md says how to add a format.

mod deletions;
mod delimited;
mod dialect;
mod json_lines;
mod json_values;
mod pack;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(test)]
mod tests;
mod text;

use std::mem;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use super::budget::Context;
use super::columns::ColumnsFault;
use super::error::{BakeError, Remedy, RowPlace};
use super::input::{Compression, FillRows, Input, InputFacts, OpenInput, Opened, RowPiece};
use super::options::Format;
use super::row::{Filler, InputRow, RowSink};
use super::typed::row_builder::RowBuilder;
use super::warning::Warning;
use crate::typed::Schema;
use delimited::DelimitedFormat;
use dialect::Dialect;
use json_lines::JsonLinesFormat;
#[cfg(feature = "parquet")]
pub use parquet::parquet_key_type;
use text::TextReader;

/// Opens an input and returns the reader of its format.
pub(super) fn open<'i>(input: Input<'i>, context: &'i Context<'i>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    let options = context.options;
    let name = input.name().to_owned();
    let opened = match input.open()? {
        Opened::Bytes(opened) => *opened,
        Opened::Rows(fill) => return MemoryReader::open(name, fill, context).map(|reader| Box::new(reader) as _),
    };
    let delimited = |opened, delimiter: u8| -> Result<Box<dyn PieceReader + 'i>, BakeError> {
        let dialect = Dialect::new(options, delimiter)?;
        let format = DelimitedFormat { dialect, options, typed: context.typed.as_ref() };
        Ok(Box::new(TextReader::new(opened, format, context)))
    };
    Ok(match options.format.detect(&name, opened.head()) {
        Format::Auto | Format::Delimited => delimited(opened, b',')?,
        Format::Tsv => delimited(opened, b'\t')?,
        Format::JsonLines => {
            Box::new(TextReader::new(opened, JsonLinesFormat { options, typed: context.typed.as_ref() }, context))
        }
        Format::Parquet => parquet_reader(opened, context)?,
    })
}

#[cfg(feature = "parquet")]
fn parquet_reader<'i>(opened: OpenInput<'i>, context: &Context<'_>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    Ok(Box::new(parquet::ParquetReader::open(opened, context)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet_reader<'i>(opened: OpenInput<'i>, _: &Context<'_>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    use super::columns::ColumnsFault;
    let message = "is Parquet, but this program was built without the feature parquet: build it with the feature \
                   parquet or full, or convert the input to CSV";
    Err(ColumnsFault::new(message, &[]).in_input(opened.name()))
}

/// Reads, piece by piece, an input whose rows are in memory.
struct MemoryReader<'i> {
    name: String,
    fill: FillRows<'i>,
    piece_len_bytes: usize,
    /// The columns of a typed table.
    schema: Option<Arc<Schema>>,
    rows: u64,
    len_bytes: u64,
    hasher: XxHash3_128,
}

impl<'i> MemoryReader<'i> {
    fn open(name: String, fill: FillRows<'i>, context: &Context<'_>) -> Result<Self, BakeError> {
        let declared = context.typed.as_ref().map(|typed| typed.declared_schema(context.options));
        let schema = match declared.transpose()? {
            Some(None) => {
                let message = "rows in memory have no names and types of columns: declare them";
                return Err(ColumnsFault::new(message, &[Remedy::DeclareTypes]).in_input(&name));
            }
            declared => declared.flatten(),
        };
        let piece_len_bytes = context.budget.piece_len_bytes();
        Ok(MemoryReader { name, fill, piece_len_bytes, schema, rows: 0, len_bytes: 0, hasher: XxHash3_128::new() })
    }
}

impl PieceReader for MemoryReader<'_> {
    fn row_unit(&self) -> RowUnit {
        RowUnit::Row
    }

    fn next_piece(&mut self, buffer: Vec<u8>) -> Result<Option<Piece>, BakeError> {
        let mut rows = RowPiece::new(buffer, self.piece_len_bytes);
        (self.fill)(&mut rows).map_err(|error| BakeError::Input { input: self.name.clone(), error })?;
        if rows.is_empty() {
            return Ok(None);
        }
        let first_line = self.rows + 1;
        self.rows += rows.len() as u64;
        self.len_bytes += rows.content_len_bytes() as u64;
        rows.digest_into(&mut self.hasher);
        Ok(Some(Piece {
            first_line,
            last_line_max: self.rows,
            len_bytes: rows.len_bytes(),
            first_row: RowPlace { is_first: first_line == 1, may_be_header: false },
            warnings: Vec::new(),
            rows: Box::new(MemoryPiece { first_line, rows, schema: self.schema.clone() }),
        }))
    }

    fn read_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn finish(mut self: Box<Self>) -> Result<InputFacts, BakeError> {
        let (name, digest) = (mem::take(&mut self.name), self.hasher.finish_128());
        Ok(InputFacts { name, len_bytes: self.len_bytes, digest, compression: Compression::None })
    }
}

struct MemoryPiece {
    first_line: u64,
    rows: RowPiece,
    schema: Option<Arc<Schema>>,
}

impl ParsePiece for MemoryPiece {
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        for (line, [key, end, value]) in (self.first_line..).zip(self.rows.iter()) {
            if let Some(schema) = &self.schema
                && let Err(fault) = RowBuilder::check(schema, value)
            {
                filler.bad(line, fault, b"")?;
                continue;
            }
            filler.row(&InputRow { line, key, end: Some(end), value, delete: None, text: b"" })?;
        }
        Ok(())
    }

    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
        Some(self.rows.into_buffer())
    }
}

/// The unit in which messages count the rows of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bake) enum RowUnit {
    /// Lines of text, counted from 1.
    Line,
    /// Rows, counted from 1.
    Row,
    /// Rows of a table, counted from 0.
    TableRow,
}

/// Reads one input, in pieces.
pub(in crate::bake) trait PieceReader {
    fn row_unit(&self) -> RowUnit;

    /// Returns the next piece, or `None` at the end of the input. `buffer` is the buffer of an earlier piece, whose
    /// memory the next piece can reuse. Must not be called again after an error.
    fn next_piece(&mut self, buffer: Vec<u8>) -> Result<Option<Piece>, BakeError>;

    /// Returns the number of bytes read so far, counted before decompression.
    fn read_bytes(&self) -> u64;

    /// Reads the input to its end, and returns its length and digest.
    fn finish(self: Box<Self>) -> Result<InputFacts, BakeError>;
}

/// Consecutive rows of an input.
pub(in crate::bake) struct Piece {
    /// The number of the first line, or of the first row in formats without lines.
    pub(in crate::bake) first_line: u64,
    /// An upper bound on the line numbers of the piece's rows.
    pub(in crate::bake) last_line_max: u64,
    /// The approximate memory that the rows take before they are parsed.
    pub(in crate::bake) len_bytes: usize,
    /// The place of the first row.
    pub(in crate::bake) first_row: RowPlace,
    /// What is suspicious about the first rows of the input.
    pub(in crate::bake) warnings: Vec<Warning>,
    pub(in crate::bake) rows: Box<dyn ParsePiece>,
}

/// Parses the rows of one piece.
pub(in crate::bake) trait ParsePiece: Send {
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError>;

    /// Returns the piece's buffer, if a later piece can reuse it.
    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>>;
}
