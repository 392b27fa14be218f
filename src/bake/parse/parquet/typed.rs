//! The columns of a typed table in Parquet.
//!
//! A column of the file has the type of the table's column that this table lists:
//!
//! | Parquet | typed table |
//! |---|---|
//! | boolean, float, double, date | `bool`, `f32`, `f64`, `date`; `f32` if a float of 16 bits |
//! | an integer | the integer of its width and sign |
//! | string, enum, JSON, UUID, time | `text` |
//! | binary | `bytes` |
//! | decimal of up to 38 digits | the decimal of its precision and scale |
//! | timestamp | the timestamp of its unit; `timestamp(ns)` if 96-bit |
//! | list of integers, floats, dates, or timestamps | a list, with a length if all lists have one: see [`list_len`] |
//! | list of booleans | the same, of `u8`: 1 for true, and 0 for false |
//! | list of strings | `list(text)` |
//!
//! A null element of a list of floats is NaN, as in NumPy and pandas. Lists with other null elements have no type, unless
//! `text` is declared, which stores their JSON.
//!
//! A duration, which only the Arrow schema in the file tells from an integer, has no type, unless one is declared. If
//! another type is declared, values are converted, and values that do not fit are rejected. A double in a column of
//! type `f32` is rounded. Other types are rejected.

use std::fs::File;

use ::parquet::basic::Repetition;
use ::parquet::data_type::Int96;
use ::parquet::file::reader::SerializedFileReader;
use ::parquet::schema::types::SchemaDescriptor;

use super::arrow_schema::ArrowFacts;
use super::column::{ColumnType, Cursor, ValueType, Values, from_be_bytes, split_96, time_unit};
use super::{Columns, FileSchema, ParquetPiece, Texts, catch_panic, leaf_of, list_len, several, unreadable};
use crate::bake::columns::{Column, ColumnRole, ColumnsFault};
use crate::bake::error::{BakeError, Remedy, RowFault};
use crate::bake::keys::{KeyColumns, key_name};
use crate::bake::options::Options;
use crate::bake::parse::pack::ValueColumns;
use crate::bake::row::{InputRow, RowSink, is_removed};
use crate::bake::typed::row_builder::RowBuilder;
use crate::bake::typed::{Selected, TypedPlan};
use crate::bake::warning::Warning;
use crate::calendar::write_instant;
use crate::typed::{self, ElementType, List, TextList, Value};

impl ColumnType {
    /// Returns the column of a typed table that a leaf column of the file becomes.
    fn of_typed(schema: &SchemaDescriptor, leaf: usize) -> Result<ColumnType, ColumnsFault> {
        let description = schema.column(leaf);
        let name = typed_name(schema, leaf);
        let fault = |problem: &str| ColumnsFault::of_column(ColumnRole::Typed, format_args!("{name:?}"), problem);
        let mut column = ColumnType::new(leaf, &description, ColumnRole::Typed)?;
        match description.max_rep_level() {
            0 => {}
            1 if is_list(schema, leaf) => {
                column.element_level = Some(element_level(schema, leaf));
                column.own_type = match column.value_type {
                    ValueType::Text => Some(typed::ColumnType::TextList),
                    ValueType::Bool => Some(typed::ColumnType::List { element: ElementType::U8, len: None }),
                    _ => column
                        .own_type
                        .and_then(ElementType::new)
                        .map(|element| typed::ColumnType::List { element, len: None }),
                };
                if column.own_type.is_none() {
                    let elements = column.value_type.name();
                    return Err(fault(&format!(
                        "has lists of {elements}, where lists of booleans, integers, floats, dates, timestamps, or text \
                         were expected: convert it, or leave it out"
                    )));
                }
            }
            _ => return Err(fault("is a map or a list of lists, which is not supported: convert it, or leave it out")),
        }
        if column.own_type.is_none() {
            return Err(fault("is a decimal whose scale is greater than its precision: convert it, or leave it out"));
        }
        column.name = name;
        Ok(column)
    }

