//! Properties of a bake of any bytes as text.
//!
//! A bake of delimited text gives the rows that a second, byte-by-byte parser finds, or an error with the line of the
//! first bad row. In every format, equal rows give equal files, however the text was split into pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::bake::{
    self, BadRows, BakeError, Column, Duplicates, Format, Input, Keys, MEMORY_MIN_BYTES, Options, Quote, Report,
    RowFault, ValueSpec,
};
use zero_kv::{Key, KeyKind, Store};

use super::source::Source;
use crate::helpers::rows::write_new;

/// Bakes what the bytes describe, in its own folder.
pub fn check(folder: &Path, data: &[u8]) {
    let mut source = Source::new(data);
    let options = options(&mut source);
    let machines = [(); 2].map(|()| ResourceOptions::draw(&mut source));
    let texts = texts(&mut source);
    let output = folder.join("new.db");
    let baked = machines.each_ref().map(|machine| {
        let _ = fs::remove_file(&output);
        let report = machine.bake(&texts, &output, &options);
        assert_eq!(output.exists(), report.is_ok(), "a file exists exactly if it was baked");
        assert_eq!(fs::read_dir(folder).unwrap().count(), usize::from(report.is_ok()), "nothing is left behind");
        report.map(|report| (report, fs::read(&output).unwrap()))
    });
    match &baked {
        [Ok((_, file)), Ok((_, other))] => assert!(file == other, "other resources give a different file"),
        // With less memory, fewer bytes of a row are accepted. No other error depends on the resources.
        [Ok(_), Err(error)] | [Err(error), Ok(_)] => {
            assert!(
                matches!(error, BakeError::Row { fault: RowFault::Endless { .. }, .. }),
                "one bake failed: {error}"
            );
        }
        [Err(_), Err(_)] => {}
    }
    for (machine, baked) in machines.iter().zip(&baked) {
        match baked {
            Ok((report, file)) => {
                write_new(&output, file);
                check_file(&output, report);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        if let Some(model) = Model::new(&options, &texts) {
            model.check(machine, &options, &output, baked.as_ref().map(|(report, _)| report));
        }
    }
    let _ = fs::remove_file(&output);
}

/// Checks that the file agrees with the report, and that each row is found.
fn check_file(path: &Path, report: &Report) {
    let store = Store::open(path).unwrap();
    assert_eq!((store.key_type(), store.len() as u64), (report.key_type, report.rows));
    for (key, value) in store.iter().map(Result::unwrap) {
        assert_eq!(store.get(key), Ok(Some(value)));
    }
}

fn options(source: &mut Source<'_>) -> Options {
    let mut options = Options::default();
    options.replace = zero_kv::replace::ReplaceRules::any();
    options.format = match source.below(8) {
        7 => Format::JsonLines,
        6 => Format::Tsv,
        5 => Format::Auto,
        _ => Format::Delimited,
    };
    options.delimiter = [None, Some(source.byte())][usize::from(source.one_in(4))];
    if source.one_in(2) {
        options.quote = [Quote::Auto, Quote::None, Quote::Byte(b'"'), Quote::Byte(b'\'')][source.below(4)];
        options.escape = [None, Some(b'\\'), Some(b'"')][source.below(3)];
        options.comment = [None, Some(b'#'), Some(b'a')][source.below(3)];
        options.skip_lines = [0, 1, 100][source.below(3)];
    }
    options.header = source.one_in(3);
    options.keys = [Keys::U64, Keys::BYTES, Keys::Auto][source.below(3)];
    options.duplicates = [Duplicates::Last, Duplicates::First, Duplicates::Error][source.below(3)];
    if source.one_in(2) {
        options.bad_rows = BadRows::Skip { file: None, max: [0, 1, 1000][source.below(3)] };
    }
    options.delete_marker = [None, Some(b"-".to_vec())][source.below(2)].clone();
    options.delete_column = source.one_in(4).then(|| column(source));
    options.key = source.one_in(3).then(|| column(source));
    options.value = match source.below(6) {
        4 => ValueSpec::Column(column(source)),
        5 => ValueSpec::Packed(vec![column(source), column(source)]),
        _ => ValueSpec::Unnamed,
    };
    options.slots = source.one_in(4).then(|| source.slots());
    options.compare_rows = source.below(2) == 1;
    options
}

fn column(source: &mut Source<'_>) -> Column {
    match source.below(6) {
        5 => Column::Name("b".to_owned()),
        4 => Column::Name("key".to_owned()),
        number => Column::Number(number),
    }
}

/// Returns one or two texts, with extra line ends: the reader cuts a piece after a certain number of bytes.
fn texts(source: &mut Source<'_>) -> Vec<Vec<u8>> {
    let inserts = [(); 2].map(|()| match source.one_in(2) {
        true => (source.below(1 << 16), source.below(1 << 16)),
        false => (0, 0),
    });
    let split = source.one_in(4).then(|| source.below(1 << 16));
    let rest = source.rest();
    let split = split.map_or(rest.len(), |at| at % (rest.len() + 1));
    let mut texts = vec![rest[..split].to_vec(), rest[split..].to_vec()];
    texts.retain(|text| !text.is_empty());
    for (text, (at, count)) in texts.iter_mut().zip(inserts) {
        let at = at % (text.len() + 1);
        text.splice(at..at, std::iter::repeat_n(b'\n', count));
    }
    texts
}

/// The options that do not change the file.
pub(super) struct ResourceOptions {
    threads: usize,
    memory_bytes: u64,
    read_len_max_bytes: usize,
}

impl ResourceOptions {
    pub(super) fn draw(source: &mut Source<'_>) -> ResourceOptions {
        let threads = 1 + source.below(3);
        let memory_bytes = MEMORY_MIN_BYTES << (4 * source.below(2));
        ResourceOptions { threads, memory_bytes, read_len_max_bytes: [1 << 20, 1 << 10, 7][source.below(3)] }
    }

    pub(super) fn bake(&self, texts: &[Vec<u8>], output: &Path, options: &Options) -> Result<Report, BakeError> {
        let mut options = options.clone();
        options.threads = NonZero::new(self.threads);
        options.memory_bytes = Some(self.memory_bytes);
        let named = texts.iter().zip(["a", "b"]);
        let inputs = named.map(|(text, name)| Input::reader(name, Chunks { text, len_max: self.read_len_max_bytes }));
        bake::bake(inputs.collect(), output, &options)
    }

    /// A longer row may be rejected.
    fn row_len_max_bytes(&self) -> usize {
        self.memory_bytes as usize / 8
    }
}

/// Returns a limited number of bytes at a time.
struct Chunks<'t> {
    text: &'t [u8],
    len_max: usize,
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.len_max);
        self.text.read(&mut buffer[..len])
    }
}

