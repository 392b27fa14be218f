//! Text formats, in which each row ends at the end of a line.
//!
//! In: an input. Out: pieces that end at the end of a row, so that each can be parsed independently. A quote at the
//! start of a field opens the field (RFC 4180). In an open field, two adjacent quotes stand for one quote in the
//! field's text, and any other quote closes the field.

use std::io::{self, Read};

use super::{ParsePiece, Piece, PieceReader, RowUnit};
use crate::bake::budget::Context;
use crate::bake::error::{BakeError, RowFault};
use crate::bake::input::{InputFacts, OpenInput};
use crate::bake::row::{Filler, RowSink};
use crate::bake::typed::infer::INFERENCE_LEN_BYTES;
use crate::csv_text::BYTE_ORDER_MARK;

/// A text format: the rules for cutting an input into pieces, and the parser of the pieces.
pub(super) trait TextFormat {
    type Parser: TextParser;

    /// Returns the delimiter if the format has quoted fields. Returns `None` for a format without quotes, in which
    /// every line feed ends a row.
    fn delimiter(&self) -> Option<u8>;

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
    /// Whether an input's first row could be a header that the options do not declare.
    may_have_header: bool,
    /// The parser. `None` until a piece has a row.
    parser: Option<F::Parser>,
}

impl<'i, F: TextFormat> TextReader<'i, F> {
    pub(super) fn new(opened: OpenInput<'i>, format: F, context: &Context<'_>) -> Self {
        let (name, delimiter, budget) = (opened.name().to_owned(), format.delimiter(), context.budget);
        let mut cutter = Cutter::new(opened, delimiter, budget.piece_len_bytes(), budget.row_len_max_bytes());
        if context.typed.is_some() {
            cutter = cutter.with_first_piece(INFERENCE_LEN_BYTES);
        }
        let may_have_header = delimiter.is_some() && !context.options.header;
        TextReader { name, cutter, format, may_have_header, parser: None }
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
                may_be_header: is_first && self.may_have_header,
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

/// Consecutive whole rows of a text input.
pub(super) struct TextPiece {
    pub(super) bytes: Vec<u8>,
    /// The number of the first line, counted from 1.
    pub(super) first_line: u64,
    pub(super) has_quotes: bool,
}

/// The reason why the next piece cannot be returned.
pub(super) enum CutError {
    Io(io::Error),
    Row { line: u64, fault: RowFault },
}

/// Cuts one input into pieces.
pub(super) struct Cutter<R> {
    input: R,
    /// The delimiter of a format with quoted fields. `None` for a format without quotes, in which every line feed ends
    /// a row.
    delimiter: Option<u8>,
    piece_len_bytes: usize,
    /// The length of the next piece, if it is the first one.
    first_piece_len_bytes: usize,
    row_len_max_bytes: usize,
    /// Bytes that have been read, but are not in a piece yet. They begin with the start of a row.
    rest: Vec<u8>,
    next_line: u64,
    is_first: bool,
    at_end: bool,
    /// The error to return instead of the next piece.
    fault: Option<CutError>,
}

impl<R: Read> Cutter<R> {
    /// Returns a cutter whose pieces have about `piece_len_bytes` bytes. A longer row becomes a longer piece. A row
    /// longer than `row_len_max_bytes` is an error.
    pub(super) fn new(input: R, delimiter: Option<u8>, piece_len_bytes: usize, row_len_max_bytes: usize) -> Self {
        Cutter {
            input,
            delimiter,
            piece_len_bytes,
            first_piece_len_bytes: piece_len_bytes,
            row_len_max_bytes,
            rest: Vec::new(),
            next_line: 1,
            is_first: true,
            at_end: false,
            fault: None,
        }
    }

    /// Makes the first piece at least as long as `len_min_bytes`, if the input is.
    pub(super) fn with_first_piece(self, len_min_bytes: usize) -> Self {
        Cutter { first_piece_len_bytes: self.piece_len_bytes.max(len_min_bytes), ..self }
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// Returns the next piece, or `None` at the end of the input. The piece reuses the memory of `bytes`.
    pub(super) fn next_piece(&mut self, mut bytes: Vec<u8>) -> Result<Option<TextPiece>, CutError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        bytes.clear();
        bytes.append(&mut self.rest);
        let mut rows = RowEnds::default();
        let piece_len_bytes = std::mem::replace(&mut self.first_piece_len_bytes, self.piece_len_bytes);
        let mut wanted = piece_len_bytes;
        while !self.at_end {
            let before = bytes.len();
            let read = self.read(&mut bytes, wanted);
            rows.scan(&bytes, self.delimiter, self.at_end);
            if let Err(error) = read {
                // The rows before the error are returned first.
                self.fault = Some(CutError::Io(error));
                break;
            }
            if rows.end > 0 && bytes.len() >= piece_len_bytes {
                break;
            }
            if bytes.len() - rows.end > self.row_len_max_bytes {
                self.fault =
                    Some(CutError::Row { line: 0, fault: RowFault::Endless { len_max_bytes: self.row_len_max_bytes } });
                break;
            }
            // Doubles the buffer for a long row. The next scan begins after the bytes that have already been scanned.
            wanted = (bytes.len() * 2).min(self.row_len_max_bytes + piece_len_bytes).max(before + 1);
        }
        if self.at_end && self.fault.is_none() {
            match rows.is_open {
                // If an earlier quote is malformed, its error is more helpful than an error for the unclosed quote.
                true => {
                    let delimiter = self.delimiter.unwrap_or_default();
                    let first = quote_faults(&bytes[rows.end..], delimiter).into_iter().next();
                    let fault = first.map_or(RowFault::UnclosedQuote, |(_, fault)| fault);
                    self.fault = Some(CutError::Row { line: 0, fault });
                }
                false => rows.end = bytes.len(),
            }
        }
        // The rest begins with the start of a row, so the next piece can be parsed on another thread.
        self.rest.extend_from_slice(&bytes[rows.end..]);
        bytes.truncate(rows.end);
        let first_line = self.next_line;
        self.next_line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        if let Some(CutError::Row { line, .. }) = &mut self.fault {
            *line = self.next_line + blank_lines(&self.rest);
        }
        if bytes.is_empty() {
            return self.fault.take().map_or(Ok(None), Err);
        }
        Ok(Some(TextPiece { bytes, first_line, has_quotes: rows.has_quotes }))
    }

    /// Reads until `bytes` has `wanted` bytes or the input ends.
    fn read(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
        let missing = wanted.saturating_sub(bytes.len()).max(1);
        bytes.try_reserve(missing).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.at_end = self.input.by_ref().take(missing as u64).read_to_end(bytes)? < missing;
        if std::mem::take(&mut self.is_first) && bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(())
    }
}

fn blank_lines(bytes: &[u8]) -> u64 {
    bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).filter(|byte| **byte == b'\n').count() as u64
}

/// Returns whether a quote at the offset `at` opens a field.
fn opens_field(bytes: &[u8], at: usize, delimiter: u8) -> bool {
    let before = at.checked_sub(1).map_or(b'\n', |before| bytes[before]);
    before == delimiter || before == b'\n'
}

/// Finds the last row end in bytes that begin with the start of a row. More bytes can be appended between two calls of
/// [`RowEnds::scan`].
#[derive(Default)]
pub(super) struct RowEnds {
    scanned_bytes: usize,
    /// The offset of the first byte after the last line end outside quotes.
    pub(super) end: usize,
    /// Whether the bytes end inside a quoted field.
    pub(super) is_open: bool,
    pub(super) has_quotes: bool,
}

impl RowEnds {
    /// Scans the bytes that were appended since the last call. If `delimiter` is `None`, the format has no quotes. If
    /// `at_end` is true, no more bytes follow.
    pub(super) fn scan(&mut self, bytes: &[u8], delimiter: Option<u8>, at_end: bool) {
        let Some(delimiter) = delimiter else {
            self.find_line_end(bytes, bytes.len());
            return;
        };
        // A line end outside quotes ends a row, so cutting needs no parser, and only quotes are searched.
        let mut at = self.scanned_bytes;
        while let Some(found) = memchr::memchr(b'"', &bytes[at..]) {
            let quote = at + found;
            match self.is_open {
                false => {
                    self.find_line_end(bytes, quote);
                    if opens_field(bytes, quote, delimiter) {
                        self.is_open = true;
                        self.has_quotes = true;
                    }
                    at = quote + 1;
                }
                true => match bytes.get(quote + 1) {
                    Some(b'"') => at = quote + 2,
                    // The next byte decides whether this quote closes the field, so the next call scans the quote
                    // again.
                    None if !at_end => {
                        self.scanned_bytes = quote;
                        return;
                    }
                    _ => {
                        self.is_open = false;
                        at = quote + 1;
                    }
                },
            }
            self.scanned_bytes = at;
        }
        if !self.is_open {
            self.find_line_end(bytes, bytes.len());
        }
        self.scanned_bytes = bytes.len();
    }