    /// Returns the type of the column that the file declares. A length of lists comes from `list_len`, unless the
    /// Arrow schema tells it.
    fn inferred_type(
        &self,
        facts: ArrowFacts,
        list_len: impl FnOnce() -> Result<Option<u32>, BakeError>,
    ) -> Result<Option<typed::ColumnType>, BakeError> {
        Ok(match (self.own_type, facts.list_len) {
            (Some(typed::ColumnType::List { element, .. }), len) => {
                let len = if len.is_some() { len } else { list_len()? };
                Some(typed::ColumnType::List { element, len })
            }
            (own_type, _) => own_type,
        })
    }
}

/// Returns the fault of a column of durations whose type is not declared.
fn duration_fault(column: &ColumnType, unit: &str) -> ColumnsFault {
    let declared = match column.element_level {
        Some(_) => typed::ColumnType::List { element: ElementType::I64, len: None },
        None => typed::ColumnType::I64,
    };
    let name = &column.name;
    let message = format!(
        "the typed column {name:?} has durations in {unit}, which no type has: declare {name}:{declared} to store the \
         numbers of {unit}, or leave it out"
    );
    ColumnsFault::new(message, &[Remedy::DeclareTypes, Remedy::ChooseColumns])
}

/// Returns whether the field of a leaf column contains no other leaf column, as in a list.
fn is_list(schema: &SchemaDescriptor, leaf: usize) -> bool {
    let root = schema.get_column_root_idx(leaf);
    (0..schema.num_columns()).filter(|other| schema.get_column_root_idx(*other) == root).count() == 1
}

/// Returns the name of the typed table's column: the name of a list, or the path of any other leaf column.
fn typed_name(schema: &SchemaDescriptor, leaf: usize) -> String {
    let path = schema.column(leaf);
    let path = path.path();
    match schema.column(leaf).max_rep_level() {
        0 => path.string(),
        _ => path.parts()[0].clone(),
    }
}

/// Returns the definition level of the elements of a list that has a value.
fn element_level(schema: &SchemaDescriptor, leaf: usize) -> i16 {
    let description = schema.column(leaf);
    let (mut node, mut level) = (schema.root_schema(), 0);
    for name in description.path().parts() {
        let Some(field) = node.get_fields().iter().find(|field| field.name() == name) else { break };
        node = field;
        let info = node.get_basic_info();
        let repetition = if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED };
        level += i16::from(repetition != Repetition::REQUIRED);
        if repetition == Repetition::REPEATED {
            break;
        }
    }
    level
}

/// Returns the leaf column with this name or number. The name of a list selects the leaf column of its elements.
fn typed_leaf(schema: &SchemaDescriptor, column: &Column, role: ColumnRole) -> Result<usize, ColumnsFault> {
    let root = schema.root_schema().get_fields();
    let name = match column {
        Column::Name(name) => Some(name.as_str()),
        Column::Number(number) => {
            number.checked_sub(1).and_then(|position| root.get(position)).map(|field| field.name())
        }
    };
    let is_found = |leaf: &usize| name.is_some_and(|name| typed_name(schema, *leaf) == name);
    let found: Vec<usize> = (0..schema.num_columns()).filter(is_found).collect();
    // All leaf columns of a map have the map's name.
    let is_same = |leaf: &usize| {
        let root = schema.get_column_root_idx(found[0]);
        schema.get_column_root_idx(*leaf) == root && schema.column(*leaf).max_rep_level() > 0
    };
    match found[..] {
        [leaf] => Ok(leaf),
        [leaf, ..] if found.iter().all(is_same) => Ok(leaf),
        [] => leaf_of(schema, column, role),
        [..] => Err(ColumnsFault::of_column(role, column, several(role))),
    }
}

/// The key columns, the end of ranges and the delete column, if there are such columns; the columns that become cells, in
/// the order of the table,
/// without those that the file lacks; and the columns of the table if their types are known.
type Leaves = (Vec<ColumnType>, Vec<Option<ColumnType>>, Option<Vec<typed::Column>>);

