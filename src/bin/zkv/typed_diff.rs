//! `zkv diff` of typed tables: the columns that differ.
//!
//! In: two schemas, and the values of two rows. Out: the differences of the schemas, and the columns in which the rows
//! differ, as text or JSON. Columns are matched by name. Cells are equal if both are null, or if they have equal texts.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use zero_kv::printable::Printable;
use zero_kv::typed::{ColumnError, Schema, TypedRow, Value};

use crate::columns::{Columns, text};
use crate::output::write_json_line;

/// Two schemas, and counts of the rows in which their columns differ.
pub(crate) struct TypedDiff {
    a: Columns,
    b: Columns,
    /// The columns that both tables have.
    common: Vec<CommonColumn>,
    schema_changes: Vec<SchemaChange>,
}

struct CommonColumn {
    name: String,
    /// The position of the column in each table.
    positions: [usize; 2],
    /// The number of rows in which the column differs.
    changed_rows: u64,
}

#[derive(Serialize)]
struct SchemaChange {
    change: &'static str,
    column: String,
    /// The type in each table. `None` in a table without this column.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
}

impl TypedDiff {
    pub(crate) fn new(a: &Arc<Schema>, b: &Arc<Schema>) -> anyhow::Result<Option<TypedDiff>> {
        let columns = |schema: &Arc<Schema>| Columns::new(Some(schema.clone()), &[]);
        let (Some(columns_a), Some(columns_b)) = (columns(a)?, columns(b)?) else { return Ok(None) };
        let (mut common, mut schema_changes) = (Vec::new(), Vec::new());
        let type_at = |schema: &Schema, position: usize| {
            let column = &schema.columns()[position];
            format!("{}{}", column.column_type, if column.is_nullable { "?" } else { "" })
        };
        let mut add = |change, column: &str, a, b| {
            schema_changes.push(SchemaChange { change, column: column.to_owned(), a, b });
        };
        for (at, column) in a.columns().iter().enumerate() {
            let (name, type_a) = (&column.name, type_at(a, at));
            let Some(at_b) = b.position(name) else {
                add("column_only_in_a", name, Some(type_a), None);
                continue;
            };
            let type_b = type_at(b, at_b);
            if type_a != type_b {
                add("column_changed", name, Some(type_a), Some(type_b));
            }
            common.push(CommonColumn { name: name.clone(), positions: [at, at_b], changed_rows: 0 });
        }
        for (at, column) in b.columns().iter().enumerate().filter(|(_, column)| a.position(&column.name).is_none()) {
            add("column_only_in_b", &column.name, None, Some(type_at(b, at)));
        }
        Ok(Some(TypedDiff { a: columns_a, b: columns_b, common, schema_changes }))
    }

    pub(crate) fn are_schemas_equal(&self) -> bool {
        self.schema_changes.is_empty()
    }

    pub(crate) fn write_schema_text(&self, output: &mut impl Write) -> io::Result<()> {
        for SchemaChange { column, a, b, .. } in &self.schema_changes {
            let name = shown(column);
            match (a, b) {
                (Some(a), Some(b)) => writeln!(output, "~ column {name} {a} {b}")?,
                (Some(a), None) => writeln!(output, "- column {name} {a}")?,
                (None, b) => writeln!(output, "+ column {name} {}", b.as_deref().unwrap_or_default())?,
            }
        }
        Ok(())
    }

    pub(crate) fn write_schema_json(&self, output: &mut impl Write) -> io::Result<()> {
        self.schema_changes.iter().try_for_each(|change| write_json_line(output, change))
    }

