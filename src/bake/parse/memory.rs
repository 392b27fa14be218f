//! Reads rows that the caller has in memory.
//!
//! Keys and values can be any bytes, because there are no delimiters or quotes to find. Rows are counted from 1.

use std::mem;

use twox_hash::XxHash3_128;

use super::piece::{ParsePiece, Piece, PieceReader};
use crate::bake::error::BakeError;
use crate::bake::fill::Filler;
use crate::bake::input::row_piece::RowPiece;
use crate::bake::input::{Compression, FillRows, InputFacts};
use crate::bake::origins::RowUnit;
use crate::bake::row::{InputRow, RowSink};

/// Reads, piece by piece, an input whose rows are in memory.
pub(super) struct MemoryReader<'i> {
    name: String,
    fill: FillRows<'i>,
    piece_len_bytes: usize,
    rows: u64,
    len_bytes: u64,
    hasher: XxHash3_128,
}

impl<'i> MemoryReader<'i> {
    pub(super) fn new(name: String, fill: FillRows<'i>, piece_len_bytes: usize) -> Self {
        MemoryReader { name, fill, piece_len_bytes, rows: 0, len_bytes: 0, hasher: XxHash3_128::new() }
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
            rows: Box::new(MemoryPiece { first_line, rows }),
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
}

impl ParsePiece for MemoryPiece {
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        for (line, (key, value)) in (self.first_line..).zip(self.rows.iter()) {
            filler.row(&InputRow { line, key, value, delete: None, text: b"" })?;
        }
        Ok(())
    }

    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
        Some(self.rows.into_buffer())
    }
}
