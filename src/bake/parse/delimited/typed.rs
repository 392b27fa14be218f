//! The columns of a typed table in delimited text.
//!
//! The header names the columns. Without a header, the declared types name the fields of every row, in order.

use std::ops::ControlFlow;

use super::columns::Finder;
use super::{Fields, Found, Record, Records};
use crate::bake::columns::{Column, ColumnRole, ColumnsFault};
use crate::bake::error::BakeError;
use crate::bake::options::Options;
use crate::bake::parse::cut::TextPiece;
use crate::bake::parse::pack::ValueColumns;
use crate::bake::remedy::Remedy;
use crate::bake::row::is_removed;
use crate::bake::typed::infer::{INFERENCE_LEN_BYTES, Inference};
use crate::bake::typed::row_builder::RowBuilder;
use crate::bake::typed::{Selected, TypedPlan};
use crate::typed;

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
    key: usize,
    delete: Option<usize>,
}

/// Finds the columns of the table in the header of an input, or in its first row if there is no header.
pub(super) fn find<'o>(
    options: &Options,
    plan: &'o TypedPlan,
    input: &str,
    first: &Record<'_>,
) -> Result<Found<'o>, BakeError> {
    let found = RowFields::find(options, first).and_then(|layout| {
        let key = layout.names[layout.key].clone();
        let selected = plan.selected(&key, |column| {
            layout.position(ColumnRole::Typed, column).map(|position| layout.names[position].clone())
        })?;
        let position = |name: &String| layout.position(ColumnRole::Typed, &Column::Name(name.clone()));
        Ok(match selected {
            Selected::Typed(columns) => {
                let positions = columns.iter().map(|column| position(&column.name)).collect::<Result<_, _>>()?;
                (layout, Some((columns, positions)), Vec::new())
            }
            Selected::Named(names) => {
                let columns = names.into_iter().map(|name| position(&name).map(|position| (name, position)));
                let columns = columns.collect::<Result<_, _>>()?;
                (layout, None, columns)
            }
            Selected::All => {
                let is_stored = |position: &usize| *position != layout.key && Some(*position) != layout.delete;
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
        let mut layout = RowFields { names: names(options, first)?, key: 0, delete: None };
        layout.key = layout.position(ColumnRole::Key, key)?;
        let delete = options.delete_column.as_ref();
        layout.delete = delete.map(|column| layout.position(ColumnRole::Delete, column)).transpose()?;
        Ok(layout)
    }

    fn position(&self, role: ColumnRole, column: &Column) -> Result<usize, ColumnsFault> {
        Finder::of_names(&self.names).position(role, column)
    }

    /// Returns the positions of the columns for the parser. Sets the schema, unless an earlier input has set it.
    fn fields(
        self,
        plan: &TypedPlan,
        columns: Vec<typed::Column>,
        positions: Vec<usize>,
        input: &str,
    ) -> Result<Fields, BakeError> {
        let schema = plan.set(&self.names[self.key], columns, input)?;
        let value = ValueColumns::Typed(positions, Box::new(RowBuilder::new(schema.clone())));
        Ok(Fields { key: self.key, value, delete: self.delete, count: self.names.len(), columns_chosen: true })
    }
}

/// Returns the names of the fields of each row.
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
                    "rows have {found} fields, and {expected} types are declared: read the first row as a header, or declare \
                     one type per field, including the key"
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
    pub(super) fn infer(self, input: &str, delimiter: u8, rows: &TextPiece) -> Result<Fields, BakeError> {
        let UntypedColumns { plan, layout, columns } = self;
        let mut inferred = vec![Inference::new(); columns.len()];
        let mut is_first = true;
        Records::new(delimiter).each(rows, |record| {
            if record.end > INFERENCE_LEN_BYTES && !std::mem::take(&mut is_first) {
                return Ok(ControlFlow::Break(()));
            }
            is_first = false;
            // The parser reports malformed rows later.
            let is_row = record.fault.is_none() && record.ranges.len() == layout.names.len();
            if is_row && !is_removed(layout.delete.map(|position| record.field(position))) {
                let fields = columns.iter().map(|(_, position)| record.field(*position));
                inferred.iter_mut().zip(fields).for_each(|(inference, field)| inference.add_text(field));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let typed =
            inferred.iter().zip(&columns).map(|(inference, (name, _))| inference.column(name.clone())).collect();
        let schema = plan.set_inferred(&layout.names[layout.key], typed, input)?;
        let columns_of_schema = schema.columns().to_vec();
        layout.fields(plan, columns_of_schema, columns.into_iter().map(|(_, position)| position).collect(), input)
    }
}