/// The input and the line of a row.
type Place = (String, u64);

/// The expected result of a bake of delimited text.
#[derive(Default)]
struct Model {
    rows: Vec<Row>,
    bad_rows: u64,
    /// The row, or the input, that is rejected.
    refused: Option<Place>,
    /// The place and the length of each row. If a bake reports a row as too long, its length is looked up here.
    long: Vec<(Place, usize)>,
}

struct Row {
    place: Place,
    key: Vec<u8>,
    value: Value,
}

#[derive(Clone, PartialEq)]
enum Value {
    Deleted,
    Is(Vec<u8>),
    /// A packed value, which is not modeled.
    Any,
}

pub(super) struct Record {
    line: u64,
    pub(super) fields: Vec<Vec<u8>>,
    pub(super) is_bad: bool,
    len_bytes: usize,
    /// The length of the text from the first row to the end of this row.
    end: usize,
}

/// The bytes of delimited text that have a meaning.
pub(super) struct Dialect {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    skip_lines: u64,
}

impl Dialect {
    pub(super) const CSV: Dialect =
        Dialect { delimiter: b',', quote: Some(b'"'), escape: None, comment: None, skip_lines: 0 };

    /// Returns `None` if a byte has two meanings.
    fn new(options: &Options, delimiter: u8) -> Option<Dialect> {
        let delimiter = options.delimiter.unwrap_or(delimiter);
        let quote = match options.quote {
            Quote::Auto if delimiter == b'\t' => None,
            Quote::Auto => Some(b'"'),
            Quote::None => None,
            Quote::Byte(quote) => Some(quote),
        };
        let escape = if options.escape == quote { None } else { options.escape };
        let used: Vec<u8> = [Some(delimiter), quote, escape, options.comment].into_iter().flatten().collect();
        let is_valid = used.iter().enumerate().all(|(at, byte)| !b"\r\n".contains(byte) && !used[..at].contains(byte));
        let (comment, skip_lines) = (options.comment, options.skip_lines);
        is_valid.then_some(Dialect { delimiter, quote, escape, comment, skip_lines })
    }
}

