//! Text formats, in which each row ends at the end of a line.
//!
//! In: an input. Out: pieces that end at the end of a row, so that each can be parsed independently. If the format has
//! quotes, a quote at the start of a field opens the field (RFC 4180). In an open field, two adjacent quotes stand for
//! one quote in the field's text, and any other quote closes the field.

use std::io::{self, Read};

use super::dialect::Dialect;
use super::json_values::{JsonLayout, JsonValues};
use super::{ParsePiece, Piece, PieceReader, RowUnit};
use crate::bake::bad_rows::BadRows;
use crate::bake::budget::Context;
use crate::bake::error::{BakeError, RowFault, RowPlace};
use crate::bake::input::{InputFacts, OpenInput};
use crate::bake::row::{Filler, RowSink};
use crate::bake::typed::infer::INFERENCE_LEN_BYTES;
use crate::bake::warning::Warning;
use crate::csv_text::BYTE_ORDER_MARK;

/// The length of the part of an input that shows the number of fields if bad rows are skipped: the first row, and all
/// rows that end within this length. The length does not depend on the memory of the bake.
pub(super) const FIELD_COUNT_LEN_BYTES: usize = 64 << 10;

/// A text format: the rules for cutting an input into pieces, and the parser of the pieces.
pub(super) trait TextFormat {
    type Parser: TextParser;

    fn row_rule(&self) -> RowRule;

    /// Returns the number of lines that precede the header and the rows.
    fn skip_lines(&self) -> u64;

    /// Returns the parser of an input. Removes the header, if there is one, from the first piece. Returns `None` if
    /// this piece has only blank lines. The caller then passes the next piece as `first`.
    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<Self::Parser>, BakeError>;
}

/// The rule that determines where rows end.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowRule {
    Delimited(Dialect),
    Json {
        /// `None` until enough bytes have been read.
        layout: Option<JsonLayout>,
        /// Whether the bytes scanned so far end inside a list of rows.
        is_in_list: bool,
    },
}

impl RowRule {
    pub(super) const JSON: RowRule = RowRule::Json { layout: None, is_in_list: false };

    fn has_values(&self) -> bool {
        matches!(self, RowRule::Json { layout: Some(JsonLayout::Values), .. })
    }
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
        let (name, rule, budget) = (opened.name().to_owned(), format.row_rule(), context.budget);
        let may_have_header = matches!(rule, RowRule::Delimited(_)) && !context.options.header;
        let mut cutter = Cutter::new(opened, rule, budget.piece_len_bytes(), budget.row_len_max_bytes());
        cutter.skip_lines = format.skip_lines();
        if context.typed.is_some() {
            cutter = cutter.with_first_piece(INFERENCE_LEN_BYTES);
        } else if context.options.bad_rows != BadRows::Refuse {
            cutter = cutter.with_first_piece(FIELD_COUNT_LEN_BYTES);
        }
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
                first_row: RowPlace { is_first, may_be_header: is_first && self.may_have_header },
                warnings: std::mem::take(&mut text.warnings),
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
    /// If rows are JSON values that can span lines: whether the piece begins inside a list. `None` if lines are rows,
    /// and for delimited text.
    pub(super) starts_in_list: Option<bool>,
    /// What is suspicious about the first rows of the input, if this is the first piece.
    pub(super) warnings: Vec<Warning>,
}

#[cfg(test)]
impl TextPiece {
    /// Returns a piece without quotes.
    pub(super) fn of_lines(bytes: Vec<u8>, first_line: u64) -> TextPiece {
        TextPiece { bytes, first_line, has_quotes: false, starts_in_list: None, warnings: Vec::new() }
    }
}

/// The reason why the next piece cannot be returned.
pub(super) enum CutError {
    Io(io::Error),
    Row { line: u64, fault: RowFault },
}

/// Cuts one input into pieces.
pub(super) struct Cutter<R> {
    input: R,
    rule: RowRule,
    /// The number of lines to skip before the first piece.
    skip_lines: u64,
    piece_len_bytes: usize,
    /// The length of the next piece, if it is the first one.
    first_piece_len_bytes: usize,
    row_len_max_bytes: usize,
    /// Bytes that have been read, but are not in a piece yet. They begin with the start of a row.
    rest: Vec<u8>,
    next_line: u64,
    has_begun: bool,
    /// Whether nothing has been read yet.
    is_first: bool,
    at_end: bool,
    /// The error to return instead of the next piece.
    fault: Option<CutError>,
}

