//! The parser of delimited text in any dialect: with escapes, comments, and quotes.

use std::ops::Range;

use super::{NULL, Record};
use crate::bake::error::RowFault;
use crate::bake::parse::dialect::Dialect;

/// Finds the rows of delimited text, and their fields, byte by byte.
pub(super) struct ScannedRecords<'p> {
    bytes: &'p [u8],
    dialect: Dialect,
    at: usize,
    next_line: u64,
    /// The texts of the fields of one row, without quotes and escapes.
    buffer: Vec<u8>,
    fault: Option<RowFault>,
}

impl<'p> ScannedRecords<'p> {
    pub(super) fn new(bytes: &'p [u8], first_line: u64, dialect: Dialect) -> Self {
        ScannedRecords { bytes, dialect, at: 0, next_line: first_line, buffer: Vec::new(), fault: None }
    }

    /// Returns the next row of text. Stores the ranges of its fields in `ranges`.
    pub(super) fn next<'s>(&'s mut self, ranges: &'s mut Vec<Range<usize>>, nulls: &[Vec<u8>]) -> Option<Record<'s>> {
        while self.skip_blank_line() || self.skip_comment() {}
        if self.at == self.bytes.len() {
            return None;
        }
        let (start, line) = (self.at, self.next_line);
        self.buffer.clear();
        self.fault = None;
        ranges.clear();
        loop {
            let (field, raw) = (self.buffer.len(), self.at);
            if self.dialect.quote.is_some() && self.byte() == self.dialect.quote {
                self.take_quoted();
            }
            self.take_plain();
            // Without quotes, escapes are part of the texts of null: the text of null `\N` differs from an escaped `N`.
            let text = match self.dialect.quote {
                None => &self.bytes[raw..self.at],
                Some(_) => &self.buffer[field..],
            };
            let is_null = nulls.iter().any(|null| *null == *text);
            ranges.push(if is_null { NULL } else { field..self.buffer.len() });
            if self.byte() != Some(self.dialect.delimiter) {
                break;
            }
            self.at += 1;
        }
        let text = &self.bytes[start..self.at];
        self.skip_line_end();
        let (fault, has_lines) = (self.fault.take(), memchr::memchr(b'\n', text).is_some());
        Some(Record { line, text, end: self.at, fault, has_lines, buffer: &self.buffer, ranges })
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blank_line(&mut self) -> bool {
        matches!(self.bytes[self.at..], [b'\n', ..] | [b'\r', b'\n', ..]) && {
            self.skip_line_end();
            true
        }
    }

    fn skip_comment(&mut self) -> bool {
        let is_comment = self.dialect.is_comment(&self.bytes[self.at..]);
        if is_comment {
            let end = memchr::memchr(b'\n', &self.bytes[self.at..]);
            self.at = end.map_or(self.bytes.len(), |end| self.at + end);
            self.skip_line_end();
        }
        is_comment
    }

    /// Skips the line end at the position, if there is one.
    fn skip_line_end(&mut self) {
        self.at += usize::from(self.bytes[self.at..].starts_with(b"\r\n"));
        if self.byte() == Some(b'\n') {
            self.at += 1;
            self.next_line += 1;
        }
    }

    /// Takes a byte of a field.
    fn take(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    /// Takes the text of a quoted field, from its opening quote to its closing quote. Another byte than a delimiter or
    /// a line end after it is a fault.
    fn take_quoted(&mut self) {
        let Dialect { quote, escape, delimiter, .. } = self.dialect;
        self.at += 1;
        while let Some(byte) = self.byte() {
            let next = self.bytes.get(self.at + 1).copied();
            let is_quote = Some(byte) == quote;
            match next {
                Some(escaped) if is_quote && next == quote => self.take(escaped),
                Some(escaped) if Some(byte) == escape && (next == quote || next == escape) => self.take(escaped),
                _ if is_quote => {
                    self.at += 1;
                    if next.is_some_and(|next| next != delimiter && !matches!(next, b'\n' | b'\r')) {
                        let fault = RowFault::text_after_quote(&self.bytes[..self.at - 1]);
                        self.fault.get_or_insert(fault);
                    }
                    return;
                }
                _ => {
                    self.next_line += u64::from(byte == b'\n');
                    self.take(byte);
                    self.at += 1;
                    continue;
                }
            }
            self.at += 2;
        }
    }

    /// Takes the text before the next delimiter or line end.
    fn take_plain(&mut self) {
        let Dialect { quote, escape, delimiter, .. } = self.dialect;
        while let Some(byte) = self.byte() {
            let next = self.bytes.get(self.at + 1).copied();
            match next {
                _ if byte == delimiter || byte == b'\n' => return,
                Some(b'\n') if byte == b'\r' => return,
                Some(escaped) if Some(byte) == escape && quote.is_none() => {
                    self.next_line += u64::from(escaped == b'\n');
                    self.take(unescaped(escaped));
                    self.at += 2;
                    continue;
                }
                _ if byte == b'\r' => drop(self.fault.get_or_insert(RowFault::BareReturn)),
                _ => {}
            }
            self.take(byte);
            self.at += 1;
        }
    }
}

/// Returns the byte that an escape and this byte stand for if fields have no quotes, as MySQL and PostgreSQL write it.
fn unescaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        byte => byte,
    }
}
