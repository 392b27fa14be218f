//! `zkv diff`: compares the rows of two files.
//!
//! In: two baked files with keys of one kind. Out: a line for each key whose rows differ, and the counts. In tables of
//! ranges, rows are the same if their first and last keys are. Both files are read in key order at the same time, so only
//! a few rows of each file are in memory.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::bail;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use zero_kv::Lookup;
use zero_kv::client::OwnedKey;
use zero_kv::printable::Printable;
use zero_kv::store::{MappedRows, Unchecked};
use zero_kv::typed::{ColumnError, Schema, TypedRow, Value};
use zero_kv::{Key, MappedStore};

use crate::args::{DiffArgs, DiffFormat};
use crate::columns::{Columns, text};
use crate::output::{
    JsonKey, RowOutput, buffered, ignore_closed_pipe, json_value, stdout_error, write_json_line, written,
};

const NOT_TEXT: &str = "use --format text";

/// A written key, and its value in each file. The value is `None` in a file that does not have the key.
struct Change<'a> {
    key: Key<'a>,
    /// The written last key of the range, in tables of ranges.
    end: Option<Key<'a>>,
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
}

impl Change<'_> {
    fn name(&self) -> &'static str {
        match (self.a, self.b) {
            (_, None) => "only_in_a",
            (None, _) => "only_in_b",
            _ => "changed",
        }
    }
}

#[derive(Default, Serialize)]
struct Counts {
    only_in_a: u64,
    only_in_b: u64,
    changed: u64,
    same: u64,
}

/// The counts, and the number of rows in which each column of typed tables differs.
#[derive(Serialize)]
struct JsonCounts<'a, C: Serialize> {
    #[serde(flatten)]
    counts: &'a Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<C>,
}

/// A row that differs, with its values or its cells.
#[derive(Serialize)]
struct JsonChange<'a, V> {
    change: &'static str,
    key: JsonKey<'a>,
    /// The last key of the range, in tables of ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<JsonKey<'a>>,
    /// The names of the columns that differ, if both tables are typed and have the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<V>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<V>,
}

pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<bool> {
    let (a, b) = (Unchecked::open(&args.a)?, Unchecked::open(&args.b)?);
    let [type_a, type_b] = [&a, &b].map(|file| file.layout().dimensions.key_type);
    if type_a != type_b {
        bail!(
            "{} has keys that are {type_a}, and {} has keys that are {type_b}: pass two files with one type of keys",
            args.a.display(),
            args.b.display()
        );
    }
    let [ranges_a, ranges_b] = [&a, &b].map(|file| file.layout().dimensions.has_ranges);
    if ranges_a != ranges_b {
        let (ranges, single) = if ranges_a { (&args.a, &args.b) } else { (&args.b, &args.a) };
        bail!(
            "{} is a table of ranges, and {} is not: pass two tables of ranges or none",
            ranges.display(),
            single.display()
        );
    }
    let mut output = buffered(RowOutput::stdout()?);
    let (mut counts, mut typed) = (Counts::default(), None);
    let written = if a.layout().digest() == b.layout().digest() {
        counts.same = a.layout().dimensions.row_count;
        Ok(())
    } else {
        let (a, b) = (a.check()?, b.check()?);
        typed = typed_diff(args, &a, &b)?;
        write_differences(&mut output, args, [&a, &b], typed.as_mut(), &mut counts)
    };
    let written = written.and_then(|()| Ok(write_counts(&mut output, args, &counts, typed.as_ref())?));
    ignore_closed_pipe(written, (), stdout_error)?;
    Ok(counts.are_all_equal() && typed.is_none_or(|typed| typed.are_schemas_equal()))
}

/// Returns the comparison of the columns if both tables are typed.
fn typed_diff(args: &DiffArgs, a: &MappedStore, b: &MappedStore) -> anyhow::Result<Option<TypedDiff>> {
    let (typed, untyped) = match (a.schema(), b.schema()) {
        (None, None) => return Ok(None),
        (Some(a), Some(b)) => return TypedDiff::new(&a, &b),
        (Some(_), None) => (&args.a, &args.b),
        (None, Some(_)) => (&args.b, &args.a),
    };
    bail!("{} is typed, and {} is not: pass two typed tables or none", typed.display(), untyped.display())
}