impl Columns {
    /// Finds the columns of a typed table. Sets the schema, unless an earlier input has set it.
    pub(super) fn find_typed(
        file: &SerializedFileReader<File>,
        options: &Options,
        plan: &TypedPlan,
        input: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Columns, BakeError> {
        let schema = FileSchema::new(file);
        let found = Columns::leaves(&schema, options, plan, input, warnings).map_err(|fault| fault.in_input(input))?;
        let (mut columns, values, declared) = found;
        let key_count = 1 + options.more_key_columns.len();
        let key = &key_name(columns[..key_count].iter().map(|column| &*column.name));
        let schema = match declared {
            Some(declared) => plan.set(key, declared, input)?,
            None => {
                let (inferred, is_news) = Columns::inferred(file, &schema, values.iter().flatten(), plan, input)?;
                let has_text_key = !matches!(columns[0].value_type, ValueType::Int | ValueType::Uint);
                plan.set_from_file(key, inferred, is_news, has_text_key, input)?
            }
        };
        let end = options.end_column().map(|_| key_count);
        let delete = options.delete_column.as_ref().map(|_| key_count + usize::from(end.is_some()));
        let position = |value: Option<ColumnType>| {
            columns.push(value?);
            Some(columns.len() - 1)
        };
        let positions = values.into_iter().map(position).collect();
        let value = ValueColumns::Typed(positions, Box::new(RowBuilder::new(schema.clone())));
        Ok(Columns { columns, key: KeyColumns::new(0, (1..key_count).collect()), end, value, delete })
    }

    /// Returns the columns of the table that columns of the file become, and whether a length of lists was inferred
    /// from rows.
    fn inferred<'c>(
        file: &SerializedFileReader<File>,
        schema: &FileSchema<'_>,
        columns: impl Iterator<Item = &'c ColumnType>,
        plan: &TypedPlan,
        input: &str,
    ) -> Result<(Vec<typed::Column>, bool), BakeError> {
        let (mut inferred, mut is_news) = (Vec::new(), false);
        for column in columns {
            let facts = schema.arrow.facts(&column.name);
            if let Some(unit) = facts.duration_unit {
                return Err(duration_fault(column, unit).in_input(input));
            }
            let list_len = || {
                let len = catch_panic(|| list_len::inferred(file, column));
                let len = len.map_err(|error| unreadable(input, Some(file), &error))?;
                is_news |= len.is_some();
                Ok(len)
            };
            // Lists of the base keep their length, as a delta with few rows tells little about it.
            let column_type = match plan.base_list(&column.name, column.own_type) {
                Some(of_base) => Some(of_base),
                None => column.inferred_type(facts, list_len)?,
            };
            let (name, is_nullable) = (column.name.clone(), column.is_nullable());
            inferred.extend(column_type.map(|column_type| typed::Column { name, column_type, is_nullable }));
        }
        Ok((inferred, is_news))
    }

