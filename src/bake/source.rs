//! Bytes on their way to the parser, looked at once.
//!
//! The parser takes what it gets: a quote that is never closed swallows the
//! rest of the input as one value, and it does not tell on which line a record
//! stands. This reader notes both as the bytes pass, and what else is no line of
//! a table: a carriage return alone, and a row that does not end.

use std::io::{self, Chain, Cursor, Read};

use super::error::RowFault;
use crate::format::record::VALUE_LEN_MAX_BYTES;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The longest row of text: what a value may have. The parser holds a row in
/// memory, so one that does not end must be stopped.
const ROW_LEN_MAX_BYTES: u64 = VALUE_LEN_MAX_BYTES as u64;

/// A reader that counts lines and checks quoting. A byte order mark at the
/// beginning is left out.
pub(super) struct Source<R> {
    input: Chain<Cursor<Vec<u8>>, R>,
    delimiter: u8,
    passed_bytes: u64,
    last_byte: u8,
    quoting: Quoting,
    has_quotes: bool,
    ends_inside_quotes: bool,
    /// Whether the last byte so far was a carriage return outside quotes.
    undecided_return: bool,
    row_len_max_bytes: u64,
    /// Where the last row that was seen begins.
    row_at: u64,
    row_line: u64,
    fault: Option<(u64, RowFault)>,
    /// Newlines before the last chunk that was passed on, and those in it.
    lines: Lines,
}

enum Quoting {
    Outside,
    Inside {
        opened_at: u64,
    },
    /// A quote inside a quoted field was the last byte so far.
    Undecided {
        opened_at: u64,
    },
}

#[derive(Default)]
struct Lines {
    passed: u64,
    newlines_at: Vec<u64>,
    next: usize,
}

impl<R: Read> Source<R> {
    pub(super) fn new(mut input: R, delimiter: u8) -> io::Result<Self> {
        let mut head = Vec::new();
        input.by_ref().take(BOM.len() as u64).read_to_end(&mut head)?;
        if head == BOM {
            head.clear();
        }
        Ok(Source {
            input: Cursor::new(head).chain(input),
            delimiter,
            passed_bytes: 0,
            last_byte: b'\n',
            quoting: Quoting::Outside,
            has_quotes: false,
            ends_inside_quotes: false,
            undecided_return: false,
            row_len_max_bytes: ROW_LEN_MAX_BYTES,
            row_at: 0,
            row_line: 1,
            fault: None,
            lines: Lines::default(),
        })
    }

    /// Bytes passed on so far.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// Whether there was a quoted field so far.
    pub(super) fn has_quotes(&self) -> bool {
        self.has_quotes
    }

    /// The line of the last byte of a record, without its line end, that ends
    /// before byte `end`. Must be asked in ascending order.
    pub(super) fn last_line_before(&mut self, end: u64) -> u64 {
        let Lines { passed, newlines_at, next } = &mut self.lines;
        // A record that ends inside quotes has no line end: a newline there is one of its bytes.
        let end = end + u64::from(self.ends_inside_quotes && end == self.passed_bytes);
        while newlines_at.get(*next).is_some_and(|at| at + 1 < end) {
            *next += 1;
        }
        1 + *passed + *next as u64
    }

    /// The first fault of quoting before byte `end`.
    pub(super) fn fault_before(&self, end: u64) -> Option<RowFault> {
        self.fault.as_ref().filter(|(at, _)| *at < end).map(|(_, fault)| fault.clone())
    }

    /// The line of a row for whose length reading was given up, if there is one.
    pub(super) fn endless_row(&self) -> Option<u64> {
        (self.passed_bytes - self.row_at > self.row_len_max_bytes).then_some(self.row_line)
    }

    fn look_at(&mut self, chunk: &[u8]) {
        let chunk_at = self.passed_bytes;
        self.lines.passed += self.lines.newlines_at.len() as u64;
        self.lines.newlines_at.clear();
        self.lines.next = 0;
        let mut skip = None;
        if let Quoting::Undecided { opened_at } = self.quoting {
            self.after_quote(chunk[0], opened_at, chunk_at);
            skip = (chunk[0] == b'"').then_some(0);
        }
        if std::mem::take(&mut self.undecided_return) {
            self.after_return(chunk.first(), chunk_at - 1);
        }
        for i in memchr::memchr3_iter(b'\n', b'\r', b'"', chunk) {
            let at = chunk_at + i as u64;
            if chunk[i] == b'\n' {
                self.lines.newlines_at.push(at);
                if let Quoting::Outside = self.quoting {
                    self.row_at = at + 1;
                    self.row_line = 1 + self.lines.passed + self.lines.newlines_at.len() as u64;
                }
                continue;
            }
            if chunk[i] == b'\r' {
                if let Quoting::Outside = self.quoting {
                    match chunk.get(i + 1) {
                        None => self.undecided_return = true,
                        next => self.after_return(next, at),
                    }
                }
                continue;
            }
            if skip == Some(i) {
                continue;
            }
            match self.quoting {
                Quoting::Outside => {
                    let before = if i == 0 { self.last_byte } else { chunk[i - 1] };
                    if before == self.delimiter || matches!(before, b'\n' | b'\r') {
                        self.quoting = Quoting::Inside { opened_at: chunk_at + i as u64 };
                        self.has_quotes = true;
                    }
                }
                Quoting::Inside { opened_at } | Quoting::Undecided { opened_at } => match chunk.get(i + 1) {
                    Some(next) => {
                        self.after_quote(*next, opened_at, chunk_at + i as u64);
                        skip = (*next == b'"').then_some(i + 1);
                    }
                    None => self.quoting = Quoting::Undecided { opened_at },
                },
            }
        }
        self.passed_bytes += chunk.len() as u64;
        self.last_byte = chunk[chunk.len() - 1];
    }