/// The positions of a row's parts.
struct Fields {
    count: usize,
    key: usize,
    values: Vec<usize>,
    delete: Option<usize>,
}

impl Model {
    /// Returns `None` for inputs without a model: other formats, and bytes with two meanings.
    fn new(options: &Options, texts: &[Vec<u8>]) -> Option<Model> {
        let dialect = match options.format {
            Format::Delimited => Dialect::new(options, b',')?,
            Format::Tsv => Dialect::new(options, b'\t')?,
            _ => return None,
        };
        let is_other = |text: &[u8]| {
            let magics: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x89ZKV"];
            // A skippable Zstandard frame.
            magics.iter().any(|magic| text.starts_with(magic)) || text.get(1..4) == Some(b"\x2a\x4d\x18")
        };
        if texts.iter().any(|text| is_other(text)) {
            return None;
        }
        let mut model = Model::default();
        for (text, name) in texts.iter().zip(["a", "b"]) {
            if model.input(options, name, records(text, &dialect)).is_none() {
                break;
            }
        }
        Some(model)
    }

    fn refuse(&mut self, name: &str, line: u64) -> Option<()> {
        self.refused = Some((name.to_owned(), line));
        None
    }

    /// Adds the rows of an input. Returns `None` if the input is rejected.
    fn input(&mut self, options: &Options, name: &str, records: (Vec<Record>, Option<u64>)) -> Option<()> {
        let (records, unclosed) = records;
        let mut fields = None;
        let usual = usual_record(options, &records);
        for record in &records {
            self.long.push(((name.to_owned(), record.line), record.len_bytes));
            let is_first = fields.is_none();
            if is_first {
                let first = usual.map_or(record, |usual| &records[usual]);
                if first.is_bad {
                    return self.refuse(name, first.line);
                }
                fields = Fields::new(options, &first.fields);
            }
            let Some(fields) = &fields else { return self.refuse(name, 0) };
            if is_first && options.header {
                continue;
            }
            match row(options, fields, record) {
                Some((key, value)) => {
                    if options.slots.is_none_or(|slots| slots.has_key(of_kind(options.keys, &key))) {
                        self.rows.push(Row { place: (name.to_owned(), record.line), key, value });
                    }
                }
                None => {
                    self.bad_rows += 1;
                    let max = if let BadRows::Skip { max, .. } = options.bad_rows { max } else { 0 };
                    if self.bad_rows > max {
                        return self.refuse(name, record.line);
                    }
                }
            }
        }
        match unclosed {
            Some(line) => self.refuse(name, line),
            None => Some(()),
        }
    }

    fn check(&self, machine: &ResourceOptions, options: &Options, output: &Path, baked: Result<&Report, &BakeError>) {
        let report = match baked {
            Ok(report) => report,
            Err(error) => return self.check_error(machine, options, error),
        };
        assert_eq!(self.refused, None, "a bad row was accepted");
        assert_eq!(report.bad_rows, self.bad_rows);
        let is_decimal = |key: &[u8]| number(key).is_some_and(|number| number.to_string().as_bytes() == key);
        let keys = match options.keys {
            Keys::Auto if self.rows.iter().all(|row| is_decimal(&row.key)) => Keys::U64,
            Keys::Auto => Keys::BYTES,
            keys => keys,
        };
        let mut kept = BTreeMap::new();
        for row in &self.rows {
            match (options.duplicates, kept.entry(of_kind(keys, &row.key))) {
                (_, std::collections::btree_map::Entry::Vacant(entry)) => drop(entry.insert(&row.value)),
                (Duplicates::Error, _) => panic!("a duplicate was accepted"),
                (Duplicates::First, _) => {}
                (Duplicates::Last, std::collections::btree_map::Entry::Occupied(mut entry)) => {
                    entry.insert(&row.value);
                }
            }
        }
        kept.retain(|_, value| **value != Value::Deleted);
        let store = Store::open(output).unwrap();
        assert_eq!(store.key_kind(), if keys == Keys::U64 { KeyKind::U64 } else { KeyKind::Bytes });
        assert_eq!(store.len(), kept.len());
        for ((key, value), (expected, expected_value)) in store.iter().map(Result::unwrap).zip(kept) {
            assert_eq!(key, expected);
            assert!(*expected_value == Value::Any || *expected_value == Value::Is(value.to_vec()), "{key}");
        }
    }

