//! Converts the rows of old tables to the schema of the new table.
//!
//! In: a table and the new schema. Out: the table's rows with values of the new schema, in an unnamed temporary file.
//! Columns are matched by name. Added columns are null, and other columns of the table are dropped. A table whose
//! columns are those of the new table is not converted.

use std::path::Path;
use std::sync::Arc;

use super::BadRows;
use super::bad_rows::{BadRow, BadRowsFile};
use super::context::Context;
use super::error::BakeError;
use super::old_table::OldTable;
use super::row_fault::RowFault;
use super::sort::ExtentOwner;
use super::sort::sorted_rows::{BASE_RANK, RowOrigins, SortedRows, TableRecords};
use super::table::RecordsWriter;
use super::typed::row_builder::RowBuilder;
use crate::folder::unnamed_file_in;
use crate::format::key::Key;
use crate::format::record::{RECORD_ALIGN_MAX_BYTES, record_align_bytes};
use crate::typed::{Column, Schema, TypedRow, Value};

/// The length of the buffer with which a table is read.
const BUFFER_LEN_BYTES: usize = 1 << 20;
/// An upper bound on the average length by which a converted cell can grow.
const CELL_LEN_BYTES: usize = 40;
/// The number of rows between two checks whether the bake was canceled.
const CANCEL_ROWS: u64 = 1 << 16;

/// Converts the rows of the base, unless the base has the columns of the new schema. Bad rows are skipped if the options
/// allow it.
pub(in crate::bake) fn convert_base(
    base: OldTable,
    schema: &Arc<Schema>,
    context: &Context<'_>,
    bad_rows: &mut BadRowsFile,
) -> Result<OldTable, BakeError> {
    let Some(old) = base.schema.clone().filter(|old| old.columns() != schema.columns()) else { return Ok(base) };
    let path = base.facts.path.clone();
    let bad = |row: u64, fault: RowFault| match &context.options.bad_rows {
        BadRows::Refuse => Err(BakeError::TableRow { path: path.clone(), row, fault }),
        BadRows::Skip { .. } => {
            let input = path.display().to_string();
            bad_rows.take(vec![BadRow { input, line: row, fault, text: Vec::new() }])
        }
    };
    let table = converted(&base.table, &old, schema, context, bad)?;
    Ok(OldTable { table: TableRecords { slots: None, ..table }, schema: Some(schema.clone()), facts: base.facts })
}

/// Makes the tables of a merge have the columns of the first table, in the same order.
pub(in crate::bake) fn align_tables(
    base: &mut Option<OldTable>,
    tables: &mut [OldTable],
    context: &Context<'_>,
) -> Result<(), BakeError> {
    let mut all = base.iter_mut().chain(tables);
    let Some(first) = all.next() else { return Ok(()) };
    for other in all {
        let (schema, old) = match (&first.schema, &other.schema) {
            (None, None) => continue,
            (Some(schema), Some(old)) if schema.columns() == old.columns() => continue,
            (Some(schema), Some(old)) if sorted(schema) == sorted(old) => (schema.clone(), old.clone()),
            (schema, old) => return Err(different_columns(first, schema.as_deref(), other, old.as_deref())),
        };
        let path = other.facts.path.clone();
        let bad = |row, fault| Err(BakeError::TableRow { path: path.clone(), row, fault });
        // The rows of all slots are converted, because the converted rows are numbered for messages.
        let all_slots = TableRecords { slots: None, ..other.table.clone() };
        let table = converted(&all_slots, &old, &schema, context, bad)?;
        other.table = TableRecords { slots: other.table.slots.take(), ..table };
        other.schema = Some(schema);
    }
    Ok(())
}

fn sorted(schema: &Schema) -> Vec<&Column> {
    let mut columns: Vec<_> = schema.columns().iter().collect();
    columns.sort_by_key(|column| &column.name);
    columns
}

fn different_columns(first: &OldTable, schema: Option<&Schema>, other: &OldTable, old: Option<&Schema>) -> BakeError {
    let beyond = |schema: Option<&Schema>, of: Option<&Schema>| {
        let Some(schema) = schema else { return "values that are not typed".to_owned() };
        let known = of.map_or(&[][..], Schema::columns);
        let own: Vec<_> = schema.columns().iter().filter(|column| !known.contains(column)).collect();
        match own.is_empty() {
            true => "no other columns".to_owned(),
            false => format!("the columns {}", super::write_types(own)),
        }
    };
    BakeError::TableColumns {
        table: first.facts.path.clone(),
        columns: beyond(schema, old),
        other: other.facts.path.clone(),
        other_columns: beyond(old, schema),
    }
}

/// Returns a copy of a table's rows, with values of the new schema. Calls `bad` for each row that has none, and skips
/// this row unless `bad` fails.
fn converted(
    table: &TableRecords,
    old: &Schema,
    schema: &Arc<Schema>,
    context: &Context<'_>,
    mut bad: impl FnMut(u64, RowFault) -> Result<(), BakeError>,
) -> Result<TableRecords, BakeError> {
    let folder: &Path = &context.budget.temp_dir;
    let temporary = |error| BakeError::temporary(folder, error);
    let file = unnamed_file_in(folder).map_err(temporary)?;
    // An estimate that is too low only matters for a table near the limits of the format, and is then an error.
    let len_bytes = table.extent.len_bytes * 2 + table.row_count * (schema.columns().len() * CELL_LEN_BYTES) as u64;
    let align_bytes = record_align_bytes(|_| len_bytes).unwrap_or(RECORD_ALIGN_MAX_BYTES);
    let mut writer = RecordsWriter::new(&file, table.kind, align_bytes, context.budget.threads).map_err(temporary)?;
    let positions: Vec<_> = schema.columns().iter().map(|column| old.position(&column.name)).collect();
    let mut builder = RowBuilder::new(schema.clone());
    let first_origin = if let RowOrigins::Counted(first) = table.origins { first } else { 0 };
    let mut rows = SortedRows::table(table, 0, BASE_RANK, BUFFER_LEN_BYTES)?;
    let (mut first_key, mut head) = (Vec::new(), rows.begin(0)?);
    while head.is_some() {
        let (row, origin) = rows.row();
        if writer.row_count().is_multiple_of(CANCEL_ROWS) {
            context.check_canceled()?;
        }
        match value(&mut builder, old, &positions, row.value) {
            Ok(value) => {
                if writer.row_count() == 0
                    && let Key::Bytes(key) = row.key
                {
                    first_key = key.to_vec();
                }
                writer.push(row.key, value).map_err(temporary)?;
            }
            Err(fault) => bad(origin - first_origin, fault)?,
        }
        head = rows.advance(0)?;
    }
    let records = writer.finish().map_err(temporary)?;
    let owner = ExtentOwner::Temporary(folder.into());
    TableRecords::written(&file, &records, table.origins.clone(), first_key, owner).map_err(temporary)
}

/// Returns the value of a row in the new schema. `positions` has the position of each new column in the old schema.
fn value<'b>(
    builder: &'b mut RowBuilder,
    old: &'b Schema,
    positions: &[Option<usize>],
    row: &'b [u8],
) -> Result<&'b [u8], RowFault> {
    let row = TypedRow::new(old, row).map_err(|error| RowFault::typed_row(&error))?;
    row.check().map_err(|error| RowFault::typed_row(&error))?;
    let cell = |position: &Option<usize>| match position {
        Some(position) => row.value(*position).map_err(|error| RowFault::typed_row(&error)),
        None => Ok(Value::Null),
    };
    let cells = positions.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    builder.values(cells)
}