impl<R: Read> Cutter<R> {
    /// Returns a cutter whose pieces have about `piece_len_bytes` bytes. A longer row becomes a longer piece. A row
    /// longer than `row_len_max_bytes` is an error.
    pub(super) fn new(input: R, rule: RowRule, piece_len_bytes: usize, row_len_max_bytes: usize) -> Self {
        Cutter {
            input,
            rule,
            skip_lines: 0,
            piece_len_bytes,
            first_piece_len_bytes: piece_len_bytes,
            row_len_max_bytes,
            rest: Vec::new(),
            next_line: 1,
            has_begun: false,
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
        if !std::mem::replace(&mut self.has_begun, true) {
            self.skip_leading_lines().map_err(CutError::Io)?;
        }
        bytes.append(&mut self.rest);
        let starts_in_list = matches!(self.rule, RowRule::Json { is_in_list: true, .. });
        let mut rows = RowEnds::default();
        let piece_len_bytes = std::mem::replace(&mut self.first_piece_len_bytes, self.piece_len_bytes);
        let mut wanted = piece_len_bytes;
        if self.at_end {
            // The bytes after skipped lines have not been scanned.
            rows.scan(&bytes, &mut self.rule, true);
        }
        while !self.at_end {
            let before = bytes.len();
            let read = self.read(&mut bytes, wanted);
            rows.scan(&bytes, &mut self.rule, self.at_end);
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
                    let fault = match self.rule {
                        RowRule::Delimited(dialect) => {
                            first_quote_fault(&bytes[rows.end..], dialect).unwrap_or(RowFault::UnclosedQuote)
                        }
                        RowRule::Json { .. } => RowFault::UnclosedJson,
                    };
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
        Ok(Some(TextPiece {
            bytes,
            first_line,
            has_quotes: rows.has_quotes,
            starts_in_list: self.rule.has_values().then_some(starts_in_list),
            warnings: Vec::new(),
        }))
    }

    /// Skips the lines that the options skip. In delimited text, also skips the blank lines and comments after them, so
    /// that the first piece begins with a row, whatever the length of a piece is.
    fn skip_leading_lines(&mut self) -> io::Result<()> {
        let RowRule::Delimited(dialect) = self.rule else { return Ok(()) };
        // Whether the start of the current line has been dropped.
        let mut is_skipping = false;
        loop {
            let (mut bytes, mut at) = (std::mem::take(&mut self.rest), 0);
            while let Some(found) = memchr::memchr(b'\n', &bytes[at..]) {
                let line = &bytes[at..at + found];
                let is_row = !(is_skipping || line.is_empty() || line == b"\r" || dialect.is_comment(line));
                if self.skip_lines == 0 && is_row {
                    self.rest = bytes.split_off(at);
                    return Ok(());
                }
                (self.skip_lines, is_skipping) = (self.skip_lines.saturating_sub(1), false);
                (self.next_line, at) = (self.next_line + 1, at + found + 1);
            }
            bytes.drain(..at);
            is_skipping |= !bytes.is_empty() && (self.skip_lines > 0 || dialect.is_comment(&bytes));
            if is_skipping {
                bytes.clear();
            }
            let is_row = !bytes.is_empty() && bytes != b"\r";
            if !is_row && !self.at_end {
                self.read(&mut bytes, self.piece_len_bytes)?;
                self.rest = bytes;
                continue;
            }
            self.rest = bytes;
            return Ok(());
        }
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

/// Finds the last row end in bytes that begin with the start of a row. More bytes can be appended between two calls of
/// [`RowEnds::scan`].
#[derive(Default)]
pub(super) struct RowEnds {
    scanned_bytes: usize,
    /// The offset of the first byte after the last line end outside quotes.
    pub(super) end: usize,
    /// Whether the bytes end inside a quoted field, a JSON value, or a list of rows.
    pub(super) is_open: bool,
    pub(super) has_quotes: bool,
}

impl RowEnds {
    /// Scans the bytes that were appended since the last call. If `at_end` is true, no more bytes follow.
    pub(super) fn scan(&mut self, bytes: &[u8], rule: &mut RowRule, at_end: bool) {
        match rule {
            RowRule::Delimited(dialect) => match (dialect.quote, dialect.escape) {
                (Some(quote), _) => self.scan_quotes(bytes, *dialect, quote, at_end),
                (None, Some(escape)) => self.find_unescaped_line_end(bytes, escape),
                (None, None) => self.find_line_end(bytes, bytes.len()),
            },
            RowRule::Json { layout, is_in_list } => {
                *layout = layout.or_else(|| JsonLayout::detect(bytes, at_end));
                match layout {
                    None => {}
                    Some(JsonLayout::Lines) => self.find_line_end(bytes, bytes.len()),
                    Some(JsonLayout::Values) => self.find_value_end(bytes, is_in_list, at_end),
                }
            }
        }
    }

    /// Finds the end of the last complete JSON value. An incomplete value is scanned again in the next call.
    fn find_value_end(&mut self, bytes: &[u8], is_in_list: &mut bool, at_end: bool) {
        let mut values = JsonValues { bytes, at: self.end, is_in_list: *is_in_list, at_end };
        values.by_ref().for_each(drop);
        (self.end, *is_in_list) = (values.at, values.is_in_list);
        self.is_open = values.at < bytes.len() || values.is_in_list;
    }

    fn scan_quotes(&mut self, bytes: &[u8], dialect: Dialect, quote_byte: u8, at_end: bool) {
        // A line end outside quotes ends a row, so cutting needs no parser, and only quotes are searched.
        let mut at = self.scanned_bytes;
        while let Some(found) = self.find_quote(&bytes[at..], dialect, quote_byte) {
            let quote = at + found;
            match self.is_open {
                false => {
                    self.find_line_end(bytes, quote);
                    if dialect.opens_field(bytes, quote) && !dialect.is_comment(&bytes[self.end..]) {
                        self.is_open = true;
                        self.has_quotes = true;
                    }
                    at = quote + 1;
                }
                true => match bytes.get(quote + 1) {
                    // Two quotes, or an escape and the byte after it.
                    Some(next) if *next == quote_byte || bytes[quote] != quote_byte => at = quote + 2,
                    // The next byte decides whether this quote closes the field, so the next call scans the quote
                    // again.
                    None if !at_end => {
                        self.scanned_bytes = quote;
                        return;
                    }
                    _ => {
                        self.is_open = bytes[quote] != quote_byte;
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

    /// Returns the position of the next quote, or, in an open field, of the next quote or escape.
    #[inline]
    fn find_quote(&self, bytes: &[u8], dialect: Dialect, quote: u8) -> Option<usize> {
        match dialect.escape {
            Some(escape) if self.is_open => memchr::memchr2(quote, escape, bytes),
            _ => memchr::memchr(quote, bytes),
        }
    }

    /// Finds the last line end that does not follow an escape. A line end is skipped if an odd number of escapes
    /// precedes it. In a comment, such a line end ends a row, too, but rows can be cut elsewhere.
    fn find_unescaped_line_end(&mut self, bytes: &[u8], escape: u8) {
        for found in memchr::memrchr_iter(b'\n', &bytes[self.scanned_bytes..]) {
            let at = self.scanned_bytes + found;
            if bytes[..at].iter().rev().take_while(|byte| **byte == escape).count() % 2 == 0 {
                self.end = at + 1;
                break;
            }
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
/// The dialect must have neither escapes nor comments.
pub(super) fn quote_faults(bytes: &[u8], dialect: Dialect) -> Vec<(usize, RowFault)> {
    let Some(quote) = dialect.quote else { return Vec::new() };
    let mut faults = Vec::new();
    let (mut is_open, mut skipped) = (false, None);
    for at in memchr::memchr2_iter(b'\r', quote, bytes) {
        let next = bytes.get(at + 1);
        match (bytes[at], is_open) {
            (b'\r', false) if next != Some(&b'\n') => faults.push((at, RowFault::BareReturn)),
            (b'\r', _) => {}
            _ if skipped == Some(at) => {}
            (_, false) => is_open = dialect.opens_field(bytes, at),
            (_, true) if next == Some(&quote) => skipped = Some(at + 1),
            (_, true) => {
                is_open = false;
                if next.is_some_and(|next| *next != dialect.delimiter && !matches!(next, b'\n' | b'\r')) {
                    faults.push((at, RowFault::text_after_quote(&bytes[..at])));
                }
            }
        }
    }
    faults
}

/// Returns the first fault of the quotes of a row that is not closed.
fn first_quote_fault(row: &[u8], dialect: Dialect) -> Option<RowFault> {
    if dialect.escape.is_some() || dialect.comment.is_some() {
        return None;
    }
    quote_faults(row, dialect).into_iter().next().map(|(_, fault)| fault)
}