    /// Finds the last line end before `to`. The bytes to scan must be outside quotes.
    fn find_line_end(&mut self, bytes: &[u8], to: usize) {
        if let Some(found) = memchr::memrchr(b'\n', &bytes[self.scanned_bytes..to]) {
            self.end = self.scanned_bytes + found + 1;
        }
        self.scanned_bytes = to;
    }
}

/// Returns the offset and fault of each malformed quote and each bare carriage return. The crate `csv` accepts both.
pub(super) fn quote_faults(bytes: &[u8], delimiter: u8) -> Vec<(usize, RowFault)> {
    let mut faults = Vec::new();
    let (mut is_open, mut skipped) = (false, None);
    for at in memchr::memchr2_iter(b'\r', b'"', bytes) {
        let next = bytes.get(at + 1);
        match (bytes[at], is_open) {
            (b'\r', false) if next != Some(&b'\n') => faults.push((at, RowFault::BareReturn)),
            (b'\r', _) => {}
            _ if skipped == Some(at) => {}
            (_, false) => is_open = opens_field(bytes, at, delimiter),
            (_, true) if next == Some(&b'"') => skipped = Some(at + 1),
            (_, true) => {
                is_open = false;
                if next.is_some_and(|next| *next != delimiter && !matches!(next, b'\n' | b'\r')) {
                    faults.push((at, RowFault::TextAfterQuote));
                }
            }
        }
    }
    faults
}
