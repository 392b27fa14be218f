//! Which columns of a table are meant.

use std::convert::Infallible;
use std::str::FromStr;

use super::parse::ValueSpec;
use super::parse::delimited::{Fields, Record, ValueFields};
use super::parse::pack::Packer;
use super::{BakeError, Options, RowFault};

/// A column, by number (counted from 1) or by its name.
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

/// Finds the columns by the first record of delimited text, which is the header if there is one.
pub(super) fn find_fields(options: &Options, input: &str, first: &Record<'_>) -> Result<Fields, BakeError> {
    let names: Vec<&[u8]> = first.fields().collect();
    let count = names.len();
    let fault = |fault| BakeError::Columns { input: input.to_owned(), fault };
    let position = |option: &str, column: &Column| {
        if let Column::Name(name) = column
            && options.header
            && names.iter().filter(|field| **field == name.as_bytes()).count() > 1
        {
            return Err(fault(format!("{option} {name:?} names several columns: give the number of one")));
        }
        let position = match column {
            Column::Number(number) => number.checked_sub(1).filter(|position| *position < count),
            Column::Name(_) if !options.header => None,
            Column::Name(name) => names.iter().position(|field| *field == name.as_bytes()),
        };
        let names = options.header.then_some(&names[..]);
        position.ok_or_else(|| fault(no_such_column(option, column, names, count)))
    };
    let delete = options.delete_column.as_ref().map(|column| position("--delete-column", column)).transpose()?;
    let the_other = |given: &str, missing: &str, position: usize| {
        let mut left = (0..count).filter(|column| *column != position && Some(*column) != delete);
        match (left.next(), left.next()) {
            (Some(other), None) => Ok(other),
            _ => Err(fault(format!("{given} is given, and rows have {count} fields: give {missing} as well"))),
        }
    };
    let expected = if delete.is_some() { 3 } else { 2 };
    let (key, value) = match (&options.key, &options.value) {
        (None, ValueSpec::Unnamed) if count == expected => {
            let mut left = (0..count).filter(|column| Some(*column) != delete);
            (left.next().unwrap_or(0), ValueFields::One(left.next().unwrap_or(0)))
        }
        (None, ValueSpec::Unnamed) => {
            let fault = RowFault::field_count(expected, count, false);
            return Err(BakeError::Row { input: input.to_owned(), line: first.line, fault });
        }
        (Some(key), ValueSpec::Unnamed) => {
            let key = position("--key", key)?;
            (key, ValueFields::One(the_other("--key", "--value", key)?))
        }
        (None, ValueSpec::Column(value)) => {
            let value = position("--value", value)?;
            (the_other("--value", "--key", value)?, ValueFields::One(value))
        }
        (Some(key), ValueSpec::Column(value)) => {
            (position("--key", key)?, ValueFields::One(position("--value", value)?))
        }
        (None, ValueSpec::Packed(..)) => {
            return Err(fault("--columns is given: say with --key which column is the key".to_owned()));
        }
        (Some(key), ValueSpec::Packed(columns, pack)) => {
            let packed = columns.iter().map(|column| position("--columns", column));
            let packed = packed.collect::<Result<Vec<_>, _>>()?;
            let name = |(column, index): (&Column, &usize)| match (column, options.header) {
                (Column::Name(name), _) => name.clone(),
                (Column::Number(_), true) => String::from_utf8_lossy(names[*index]).into_owned(),
                (Column::Number(number), false) => number.to_string(),
            };
            let packer = Packer::new(columns.iter().zip(&packed).map(name), *pack);
            (position("--key", key)?, ValueFields::Packed(packed, packer))
        }
    };
    let chosen = options.key.is_some() || options.value != ValueSpec::Unnamed || delete.is_some();
    Ok(Fields { key, value, delete, count, chosen })
}

/// Says which column is not there.
fn no_such_column(option: &str, column: &Column, names: Option<&[&[u8]]>, count: usize) -> String {
    match (column, names) {
        (Column::Number(number), _) => {
            format!("{option} {number} is not a column: the first row has {count}")
        }
        (Column::Name(name), None) => {
            format!("{option} {name:?} is a name, and no row names the columns: pass --header, or give a number")
        }
        (Column::Name(name), Some(names)) => {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            format!("{option} {name:?} is not a column: the header has {}", names.join(", "))
        }
    }
}
