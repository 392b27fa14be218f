//! Rows out of delimited text.

use std::convert::Infallible;
use std::io::{self, Read};
use std::str::FromStr;

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::error::no_such_column;
use super::source::Source;
use super::{BakeError, Options, RowFault};

const READ_LEN_BYTES: usize = 256 << 10;

/// A column, by number (counted from 1) or by the name in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// The column's number, counted from 1.
    Number(usize),
    /// The column's name.
    Name(String),
}

impl FromStr for Column {
    type Err = Infallible;

    /// A number if it reads as one, else a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Column::Name(text.to_owned()), Column::Number))
    }
}

/// A row of the input.
pub(super) struct Row<'a> {
    pub(super) line: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Where key and value are in a record, and how many fields it must have.
#[derive(Clone, Copy)]
struct Fields {
    key: usize,
    value: usize,
    count: usize,
}

/// Reads rows until the input ends or a row is bad.
pub(super) struct CsvRows<'o, R> {
    options: &'o Options,
    reader: Reader<Source<R>>,
    record: ByteRecord,
    /// Known from the first record on.
    fields: Option<Fields>,
}

impl<'o, R: Read> CsvRows<'o, R> {
    pub(super) fn new(input: R, options: &'o Options) -> Result<Self, BakeError> {
        let source = Source::new(input, options.delimiter).map_err(|error| unreadable(options, error))?;
        let reader = ReaderBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(READ_LEN_BYTES)
            .from_reader(source);
        let mut rows = CsvRows { options, reader, record: ByteRecord::new(), fields: None };
        if options.header
            && let Some(line) = rows.next_record()?
        {
            rows.fields = Some(find_fields(options, &rows.record, line)?);
        }
        Ok(rows)
    }

    /// Bytes of the input read so far.
    pub(super) fn input_bytes(&self) -> u64 {
        self.reader.get_ref().passed_bytes()
    }

    /// The next row, or `None` at the end of the input.
    pub(super) fn next_row(&mut self) -> Result<Option<Row<'_>>, BakeError> {
        let Some(line) = self.next_record()? else { return Ok(None) };
        let fields = match self.fields {
            Some(fields) => fields,
            None => *self.fields.insert(find_fields(self.options, &self.record, line)?),
        };
        if self.record.len() != fields.count {
            let chosen = self.options.key.is_some() || self.options.value.is_some();
            let fault = RowFault::field_count(fields.count, self.record.len(), chosen);
            return Err(BakeError::row(self.options, line, fault));
        }
        Ok(Some(Row { line, key: &self.record[fields.key], value: &self.record[fields.value] }))
    }

    /// Reads a record and tells the line on which it begins.
    fn next_record(&mut self) -> Result<Option<u64>, BakeError> {
        let read = match self.reader.read_byte_record(&mut self.record) {
            Ok(read) => read,
            Err(error) => {
                return Err(match self.reader.get_ref().endless_row() {
                    Some(line) => BakeError::row(self.options, line, RowFault::Endless),
                    None => unreadable(self.options, error.into()),
                });
            }
        };
        let end = self.reader.position().byte();
        let source = self.reader.get_mut();
        let lines_inside = match source.has_quotes() {
            true => memchr::memchr_iter(b'\n', self.record.as_slice()).count() as u64,
            false => 0,
        };
        let line = source.last_line_before(end) - lines_inside;
        match source.fault_before(end) {
            Some(fault) => Err(BakeError::row(self.options, line, fault)),
            // At the end of the input there is no record, but there may have been a fault behind the last.
            None => Ok(read.then_some(line)),
        }
    }
}

/// Finds the columns by the first record, which is the header if there is one.
fn find_fields(options: &Options, first: &ByteRecord, line: u64) -> Result<Fields, BakeError> {
    let count = first.len();
    let position = |option: &str, column: &Column| {
        let position = match column {
            Column::Number(number) => number.checked_sub(1).filter(|position| *position < count),
            Column::Name(_) if !options.header => None,
            Column::Name(name) => first.iter().position(|field| field == name.as_bytes()),
        };
        let names = options.header.then_some(first);
        position.ok_or_else(|| columns_fault(options, no_such_column(option, column, names, count)))
    };
    let the_other = |given: &str, missing: &str, position: usize| match count {
        2 => Ok(1 - position),
        _ => Err(columns_fault(
            options,
            format!("{given} is given, and rows have {count} fields: give {missing} as well"),
        )),
    };
    let (key, value) = match (&options.key, &options.value) {
        (None, None) if count == 2 => (0, 1),
        (None, None) => return Err(BakeError::row(options, line, RowFault::field_count(2, count, false))),
        (Some(key), Some(value)) => (position("--key", key)?, position("--value", value)?),
        (Some(key), None) => {
            let key = position("--key", key)?;
            (key, the_other("--key", "--value", key)?)
        }
        (None, Some(value)) => {
            let value = position("--value", value)?;
            (the_other("--value", "--key", value)?, value)
        }
    };
    Ok(Fields { key, value, count })
}

fn columns_fault(options: &Options, fault: String) -> BakeError {
    BakeError::Columns { input: options.input_name.clone(), fault }
}

fn unreadable(options: &Options, error: io::Error) -> BakeError {
    BakeError::Input { input: options.input_name.clone(), error }
}