    /// Finds the leaf columns of the file that a typed table has.
    fn leaves(
        schema: &FileSchema<'_>,
        options: &Options,
        plan: &TypedPlan,
        input: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Leaves, ColumnsFault> {
        let Some(key) = &schema.key(options)? else {
            return Err(ColumnsFault::new(
                "typed columns are chosen: choose the key column as well",
                &[Remedy::ChooseKey],
            ));
        };
        let parquet = schema.parquet;
        let key_leaves = std::iter::once(key).chain(&options.more_key_columns);
        let key_leaves = key_leaves.map(|key| leaf_of(parquet, key, ColumnRole::Key));
        let mut other_leaves = key_leaves.collect::<Result<Vec<_>, _>>()?;
        let keys = other_leaves.iter().map(|leaf| schema.column(*leaf, ColumnRole::Key));
        let mut columns = keys.collect::<Result<Vec<_>, _>>()?;
        columns.iter().zip(options.key_part_types()).try_for_each(|(column, part)| column.check_key(part))?;
        let key_names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        if let Some(end) = options.end_column() {
            let leaf = leaf_of(parquet, end, ColumnRole::End)?;
            other_leaves.push(leaf);
            let column = schema.column(leaf, ColumnRole::End)?;
            options.key_part_types().last().map_or(Ok(()), |part| column.check_key(*part))?;
            columns.push(column);
        }
        if let Some(delete) = &options.delete_column {
            let leaf = leaf_of(parquet, delete, ColumnRole::Delete)?;
            other_leaves.push(leaf);
            columns.push(schema.column(leaf, ColumnRole::Delete)?);
        }
        let selected = plan.selected(&key_names, |column| {
            typed_leaf(parquet, column, ColumnRole::Typed).map(|leaf| typed_name(parquet, leaf))
        })?;
        let leaf_of_name = |name: &String| typed_leaf(parquet, &Column::Name(name.clone()), ColumnRole::Typed);
        let of_typed = |leaf: usize| ColumnType::of_typed(parquet, leaf).map(Some);
        let (values, declared): (Vec<_>, _) = match selected {
            Selected::Typed(columns) => {
                let exists = |name: &String| {
                    let root = parquet.root_schema().get_fields();
                    root.iter().any(|field| field.name() == name)
                };
                let mut of_column = |column: &typed::Column| match leaf_of_name(&column.name) {
                    Err(absent) if !exists(&column.name) => {
                        warnings.extend(plan.missing_column(column, input, absent)?);
                        Ok(None)
                    }
                    leaf => leaf.and_then(of_typed),
                };
                let values = columns.iter().map(&mut of_column).collect::<Result<_, _>>()?;
                (values, Some(columns))
            }
            Selected::Named(names) => {
                let values = names.iter().map(|name| leaf_of_name(name).and_then(of_typed));
                (values.collect::<Result<_, _>>()?, None)
            }
            Selected::All => {
                let leaves = (0..parquet.num_columns()).filter(|leaf| !other_leaves.contains(leaf));
                (leaves.map(of_typed).collect::<Result<_, _>>()?, None)
            }
        };
        Ok((columns, values, declared))
    }
}

impl ParquetPiece {
    pub(super) fn parse_typed_into(&mut self, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let Columns { columns, key, end, value, delete } = &mut self.columns;
        let ValueColumns::Typed(positions, builder) = value else { return Ok(()) };
        let cursor = |position: usize| Cursor::new(&columns[position], &self.decoded.columns[position]);
        // The key columns are the first ones, so their positions are those of their cursors.
        let mut keys: Vec<_> = key.iter().map(cursor).collect();
        let (mut end, mut delete) = (end.map(cursor), delete.map(cursor));
        let targets: Vec<_> = builder.schema().columns().iter().map(|column| column.column_type).collect();
        let cells = positions.iter().zip(targets);
        // A column that the file lacks has no cursor.
        let mut cells: Vec<_> =
            cells.map(|(position, target)| Some(TypedCursor::new(cursor((*position)?), target))).collect();
        let mut texts = Texts::default();
        for row in 0..self.decoded.rows {
            let line = self.decoded.first_row + row as u64;
            // Every cursor advances, even if another cursor has a fault.
            let of_keys = [end.as_mut(), delete.as_mut()].into_iter().flatten().chain(&mut keys);
            let of_keys = of_keys.map(Cursor::advance).fold(Ok(()), Result::and);
            let of_cells = cells.iter_mut().flatten().map(TypedCursor::advance).fold(Ok(()), Result::and);
            let parsed = of_keys.and_then(|()| {
                let null = |cursor: &Cursor<'_>| RowFault::Null { column: cursor.column.name.clone() };
                let delete = delete.as_ref().and_then(|delete| delete.cell().content(&mut texts.delete));
                let end = end.as_ref().map(|end| end.cell().content(&mut texts.end).ok_or_else(|| null(end)));
                let end = end.transpose()?;
                let key = key.text_of(&keys, &mut texts.key)?;
                let value = match is_removed(delete) {
                    true => b"",
                    false => {
                        of_cells?;
                        builder
                            .values(cells.iter().map(|cell| cell.as_ref().map_or(Value::Null, TypedCursor::value)))?
                    }
                };
                Ok(InputRow { line, key, end, value, delete, text: b"" })
            });
            match parsed {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(line, fault, b"")?,
            }
        }
        Ok(())
    }
}

/// Reads the cells of a column, one row at a time.
struct TypedCursor<'p> {
    cursor: Cursor<'p>,
    /// The type of the table's column.
    target: typed::ColumnType,
    /// The type in which the elements of lists are encoded. Without it, lists are JSON.
    element: Option<ElementType>,
    elements: Vec<u8>,
}

