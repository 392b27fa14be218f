//! Delimited text (RFC 4180).
//!
//! In a piece without quotes, fields are the bytes between delimiters. The crate `csv` parses pieces with quotes, and
//! this module rejects the malformed quotes that it accepts. Pieces with escapes, or with quotes and comments, have a
//! parser of their own, `scan`.
//!
//! Reasons and evidence: `docs/decisions/bake-text.md`.

mod columns;
mod escapes;
mod header;
mod scan;

use std::io::{Chain, Read};
use std::iter::Peekable;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::vec;

use csv::{ByteRecord, ReaderBuilder, Terminator};

use super::deletions::DeletionColumns;
use super::dialect::Dialect;
use super::pack::{Cell, ValueColumns};
use super::text::{FIELD_COUNT_LEN_BYTES, RowRule, TextFormat, TextParser, TextPiece, quote_faults};
use crate::bake::bad_rows::BadRows;
use crate::bake::error::{BakeError, RowFault, RowLayout};
use crate::bake::keys::KeyColumns;
use crate::bake::options::Options;
use crate::bake::row::{InputRow, RowSink, is_removed, value_unless_removed};
use crate::bake::typed::TypedPlan;
use crate::bake::warning::Warning;
use crate::format::key::KeyKind;
use columns::UntypedColumns;
use scan::ScannedRecords;

/// The format of delimited text, with a dialect and the options of the bake.
pub(super) struct DelimitedFormat<'o> {
    pub(super) dialect: Dialect,
    pub(super) options: &'o Options,
    pub(super) typed: Option<&'o TypedPlan>,
}