    /// Returns the cells that differ between two rows, and counts the rows in which each column differs. If only one
    /// table has the row, returns all cells of this row.
    pub(crate) fn compare<'r>(
        &'r mut self,
        a: Option<&'r [u8]>,
        b: Option<&'r [u8]>,
    ) -> Result<Vec<ChangedCell<'r>>, ColumnError> {
        let all = |columns: &'r Columns, row, is_in_a: bool| {
            let cells = columns.cells(row)?.into_iter().zip(columns.names());
            let cell = |(cell, name)| ChangedCell { name, a: is_in_a.then_some(cell), b: (!is_in_a).then_some(cell) };
            Ok(cells.map(cell).collect())
        };
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            (Some(a), None) => return all(&self.a, a, true),
            (None, Some(b)) => return all(&self.b, b, false),
            (None, None) => return Ok(Vec::new()),
        };
        let (row_a, row_b) = (TypedRow::new(self.a.schema(), a)?, TypedRow::new(self.b.schema(), b)?);
        let mut changed = Vec::new();
        for CommonColumn { name, positions: [at_a, at_b], changed_rows } in &mut self.common {
            let (a, b) = (row_a.value(*at_a)?, row_b.value(*at_b)?);
            if (a == Value::Null) != (b == Value::Null) || text(&a) != text(&b) {
                *changed_rows += 1;
                changed.push(ChangedCell { name, a: Some(a), b: Some(b) });
            }
        }
        Ok(changed)
    }

    pub(crate) fn write_counts_text(&self, output: &mut impl Write) -> io::Result<()> {
        let changed = self.common.iter().filter(|column| column.changed_rows > 0);
        changed.map(|column| (shown(&column.name), column.changed_rows)).try_for_each(|(name, rows)| {
            let unit = if rows == 1 { "row" } else { "rows" };
            writeln!(output, "column {name} differs in {rows} {unit}")
        })
    }

    /// Returns the number of rows in which each column differs, as a JSON object without the columns that are equal.
    pub(crate) fn counts(&self) -> impl Serialize + use<'_> {
        ChangedRows(&self.common)
    }
}

struct ChangedRows<'d>(&'d [CommonColumn]);

impl Serialize for ChangedRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let changed = self.0.iter().filter(|column| column.changed_rows > 0);
        serializer.collect_map(changed.map(|column| (&column.name, column.changed_rows)))
    }
}

/// A cell that differs. The value is `None` in a table without the row.
pub(crate) struct ChangedCell<'r> {
    name: &'r str,
    a: Option<Value<'r>>,
    b: Option<Value<'r>>,
}

/// Writes the name of each cell, and, if `values` is true, its values.
pub(crate) fn write_cells_text(output: &mut impl Write, cells: &[ChangedCell<'_>], values: bool) -> io::Result<()> {
    for ChangedCell { name, a, b } in cells {
        let is_changed = a.is_some() && b.is_some();
        if values || is_changed {
            write!(output, " {}", shown(name))?;
        }
        for value in [a, b].into_iter().flatten().filter(|_| values) {
            match value {
                Value::Null => write!(output, " null")?,
                value => write!(output, " \"{}\"", text(value).escape_ascii())?,
            }
        }
    }
    Ok(())
}

/// The values of cells in one of the tables, as a JSON object.
pub(crate) struct JsonCells<'c> {
    pub(crate) cells: &'c [ChangedCell<'c>],
    pub(crate) is_a: bool,
}

impl Serialize for JsonCells<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for cell in self.cells {
            if let Some(value) = if self.is_a { cell.a } else { cell.b } {
                crate::columns::serialize_cell(&mut map, cell.name, &value)?;
            }
        }
        map.end()
    }
}

/// Returns the names of the cells.
pub(crate) fn names<'c>(cells: &[ChangedCell<'c>]) -> Vec<&'c str> {
    cells.iter().map(|cell| cell.name).collect()
}

/// Returns the name of a column for text output, quoted and escaped unless it is a plain word.
fn shown(name: &str) -> String {
    let is_plain = name.chars().all(|char| char.is_alphanumeric() || "_-.".contains(char));
    if is_plain { name.to_owned() } else { Printable(format!("{name:?}")).to_string() }
}
