//! The interface between input formats and the rest of a bake.
//!
//! An input format is a [`PieceReader`], which cuts one input into pieces on the reading thread, and a [`ParsePiece`],
//! which parses one piece on any thread.

use crate::bake::error::BakeError;
use crate::bake::fill::Filler;
use crate::bake::input::InputFacts;
use crate::bake::origins::RowUnit;

/// Reads one input piece by piece.
pub(in crate::bake) trait PieceReader {
    /// Returns the unit that this format counts rows in.
    fn row_unit(&self) -> RowUnit;

    /// Returns the next piece, or `None` at the end. `buffer` is memory of an earlier piece for reuse. Must not be called
    /// again after an error.
    fn next_piece(&mut self, buffer: Vec<u8>) -> Result<Option<Piece>, BakeError>;

    /// Returns the number of bytes read so far, before decompression.
    fn read_bytes(&self) -> u64;

    /// Reads the rest of the input, if there is any, and returns the input's length and digest.
    fn finish(self: Box<Self>) -> Result<InputFacts, BakeError>;
}

/// Consecutive rows of an input.
pub(in crate::bake) struct Piece {
    /// The first line, or the first row in formats without lines.
    pub(in crate::bake) first_line: u64,
    /// An upper bound of the line numbers of the piece's rows.
    pub(in crate::bake) last_line_max: u64,
    /// The approximate memory of the rows.
    pub(in crate::bake) len_bytes: usize,
    /// Whether the first row may be a header, although the options declare none.
    pub(in crate::bake) may_be_header: bool,
    pub(in crate::bake) rows: Box<dyn ParsePiece>,
}

/// Parses the rows of one piece.
pub(in crate::bake) trait ParsePiece: Send {
    /// Adds the rows to a batch.
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError>;

    /// Returns the piece's memory for reuse, if another piece can use it.
    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>>;
}
