//! Tests that cut random text into short pieces, and a row sink that the tests of all formats use.

use super::delimited::{DelimitedParser, Fields};
use super::dialect::Dialect;
use super::json_lines::JsonLinesParser;
use super::pack::ValueColumns;
use super::text::{CutError, Cutter, RowRule, TextParser};
use crate::bake::columns::Column;
use crate::bake::error::{BakeError, RowFault};
use crate::bake::keys::KeyColumns;
use crate::bake::options::Options;
use crate::bake::row::{InputRow, RowSink};

/// Collects rows as text: `line: key = value`, followed by ` ! field` if the row has a field in the delete column. Bad
/// rows are collected as `line: fault [text]`.
#[derive(Default)]
pub(super) struct Lines(pub(super) Vec<String>);

impl RowSink for Lines {
    fn row(&mut self, row: &InputRow<'_>) -> Result<(), BakeError> {
        let delete = row.delete.map(|delete| format!(" ! {}", delete.escape_ascii())).unwrap_or_default();
        let text = String::from_utf8_lossy(row.value);
        self.0.push(format!("{}: {} = {text}{delete}", row.line, row.key.escape_ascii()));
        Ok(())
    }

    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError> {
        self.0.push(format!("{line}: {fault} [{}]", String::from_utf8_lossy(text)));
        Ok(())
    }

    fn rows_in_quotes(&mut self, _: u64) {}
}

pub(super) fn name(name: &str) -> Column {
    Column::Name(name.to_owned())
}

/// Describes rows of two fields: the key, then the value.
pub(super) fn key_and_value() -> Fields {
    Fields {
        key: KeyColumns::new(0, Vec::new()),
        end: None,
        value: ValueColumns::One(1),
        delete: None,
        count: 2,
        columns_chosen: false,
        names: ["1".to_owned(), "2".to_owned()],
    }
}

/// Cuts a text into pieces and parses them. Returns the rows, the faults of bad rows, and at the end the error, if
/// there is one.
fn pieces_of(text: &[u8], dialect: Option<Dialect>, piece_len_bytes: usize) -> Vec<String> {
    let mut cutter = Cutter::new(text, dialect.map_or(RowRule::JSON, RowRule::Delimited), piece_len_bytes, 1 << 20);
    let mut lines = Lines::default();
    loop {
        let piece = match cutter.next_piece(Vec::new()) {
            Ok(Some(piece)) => piece,
            Ok(None) => return lines.0,
            Err(CutError::Io(error)) => panic!("{error}"),
            Err(CutError::Row { line, fault }) => {
                lines.0.push(format!("{line}: {fault}"));
                return lines.0;
            }
        };
        let parsed = match dialect {
            Some(dialect) => DelimitedParser::new(dialect, key_and_value()).parse(&piece, &mut lines),
            None => JsonLinesParser::new(&Options::default()).unwrap().parse(&piece, &mut lines),
        };
        parsed.unwrap();
    }
}

/// Parses a text with the crate `csv`, and returns the rows that have two fields. Each element has two versions of a
/// row: as `csv` returns it, and without a carriage return at its end.
fn rows_by_csv(text: &[u8]) -> Vec<[String; 2]> {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true).terminator(csv::Terminator::Any(b'\n'));
    let mut rows = Vec::new();
    for record in reader.from_reader(text).into_byte_records() {
        let record = record.unwrap();
        let shown = |field: &[u8]| (field.escape_ascii().to_string(), String::from_utf8_lossy(field).into_owned());
        if record.len() == 2 {
            let without_return = record[1].strip_suffix(b"\r").unwrap_or(&record[1]);
            rows.push(
                [&record[1], without_return].map(|value| format!("{} = {}", shown(&record[0]).0, shown(value).1)),
            );
        }
    }
    rows
}

