//! Finds the chosen columns in the header or the first row of a delimited input.

use std::ops::ControlFlow;

use super::{Fields, Found, Record, Records};
use crate::bake::columns::{Column, ColumnRole, ColumnsFault, ValueSpec};
use crate::bake::error::{BakeError, Remedy};
use crate::bake::keys::{KeyColumns, canonical_decimal, key_name};
use crate::bake::options::Options;
use crate::bake::parse::pack::{Packer, ValueColumns};
use crate::bake::parse::text::TextPiece;
use crate::bake::row::is_removed;
use crate::bake::typed::infer::{INFERENCE_LEN_BYTES, Inference};
use crate::bake::typed::row_builder::RowBuilder;
use crate::bake::typed::{Selected, TypedPlan};
use crate::bake::warning::Warning;
use crate::typed;

/// Returns the positions of the chosen columns. `first` is the input's header, or its first row if there is no header.
pub(super) fn find(options: &Options, input: &str, first: &Record<'_>, has_quotes: bool) -> Result<Fields, BakeError> {
    let finder = Finder::new(options, first);
    let count = finder.fields.len();
    let position = |role, column: &Column| finder.position(role, column).map_err(|fault| fault.in_input(input));
    let delete = options.delete_column.as_ref().map(|column| position(ColumnRole::Delete, column)).transpose()?;
    let more_keys = options.more_key_columns.iter().map(|column| position(ColumnRole::Key, column));
    let more_keys = more_keys.collect::<Result<Vec<_>, _>>()?;
    let end = options.end_column().map(|column| position(ColumnRole::End, column)).transpose()?;
    let other_than = |given: usize, role: ColumnRole| {
        let is_taken =
            |column: usize| column == given || [delete, end].contains(&Some(column)) || more_keys.contains(&column);
        let mut left = (0..count).filter(|column| !is_taken(*column));
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
                let fault = first.field_count(expected, false, has_quotes);
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
            (position(ColumnRole::Key, key)?, finder.packed(packed))
        }
    };
    let columns_chosen = options.key.is_some() || options.value != ValueSpec::Unnamed || delete.is_some();
    let value_position = if let ValueColumns::One(value) = value { value } else { key };
    let names = [key, value_position].map(|position| finder.name(position));
    let key = KeyColumns::new(key, more_keys);
    Ok(Fields { key, end, value, delete, count, columns_chosen, names })
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
                    "the {role} {column} is a name, and no row names the columns: read the first row as a header, or \
                     give a number"
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

    /// Returns the name of a column, or its number if the columns have no names.
    fn name(&self, position: usize) -> String {
        match self.has_header {
            true => String::from_utf8_lossy(self.fields[position]).into_owned(),
            false => (position + 1).to_string(),
        }
    }

    /// Returns the fields to pack, and a packer that names each entry after its column. Without a header, a column's
    /// name is its number.
    fn packed(&self, positions: Vec<usize>) -> ValueColumns {
        let packer = Packer::new(positions.iter().map(|position| self.name(*position)));
        ValueColumns::Packed(positions, packer)
    }
}

/// The columns of an input whose types must be inferred.
pub(super) struct UntypedColumns<'o> {
    plan: &'o TypedPlan,
    layout: RowFields,
    /// The name and position of each column to store.
    columns: Vec<(String, usize)>,
}

/// The fields of each row.
struct RowFields {
    names: Vec<String>,
    key: KeyColumns,
    end: Option<usize>,
    delete: Option<usize>,
}

/// Finds the columns of the table in the header of an input, or in its first row if there is no header.
pub(super) fn find_typed<'o>(
    options: &Options,
    plan: &'o TypedPlan,
    input: &str,
    first: &Record<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Found<'o>, BakeError> {
    let found = RowFields::find(options, first).and_then(|layout| {
        let keys: Vec<String> = layout.key.iter().map(|position| layout.names[position].clone()).collect();
        let selected = plan.selected(&keys, |column| {
            layout.position(ColumnRole::Typed, column).map(|position| layout.names[position].clone())
        })?;
        let position = |name: &String| layout.position(ColumnRole::Typed, &Column::Name(name.clone()));
        Ok(match selected {
            Selected::Typed(columns) => {
                let mut position_or_null = |column: &typed::Column| match position(&column.name) {
                    Err(absent) if !layout.names.contains(&column.name) => {
                        warnings.extend(plan.missing_column(column, input, absent)?);
                        Ok(None)
                    }
                    found => found.map(Some),
                };
                let positions = columns.iter().map(&mut position_or_null).collect::<Result<_, _>>()?;
                (layout, Some((columns, positions)), Vec::new())
            }
            Selected::Named(names) => {
                let columns = names.into_iter().map(|name| position(&name).map(|position| (name, position)));
                let columns = columns.collect::<Result<_, _>>()?;
                (layout, None, columns)
            }
            Selected::All => {
                let is_stored = |position: &usize| {
                    layout.key.iter().all(|key| key != *position)
                        && ![layout.delete, layout.end].contains(&Some(*position))
                };
                let stored = (0..layout.names.len()).filter(is_stored);
                let columns = stored.map(|position| (layout.names[position].clone(), position)).collect();
                (layout, None, columns)
            }
        })
    });
    let (layout, typed, columns) = found.map_err(|fault| fault.in_input(input))?;
    match typed {
        Some((columns, positions)) => layout.fields(plan, columns, positions, input).map(Found::Fields),
        None => Ok(Found::Untyped(UntypedColumns { plan, layout, columns })),
    }
}

