//! Quoting in delimited text (RFC 4180): finds row ends, malformed quotes, and the records of text with quotes. As in
//! RFC 4180, a record is the list of a row's fields, before the key and value are selected.
//!
//! A quote at the start of a field opens the field. In an open field, two adjacent quotes stand for one quote in the
//! field's text, and any other quote closes the field.

use std::io::{Chain, Read};
use std::iter::Peekable;
use std::ops::Range;
use std::vec;

use csv::{ByteRecord, ReaderBuilder, Terminator};

use crate::bake::row_fault::RowFault;

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

/// Finds the rows of delimited text with quotes, and their fields.
pub(super) struct QuotedRecords<'p> {
    bytes: &'p [u8],
    faults: Peekable<vec::IntoIter<(usize, RowFault)>>,
    reader: csv::Reader<Chain<&'static [u8], &'p [u8]>>,
    record: ByteRecord,
    next_line: u64,
    end: usize,
}

/// A row of delimited text and its fields, before the key and value are selected.
pub(super) struct Record<'a> {
    pub(super) line: u64,
    /// The row's text in the piece, without its line end.
    pub(super) text: &'a [u8],
    /// The offset, in the piece, of the first byte after the row's line end.
    pub(super) end: usize,
    pub(super) fault: Option<RowFault>,
    /// The bytes that contain the texts of all fields. `ranges` has the range of each field.
    pub(super) buffer: &'a [u8],
    pub(super) ranges: &'a [Range<usize>],
}

impl<'a> Record<'a> {
    pub(super) fn fields(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.ranges.iter().map(|range| &self.buffer[range.clone()])
    }

    #[inline]
    pub(super) fn field(&self, index: usize) -> &'a [u8] {
        &self.buffer[self.ranges[index].clone()]
    }
}

impl<'p> QuotedRecords<'p> {
    pub(super) fn new(bytes: &'p [u8], first_line: u64, delimiter: u8) -> Self {
        // With this terminator, the reader treats a carriage return like any other byte. If a line feed follows, `next`
        // removes the carriage return from the last field. The line feed before `bytes` is a blank line, which the
        // reader skips. Without this line feed, the reader would remove a byte order mark at the start of every piece,
        // although only the start of an input can have one.
        let reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .terminator(Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .from_reader(b"\n".chain(bytes));
        let faults = quote_faults(bytes, delimiter).into_iter().peekable();
        QuotedRecords { bytes, faults, reader, record: ByteRecord::new(), next_line: first_line, end: 0 }
    }

    /// Returns the next row of text. Stores the ranges of its fields in `ranges`.
    pub(super) fn next<'s>(&'s mut self, ranges: &'s mut Vec<Range<usize>>) -> Option<Record<'s>> {
        let (line, text, fault) = loop {
            // Reading from memory does not fail.
            if !self.reader.read_byte_record(&mut self.record).unwrap_or(false) {
                return None;
            }
            let read_to = self.reader.position().byte() as usize - 1;
            let blank_lines = self.bytes[self.end..read_to].iter().take_while(|byte| **byte == b'\n').count();
            let line = self.next_line + blank_lines as u64;
            let whole = &self.bytes[self.end + blank_lines..read_to];
            let with_return = whole.strip_suffix(b"\r\n");
            let text = with_return.or(whole.strip_suffix(b"\n")).unwrap_or(whole);
            self.end = read_to;
            self.next_line = line + memchr::memchr_iter(b'\n', whole).count() as u64;
            let mut fault = None;
            while let Some((_, found)) = self.faults.next_if(|(at, _)| *at < read_to) {
                fault.get_or_insert(found);
            }
            let record = &self.record;
            ranges.clear();
            ranges.extend((0..record.len()).map(|field| record.range(field).expect("a field of the record")));
            if let (Some(last), Some(_)) = (ranges.last_mut(), with_return) {
                last.end -= 1;
            }
            if !text.is_empty() {
                break (line, text, fault);
            }
        };
        Some(Record { line, text, end: self.end, fault, buffer: self.record.as_slice(), ranges })
    }
}