fn write_differences(
    output: &mut impl Write,
    args: &DiffArgs,
    [a, b]: [&MappedStore; 2],
    typed: Option<&mut TypedDiff>,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let Some(typed) = typed else {
        return compare(a, b, counts, |change| {
            if change.a == change.b {
                return Ok(false);
            }
            match (args.summary, args.format) {
                (true, _) => {}
                (false, DiffFormat::Text) => write_text(output, &change, args.values)?,
                (false, DiffFormat::Jsonl) => write_json(output, &change, args.values)?,
            }
            Ok(true)
        });
    };
    match args.format {
        DiffFormat::Text => typed.write_schema_text(output)?,
        DiffFormat::Jsonl => typed.write_schema_json(output)?,
    }
    compare(a, b, counts, |change| {
        let cells = typed.compare(change.a, change.b)?;
        if change.a.is_some() && change.b.is_some() && cells.is_empty() {
            return Ok(false);
        }
        match (args.summary, args.format) {
            (true, _) => {}
            (false, DiffFormat::Text) => {
                write_key(output, &change)?;
                write_cells_text(output, &cells, args.values)?;
                output.write_all(b"\n")?;
            }
            (false, DiffFormat::Jsonl) => write_typed_json(output, &change, &cells, args.values)?,
        }
        Ok(true)
    })
}

