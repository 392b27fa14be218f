//! Reads rows that the caller has in memory.
//!
//! Keys and values can be any bytes, because there are no delimiters or quotes to find. Rows are counted from 1.

use std::mem;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use super::piece::{ParsePiece, Piece, PieceReader};
use crate::bake::columns::ColumnsFault;
use crate::bake::context::Context;
use crate::bake::error::BakeError;
use crate::bake::fill::Filler;
use crate::bake::input::row_piece::RowPiece;
use crate::bake::input::{Compression, FillRows, InputFacts};
use crate::bake::origins::RowUnit;
use crate::bake::remedy::Remedy;
use crate::bake::row::{InputRow, RowSink};
use crate::bake::typed::row_builder::RowBuilder;
use crate::typed::Schema;

/// Reads, piece by piece, an input whose rows are in memory.
pub(super) struct MemoryReader<'i> {
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
    pub(super) fn open(name: String, fill: FillRows<'i>, context: &Context<'_>) -> Result<Self, BakeError> {
        let declared = context.typed.as_ref().map(|typed| typed.declared_schema(context.options.key.as_ref()));
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
            may_be_header: false,
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
        for (line, (key, value)) in (self.first_line..).zip(self.rows.iter()) {
            if let Some(schema) = &self.schema
                && let Err(fault) = RowBuilder::check(schema, value)
            {
                filler.bad(line, fault, b"")?;
                continue;
            }
            filler.row(&InputRow { line, key, value, delete: None, text: b"" })?;
        }
        Ok(())
    }

    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
        Some(self.rows.into_buffer())
    }
}
