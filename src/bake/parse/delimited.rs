//! Rows out of delimited text (RFC 4180).
//!
//! Where a piece has no quotes, fields are what stands between delimiters. Where
//! it has, the crate `csv` parses it. It takes what it gets, so what is no line
//! of a table is looked for here: text behind a closing quote, and a carriage
//! return that ends no line.

use std::io::Read;
use std::ops::{ControlFlow, Range};

use csv::{ByteRecord, ReaderBuilder, Terminator};

use super::pack::{Cell, Packer};
use super::{RawRow, RowSink};
use crate::bake::cut::TextPiece;
use crate::bake::{BakeError, RowFault};

/// Where the parts of a row are, and how many fields it must have.
#[derive(Clone)]
pub(in crate::bake) struct Fields {
    pub(in crate::bake) key: usize,
    pub(in crate::bake) value: ValueFields,
    pub(in crate::bake) delete: Option<usize>,
    pub(in crate::bake) count: usize,
    /// Whether columns were chosen, which tells what to do about a row with another count.
    pub(in crate::bake) chosen: bool,
}

/// Which fields become the value.
#[derive(Clone)]
pub(in crate::bake) enum ValueFields {
    One(usize),
    Packed(Vec<usize>, Packer),
}

/// Parses the pieces of one input. Each thread has its own.
#[derive(Clone)]
pub(in crate::bake) struct Delimited {
    records: Records,
    fields: Fields,
}

/// Finds the records of pieces.
#[derive(Clone)]
struct Records {
    delimiter: u8,
    ranges: Vec<Range<usize>>,
}

/// A record of a piece.
pub(in crate::bake) struct Record<'a> {
    pub(in crate::bake) line: u64,
    /// As it stands in the piece, without its line end.
    pub(in crate::bake) text: &'a [u8],
    /// Where it ends in the piece, with its line end.
    pub(in crate::bake) end: usize,
    fault: Option<RowFault>,
    buffer: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Record<'a> {
    pub(in crate::bake) fn fields(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.ranges.iter().map(|range| &self.buffer[range.clone()])
    }

    #[inline]
    fn field(&self, index: usize) -> &'a [u8] {
        &self.buffer[self.ranges[index].clone()]
    }
}

type Flow = Result<ControlFlow<()>, BakeError>;

impl Delimited {
    pub(in crate::bake) fn new(delimiter: u8, fields: Fields) -> Self {
        Delimited { records: Records::new(delimiter), fields }
    }

