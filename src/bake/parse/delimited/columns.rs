//! Finds the chosen columns in the header or the first row of a delimited input.

use super::{Fields, Record};
use crate::bake::columns::{Column, ColumnRole, ColumnsFault, ValueSpec};
use crate::bake::error::BakeError;
use crate::bake::options::Options;
use crate::bake::parse::pack::{Packer, ValueColumns};
use crate::bake::remedy::Remedy;
use crate::bake::row_fault::RowFault;

/// Returns the positions of the chosen columns. `first` is the input's header, or its first row if there is no header.
pub(super) fn find(options: &Options, input: &str, first: &Record<'_>) -> Result<Fields, BakeError> {
    let finder = Finder::new(options, first);
    let count = finder.fields.len();
    let position = |role, column: &Column| finder.position(role, column).map_err(|fault| fault.in_input(input));
    let delete = options.delete_column.as_ref().map(|column| position(ColumnRole::Delete, column)).transpose()?;
    let other_than = |given: usize, role: ColumnRole| {
        let mut left = (0..count).filter(|column| *column != given && Some(*column) != delete);
        match (left.next(), left.next()) {
            (Some(other), None) => Ok(other),
            _ => {
                let message = format!("rows have {count} fields: choose the {role} as well");
                Err(ColumnsFault::new(message, &[role.remedy()]).in_input(input))
            }
        }
    };
    let (key, value) = match (&options.key, &options.value) {
        (None, ValueSpec::Unnamed) => {
            let expected = if delete.is_some() { 3 } else { 2 };
            if count != expected {
                let fault = RowFault::FieldCount { expected, found: count, columns_chosen: false };
                return Err(BakeError::Row { input: input.to_owned(), line: first.line, fault });
            }
            let mut left = (0..count).filter(|column| Some(*column) != delete);
            (left.next().unwrap_or(0), ValueColumns::One(left.next().unwrap_or(0)))
        }
        (Some(key), ValueSpec::Unnamed) => {
            let key = position(ColumnRole::Key, key)?;
            (key, ValueColumns::One(other_than(key, ColumnRole::Value)?))
        }
        (None, ValueSpec::Column(value)) => {
            let value = position(ColumnRole::Value, value)?;
            (other_than(value, ColumnRole::Key)?, ValueColumns::One(value))
        }
        (Some(key), ValueSpec::Column(value)) => {
            (position(ColumnRole::Key, key)?, ValueColumns::One(position(ColumnRole::Value, value)?))
        }
        (None, ValueSpec::Packed(..)) => {
            let message = "columns are packed into the value: choose the key column as well";
            return Err(ColumnsFault::new(message, &[Remedy::ChooseKey]).in_input(input));
        }
        (Some(key), ValueSpec::Packed(columns)) => {
            let packed = columns.iter().map(|column| position(ColumnRole::Packed, column));
            let packed = packed.collect::<Result<Vec<_>, _>>()?;
            (position(ColumnRole::Key, key)?, finder.packed(columns, packed))
        }
    };
    let columns_chosen = options.key.is_some() || options.value != ValueSpec::Unnamed || delete.is_some();
    Ok(Fields { key, value, delete, count, columns_chosen })
}

/// Finds columns in the header or the first row of an input.
pub(super) struct Finder<'f> {
    /// The fields of the header, or of the first row if there is no header.
    pub(super) fields: Vec<&'f [u8]>,
    has_header: bool,
}

impl<'f> Finder<'f> {
    pub(super) fn new(options: &Options, first: &Record<'f>) -> Finder<'f> {
        Finder { fields: first.fields().collect(), has_header: options.header }
    }

    /// Returns a finder for columns whose names are known.
    pub(super) fn of_names(names: &'f [String]) -> Finder<'f> {
        Finder { fields: names.iter().map(String::as_bytes).collect(), has_header: true }
    }

    pub(super) fn position(&self, role: ColumnRole, column: &Column) -> Result<usize, ColumnsFault> {
        let count = self.fields.len();
        match column {
            Column::Number(number) => number.checked_sub(1).filter(|position| *position < count).ok_or_else(|| {
                ColumnsFault::of_column(role, column, format_args!("does not exist: the first row has {count} fields"))
            }),
            Column::Name(_) if !self.has_header => Err(ColumnsFault::new(
                format!(
                    "the {role} {column} is a name, and no row names the columns: read the first row as a header, or give a number"
                ),
                &[Remedy::ReadHeader, role.remedy()],
            )),
            Column::Name(name) => {
                let mut found = (0..count).filter(|position| self.fields[*position] == name.as_bytes());
                match (found.next(), found.next()) {
                    (Some(position), None) => Ok(position),
                    (Some(_), Some(_)) => {
                        let problem = "appears several times in the header: choose it by number";
                        Err(ColumnsFault::of_column(role, column, problem))
                    }
                    (None, _) => {
                        let names: Vec<_> = self.fields.iter().map(|name| String::from_utf8_lossy(name)).collect();
                        let names = names.join(", ");
                        Err(ColumnsFault::of_column(
                            role,
                            column,
                            format_args!("does not exist: the header has {names}"),
                        ))
                    }
                }
            }
        }
    }

    /// Returns the fields to pack, and a packer that names each entry after its column. Without a header, a column's
    /// name is its number.
    fn packed(&self, columns: &[Column], positions: Vec<usize>) -> ValueColumns {
        let name = |(column, position): (&Column, &usize)| match (column, self.has_header) {
            (Column::Name(name), _) => name.clone(),
            (Column::Number(_), true) => String::from_utf8_lossy(self.fields[*position]).into_owned(),
            (Column::Number(number), false) => number.to_string(),
        };
        let packer = Packer::new(columns.iter().zip(&positions).map(name));
        ValueColumns::Packed(positions, packer)
    }
}