impl TextFormat for DelimitedFormat<'_> {
    type Parser = DelimitedParser;

    fn row_rule(&self) -> RowRule {
        RowRule::Delimited(self.dialect)
    }

    fn skip_lines(&self) -> u64 {
        self.options.skip_lines
    }

    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<DelimitedParser>, BakeError> {
        let (mut found, mut warnings, mut names) = (None, Vec::new(), Vec::new());
        let line_of_columns = self.usual_line(first)?;
        Records::new(self.dialect).each(first, |mut record| {
            if line_of_columns.is_some_and(|line| line != record.line) {
                return Ok(ControlFlow::Continue(()));
            }
            if self.options.header {
                names.extend(record.fields().map(|name| String::from_utf8_lossy(name).into_owned()));
            }
            found = Some(match record.fault.take() {
                Some(fault) => Err(BakeError::Row { input: input.to_owned(), line: record.line, fault }),
                None => self.fields(input, &record, &mut warnings).map(|fields| (fields, record.end)),
            });
            Ok(ControlFlow::Break(()))
        })?;
        let Some((fields, end)) = found.transpose()? else { return Ok(None) };
        if self.options.header {
            first.first_line += memchr::memchr_iter(b'\n', &first.bytes[..end]).count() as u64;
            first.bytes.drain(..end);
        }
        if !self.options.header
            && self.options.keys.kind() == KeyKind::Bytes
            && let Some(key) = fields.key()
            && let Some(line) = header::line_of_possible_header(first, self.dialect, key)?
        {
            warnings.push(Warning::PossibleHeader { input: input.to_owned(), line });
        }
        let records = Records { nulls: self.options.null_texts.clone().into(), ..Records::new(self.dialect) };
        warnings.extend(escapes::warning_of_possible_escapes(input, first, records.clone())?);
        let columns = names.into_iter().enumerate().map(|(position, name)| (name, position));
        let deletions = DeletionColumns::new(self.options, self.typed, columns);
        if deletions.columns().next().is_some() {
            records.clone().each(first, |record| {
                let field = |position| record.field_if_any(position);
                let warning = deletions.warning(input, field);
                let is_found = warning.is_some();
                warnings.extend(warning);
                Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        first.warnings = warnings;
        let fields = match fields {
            Found::Fields(fields) => fields,
            Found::Untyped(columns) => columns.infer(input, records.clone(), first)?,
        };
        Ok(Some(DelimitedParser { records, fields }))
    }
}

impl DelimitedFormat<'_> {
    /// Returns the line of the row that shows the number of fields, if bad rows are skipped and there is no header: the
    /// first of the rows with the most frequent number of fields, because the first row of the input may be a bad one.
    fn usual_line(&self, first: &TextPiece) -> Result<Option<u64>, BakeError> {
        if self.options.header || self.options.bad_rows == BadRows::Refuse {
            return Ok(None);
        }
        // For each number of fields: the first line with it, and the number of rows.
        let mut counts = Vec::<(usize, u64, usize)>::new();
        Records::new(self.dialect).each(first, |record| {
            if record.end > FIELD_COUNT_LEN_BYTES && !counts.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            if record.fault.is_none() {
                match counts.iter_mut().find(|(fields, ..)| *fields == record.ranges.len()) {
                    Some((.., count)) => *count += 1,
                    None => counts.push((record.ranges.len(), record.line, 1)),
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let most = counts.iter().map(|(.., count)| *count).max();
        Ok(counts.iter().find(|(.., count)| Some(*count) == most).map(|(_, line, _)| *line))
    }
}

/// The chosen columns of an input.
enum Found<'o> {
    Fields(Fields),
    /// Columns whose types must be inferred from the first rows.
    Untyped(UntypedColumns<'o>),
}

impl Found<'_> {
    /// Returns the position of the key. `None` if columns have no types yet, which requires a header.
    fn key(&self) -> Option<usize> {
        match self {
            Found::Fields(fields) => Some(fields.key.first),
            Found::Untyped(_) => None,
        }
    }
}

impl<'o> DelimitedFormat<'o> {
    fn fields(&self, input: &str, first: &Record<'_>, warnings: &mut Vec<Warning>) -> Result<Found<'o>, BakeError> {
        match self.typed {
            None => {
                let has_quotes = self.dialect.quote.is_some();
                columns::find(self.options, input, first, has_quotes).map(Found::Fields)
            }
            Some(plan) => columns::find_typed(self.options, plan, input, first, warnings),
        }
    }
}

/// The positions of a row's key, end of its range, value, and delete column, and the number of fields that every row must have.
#[derive(Clone)]
pub(super) struct Fields {
    pub(super) key: KeyColumns,
    pub(super) end: Option<usize>,
    pub(super) value: ValueColumns,
    pub(super) delete: Option<usize>,
    pub(super) count: usize,
    /// Whether the options choose columns. This determines the advice in the error for a row with a wrong number of
    /// fields.
    pub(super) columns_chosen: bool,
    /// The names of the key and the value for messages. A column without a name has its number.
    pub(super) names: [String; 2],
}

/// Parses the pieces of one input.
#[derive(Clone)]
pub(super) struct DelimitedParser {
    records: Records,
    fields: Fields,
}

#[cfg(test)]
impl DelimitedParser {
    pub(super) fn new(dialect: Dialect, fields: Fields) -> Self {
        DelimitedParser { records: Records::new(dialect), fields }
    }
}

impl TextParser for DelimitedParser {
    fn parse(&mut self, piece: &TextPiece, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let (has_quotes, has_empty_texts) = (self.records.dialect.quote.is_some(), !self.records.nulls.is_empty());
        let Dialect { delimiter, .. } = self.records.dialect;
        self.records.each(piece, |record| {
            if record.has_lines && record.looks_like_rows(&self.fields, delimiter) {
                sink.rows_in_quotes(record.line);
            }
            match self.fields.row(&record, has_quotes, has_empty_texts) {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(record.line, fault, record.text)?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl Fields {
    #[inline]
    fn row<'s>(
        &'s mut self,
        record: &Record<'s>,
        has_quotes: bool,
        has_empty_texts: bool,
    ) -> Result<InputRow<'s>, RowFault> {
        if let Some(fault) = &record.fault {
            return Err(fault.clone());
        }
        let (expected, found) = (self.count, record.ranges.len());
        if found != expected {
            return Err(record.field_count(expected, self.columns_chosen, has_quotes));
        }
        let [key_name, value_name] = &self.names;
        let null = |name: &String| RowFault::Null { column: name.clone() };
        let delete = self.delete.and_then(|column| record.field(column));
        let value = match &mut self.value {
            ValueColumns::Typed(..) if is_removed(delete) => b"",
            ValueColumns::Typed(fields, rows) => {
                rows.texts(fields.iter().map(|field| record.field((*field)?)), has_empty_texts)?
            }
            ValueColumns::One(value) => value_unless_removed(record.field(*value), delete, || null(value_name))?,
            ValueColumns::Packed(fields, packer) => {
                packer.pack(fields.iter().map(|field| record.field(*field).map_or(Cell::Null, Cell::Text)))?
            }
        };
        let end = self.end.map(|end| record.field(end).ok_or_else(|| null(key_name))).transpose()?;
        let part = |part| record.field(part).ok_or_else(|| null(key_name));
        let key = self.key.text(part, part)?;
        Ok(InputRow { line: record.line, key, end, value, delete, text: record.text })
    }
}

/// Splits pieces into rows of text, and rows into fields.
#[derive(Clone)]
struct Records {
    dialect: Dialect,
    /// The texts that stand for null.
    nulls: Arc<[Vec<u8>]>,
    ranges: Vec<Range<usize>>,
}

/// The range of a field that is null. No slice has this range.
const NULL: Range<usize> = Range { start: 1, end: 0 };

/// The result of processing a row: whether to continue with the next row, or an error.
type Flow = Result<ControlFlow<()>, BakeError>;

impl Records {
    /// Returns a splitter for text without nulls.
    fn new(dialect: Dialect) -> Self {
        Records { dialect, nulls: Arc::default(), ranges: Vec::new() }
    }

    fn each(&mut self, piece: &TextPiece, take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        let Dialect { quote, escape, comment, .. } = self.dialect;
        // In quoted fields only, or anywhere if there are no quotes.
        let has_escapes = match quote {
            Some(_) => piece.has_quotes && escape.is_some(),
            None => escape.is_some_and(|escape| memchr::memchr(escape, &piece.bytes).is_some()),
        };
        // `memchr` splits text without quotes in about half of the time that the crate `csv` takes.
        match piece.has_quotes {
            _ if has_escapes => self.each_scanned(piece, take),
            false => self.each_plain(piece, take),
            true if comment.is_some() => self.each_scanned(piece, take),
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
            if text.is_empty() || self.dialect.is_comment(text) {
                continue;
            }
            let fault = (has_returns && memchr::memchr(b'\r', text).is_some()).then_some(RowFault::BareReturn);
            self.ranges.clear();
            let mut field = start;
            for found in memchr::memchr_iter(self.dialect.delimiter, text) {
                self.ranges.push(field..start + found);
                field = start + found + 1;
            }
            self.ranges.push(field..text_end);
            mark_nulls(&mut self.ranges, bytes, &self.nulls);
            let (has_lines, ranges) = (false, &self.ranges);
            let record = Record { line: line - 1, text, end, fault, has_lines, buffer: bytes, ranges };
            if take(record)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn each_quoted(&mut self, piece: &TextPiece, mut take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        let mut records = QuotedRecords::new(&piece.bytes, piece.first_line, self.dialect);
        while let Some(record) = records.next(&mut self.ranges, &self.nulls) {
            if take(record)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn each_scanned(&mut self, piece: &TextPiece, mut take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
        let mut records = ScannedRecords::new(&piece.bytes, piece.first_line, self.dialect);
        while let Some(record) = records.next(&mut self.ranges, &self.nulls) {
            if take(record)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Sets the ranges of fields whose text stands for null to [`NULL`].
#[inline]
fn mark_nulls(ranges: &mut [Range<usize>], buffer: &[u8], nulls: &[Vec<u8>]) {
    if nulls.is_empty() {
        return;
    }
    for range in ranges {
        if nulls.iter().any(|null| *null == buffer[range.clone()]) {
            *range = NULL;
        }
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
    /// Whether the row's text has several lines.
    has_lines: bool,
    /// The bytes that contain the texts of all fields. `ranges` has the range of each field.
    buffer: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Record<'a> {
    /// Returns all fields. A field that is null is empty.
    fn fields(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        (0..self.ranges.len()).map(|index| self.field(index).unwrap_or_default())
    }

    /// Returns a field, or `None` if it is null.
    #[inline]
    fn field(&self, index: usize) -> Option<&'a [u8]> {
        self.buffer.get(self.ranges[index].clone())
    }

    /// Returns a field, or `None` if it is null or the row is too short.
    fn field_if_any(&self, index: usize) -> Option<&'a [u8]> {
        self.buffer.get(self.ranges.get(index)?.clone())
    }

    /// Returns whether the row's text has at least three lines, and nearly all of them have as many fields as a row,
    /// and a number as the key if the row has one. A quote that is part of the text swallows the rows up to the next
    /// one.
    #[cold]
    fn looks_like_rows(&self, fields: &Fields, delimiter: u8) -> bool {
        let is_number = |key: &[u8]| key.iter().all(u8::is_ascii_digit);
        let has_number =
            self.ranges.get(fields.key.first).and_then(|_| self.field(fields.key.first)).is_some_and(is_number);
        let (mut lines, mut rows) = (0, 0);
        for line in self.text.split(|byte| *byte == b'\n') {
            lines += 1;
            let of_line = line.split(|byte| *byte == delimiter);
            let is_key = of_line.clone().nth(fields.key.first).is_some_and(|key| !has_number || is_number(key));
            rows += usize::from(is_key && of_line.count() == fields.count);
        }
        lines >= 3 && rows * 10 >= lines * 9 && fields.count > 1
    }

    /// Returns the fault for a wrong number of fields.
    #[cold]
    fn field_count(&self, expected: usize, columns_chosen: bool, has_quotes: bool) -> RowFault {
        let layout = RowLayout { columns_chosen, has_quotes, is_comment: self.text.starts_with(b"#") };
        RowFault::FieldCount { expected, found: self.ranges.len(), layout }
    }
}

impl<'p> QuotedRecords<'p> {
    fn new(bytes: &'p [u8], first_line: u64, dialect: Dialect) -> Self {
        // With this terminator, the reader treats a carriage return like any other byte. If a line feed follows, `next`
        // removes the carriage return from the last field. The line feed before `bytes` is a blank line, which the
        // reader skips. Without this line feed, the reader would remove a byte order mark at the start of every piece,
        // although only the start of an input can have one.
        let reader = ReaderBuilder::new()
            .delimiter(dialect.delimiter)
            .quote(dialect.quote.unwrap_or(b'"'))
            .terminator(Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .from_reader(b"\n".chain(bytes));
        let faults = quote_faults(bytes, dialect).into_iter().peekable();
        QuotedRecords { bytes, faults, reader, record: ByteRecord::new(), next_line: first_line, end: 0 }
    }

    /// Returns the next row of text. Stores the ranges of its fields in `ranges`.
    fn next<'s>(&'s mut self, ranges: &'s mut Vec<Range<usize>>, nulls: &[Vec<u8>]) -> Option<Record<'s>> {
        let (line, text, fault, has_lines) = loop {
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
            let line_ends = memchr::memchr_iter(b'\n', whole).count();
            self.next_line = line + line_ends as u64;
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
                break (line, text, fault, line_ends > usize::from(whole.ends_with(b"\n")));
            }
        };
        mark_nulls(ranges, self.record.as_slice(), nulls);
        Some(Record { line, text, end: self.end, fault, has_lines, buffer: self.record.as_slice(), ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::parse::tests::{Lines, key_and_value, texts};
    use crate::bake::parse::text::RowEnds;

    fn rows_of(text: &[u8], has_quotes: bool) -> Vec<String> {
        let piece = TextPiece { has_quotes, ..TextPiece::of_lines(text.to_vec(), 10) };
        let mut lines = Lines::default();
        DelimitedParser::new(Dialect::with_delimiter(b','), key_and_value()).parse(&piece, &mut lines).unwrap();
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
    fn the_parser_of_any_dialect_finds_the_rows_that_the_crate_csv_finds() {
        let parts = ["1,one", "\n", "a,b,c\n", ",", "\"", "\"", "\"\"", ",\"", "\"\n", "\r\n", "\r", "\\", "#", "é"];
        let rows = |text: &[u8], is_scanned: bool| {
            let (mut records, mut rows) = (Records::new(Dialect::with_delimiter(b',')), Vec::new());
            let piece = TextPiece { has_quotes: true, ..TextPiece::of_lines(text.to_vec(), 10) };
            let take = |record: Record<'_>| {
                let fields: Vec<_> = record.fields().map(<[u8]>::to_vec).collect();
                // The fields of a row with a fault do not matter.
                let fields = if record.fault.is_none() { fields } else { Vec::new() };
                rows.push((record.line, record.text.to_vec(), record.end, record.fault, record.has_lines, fields));
                Ok(ControlFlow::Continue(()))
            };
            let found = if is_scanned { records.each_scanned(&piece, take) } else { records.each_quoted(&piece, take) };
            found.unwrap();
            rows
        };
        for text in texts(&parts.map(str::as_bytes), 20_000) {
            // A piece ends outside quotes.
            let mut ends = RowEnds::default();
            ends.scan(&text, &mut RowRule::Delimited(Dialect::with_delimiter(b',')), true);
            if !ends.is_open {
                assert_eq!(rows(&text, true), rows(&text, false), "{:?}", text.escape_ascii().to_string());
            }
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
                let mut records = QuotedRecords::new(text.as_bytes(), 1, Dialect::with_delimiter(b','));
                while let Some(Record { buffer, ranges, .. }) = records.next(&mut ranges, &[]) {
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
        let bad = [
            (&rows[2], 14, RowFault::TextAfterQuote { after_backslash: false }, "c,\"x\"y"),
            (&rows[4], 16, RowFault::BareReturn, "\"e\",f\rg"),
        ];
        for (row, line, fault, text) in bad {
            assert_eq!(*row, format!("{line}: {fault} [{text}]"));
        }
    }
}