    /// Hands on all rows of a piece.
    pub(in crate::bake) fn parse(&mut self, piece: &TextPiece, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let Fields { key, value, delete, count, chosen } = &mut self.fields;
        self.records.each(piece, |record| {
            let Record { line, text, .. } = record;
            if let Some(fault) = record.fault {
                sink.bad(line, fault, text)?;
                return Ok(ControlFlow::Continue(()));
            }
            if record.ranges.len() != *count {
                sink.bad(line, RowFault::field_count(*count, record.ranges.len(), *chosen), text)?;
                return Ok(ControlFlow::Continue(()));
            }
            let packed = match value {
                ValueFields::One(value) => Ok(record.field(*value)),
                ValueFields::Packed(fields, packer) => {
                    packer.pack(fields.iter().map(|field| Cell::Text(record.field(*field))))
                }
            };
            let (key, delete) = (record.field(*key), delete.map(|column| record.field(column)));
            match packed {
                Ok(value) => sink.row(&RawRow { line, key, value, delete, text })?,
                Err(fault) => sink.bad(line, fault, text)?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// Hands on the first record of a piece, if it has one.
///
/// # Errors
/// What `take` gives, and what is wrong with the record.
pub(in crate::bake) fn first_record<T>(
    piece: &TextPiece,
    delimiter: u8,
    take: impl FnOnce(Record<'_>) -> Result<T, BakeError>,
    refuse: impl FnOnce(u64, RowFault) -> BakeError,
) -> Result<Option<T>, BakeError> {
    let (mut taken, mut callbacks) = (None, Some((take, refuse)));
    Records::new(delimiter).each(piece, |mut record| {
        if let Some((take, refuse)) = callbacks.take() {
            taken = Some(match record.fault.take() {
                Some(fault) => return Err(refuse(record.line, fault)),
                None => take(record)?,
            });
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(taken)
}

impl Records {
    fn new(delimiter: u8) -> Self {
        Records { delimiter, ranges: Vec::new() }
    }

    fn each(&mut self, piece: &TextPiece, take: impl FnMut(Record<'_>) -> Flow) -> Result<(), BakeError> {
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
        let bytes = &piece.bytes[..];
        let mut faults = faults(bytes, self.delimiter).into_iter().peekable();
        // A carriage return is for the reader a byte like any other: alone it does not end a row, and one in front of a
        // line feed is taken off the last field here. A byte order mark is one only where an input begins, and the reader
        // would take it off any piece: hence the line end in front, which is no row.
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .terminator(Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .from_reader(b"\n".chain(bytes));
        let mut record = ByteRecord::new();
        let (mut line, mut end) = (piece.first_line, 0);
        // Memory does not fail to read.
        while reader.read_byte_record(&mut record).unwrap_or(false) {
            let read_to = reader.position().byte() as usize - 1;
            let blank = bytes[end..read_to].iter().take_while(|byte| **byte == b'\n').count();
            line += blank as u64;
            let whole = &bytes[end + blank..read_to];
            let with_return = whole.strip_suffix(b"\r\n");
            let text = with_return.or(whole.strip_suffix(b"\n")).unwrap_or(whole);
            end = read_to;
            let mut fault = None;
            while let Some((_, found)) = faults.next_if(|(at, _)| *at < end) {
                fault.get_or_insert(found);
            }
            self.ranges.clear();
            self.ranges.extend((0..record.len()).map(|field| record.range(field).expect("a field of the record")));
            if let (Some(last), Some(_)) = (self.ranges.last_mut(), with_return) {
                last.end -= 1;
            }
            let buffer = record.as_slice();
            if !text.is_empty() && take(Record { line, text, end, fault, buffer, ranges: &self.ranges })?.is_break() {
                return Ok(());
            }
            line += newlines(whole);
        }
        Ok(())
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// What is wrong with the quoting and the line ends of some rows, and where.
pub(in crate::bake) fn faults(bytes: &[u8], delimiter: u8) -> Vec<(usize, RowFault)> {
    let mut faults = Vec::new();
    let (mut is_open, mut skipped) = (false, None);
    for at in memchr::memchr2_iter(b'\r', b'"', bytes) {
        let next = bytes.get(at + 1);
        match (bytes[at], is_open) {
            (b'\r', false) if next != Some(&b'\n') => faults.push((at, RowFault::BareReturn)),
            (b'\r', _) => {}
            _ if skipped == Some(at) => {}
            (_, false) => {
                let before = at.checked_sub(1).map_or(b'\n', |before| bytes[before]);
                is_open = before == delimiter || before == b'\n';
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Seen(Vec<String>);

    impl RowSink for Seen {
        fn row(&mut self, row: &RawRow<'_>) -> Result<(), BakeError> {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.0.push(format!("{} {}={}", row.line, text(row.key), text(row.value)));
            Ok(())
        }

        fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError> {
            self.0.push(format!("{line} {fault:?} {}", String::from_utf8_lossy(text)));
            Ok(())
        }
    }

    fn seen(text: &str, has_quotes: bool) -> Vec<String> {
        let piece = TextPiece { bytes: text.as_bytes().to_vec(), first_line: 10, has_quotes };
        let fields = Fields { key: 0, value: ValueFields::One(1), delete: None, count: 2, chosen: false };
        let mut sink = Seen(Vec::new());
        Delimited::new(b',', fields).parse(&piece, &mut sink).unwrap();
        sink.0
    }

    #[test]
    fn rows_without_quotes_are_the_same_both_ways() {
        let parts = ["1,one", "", "a,b,c", ",", "x", "2,two\r", "y,\r,z", "\r", "é,ü"];
        let mut seed = 0x5eed_u64;
        println!("seed {seed:#x}");
        for _ in 0..2000 {
            let mut text = String::new();
            for _ in 0..seed % 7 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += parts[(seed >> 33) as usize % parts.len()];
                text += if seed >> 60 == 0 { "" } else { "\n" };
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert_eq!(seen(&text, false), seen(&text, true), "{text:?}");
        }
    }

    #[test]
    fn rows_with_quotes_are_taken_or_told() {
        let text = "\n\"a\",\"1\n2\"\r\nb,\"x\"\"y\"\nc,\"x\"y\nd,5\" pipe\n\"e\",f\rg\nh,i\n";
        let expected = ["11 a=1\n2", "13 b=x\"y", "14 TextAfterQuote c,\"x\"y", "15 d=5\" pipe"];
        assert_eq!(seen(text, true)[..4], expected);
        assert!(seen(text, true).iter().any(|row| row.contains("BareReturn")));
        assert_eq!(seen(text, true).last().unwrap(), "17 h=i");
    }
}
