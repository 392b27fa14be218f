//! Delimited text (RFC 4180).
//!
//! In a piece without quotes, fields are the bytes between delimiters. The crate `csv` parses pieces with quotes, and
//! this module rejects the malformed quotes that it accepts.
//!
//! Reasons and evidence: `docs/decisions/bake-text.md`.

mod columns;

use std::io::{Chain, Read};
use std::iter::Peekable;
use std::ops::{ControlFlow, Range};
use std::vec;

use csv::{ByteRecord, ReaderBuilder, Terminator};

use super::pack::{Cell, ValueColumns};
use super::text::{TextFormat, TextParser, TextPiece, quote_faults};
use crate::bake::error::{BakeError, RowFault};
use crate::bake::options::Options;
use crate::bake::row::{InputRow, RowSink, is_removed};
use crate::bake::typed::TypedPlan;
use columns::UntypedColumns;

/// The format of delimited text, with a delimiter and the options of the bake.
pub(super) struct DelimitedFormat<'o> {
    pub(super) delimiter: u8,
    pub(super) options: &'o Options,
    pub(super) typed: Option<&'o TypedPlan>,
}

impl TextFormat for DelimitedFormat<'_> {
    type Parser = DelimitedParser;

    fn delimiter(&self) -> Option<u8> {
        Some(self.delimiter)
    }

    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<DelimitedParser>, BakeError> {
        let mut found = None;
        Records::new(self.delimiter).each(first, |mut record| {
            found = Some(match record.fault.take() {
                Some(fault) => Err(BakeError::Row { input: input.to_owned(), line: record.line, fault }),
                None => self.fields(input, &record).map(|fields| (fields, record.end)),
            });
            Ok(ControlFlow::Break(()))
        })?;
        let Some((fields, end)) = found.transpose()? else { return Ok(None) };
        if self.options.header {
            first.first_line += memchr::memchr_iter(b'\n', &first.bytes[..end]).count() as u64;
            first.bytes.drain(..end);
        }
        let fields = match fields {
            Found::Fields(fields) => fields,
            Found::Untyped(columns) => columns.infer(input, self.delimiter, first)?,
        };
        Ok(Some(DelimitedParser::new(self.delimiter, fields)))
    }
}

/// The chosen columns of an input.
enum Found<'o> {
    Fields(Fields),
    /// Columns whose types must be inferred from the first rows.
    Untyped(UntypedColumns<'o>),
}

