//! Text formats, in which each row ends at the end of a line.

use super::cut::{CutError, Cutter, TextPiece};
use super::{ParsePiece, Piece, PieceReader};
use crate::bake::budget::Budget;
use crate::bake::error::BakeError;
use crate::bake::fill::Filler;
use crate::bake::input::{InputFacts, OpenInput};
use crate::bake::origins::RowUnit;
use crate::bake::row::RowSink;

/// A text format: the rules for cutting an input into pieces, and the parser of the pieces.
pub(super) trait TextFormat {
    type Parser: TextParser;

    /// Returns the delimiter if the format has quoted fields. Returns `None` for a format without quotes, in which
    /// every line feed ends a row.
    fn delimiter(&self) -> Option<u8>;

    /// Returns whether an input's first row could be a header that the options do not declare.
    fn may_have_header(&self) -> bool;

    /// Returns the minimum length of the first piece, from which [`TextFormat::parser`] may infer types.
    fn first_piece_len_min_bytes(&self) -> usize;

    /// Returns the parser of an input. Removes the header, if there is one, from the first piece. Returns `None` if
    /// this piece has only blank lines. The caller then passes the next piece as `first`.
    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<Self::Parser>, BakeError>;
}

/// Parses the pieces of one input.
pub(super) trait TextParser: Clone + Send + 'static {
    fn parse(&mut self, piece: &TextPiece, sink: &mut impl RowSink) -> Result<(), BakeError>;
}

/// Reads one input of a text format.
pub(super) struct TextReader<'i, F: TextFormat> {
    name: String,
    cutter: Cutter<OpenInput<'i>>,
    format: F,
    /// The parser. `None` until a piece has a row.
    parser: Option<F::Parser>,
}

impl<'i, F: TextFormat> TextReader<'i, F> {
    pub(super) fn new(opened: OpenInput<'i>, format: F, budget: &Budget) -> Self {
        let name = opened.name().to_owned();
        let cutter = Cutter::new(opened, format.delimiter(), budget.piece_len_bytes(), budget.row_len_max_bytes())
            .with_first_piece(format.first_piece_len_min_bytes());
        TextReader { name, cutter, format, parser: None }
    }
}

impl<F: TextFormat> PieceReader for TextReader<'_, F> {
    fn row_unit(&self) -> RowUnit {
        RowUnit::Line
    }

    fn next_piece(&mut self, mut buffer: Vec<u8>) -> Result<Option<Piece>, BakeError> {
        loop {
            let mut text = match self.cutter.next_piece(buffer) {
                Ok(Some(text)) => text,
                Ok(None) => return Ok(None),
                Err(CutError::Io(error)) => return Err(BakeError::Input { input: self.name.clone(), error }),
                Err(CutError::Row { line, fault }) => {
                    return Err(BakeError::Row { input: self.name.clone(), line, fault });
                }
            };
            // Every line has at least one byte, so this number is an upper bound.
            let last_line_max = text.first_line + text.bytes.len() as u64;
            let is_first = self.parser.is_none();
            if is_first {
                self.parser = self.format.parser(&self.name, &mut text)?;
            }
            let Some(parser) = &self.parser else {
                buffer = text.bytes;
                continue;
            };
            return Ok(Some(Piece {
                first_line: text.first_line,
                last_line_max,
                len_bytes: text.bytes.len(),
                may_be_header: is_first && self.format.may_have_header(),
                rows: Box::new(ParseText { parser: parser.clone(), text }),
            }));
        }
    }

    fn read_bytes(&self) -> u64 {
        self.cutter.input().read_bytes()
    }

    fn finish(self: Box<Self>) -> Result<InputFacts, BakeError> {
        self.cutter.into_input().finish()
    }
}

struct ParseText<P> {
    parser: P,
    text: TextPiece,
}

impl<P: TextParser> ParsePiece for ParseText<P> {
    fn parse(&mut self, filler: &mut Filler<'_>) -> Result<(), BakeError> {
        self.parser.parse(&self.text, filler)
    }

    fn into_buffer(self: Box<Self>) -> Option<Vec<u8>> {
        Some(self.text.bytes)
    }
}