/// Returns random texts, each a concatenation of elements of `parts`.
pub(super) fn texts(parts: &[&'static [u8]], count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut seed = 0x5eed_u64;
    println!("seed {seed:#x}");
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    std::iter::repeat_with(move || (0..random(40)).flat_map(|_| parts[random(parts.len())]).copied().collect())
        .take(count)
}

#[test]
fn delimited_text_cut_anywhere_gives_the_rows_that_the_csv_crate_gives() {
    let parts: [&[u8]; 14] = [
        b",",
        b",",
        b"\n",
        b"\n",
        b"\n",
        b"\"",
        b"\"",
        b"\"\"",
        b"\r\n",
        b"\r",
        b"a",
        b"bc",
        b"\xef\xbb\xbf",
        b"\xff\0",
    ];
    let mut taken = 0;
    for text in texts(&parts, 20_000) {
        let whole = pieces_of(&text, Some(Dialect::with_delimiter(b',')), 1 << 20);
        for piece_len_bytes in [3, 4, 7, 16] {
            let cut = pieces_of(&text, Some(Dialect::with_delimiter(b',')), piece_len_bytes);
            assert_eq!(cut, whole, "pieces of {piece_len_bytes} bytes of {:?}", text.escape_ascii().to_string());
        }
        // Skips bad rows. The crate `csv` must find all other rows, in the same order.
        let mut by_csv = rows_by_csv(&text).into_iter();
        for row in whole.iter().filter_map(|row| row.split_once(": ")).map(|(_, row)| row) {
            if row.contains(" = ") {
                taken += 1;
                assert!(
                    by_csv.any(|others| others.iter().any(|other| other == row)),
                    "{row:?} of {:?}",
                    text.escape_ascii().to_string()
                );
            }
        }
    }
    assert!(taken > 10_000, "{taken} rows");
}

#[test]
fn text_of_any_dialect_cut_anywhere_gives_the_same_rows() {
    let parts: [&[u8]; 14] = [
        b",",
        b",",
        b"\n",
        b"\n",
        b"\n#",
        b"\"",
        b"'",
        b"\\",
        b"\\\n",
        b"\r\n",
        b"\r",
        b"a",
        b"#\",\"",
        b"\xef\xbb\xbf",
    ];
    for (quote, escape, comment) in [
        (None, None, None),
        (None, Some(b'\\'), None),
        (None, Some(b'\\'), Some(b'#')),
        (Some(b'"'), None, Some(b'#')),
        (Some(b'"'), Some(b'\\'), None),
        (Some(b'\''), Some(b'\\'), Some(b'#')),
        (Some(b'\''), None, None),
    ] {
        let dialect = Some(Dialect { delimiter: b',', quote, escape, comment });
        for text in texts(&parts, 3000) {
            let whole = pieces_of(&text, dialect, 1 << 20);
            for piece_len_bytes in [3, 4, 7, 16] {
                let cut = pieces_of(&text, dialect, piece_len_bytes);
                let text = text.escape_ascii().to_string();
                assert_eq!(cut, whole, "pieces of {piece_len_bytes} bytes of {text:?} in {dialect:?}");
            }
        }
    }
}

#[test]
fn json_cut_anywhere_gives_the_same_rows() {
    let parts: [&[u8]; 19] = [
        b"[{\"key\":1,\n\"value\":[{}]}",
        b",",
        b"{\"key\":1,\"value\":\"]\\\"\"}",
        b"{",
        b"}\n",
        b"{\"key\":",
        b"1",
        b",\"value\":",
        b"\"a\\n\"",
        b"}\n{\"key\":\"k\",\"value\":",
        b"[",
        b"]",
        b"\n",
        b"\r\n",
        b"\\u00e9",
        b"\xff",
        b"\0",
        b"null",
        b"\xef\xbb\xbf",
    ];
    for text in texts(&parts, 20_000) {
        let whole = pieces_of(&text, None, 1 << 20);
        for piece_len_bytes in [3, 5, 16] {
            let cut = pieces_of(&text, None, piece_len_bytes);
            assert_eq!(cut, whole, "pieces of {piece_len_bytes} bytes of {:?}", text.escape_ascii().to_string());
        }
    }
}