impl<'o> DelimitedFormat<'o> {
    fn fields(&self, input: &str, first: &Record<'_>) -> Result<Found<'o>, BakeError> {
        match self.typed {
            None => columns::find(self.options, input, first).map(Found::Fields),
            Some(plan) => columns::find_typed(self.options, plan, input, first),
        }
    }
}

/// The positions of a row's key, value, and delete column, and the number of fields that every row must have.
#[derive(Clone)]
pub(super) struct Fields {
    pub(super) key: usize,
    pub(super) value: ValueColumns,
    pub(super) delete: Option<usize>,
    pub(super) count: usize,
    /// Whether the options choose columns. This determines the advice in the error for a row with a wrong number of
    /// fields.
    pub(super) columns_chosen: bool,
}

/// Parses the pieces of one input.
#[derive(Clone)]
pub(super) struct DelimitedParser {
    records: Records,
    fields: Fields,
}

impl DelimitedParser {
    pub(super) fn new(delimiter: u8, fields: Fields) -> Self {
        DelimitedParser { records: Records::new(delimiter), fields }
    }
}

impl TextParser for DelimitedParser {
    fn parse(&mut self, piece: &TextPiece, sink: &mut impl RowSink) -> Result<(), BakeError> {
        self.records.each(piece, |record| {
            match self.fields.row(&record) {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(record.line, fault, record.text)?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl Fields {
    #[inline]
    fn row<'s>(&'s mut self, record: &Record<'s>) -> Result<InputRow<'s>, RowFault> {
        if let Some(fault) = &record.fault {
            return Err(fault.clone());
        }
        let (expected, found, columns_chosen) = (self.count, record.ranges.len(), self.columns_chosen);
        if found != expected {
            return Err(RowFault::FieldCount { expected, found, columns_chosen });
        }
        let delete = self.delete.map(|column| record.field(column));
        let value = match &mut self.value {
            ValueColumns::Typed(..) if is_removed(delete) => b"",
            ValueColumns::Typed(fields, rows) => rows.texts(fields.iter().map(|field| record.field(*field)))?,
            ValueColumns::One(value) => record.field(*value),
            ValueColumns::Packed(fields, packer) => {
                packer.pack(fields.iter().map(|field| Cell::Text(record.field(*field))))?
            }
        };
        Ok(InputRow { line: record.line, key: record.field(self.key), value, delete, text: record.text })
    }
}

/// Splits pieces into rows of text, and rows into fields.
#[derive(Clone)]
struct Records {
    delimiter: u8,
    ranges: Vec<Range<usize>>,
}

/// The result of processing a row: whether to continue with the next row, or an error.
type Flow = Result<ControlFlow<()>, BakeError>;

impl Records {
    fn new(delimiter: u8) -> Self {
        Records { delimiter, ranges: Vec::new() }
    }

    fn each(&mut self, piece: &TextPiece, take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        // `memchr` splits text without quotes in about half of the time that the crate `csv` takes.
        match piece.has_quotes {
            false => self.each_plain(piece, take),
            true => self.each_quoted(piece, take),
        }
    }

    fn each_plain(&mut self, piece: &TextPiece, mut take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        let bytes = &piece.bytes[..];
        let has_returns = memchr::memchr(b'\r', bytes).is_some();
        let (mut line, mut end) = (piece.first_line, 0);
        while end < bytes.len() {
            let start = end;
            let mut text_end = bytes.len();
            end = text_end;
            if let Some(newline) = memchr::memchr(b'\n', &bytes[start..]) {
                text_end = start + newline;
                end = text_end + 1;
                if has_returns && text_end > start && bytes[text_end - 1] == b'\r' {
                    text_end -= 1;
                }
            }
            line += 1;
            let text = &bytes[start..text_end];
            if text.is_empty() {
                continue;
            }
            let fault = (has_returns && memchr::memchr(b'\r', text).is_some()).then_some(RowFault::BareReturn);
            self.ranges.clear();
            let mut field = start;
            for found in memchr::memchr_iter(self.delimiter, text) {
                self.ranges.push(field..start + found);
                field = start + found + 1;
            }
            self.ranges.push(field..text_end);
            let record = Record { line: line - 1, text, end, fault, buffer: bytes, ranges: &self.ranges };
            if take(record)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn each_quoted(&mut self, piece: &TextPiece, mut take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        let mut records = QuotedRecords::new(&piece.bytes, piece.first_line, self.delimiter);
        while let Some(record) = records.next(&mut self.ranges) {
            if take(record)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Finds the rows of delimited text with quotes, and their fields.
struct QuotedRecords<'p> {
    bytes: &'p [u8],
    faults: Peekable<vec::IntoIter<(usize, RowFault)>>,
    reader: csv::Reader<Chain<&'static [u8], &'p [u8]>>,
    record: ByteRecord,
    next_line: u64,
    end: usize,
}

/// A row of delimited text and its fields, before the key and value are selected.
struct Record<'a> {
    line: u64,
    /// The row's text in the piece, without its line end.
    text: &'a [u8],
    /// The offset, in the piece, of the first byte after the row's line end.
    end: usize,
    fault: Option<RowFault>,
    /// The bytes that contain the texts of all fields. `ranges` has the range of each field.
    buffer: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Record<'a> {
    fn fields(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.ranges.iter().map(|range| &self.buffer[range.clone()])
    }

    #[inline]
    fn field(&self, index: usize) -> &'a [u8] {
        &self.buffer[self.ranges[index].clone()]
    }
}

impl<'p> QuotedRecords<'p> {
    fn new(bytes: &'p [u8], first_line: u64, delimiter: u8) -> Self {
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
    fn next<'s>(&'s mut self, ranges: &'s mut Vec<Range<usize>>) -> Option<Record<'s>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::parse::tests::{Lines, key_and_value, texts};

    fn rows_of(text: &[u8], has_quotes: bool) -> Vec<String> {
        let piece = TextPiece { bytes: text.to_vec(), first_line: 10, has_quotes };
        let mut lines = Lines::default();
        DelimitedParser::new(b',', key_and_value()).parse(&piece, &mut lines).unwrap();
        lines.0
    }

    #[test]
    fn both_parsers_find_the_same_rows_in_text_without_quotes() {
        let parts = ["1,one", "\n", "a,b,c\n", ",\n", "x\n", "2,two\r\n", "y,\r,z\n", "\r", "é,ü\n", "1,one\n"];
        for text in texts(&parts.map(str::as_bytes), 2000) {
            assert_eq!(rows_of(&text, false), rows_of(&text, true), "{:?}", text.escape_ascii().to_string());
        }
    }

    #[test]
    fn any_short_text_with_quotes_is_parsed_or_reported() {
        const BYTES: &[u8] = b"a,\"\r\n";
        for len in 0..=7 {
            for number in 0..BYTES.len().pow(len) {
                let text: Vec<u8> = (0..len).map(|at| BYTES[number / BYTES.len().pow(at) % BYTES.len()]).collect();
                let text = String::from_utf8(text).unwrap();
                let mut ranges = Vec::new();
                let mut records = QuotedRecords::new(text.as_bytes(), 1, b',');
                while let Some(Record { buffer, ranges, .. }) = records.next(&mut ranges) {
                    let are_inside = ranges.iter().all(|range| buffer.get(range.clone()).is_some());
                    assert!(are_inside, "{text:?}: {ranges:?}");
                }
            }
        }
    }

    #[test]
    fn rows_with_quotes_are_parsed_or_reported() {
        let text = "\n\"a\",\"1\n2\"\r\nb,\"x\"\"y\"\nc,\"x\"y\nd,5\" pipe\n\"e\",f\rg\nh,i\n";
        let rows = rows_of(text.as_bytes(), true);
        assert_eq!(
            [&rows[0], &rows[1], &rows[3], &rows[5]],
            ["11: a = 1\n2", "13: b = x\"y", "15: d = 5\" pipe", "17: h = i"]
        );
        let bad =
            [(&rows[2], 14, RowFault::TextAfterQuote, "c,\"x\"y"), (&rows[4], 16, RowFault::BareReturn, "\"e\",f\rg")];
        for (row, line, fault, text) in bad {
            assert_eq!(*row, format!("{line}: {fault} [{text}]"));
        }
    }
}