impl<'p> TypedCursor<'p> {
    fn new(cursor: Cursor<'p>, target: typed::ColumnType) -> TypedCursor<'p> {
        let is_96 = matches!(cursor.cells.values, Values::Int96(_));
        let element = match (cursor.column.own_type, target) {
            (_, typed::ColumnType::Text) => None,
            (
                Some(typed::ColumnType::List { element: ElementType::F64, .. }),
                typed::ColumnType::List { element: ElementType::F32, .. },
            ) => Some(ElementType::F32),
            (
                Some(typed::ColumnType::List { .. }),
                typed::ColumnType::List { element: element @ (ElementType::Date | ElementType::Timestamp(_)), .. },
            ) if is_96 => Some(element),
            (Some(typed::ColumnType::List { element, .. }), _) => Some(element),
            _ => None,
        };
        TypedCursor { cursor, target, element, elements: Vec::new() }
    }

    /// Moves to the next row.
    fn advance(&mut self) -> Result<(), RowFault> {
        match self.cursor.column.element_level {
            Some(level) => self.advance_list(level),
            None => self.advance_scalar(),
        }
    }

    fn advance_scalar(&mut self) -> Result<(), RowFault> {
        self.cursor.step();
        let Cursor { column, cells, value, .. } = self.cursor;
        let Some(value) = value else { return Ok(()) };
        match column.value_type {
            ValueType::Timestamp { .. } if self.is_text(value) => {
                self.cursor.text = cells.values.int96(value).map(text_96).unwrap_or_default();
                Ok(())
            }
            ValueType::Uuid | ValueType::Time(_) => self.cursor.convert(value),
            _ if self.scalar(value).is_none() => Err(self.scalar_fault(value)),
            _ => Ok(()),
        }
    }

    /// Moves to the next list, and encodes its elements. All elements are read, even after one that is null.
    fn advance_list(&mut self, level: i16) -> Result<(), RowFault> {
        self.elements.clear();
        if self.element.is_none() {
            self.elements.push(b'[');
        }
        self.cursor.value = None;
        let cells = self.cursor.cells;
        let (Some(defs), Some(reps)) = (&cells.def_levels, &cells.rep_levels) else { return Ok(()) };
        let mut result = Ok(());
        loop {
            let def = defs[self.cursor.next_row];
            self.cursor.next_row += 1;
            // An empty list has the level just below its elements' level.
            if def >= level - 1 {
                self.cursor.value = Some(self.cursor.next_value);
            }
            if def == self.cursor.column.max_def_level {
                let put = |value: &Value<'_>, to: &mut Vec<u8>| match self.element {
                    Some(element) => put_element(value, element, to),
                    None => {
                        put_json(value, to);
                        true
                    }
                };
                match self.scalar(self.cursor.next_value) {
                    Some(value) if put(&value, &mut self.elements) => {}
                    Some(value) => result = Err(self.element_fault(&value)),
                    None => result = Err(self.scalar_fault(self.cursor.next_value)),
                }
                self.cursor.next_value += 1;
            } else if def >= level {
                match self.element {
                    Some(element @ (ElementType::F32 | ElementType::F64)) => {
                        put_element(&Value::F64(f64::NAN), element, &mut self.elements);
                    }
                    None if self.target == typed::ColumnType::Text => put_json(&Value::Null, &mut self.elements),
                    _ => result = Err(self.element_fault(&Value::Null)),
                }
            }
            if reps.get(self.cursor.next_row).is_none_or(|rep| *rep == 0) {
                if self.element.is_none() {
                    self.elements.push(b']');
                }
                return result;
            }
        }
    }

    /// Returns whether a value is converted to text at once: a 96-bit timestamp, because other types of timestamps do
    /// not have all of its values.
    fn is_text(&self, value: usize) -> bool {
        self.target == typed::ColumnType::Text && self.cursor.cells.values.int96(value).is_some()
    }

