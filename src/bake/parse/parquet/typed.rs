//! The columns of a typed table in Parquet.
//!
//! A column of the file has the type of the table's column that this table lists:
//!
//! | Parquet | typed table |
//! |---|---|
//! | boolean, float, double, date | `bool`, `f32`, `f64`, `date` |
//! | an integer | the integer of its width and sign |
//! | string, enum, JSON, UUID, time | `text` |
//! | binary | `bytes` |
//! | decimal of up to 38 digits | the decimal of its precision and scale |
//! | timestamp | the timestamp of its unit; `timestamp(ns)` if 96-bit |
//! | list of integers, floats, dates, or timestamps | a list of any length |
//!
//! If another type is declared, values are converted, and values that do not fit are rejected. A double in a column of
//! type `f32` is rounded. Other types are rejected.

use ::parquet::basic::Repetition;
use ::parquet::schema::types::SchemaDescriptor;

use super::column::{ColumnType, Cursor, ValueType, Values, from_be_bytes, split_96, time_unit};
use super::{Columns, ParquetPiece, Texts, leaf_of};
use crate::bake::columns::{Column, ColumnRole, ColumnsFault};
use crate::bake::error::{BakeError, Remedy, RowFault};
use crate::bake::options::Options;
use crate::bake::parse::pack::ValueColumns;
use crate::bake::row::{InputRow, RowSink, is_removed};
use crate::bake::typed::row_builder::RowBuilder;
use crate::bake::typed::{Selected, TypedPlan};
use crate::typed::{self, ElementType, List, Value};

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
                column.own_type = column
                    .own_type
                    .and_then(ElementType::new)
                    .map(|element| typed::ColumnType::List { element, len: None });
                if column.own_type.is_none() {
                    let elements = column.value_type.name();
                    return Err(fault(&format!(
                        "has lists of {elements}, where lists of integers, floats, dates, or timestamps were expected: \
                         convert it, or leave it out"
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

    /// Returns the column as the file declares it.
    fn declared(&self) -> Option<typed::Column> {
        let (name, is_nullable) = (self.name.clone(), self.is_nullable());
        Some(typed::Column { name, column_type: self.own_type?, is_nullable })
    }
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
    let mut leaves = 0..schema.num_columns();
    match name.and_then(|name| leaves.find(|leaf| typed_name(schema, *leaf) == name)) {
        Some(leaf) => Ok(leaf),
        None => leaf_of(schema, column, role).map(|(leaf, _)| leaf),
    }
}

impl Columns {
    /// Finds the columns of a typed table. Sets the schema, unless an earlier input has set it.
    pub(super) fn find_typed(
        schema: &SchemaDescriptor,
        options: &Options,
        plan: &TypedPlan,
        input: &str,
    ) -> Result<Columns, BakeError> {
        let found = Columns::leaves(schema, options, plan).map_err(|fault| fault.in_input(input))?;
        let (columns, declared) = found;
        let schema = plan.set(&columns[0].name, declared, input)?;
        let delete = options.delete_column.as_ref().map(|_| 1);
        let values = 1 + usize::from(delete.is_some())..columns.len();
        let value = ValueColumns::Typed(values.collect(), Box::new(RowBuilder::new(schema.clone())));
        Ok(Columns { columns, key: 0, value, delete })
    }

    /// Returns the columns of the file, which are the key column, the delete column if there is one, and the columns
    /// that become cells. Also returns the columns of the table.
    fn leaves(
        schema: &SchemaDescriptor,
        options: &Options,
        plan: &TypedPlan,
    ) -> Result<(Vec<ColumnType>, Vec<typed::Column>), ColumnsFault> {
        let Some(key) = &options.key else {
            return Err(ColumnsFault::new(
                "typed columns are chosen: choose the key column as well",
                &[Remedy::ChooseKey],
            ));
        };
        let (key_leaf, description) = leaf_of(schema, key, ColumnRole::Key)?;
        let mut columns = vec![ColumnType::new(key_leaf, &description, ColumnRole::Key)?];
        columns[0].check_key()?;
        let mut delete_leaf = None;
        if let Some(delete) = &options.delete_column {
            let (leaf, description) = leaf_of(schema, delete, ColumnRole::Delete)?;
            delete_leaf = Some(leaf);
            columns.push(ColumnType::new(leaf, &description, ColumnRole::Delete)?);
        }
        let selected = plan.selected(&columns[0].name, |column| {
            typed_leaf(schema, column, ColumnRole::Typed).map(|leaf| typed_name(schema, leaf))
        })?;
        let of_name = |name: &String| {
            let leaf = typed_leaf(schema, &Column::Name(name.clone()), ColumnRole::Typed)?;
            ColumnType::of_typed(schema, leaf)
        };
        let (values, declared): (Vec<_>, _) = match selected {
            Selected::Typed(columns) => {
                let values = columns.iter().map(|column| of_name(&column.name)).collect::<Result<_, _>>()?;
                (values, Some(columns))
            }
            Selected::Named(names) => (names.iter().map(of_name).collect::<Result<_, _>>()?, None),
            Selected::All => {
                let leaves = (0..schema.num_columns()).filter(|leaf| *leaf != key_leaf && Some(*leaf) != delete_leaf);
                (leaves.map(|leaf| ColumnType::of_typed(schema, leaf)).collect::<Result<_, _>>()?, None)
            }
        };
        let declared = declared.unwrap_or_else(|| values.iter().filter_map(ColumnType::declared).collect());
        columns.extend(values);
        Ok((columns, declared))
    }
}

impl ParquetPiece {
    pub(super) fn parse_typed_into(&mut self, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let Columns { columns, key, value, delete } = &mut self.columns;
        let ValueColumns::Typed(positions, builder) = value else { return Ok(()) };
        let cursor = |position: usize| Cursor::new(&columns[position], &self.decoded.columns[position]);
        let (mut key, mut delete) = (cursor(*key), delete.map(cursor));
        let targets: Vec<_> = builder.schema().columns().iter().map(|column| column.column_type).collect();
        let cells = positions.iter().zip(targets);
        let mut cells: Vec<_> = cells.map(|(position, target)| TypedCursor::new(cursor(*position), target)).collect();
        let mut texts = Texts::default();
        for row in 0..self.decoded.rows {
            let line = self.decoded.first_row + row as u64;
            // Every cursor advances, even if another cursor has a fault.
            let of_keys = [Some(&mut key), delete.as_mut()].into_iter().flatten().map(Cursor::advance);
            let of_keys = of_keys.fold(Ok(()), Result::and);
            let of_cells = cells.iter_mut().map(TypedCursor::advance).fold(Ok(()), Result::and);
            let parsed = of_keys.and_then(|()| {
                let null = || RowFault::Null { column: key.column.name.clone() };
                let delete = delete.as_ref().and_then(|delete| delete.cell().content(&mut texts.delete));
                let key = key.cell().content(&mut texts.key).ok_or_else(null)?;
                let value = match is_removed(delete) {
                    true => b"",
                    false => {
                        of_cells?;
                        builder.values(cells.iter().map(TypedCursor::value))?
                    }
                };
                Ok(InputRow { line, key, value, delete, text: b"" })
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
    /// The type in which the elements of lists are encoded.
    element: Option<ElementType>,
    elements: Vec<u8>,
}

impl<'p> TypedCursor<'p> {
    fn new(cursor: Cursor<'p>, target: typed::ColumnType) -> TypedCursor<'p> {
        let element = match (cursor.column.own_type, target) {
            (
                Some(typed::ColumnType::List { element: ElementType::F64, .. }),
                typed::ColumnType::List { element: ElementType::F32, .. },
            ) => Some(ElementType::F32),
            (Some(typed::ColumnType::List { element, .. }), _) => Some(element),
            _ => None,
        };
        TypedCursor { cursor, target, element, elements: Vec::new() }
    }

    /// Moves to the next row.
    fn advance(&mut self) -> Result<(), RowFault> {
        match (self.element, self.cursor.column.element_level) {
            (Some(element), Some(level)) => self.advance_list(element, level),
            _ => self.advance_scalar(),
        }
    }

    fn advance_scalar(&mut self) -> Result<(), RowFault> {
        self.cursor.step();
        let Cursor { column, cells, value, .. } = self.cursor;
        let Some(value) = value else { return Ok(()) };
        match column.value_type {
            ValueType::Uuid | ValueType::Time(_) => self.cursor.convert(value),
            ValueType::Text => {
                let bytes = cells.values.bytes(value).unwrap_or_default();
                std::str::from_utf8(bytes).map_err(|_| self.fault(bytes, "UTF-8 text"))?;
                Ok(())
            }
            _ if self.scalar(value).is_none() => Err(column.out_of_range()),
            _ => Ok(()),
        }
    }

    /// Moves to the next list, and encodes its elements. All elements are read, even after one that is null.
    fn advance_list(&mut self, element: ElementType, level: i16) -> Result<(), RowFault> {
        self.elements.clear();
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
                let value = self.scalar(self.cursor.next_value).unwrap_or(Value::Null);
                if !put_element(&value, element, &mut self.elements) {
                    result = Err(self.element_fault(&value));
                }
                self.cursor.next_value += 1;
            } else if def >= level {
                result = Err(self.element_fault(&Value::Null));
            }
            if reps.get(self.cursor.next_row).is_none_or(|rep| *rep == 0) {
                return result;
            }
        }
    }

    /// Returns the fault of a list with an element that its type does not have.
    fn element_fault(&self, element: &Value<'_>) -> RowFault {
        let mut found = b"[".to_vec();
        match element {
            Value::Null => found.extend_from_slice(b"null"),
            element => typed::write_text(element, &mut found),
        }
        found.push(b']');
        self.fault(&found, "elements of the list's type, without null")
    }

    fn fault(&self, found: &[u8], expected: &'static str) -> RowFault {
        let name = self.cursor.column.name.clone();
        RowFault::cell(&typed::Column { name, column_type: self.target, is_nullable: false }, found, expected)
    }

    fn value(&self) -> Value<'_> {
        let Some(value) = self.cursor.value else { return Value::Null };
        match (self.element, self.cursor.column.value_type) {
            (Some(element), _) => List::new(element, &self.elements).map_or(Value::Null, Value::List),
            (None, ValueType::Uuid | ValueType::Time(_)) => Value::Text(&self.cursor.text),
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
            ValueType::Timestamp { unit, .. } => {
                let unit = time_unit(unit);
                let units = match values {
                    Values::Int96(values) => {
                        let (seconds, nanos) = split_96(&values[value]);
                        seconds.checked_mul(unit.per_second())?.checked_add(nanos.into())?
                    }
                    _ => values.integer(value)?,
                };
                Value::Timestamp(units, unit)
            }
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
                _ => return None,
            },
            ValueType::Uuid | ValueType::Time(_) => return None,
        })
    }
}

/// Returns the nearest float of 32 bits. A number beyond the range of these floats is returned unchanged, so that it is
/// rejected.
fn rounded(value: f64) -> Value<'static> {
    let narrow = value as f32;
    if narrow.is_finite() == value.is_finite() { Value::F32(narrow) } else { Value::F64(value) }
}

/// Appends the encoding of an element. Returns false if the element does not fit the type.
fn put_element(value: &Value<'_>, element: ElementType, to: &mut Vec<u8>) -> bool {
    let len_bytes = element.len_bytes();
    let unused_bits = 64 - 8 * len_bytes;
    match *value {
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
