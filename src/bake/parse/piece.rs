//! The interface between input formats and the other stages of a bake.
//!
//! An input format implements [`PieceReader`], which cuts one input into pieces on the reading thread, and
//! [`ParsePiece`], which parses one piece on any thread.

use crate::bake::error::BakeError;
use crate::bake::fill::Filler;
use crate::bake::input::InputFacts;
use crate::bake::origins::RowUnit;

/// Reads one input, in pieces.
pub(in crate::bake) trait PieceReader {
    /// Returns the unit in which this format counts rows.
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
    /// Whether the first row could be a header that the options do not declare.
    pub(in crate::bake) may_be_header: bool,
    pub(in crate::bake) rows: Box<dyn ParsePiece>,
}

/// Parses the rows of one piece.
pub(in crate::bake) trait ParsePiece: Send {
    /// Parses the rows and passes them to the filler.
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError>;

    /// Returns the piece's buffer, if a later piece can reuse it.
    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>>;
}
