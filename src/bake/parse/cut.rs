//! Cuts text into pieces that end at the end of a row, so that each piece can be parsed independently.

use std::io::{self, Read};

use super::quoting::{RowEnds, quote_faults};
use crate::bake::row_fault::RowFault;
use crate::csv_text::BYTE_ORDER_MARK;

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

/// Returns the number of blank lines at the start of these bytes.
fn blank_lines(bytes: &[u8]) -> u64 {
    bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).filter(|byte| **byte == b'\n').count() as u64
}
