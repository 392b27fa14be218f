//! Text cut into pieces that end where a row does, so that each can be parsed by
//! itself.
//!
//! In: a reader. Out: pieces, each with the number of its first line. It knows
//! quotes, for a line end between two is none of a row, and no other rule of any
//! format.

use std::io::{self, Read};

use super::error::RowFault;
use super::parse::delimited::faults;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Some whole rows.
pub(super) struct TextPiece {
    pub(super) bytes: Vec<u8>,
    /// Lines are counted from 1.
    pub(super) first_line: u64,
    pub(super) has_quotes: bool,
}

/// Why there is no next piece.
pub(super) enum CutError {
    Io(io::Error),
    Row { line: u64, fault: RowFault },
}

/// Cuts one input.
pub(super) struct Cutter<R> {
    input: R,
    /// The byte between fields, where fields can be quoted.
    delimiter: Option<u8>,
    piece_len_bytes: usize,
    row_len_max_bytes: usize,
    /// What was read and is not in a piece yet: the beginning of a row.
    rest: Vec<u8>,
    next_line: u64,
    is_first: bool,
    at_end: bool,
    /// What stands in the way of the next piece.
    fault: Option<CutError>,
}

/// Where rows end in some bytes that begin with a row.
struct Rows {
    /// How far they were looked at.
    seen: usize,
    /// Behind the last line end outside quotes.
    end: usize,
    /// Whether they end inside quotes.
    is_open: bool,
    has_quotes: bool,
}

impl Rows {
    /// Looks at what was added. Whether the last byte closes a quoted field is told by the next: it is looked at again.
    fn look(&mut self, bytes: &[u8], delimiter: Option<u8>, at_end: bool) {
        let Some(delimiter) = delimiter else {
            self.end_at_line(bytes, bytes.len());
            return;
        };
        let mut at = self.seen;
        while let Some(found) = memchr::memchr(b'"', &bytes[at..]) {
            let quote = at + found;
            match self.is_open {
                false => {
                    self.end_at_line(bytes, quote);
                    let before = if quote == 0 { b'\n' } else { bytes[quote - 1] };
                    if before == delimiter || before == b'\n' {
                        self.is_open = true;
                        self.has_quotes = true;
                    }
                    at = quote + 1;
                }
                true => match bytes.get(quote + 1) {
                    Some(b'"') => at = quote + 2,
                    None if !at_end => {
                        self.seen = quote;
                        return;
                    }
                    _ => {
                        self.is_open = false;
                        at = quote + 1;
                    }
                },
            }
            self.seen = at;
        }
        if !self.is_open {
            self.end_at_line(bytes, bytes.len());
        }
        self.seen = bytes.len();
    }

    /// Finds the last line end in front of `to`, outside quotes from `seen` on.
    fn end_at_line(&mut self, bytes: &[u8], to: usize) {
        if let Some(found) = memchr::memrchr(b'\n', &bytes[self.seen..to]) {
            self.end = self.seen + found + 1;
        }
        self.seen = to;
    }
}

impl<R: Read> Cutter<R> {
    /// Pieces are of about `piece_len_bytes`, or one row. A row may be of `row_len_max_bytes`.
    pub(super) fn new(input: R, delimiter: Option<u8>, piece_len_bytes: usize, row_len_max_bytes: usize) -> Self {
        Cutter {
            input,
            delimiter,
            piece_len_bytes,
            row_len_max_bytes,
            rest: Vec::new(),
            next_line: 1,
            is_first: true,
            at_end: false,
            fault: None,
        }
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// The next piece, in memory that was used before. `None` at the end.
    pub(super) fn next_piece(&mut self, mut bytes: Vec<u8>) -> Result<Option<TextPiece>, CutError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        bytes.clear();
        bytes.append(&mut self.rest);
        let mut rows = Rows { seen: 0, end: 0, is_open: false, has_quotes: false };
        let mut wanted = self.piece_len_bytes;
        while !self.at_end {
            let before = bytes.len();
            let read = self.read(&mut bytes, wanted);
            rows.look(&bytes, self.delimiter, self.at_end);
            if let Err(error) = read {
                // Rows in front of it come first.
                self.fault = Some(CutError::Io(error));
                break;
            }
            if rows.end > 0 && bytes.len() >= self.piece_len_bytes {
                break;
            }
            if bytes.len() - rows.end > self.row_len_max_bytes {
                self.fault =
                    Some(CutError::Row { line: 0, fault: RowFault::Endless { len_max_bytes: self.row_len_max_bytes } });
                break;
            }
            // A long row: the buffer doubles, and is looked at once.
            wanted = (bytes.len() * 2).min(self.row_len_max_bytes + self.piece_len_bytes).max(before + 1);
        }
        if self.at_end && self.fault.is_none() {
            match rows.is_open {
                // The quote that is not closed may be one that was not meant to open a field.
                true => {
                    let delimiter = self.delimiter.unwrap_or_default();
                    let first = faults(&bytes[rows.end..], delimiter).into_iter().next();
                    let fault = first.map_or(RowFault::UnclosedQuote, |(_, fault)| fault);
                    self.fault = Some(CutError::Row { line: 0, fault });
                }
                false => rows.end = bytes.len(),
            }
        }
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

    /// Reads until there are so many bytes, or the input ends.
    fn read(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
        let missing = wanted.saturating_sub(bytes.len()).max(1);
        bytes.try_reserve(missing).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.at_end = self.input.by_ref().take(missing as u64).read_to_end(bytes)? < missing;
        if std::mem::take(&mut self.is_first) && bytes.starts_with(BOM) {
            bytes.drain(..BOM.len());
        }
        Ok(())
    }
}

/// Lines without anything in front of a row.
fn blank_lines(bytes: &[u8]) -> u64 {
    bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).filter(|byte| **byte == b'\n').count() as u64
}