    /// Returns the fault of a value that [`TypedCursor::scalar`] does not return.
    fn scalar_fault(&self, value: usize) -> RowFault {
        let Cursor { column, cells, .. } = self.cursor;
        if column.value_type == ValueType::Text {
            return self.fault(cells.values.bytes(value).unwrap_or_default(), "UTF-8 text");
        }
        let Some(timestamp) = cells.values.int96(value) else { return column.out_of_range() };
        let expected = match self.timestamp_type() {
            typed::ColumnType::Timestamp(typed::TimeUnit::Nanos) => {
                "a time in the years 1678 to 2261; timestamp(us) has the others, too"
            }
            _ => "a value that fits exactly",
        };
        self.fault(text_96(timestamp).as_bytes(), expected)
    }

    /// Returns the type of the table's column, or of the elements of its lists.
    fn timestamp_type(&self) -> typed::ColumnType {
        self.element.map_or(self.target, ElementType::column_type)
    }

    /// Converts a 96-bit timestamp at once to the type of the column, because a timestamp of nanoseconds does not have
    /// all of its values.
    fn timestamp_96(&self, timestamp: &Int96) -> Option<Value<'static>> {
        let (seconds, nanos) = split_96(timestamp);
        let nanos = i128::from(seconds) * NANOS_PER_SECOND + i128::from(nanos);
        let exact = |per_unit: i128| (nanos % per_unit == 0).then_some(nanos / per_unit);
        Some(match self.timestamp_type() {
            typed::ColumnType::Date => Value::Date(i32::try_from(exact(NANOS_PER_SECOND * 24 * 60 * 60)?).ok()?),
            typed::ColumnType::Timestamp(unit) => {
                let units = exact(NANOS_PER_SECOND / i128::from(unit.per_second()))?;
                Value::Timestamp(i64::try_from(units).ok()?, unit)
            }
            _ => Value::Timestamp(i64::try_from(nanos).ok()?, typed::TimeUnit::Nanos),
        })
    }

    /// Returns the fault of a list with an element that its type does not have.
    fn element_fault(&self, element: &Value<'_>) -> RowFault {
        let mut found = b"[".to_vec();
        match element {
            Value::Null => found.extend_from_slice(b"null"),
            element => typed::write_text(element, &mut found),
        }
        found.push(b']');
        self.fault(&found, "elements of the list's type, without null; text has all lists, as JSON")
    }

    fn fault(&self, found: &[u8], expected: &'static str) -> RowFault {
        let name = self.cursor.column.name.clone();
        RowFault::cell(&typed::Column { name, column_type: self.target, is_nullable: false }, found, expected)
    }

    fn value(&self) -> Value<'_> {
        let Some(value) = self.cursor.value else { return Value::Null };
        match (self.element, self.cursor.column.value_type) {
            (None, _) if self.cursor.column.element_level.is_some() && self.target == typed::ColumnType::Text => {
                std::str::from_utf8(&self.elements).map_or(Value::Null, Value::Text)
            }
            (None, _) if self.cursor.column.element_level.is_some() => {
                TextList::from_bytes(&self.elements).map_or(Value::Null, Value::TextList)
            }
            (Some(element), _) => List::new(element, &self.elements).map_or(Value::Null, Value::List),
            (None, ValueType::Uuid | ValueType::Time(_)) => Value::Text(&self.cursor.text),
            (None, _) if self.is_text(value) => Value::Text(&self.cursor.text),
            (None, _) => match self.scalar(value) {
                Some(Value::F64(value)) if self.target == typed::ColumnType::F32 => rounded(value),
                Some(value) => value,
                None => Value::Null,
            },
        }
    }

    /// Returns a value that is neither a list, nor a UUID, nor a time. Returns `None` if it is out of range.
    fn scalar(&self, value: usize) -> Option<Value<'p>> {
        let (values, own_type) = (&self.cursor.cells.values, self.cursor.column.own_type);
        let bytes = || values.bytes(value).unwrap_or_default();
        Some(match self.cursor.column.value_type {
            ValueType::Uint => {
                // Unsigned integers are stored in the bits of signed integers.
                let bits = if matches!(values, Values::Int32(_)) { 32 } else { 64 };
                Value::Uint(values.integer(value)? as u64 & (u64::MAX >> (64 - bits)))
            }
            ValueType::Int => Value::Int(values.integer(value)?),
            ValueType::Text => Value::Text(std::str::from_utf8(bytes()).ok()?),
            ValueType::Binary => Value::Bytes(bytes()),
            ValueType::Date => Value::Date(i32::try_from(values.integer(value)?).ok()?),
            ValueType::Timestamp { unit, .. } => match values.int96(value) {
                Some(timestamp) => self.timestamp_96(timestamp)?,
                None => Value::Timestamp(values.integer(value)?, time_unit(unit)),
            },
            ValueType::Decimal { .. } => {
                let unscaled = values.integer(value).map(i128::from).or_else(|| from_be_bytes(bytes()))?;
                match own_type {
                    Some(typed::ColumnType::Decimal { precision, scale })
                        if unscaled.unsigned_abs() < 10_u128.pow(precision.into()) =>
                    {
                        Value::Decimal { unscaled, scale }
                    }
                    _ => return None,
                }
            }
            ValueType::Bool | ValueType::Float => match values {
                Values::Bool(values) => Value::Bool(values[value]),
                Values::Float(values) => Value::F32(values[value]),
                Values::Double(values) => Value::F64(values[value]),
                Values::FixedBytes(_) => Value::F32(values.float16(value)),
                _ => return None,
            },
            ValueType::Uuid | ValueType::Time(_) => return None,
        })
    }
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Returns the text of a 96-bit timestamp, in the form of a `timestamp(ns)`.
fn text_96(timestamp: &Int96) -> String {
    let (seconds, nanos) = split_96(timestamp);
    let mut text = Vec::new();
    write_instant(seconds, nanos.into(), typed::TimeUnit::Nanos.digits(), &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the nearest float of 32 bits. A number beyond the range of these floats is returned unchanged, so that it is
/// rejected.
fn rounded(value: f64) -> Value<'static> {
    let narrow = value as f32;
    if narrow.is_finite() == value.is_finite() { Value::F32(narrow) } else { Value::F64(value) }
}

/// Appends an element to the JSON of a list, with the comma before it.
fn put_json(value: &Value<'_>, to: &mut Vec<u8>) {
    let is_quoted = matches!(value, Value::Date(_) | Value::Timestamp(..));
    if let Value::Text(text) = value {
        return typed::push_text(text, to);
    }
    if to.len() > 1 {
        to.push(b',');
    }
    let quote: &[u8] = if is_quoted { b"\"" } else { b"" };
    to.extend_from_slice(quote);
    match value {
        Value::Null => to.extend_from_slice(b"null"),
        value => typed::write_text(value, to),
    }
    to.extend_from_slice(quote);
}

/// Appends the encoding of an element. Returns false if the element does not fit the type.
fn put_element(value: &Value<'_>, element: ElementType, to: &mut Vec<u8>) -> bool {
    let len_bytes = element.len_bytes();
    let unused_bits = 64 - 8 * len_bytes;
    match *value {
        Value::Bool(value) => {
            to.push(value.into());
            element == ElementType::U8
        }
        Value::Int(value) | Value::Timestamp(value, _) => {
            to.extend_from_slice(&value.to_le_bytes()[..len_bytes]);
            value << unused_bits >> unused_bits == value
        }
        Value::Uint(value) => {
            to.extend_from_slice(&value.to_le_bytes()[..len_bytes]);
            value << unused_bits >> unused_bits == value
        }
        Value::Date(value) => {
            to.extend_from_slice(&value.to_le_bytes());
            true
        }
        Value::F32(value) => {
            to.extend_from_slice(&value.to_le_bytes());
            true
        }
        Value::F64(value) if element == ElementType::F32 => {
            to.extend_from_slice(&(value as f32).to_le_bytes());
            matches!(rounded(value), Value::F32(_))
        }
        Value::F64(value) => {
            to.extend_from_slice(&value.to_le_bytes());
            true
        }
        _ => false,
    }
}