impl RowFields {
    fn find(options: &Options, first: &Record<'_>) -> Result<RowFields, ColumnsFault> {
        let Some(key) = &options.key else {
            return Err(ColumnsFault::new(
                "typed columns are chosen: choose the key column as well",
                &[Remedy::ChooseKey],
            ));
        };
        let names = names(options, first)?;
        let position = |role, column: &Column| Finder::of_names(&names).position(role, column);
        let more_keys = options.more_key_columns.iter().map(|column| position(ColumnRole::Key, column));
        let key = KeyColumns::new(position(ColumnRole::Key, key)?, more_keys.collect::<Result<_, _>>()?);
        let end = options.end_column().map(|column| position(ColumnRole::End, column)).transpose()?;
        let delete = options.delete_column.as_ref();
        let delete = delete.map(|column| position(ColumnRole::Delete, column)).transpose()?;
        Ok(RowFields { names, key, end, delete })
    }

    /// Returns the name of the key of the table.
    fn key_name(&self) -> String {
        key_name(self.key.iter().map(|position| &*self.names[position]))
    }

    fn position(&self, role: ColumnRole, column: &Column) -> Result<usize, ColumnsFault> {
        Finder::of_names(&self.names).position(role, column)
    }

    /// Returns the positions of the columns for the parser. Sets the schema, unless an earlier input has set it.
    fn fields(
        self,
        plan: &TypedPlan,
        columns: Vec<typed::Column>,
        positions: Vec<Option<usize>>,
        input: &str,
    ) -> Result<Fields, BakeError> {
        let schema = plan.set(&self.key_name(), columns, input)?;
        let value = ValueColumns::Typed(positions, Box::new(RowBuilder::new(schema.clone())));
        let names = [self.key_name(), String::new()];
        let RowFields { key, end, delete, .. } = self;
        Ok(Fields { key, end, value, delete, count: self.names.len(), columns_chosen: true, names })
    }
}

fn names(options: &Options, first: &Record<'_>) -> Result<Vec<String>, ColumnsFault> {
    let types = options.typed.as_ref().map_or(&[][..], |typed| &typed.types);
    if !options.header {
        let (found, expected) = (first.ranges.len(), types.len());
        return match expected {
            0 => Err(ColumnsFault::new(
                "no row names the columns: read the first row as a header, or declare the types of all columns",
                &[Remedy::ReadHeader, Remedy::DeclareTypes],
            )),
            _ if expected != found => Err(ColumnsFault::new(
                format!(
                    "rows have {found} fields, and {expected} types are declared: read the first row as a header, or \
                     declare one type per field, including the key"
                ),
                &[Remedy::ReadHeader, Remedy::DeclareTypes],
            )),
            _ => Ok(types.iter().map(|column| column.name.clone()).collect()),
        };
    }
    let name = |(i, name): (usize, &[u8])| {
        String::from_utf8(name.to_vec()).map_err(|_| {
            let message = format!("the name of column {} is not UTF-8: convert the header", i + 1);
            ColumnsFault::new(message, &[])
        })
    };
    first.fields().enumerate().map(name).collect()
}

impl UntypedColumns<'_> {
    /// Infers the types from the first rows. `rows` is the first piece without the header.
    pub(super) fn infer(self, input: &str, mut records: Records, rows: &TextPiece) -> Result<Fields, BakeError> {
        let UntypedColumns { plan, layout, columns } = self;
        let mut inferred = vec![Inference::new(); columns.len()];
        let (mut is_first, mut has_text_key) = (true, false);
        records.each(rows, |record| {
            if record.end > INFERENCE_LEN_BYTES && !std::mem::take(&mut is_first) {
                return Ok(ControlFlow::Break(()));
            }
            is_first = false;
            // The parser reports malformed rows later.
            let is_row = record.fault.is_none() && record.ranges.len() == layout.names.len();
            if is_row && !is_removed(layout.delete.and_then(|position| record.field(position))) {
                let fields = columns.iter().map(|(_, position)| record.field(*position));
                let add = |(inference, field): (&mut Inference, Option<&[u8]>)| match field {
                    Some(field) => inference.add_text(field),
                    None => inference.add_empty(),
                };
                inferred.iter_mut().zip(fields).for_each(add);
                has_text_key |= record.field(layout.key.first).and_then(canonical_decimal).is_none();
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let typed =
            inferred.iter().zip(&columns).map(|(inference, (name, _))| inference.column(name.clone())).collect();
        let schema = plan.set_inferred(&layout.key_name(), typed, has_text_key, input)?;
        let columns_of_schema = schema.columns().to_vec();
        layout.fields(plan, columns_of_schema, columns.into_iter().map(|(_, position)| Some(position)).collect(), input)
    }
}