    fn check_error(&self, machine: &ResourceOptions, options: &Options, error: &BakeError) {
        let same = |input: &String, line: &u64| Some((input.clone(), *line)) == self.refused;
        let is_expected = match error {
            BakeError::Row { input, line, fault: RowFault::Duplicate { .. } } => {
                options.duplicates == Duplicates::Error && self.first_duplicate(options) == Some((input.clone(), *line))
            }
            BakeError::Row { input, line, fault: RowFault::Endless { len_max_bytes } } => {
                assert_eq!(*len_max_bytes, machine.row_len_max_bytes());
                let mut long = self.long.iter().filter(|(_, len_bytes)| len_bytes > len_max_bytes);
                long.any(|((name, at), _)| name == input && at == line) || same(input, line)
            }
            BakeError::Row { input, line, .. } | BakeError::BadRows { input, line, .. } => {
                same(input, line) || same(input, &0)
            }
            BakeError::Columns { input, .. } => same(input, &0),
            // The first bytes are those of a format that is not text.
            BakeError::Input { error, .. } => error.to_string().contains("which is not supported"),
            BakeError::SlotsKeysUnknown => options.keys == Keys::Auto && options.slots.is_some(),
            _ => false,
        };
        assert!(is_expected, "{error}: {:?} should have been rejected", self.refused);
    }

    /// Returns the first row whose key an earlier row has.
    fn first_duplicate(&self, options: &Options) -> Option<Place> {
        let mut seen = BTreeSet::new();
        let again = self.rows.iter().find(|row| !seen.insert(of_kind(options.keys, &row.key)));
        again.map(|row| row.place.clone())
    }
}

impl Fields {
    fn new(options: &Options, first: &[Vec<u8>]) -> Option<Fields> {
        let count = first.len();
        let position = |column: &Column| match column {
            Column::Number(number) => number.checked_sub(1).filter(|position| *position < count),
            Column::Name(name) => {
                let mut found = (0..count).filter(|at| options.header && first[*at] == name.as_bytes());
                found.next().filter(|_| found.next().is_none())
            }
        };
        let delete = match &options.delete_column {
            Some(column) => Some(position(column)?),
            None => None,
        };
        let others = |taken: Option<usize>| -> Vec<usize> {
            (0..count).filter(|at| Some(*at) != taken && Some(*at) != delete).collect()
        };
        let (key, values) = match (&options.key, &options.value) {
            (None, ValueSpec::Unnamed) => match others(None)[..] {
                [key, value] => (key, vec![value]),
                _ => return None,
            },
            (Some(key), ValueSpec::Unnamed) => match others(Some(position(key)?))[..] {
                [value] => (position(key)?, vec![value]),
                _ => return None,
            },
            (None, ValueSpec::Column(value)) => match others(Some(position(value)?))[..] {
                [key] => (key, vec![position(value)?]),
                _ => return None,
            },
            (Some(key), ValueSpec::Column(value)) => (position(key)?, vec![position(value)?]),
            (None, ValueSpec::Packed(..)) => return None,
            (Some(key), ValueSpec::Packed(values)) => {
                (position(key)?, values.iter().map(position).collect::<Option<_>>()?)
            }
        };
        Some(Fields { count, key, values, delete })
    }
}

/// Returns the position of the record that shows the number of fields, if bad rows are skipped: the first of those with
/// the most frequent number.
fn usual_record(options: &Options, records: &[Record]) -> Option<usize> {
    if options.header || options.bad_rows == BadRows::Refuse {
        return None;
    }
    let mut counted: Vec<(usize, usize)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        if record.end > 64 << 10 && !counted.is_empty() {
            break;
        }
        if !record.is_bad {
            counted.push((at, record.fields.len()));
        }
    }
    let count = |len: usize| counted.iter().filter(|(_, other)| *other == len).count();
    let most = counted.iter().map(|(_, len)| count(*len)).max()?;
    counted.iter().find(|(_, len)| count(*len) == most).map(|(at, _)| *at)
}