/// Compares the rows of both tables and counts the results. `visit` returns whether a row differs.
fn compare(
    a: &MappedStore,
    b: &MappedStore,
    counts: &mut Counts,
    mut visit: impl FnMut(Change<'_>) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (mut rows_a, mut rows_b) = (a.iter(), b.iter());
    let (key_type, mut text, mut end_text) = (a.key_type(), Vec::new(), Vec::new());
    let (mut row_a, mut row_b) = (next_row(&mut rows_a)?, next_row(&mut rows_b)?);
    // The next key is the smallest one that remains in either table.
    while let Some(span) = [&row_a, &row_b].into_iter().flatten().map(|(span, _)| span.clone()).min() {
        let value_a = take_value(&span, &mut row_a, &mut rows_a)?;
        let value_b = take_value(&span, &mut row_b, &mut rows_b)?;
        let (key, end) = &span;
        let change = Change {
            key: written(key_type, key.as_key(), &mut text),
            end: end.as_ref().map(|end| written(key_type, end.as_key(), &mut end_text)),
            a: value_a.as_deref(),
            b: value_b.as_deref(),
        };
        let is_in = (value_a.is_some(), value_b.is_some());
        *counts.counter(is_in, visit(change)?) += 1;
    }
    Ok(())
}

/// The key of a row, and the last key of its range in a table of ranges.
type Span = (OwnedKey, Option<OwnedKey>);

fn next_row(rows: &mut MappedRows<&MappedStore>) -> anyhow::Result<Option<(Span, Vec<u8>)>> {
    let row = rows.next_with_end().transpose()?;
    Ok(row.map(|((key, value), end)| ((key, end), value)))
}

/// If `row` has this span, returns its value and replaces `row` with the next row.
fn take_value(
    span: &Span,
    row: &mut Option<(Span, Vec<u8>)>,
    rows: &mut MappedRows<&MappedStore>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let Some((_, value)) = row.take_if(|row| row.0 == *span) else { return Ok(None) };
    *row = next_row(rows)?;
    Ok(Some(value))
}

impl Counts {
    /// Returns the counter of a row that is in table A, B, or both, and that differs or not.
    fn counter(&mut self, is_in: (bool, bool), differs: bool) -> &mut u64 {
        match is_in {
            (true, true) if !differs => &mut self.same,
            (true, false) => &mut self.only_in_a,
            (false, true) => &mut self.only_in_b,
            _ => &mut self.changed,
        }
    }

    fn are_all_equal(&self) -> bool {
        self.only_in_a + self.only_in_b + self.changed == 0
    }
}

fn write_key(output: &mut impl Write, change: &Change<'_>) -> io::Result<()> {
    let sign = match (change.a, change.b) {
        (_, None) => '-',
        (None, _) => '+',
        _ => '~',
    };
    write!(output, "{sign}")?;
    [change.key].into_iter().chain(change.end).try_for_each(|key| match key {
        Key::U64(key) => write!(output, " {key}"),
        Key::Bytes(key) => write!(output, " \"{}\"", key.escape_ascii()),
    })
}

fn write_text(output: &mut impl Write, change: &Change<'_>, values: bool) -> io::Result<()> {
    write_key(output, change)?;
    if values {
        for value in [change.a, change.b].into_iter().flatten() {
            write!(output, " \"{}\"", value.escape_ascii())?;
        }
    }
    output.write_all(b"\n")
}

fn write_json(output: &mut impl Write, change: &Change<'_>, values: bool) -> anyhow::Result<()> {
    let value = |value: Option<_>| match value {
        Some(value) if values => json_value(change.key, value, NOT_TEXT).map(Some),
        _ => Ok(None),
    };
    let line = JsonChange {
        change: change.name(),
        key: JsonKey::new(change.key, NOT_TEXT)?,
        end: change.end.map(|end| JsonKey::new(end, NOT_TEXT)).transpose()?,
        columns: None,
        a: value(change.a)?,
        b: value(change.b)?,
    };
    Ok(write_json_line(output, &line)?)
}

fn write_typed_json(
    output: &mut impl Write,
    change: &Change<'_>,
    cells: &[ChangedCell<'_>],
    values: bool,
) -> anyhow::Result<()> {
    let is_changed = change.a.is_some() && change.b.is_some();
    let side = |row: Option<&[u8]>, is_a| row.filter(|_| values).map(|_| JsonCells { cells, is_a });
    let line = JsonChange {
        change: change.name(),
        key: JsonKey::new(change.key, NOT_TEXT)?,
        end: change.end.map(|end| JsonKey::new(end, NOT_TEXT)).transpose()?,
        columns: is_changed.then(|| names(cells)),
        a: side(change.a, true),
        b: side(change.b, false),
    };
    Ok(write_json_line(output, &line)?)
}

fn write_counts(
    output: &mut impl Write,
    args: &DiffArgs,
    counts: &Counts,
    typed: Option<&TypedDiff>,
) -> io::Result<()> {
    match args.format {
        DiffFormat::Text => {
            typed.map_or(Ok(()), |typed| typed.write_counts_text(output))?;
            let Counts { only_in_a, only_in_b, changed, same } = counts;
            writeln!(output, "{only_in_a} only in A, {only_in_b} only in B, {changed} changed, {same} equal")?;
        }
        DiffFormat::Jsonl => write_json_line(output, &JsonCounts { counts, columns: typed.map(TypedDiff::counts) })?,
    }
    output.flush()
}

/// Two schemas, and counts of the rows in which their columns differ.
struct TypedDiff {
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

    fn are_schemas_equal(&self) -> bool {
        self.schema_changes.is_empty()
    }

    fn write_schema_text(&self, output: &mut impl Write) -> io::Result<()> {
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

    fn write_schema_json(&self, output: &mut impl Write) -> io::Result<()> {
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

    fn write_counts_text(&self, output: &mut impl Write) -> io::Result<()> {
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
struct ChangedCell<'r> {
    name: &'r str,
    a: Option<Value<'r>>,
    b: Option<Value<'r>>,
}

/// Writes the name of each cell, and, if `values` is true, its values.
fn write_cells_text(output: &mut impl Write, cells: &[ChangedCell<'_>], values: bool) -> io::Result<()> {
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
struct JsonCells<'c> {
    pub(crate) cells: &'c [ChangedCell<'c>],
    pub(crate) is_a: bool,
}

impl Serialize for JsonCells<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for cell in self.cells {
            if let Some(value) = if self.is_a { cell.a } else { cell.b } {
                super::columns::serialize_cell(&mut map, cell.name, &value)?;
            }
        }
        map.end()
    }
}

fn names<'c>(cells: &[ChangedCell<'c>]) -> Vec<&'c str> {
    cells.iter().map(|cell| cell.name).collect()
}

/// Returns the name of a column for text output, quoted and escaped unless it is a plain word.
fn shown(name: &str) -> String {
    let is_plain = name.chars().all(|char| char.is_alphanumeric() || "_-.".contains(char));
    if is_plain { name.to_owned() } else { Printable(format!("{name:?}")).to_string() }
}