    /// Decides whether a carriage return is part of a line end by what follows it.
    fn after_return(&mut self, next: Option<&u8>, at: u64) {
        if next != Some(&b'\n') {
            self.fault.get_or_insert((at, RowFault::BareReturn));
        }
    }

    /// Decides what a quote inside a quoted field was by the byte after it.
    fn after_quote(&mut self, next: u8, opened_at: u64, at: u64) {
        if next == b'"' {
            self.quoting = Quoting::Inside { opened_at };
            return;
        }
        if next != self.delimiter && !matches!(next, b'\n' | b'\r') {
            self.fault.get_or_insert((at, RowFault::TextAfterQuote));
        }
        self.quoting = Quoting::Outside;
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        if len > 0 {
            self.look_at(&buffer[..len]);
            if self.endless_row().is_some() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        } else if !buffer.is_empty() {
            if let Quoting::Inside { opened_at } = self.quoting {
                self.ends_inside_quotes = true;
                self.fault.get_or_insert((opened_at, RowFault::UnclosedQuote));
            }
            if std::mem::take(&mut self.undecided_return) {
                self.after_return(None, self.passed_bytes - 1);
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads as the parser does, so many bytes at a time.
    fn pass(text: &[u8], chunk_len_bytes: usize) -> Source<&[u8]> {
        let mut source = Source::new(text, b',').unwrap();
        let mut buffer = vec![0; chunk_len_bytes];
        while source.read(&mut buffer).unwrap() > 0 {}
        source
    }

    #[test]
    fn quoting_is_checked_wherever_the_chunks_end() {
        let cases: [(&[u8], Option<RowFault>); 15] = [
            (b"1,\"a\rb\"\r\n2,\"\r\"\n", None),
            (b"1,a\r\n\r\n2,b\r\n", None),
            (b"1,a\rb\n", Some(RowFault::BareReturn)),
            (b"1,a\r2,b\r", Some(RowFault::BareReturn)),
            (b"1,\"a\"\r2,b", Some(RowFault::BareReturn)),
            (b"1,\"a\"\n2,\"b,\"\"c\"\"\n\"\r\n", None),
            (b"1,\"\"\n2,\"\"\"\"\n", None),
            (b"1,\"a\"", None),
            (b"1,5\" pipe\n2, \"x\"y\n", None),
            (b"\xef\xbb\xbf\"1\",a\n", None),
            (b"\xef\xbb\xbf\"1,a\n", Some(RowFault::UnclosedQuote)),
            (b"1,\"a\n2,b\n", Some(RowFault::UnclosedQuote)),
            (b"1,\"a\"\"\n", Some(RowFault::UnclosedQuote)),
            (b"1,\"a\"b\n", Some(RowFault::TextAfterQuote)),
            (b"1,\"a\" ,\n", Some(RowFault::TextAfterQuote)),
        ];
        for (text, expected) in cases {
            for chunk_len_bytes in 1..=text.len() + 1 {
                let fault = pass(text, chunk_len_bytes).fault_before(u64::MAX);
                assert_eq!(fault, expected, "{:?} by {chunk_len_bytes}", text.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn a_row_that_does_not_end_is_given_up() {
        for (text, line) in [(&b"1,a\n2,\"b\n3,c\n4,d\n"[..], 2), (b"1,a\n2,bbbbbbbbbbbb\n", 2), (b"1,aaaaaaaaaa", 1)] {
            for chunk_len_bytes in 1..=text.len() {
                let mut source = Source { row_len_max_bytes: 8, ..Source::new(text, b',').unwrap() };
                let mut buffer = vec![0; chunk_len_bytes];
                let refused = loop {
                    match source.read(&mut buffer) {
                        Ok(0) => break false,
                        Ok(_) => {}
                        Err(_) => break true,
                    }
                };
                // What came in one chunk with its line end is in memory anyway.
                assert!(refused || chunk_len_bytes > 3, "{chunk_len_bytes}");
                assert!(!refused || source.endless_row() == Some(line), "{chunk_len_bytes}");
            }
        }
    }

    #[test]
    fn a_line_is_that_of_the_byte_before_the_line_end() {
        let mut source = pass(b"1,a\n\n2,b\r\n3,c", 100);
        let ends = [(3, 1), (4, 1), (8, 3), (9, 3), (13, 4)];
        for (end, line) in ends {
            assert_eq!(source.last_line_before(end), line, "before byte {end}");
        }
        let mut source = pass(b"1,a\n2,\"b\n\n", 100);
        assert_eq!(
            (source.last_line_before(4), source.last_line_before(10)),
            (1, 4),
            "inside quotes, on an empty line"
        );
    }
}