/// Returns a row's key and value, if it is a valid row.
fn row(options: &Options, fields: &Fields, record: &Record) -> Option<(Vec<u8>, Value)> {
    if record.is_bad || record.fields.len() != fields.count {
        return None;
    }
    let key = &record.fields[fields.key];
    match options.keys {
        Keys::U64 => drop(number(key)?),
        _ if key.is_empty() || key.len() > 65_535 => return None,
        _ => {}
    }
    let word = fields.delete.map(|delete| record.fields[delete].to_ascii_lowercase());
    let is_deleted = match word.as_deref() {
        Some(b"1" | b"true" | b"t" | b"yes" | b"y") => true,
        None | Some(b"" | b"0" | b"false" | b"f" | b"no" | b"n") => false,
        Some(_) => return None,
    };
    if let ValueSpec::Packed(..) = options.value {
        let is_text = fields.values.iter().all(|at| str::from_utf8(&record.fields[*at]).is_ok());
        return is_text.then(|| (key.clone(), if is_deleted { Value::Deleted } else { Value::Any }));
    }
    let value = &record.fields[fields.values[0]];
    let is_deleted = is_deleted || options.delete_marker.as_ref() == Some(value);
    Some((key.clone(), if is_deleted { Value::Deleted } else { Value::Is(value.clone()) }))
}

fn of_kind(keys: Keys, key: &[u8]) -> Key<'_> {
    match keys {
        Keys::U64 => Key::U64(number(key).expect("checked before")),
        _ => Key::Bytes(key),
    }
}

pub(super) fn number(key: &[u8]) -> Option<u64> {
    let text = str::from_utf8(key).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses delimited text byte by byte. Returns all records, and the line of a last record whose quote is not closed.
pub(super) fn records(text: &[u8], dialect: &Dialect) -> (Vec<Record>, Option<u64>) {
    let Dialect { delimiter, quote, escape, comment, skip_lines } = *dialect;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let line_end = |at: usize| match &text[at..] {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        _ => None,
    };
    let (mut records, mut at, mut line, mut first_start) = (Vec::new(), 0, 1, None);
    while at < text.len() {
        if let Some(len) = line_end(at).filter(|_| line > skip_lines) {
            (at, line) = (at + len, line + 1);
            continue;
        }
        if line <= skip_lines || Some(text[at]) == comment {
            let rest = text[at..].iter().position(|byte| *byte == b'\n');
            (at, line) = (rest.map_or(text.len(), |rest| at + rest + 1), line + 1);
            continue;
        }
        let (first_line, start) = (line, at);
        first_start.get_or_insert(start);
        let (mut fields, mut is_bad) = (vec![Vec::new()], false);
        let mut may_open = true;
        while at < text.len() && line_end(at).is_none() {
            let field = fields.last_mut().expect("at least one");
            match text[at] {
                byte if may_open && Some(byte) == quote => {
                    at += 1;
                    loop {
                        match text[at..] {
                            [] => return (records, Some(first_line)),
                            [first, second, ..]
                                if [quote, escape].contains(&Some(second))
                                    && (Some(first) == escape || (Some(first) == quote && Some(second) == quote)) =>
                            {
                                (at, _) = (at + 2, field.push(second));
                            }
                            [first, ..] if Some(first) == quote => break,
                            [byte, ..] => {
                                line += u64::from(byte == b'\n');
                                (at, _) = (at + 1, field.push(byte));
                            }
                        }
                    }
                    at += 1;
                    is_bad |= at < text.len() && text[at] != delimiter && line_end(at).is_none();
                    may_open = false;
                    continue;
                }
                byte if byte == delimiter => fields.push(Vec::new()),
                byte if quote.is_none() && Some(byte) == escape && at + 1 < text.len() => {
                    at += 1;
                    line += u64::from(text[at] == b'\n');
                    let controls = [(b'0', 0), (b'b', 8), (b't', 9), (b'n', 10), (b'v', 11), (b'f', 12), (b'r', 13)];
                    let control = controls.iter().find(|(letter, _)| *letter == text[at]);
                    field.push(control.map_or(text[at], |(_, control)| *control));
                    // The escaped byte is not a delimiter.
                    (at, may_open) = (at + 1, false);
                    continue;
                }
                byte => {
                    is_bad |= byte == b'\r';
                    field.push(byte);
                }
            }
            may_open = text[at] == delimiter;
            at += 1;
        }
        if let Some(len) = (at < text.len()).then(|| line_end(at)).flatten() {
            (at, line) = (at + len, line + 1);
        }
        let end = at - first_start.unwrap_or_default();
        records.push(Record { line: first_line, fields, is_bad, len_bytes: at - start, end });
    }
    (records, None)
}
