//! Typed tables in a bake: the declared columns, the schema that follows from them and from the first input, and the
//! values of rows.
//!
//! In: the columns that the options declare, the names of an input's columns, and cells. Out: the schema, and the
//! encoded rows. Parsers find the cells; this module knows no format of inputs, except the JSON values of fields.

pub(super) mod infer;
pub(super) mod row_builder;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::columns::{Column, ColumnsFault};
use super::error::{BakeError, Remedy};
use super::keys::Keys;
use super::options::{Options, TypedColumns};
use crate::typed::{self, ColumnType, Schema, SchemaError};

/// The columns that the options choose for an input.
pub(super) enum Selected {
    /// Columns whose types are known.
    Typed(Vec<typed::Column>),
    /// The names of columns whose types follow from the input.
    Named(Vec<String>),
    /// All columns of the input, except the key column and the delete column.
    All,
}

/// The typed columns of a bake, and the schema as soon as it is known.
pub(super) struct TypedPlan {
    columns: TypedColumns,
    keys: Keys,
    base: Option<Base>,
    schema: OnceLock<Arc<Schema>>,
    /// Whether the schema was inferred, and the inference has not been reported yet.
    is_news: AtomicBool,
}

/// The name and the schema of the base.
pub(super) struct Base {
    pub(super) path: std::path::PathBuf,
    pub(super) schema: Arc<Schema>,
}

/// Checks whether the rows of the base can become rows of the new schema.
fn check_columns(base: &Base, schema: &Schema, cast: bool) -> Result<(), BakeError> {
    for new in schema.columns() {
        let Some(position) = base.schema.position(&new.name) else {
            match new.is_nullable {
                true => continue,
                false => return Err(BakeError::AddedColumn { base: base.path.clone(), column: Box::new(new.clone()) }),
            }
        };
        let old = &base.schema.columns()[position];
        let is_same = old.column_type == new.column_type && old.is_nullable <= new.is_nullable;
        if !is_same && !cast {
            let (base, old, new) = (base.path.clone(), Box::new(old.clone()), Box::new(new.clone()));
            return Err(BakeError::ChangedColumn { base, old, new });
        }
    }
    Ok(())
}

impl TypedPlan {
    /// Returns the plan of a bake with these options, in which the kind of the keys is final.
    pub(super) fn new(options: &Options, base: Option<Base>) -> Option<TypedPlan> {
        let columns = options.typed.clone()?;
        Some(TypedPlan { columns, keys: options.keys, base, schema: OnceLock::new(), is_news: AtomicBool::new(false) })
    }

    pub(super) fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.get()
    }

    /// Returns the schema for rows in memory, or for inputs without rows: the declared columns, or the base's columns.
    pub(super) fn declared_schema(&self, key: Option<&Column>) -> Result<Option<Arc<Schema>>, BakeError> {
        if let Some(schema) = self.schema() {
            return Ok(Some(schema.clone()));
        }
        let key = key.and_then(Column::name).unwrap_or_default();
        let unnamed = |column: &Column| {
            let message = format!("column {column} is a number, and nothing numbers the columns: give a name");
            ColumnsFault::new(message, &[Remedy::ChooseColumns])
        };
        let name_of = |column: &Column| column.name().map(str::to_owned).ok_or_else(|| unnamed(column));
        match self.selected(key, name_of).map_err(|fault| fault.in_input("typed columns"))? {
            Selected::Typed(columns) => Ok(Some(self.set(key, columns, "typed columns")?.clone())),
            Selected::Named(_) | Selected::All => Ok(self.base.as_ref().map(|base| base.schema.clone())),
        }
    }

    /// Returns the columns to read from an input. `key` is the name of its key column, and `name_of` returns the name
    /// of a chosen column.
    pub(super) fn selected(
        &self,
        key: &str,
        mut name_of: impl FnMut(&Column) -> Result<String, ColumnsFault>,
    ) -> Result<Selected, ColumnsFault> {
        if let Some(schema) = self.schema() {
            return Ok(Selected::Typed(schema.columns().to_vec()));
        }
        let TypedColumns { types, columns, .. } = &self.columns;
        let names = columns.iter().map(|column| {
            let name = name_of(column)?;
            match name == key {
                true => Err(ColumnsFault::new(
                    format!("the column {name:?} is the key, which is stored beside the columns: leave it out"),
                    &[Remedy::ChooseColumns],
                )),
                false => Ok(name),
            }
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        if types.is_empty() {
            return Ok(if names.is_empty() { Selected::All } else { Selected::Named(names) });
        }
        if let Some(declared) = types.iter().find(|column| column.name == key) {
            self.check_key_type(declared)?;
        }
        if names.is_empty() {
            return Ok(Selected::Typed(types.iter().filter(|column| column.name != key).cloned().collect()));
        }
        let typed = names.iter().map(|name| {
            types.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
                let message = format!("the column {name:?} has no type: declare its type as well");
                ColumnsFault::new(message, &[Remedy::DeclareTypes])
            })
        });
        Ok(Selected::Typed(typed.collect::<Result<_, _>>()?))
    }

    /// Checks the declared type of the key column against the kind of the keys, which was chosen before the name of the
    /// key column was known.
    fn check_key_type(&self, declared: &typed::Column) -> Result<(), ColumnsFault> {
        let keys = keys_of_type(declared)?;
        if self.keys == Keys::Auto || self.keys == keys {
            return Ok(());
        }
        let (name, kind) = (&declared.name, self.keys.kind());
        Err(ColumnsFault::new(
            format!("the key column {name:?} is {}, and keys are {kind}: choose one of them", declared.column_type),
            &[Remedy::DeclareTypes, Remedy::ChooseKeyKind],
        ))
    }

    /// Returns the type and nullability of a column whose type was inferred. Columns of the base keep their types, and
    /// columns that are added to a base can be null, because the base's rows have no values for them.
    fn with_base(&self, column: typed::Column) -> typed::Column {
        let Some(base) = &self.base else { return column };
        match base.schema.position(&column.name).map(|position| &base.schema.columns()[position]) {
            Some(old) => typed::Column { is_nullable: old.is_nullable || column.is_nullable, ..old.clone() },
            None => typed::Column { is_nullable: true, ..column },
        }
    }

    /// Sets the schema, unless an earlier input has set it, to columns whose types were inferred from an input.
    pub(super) fn set_inferred(
        &self,
        key: &str,
        columns: Vec<typed::Column>,
        input: &str,
    ) -> Result<&Arc<Schema>, BakeError> {
        let columns = columns.into_iter().map(|column| self.with_base(column)).collect();
        let schema = self.set(key, columns, input)?;
        self.is_news.store(true, Ordering::Relaxed);
        Ok(schema)
    }

    /// Sets the schema, unless an earlier input has set it, and returns it. Checks the schema against the base's
    /// schema.
    pub(super) fn set(&self, key: &str, columns: Vec<typed::Column>, input: &str) -> Result<&Arc<Schema>, BakeError> {
        if let Some(schema) = self.schema() {
            return Ok(schema);
        }
        let schema = Schema::new(key, columns).map_err(|error| {
            ColumnsFault::new(error.to_string(), &[Remedy::DeclareTypes, Remedy::ChooseColumns]).in_input(input)
        })?;
        if let Some(base) = &self.base {
            check_columns(base, &schema, self.columns.cast)?;
        }
        // Only the thread that opens inputs sets the schema, so there is no race for it.
        Ok(self.schema.get_or_init(|| Arc::new(schema)))
    }

    /// Returns the list of the inferred types, in the form that [`parse_types`] parses. Returns `None` if no types were
    /// inferred, or if this function has already returned them.
    pub(super) fn take_inferred(&self) -> Option<String> {
        let is_news = self.is_news.swap(false, Ordering::Relaxed);
        let schema = self.schema().filter(|_| is_news)?;
        let key_type = match self.keys {
            Keys::U64 => Some(ColumnType::U64),
            Keys::Bytes => Some(ColumnType::Bytes),
            Keys::Auto => None,
        };
        let key = schema.key_name().zip(key_type).map(|(name, column_type)| typed::Column {
            name: name.to_owned(),
            column_type,
            is_nullable: false,
        });
        Some(write_types(key.iter().chain(schema.columns())))
    }
}

pub(super) fn final_schema(options: &Options, plan: Option<&TypedPlan>) -> Result<Option<Arc<Schema>>, BakeError> {
    let Some(plan) = plan else { return Ok(None) };
    plan.declared_schema(options.key.as_ref())?.ok_or(BakeError::NoTypes).map(Some)
}

/// Checks that no option contradicts typed columns. Returns the kind of the keys: the one that the declared type of the
/// key column selects, or the one that the options select.
pub(super) fn check_options(options: &Options) -> Result<Keys, BakeError> {
    let Some(typed) = &options.typed else { return Ok(options.keys) };
    if options.value != super::ValueSpec::Unnamed {
        return Err(BakeError::TypedOptions { other: "a value column or packed columns" });
    }
    if options.delete_marker.is_some() {
        return Err(BakeError::TypedOptions { other: "a value that marks deletions" });
    }
    let name = options.key.as_ref().and_then(Column::name);
    match typed.types.iter().find(|column| Some(column.name.as_str()) == name) {
        Some(declared) => keys_of_type(declared).map_err(|fault| fault.in_input("typed columns")),
        None => Ok(options.keys),
    }
}

/// Returns the kind of keys that the declared type of the key column selects.
fn keys_of_type(declared: &typed::Column) -> Result<Keys, ColumnsFault> {
    match declared.column_type {
        _ if declared.is_nullable => {}
        ColumnType::U64 => return Ok(Keys::U64),
        ColumnType::Text | ColumnType::Bytes => return Ok(Keys::Bytes),
        _ => {}
    }
    let message = format!("the key column is {declared}, where u64, text, or bytes was expected: declare one of them");
    Err(ColumnsFault::new(message, &[Remedy::DeclareTypes]))
}

/// Parses columns and their types, separated by commas: `id:u64,price:f32,name:text?,score:decimal(10,2)`. White space
/// around a column is ignored. A column whose name has a comma, a parenthesis, or a quote is enclosed in quotes, and
/// quotes in its name are doubled.
///
/// # Errors
/// [`SchemaError::Syntax`] or [`SchemaError::Type`] for the first column that is not a name and a type.
///
/// # Example
/// ```
/// use zero_kv::bake::parse_types;
///
/// let columns = parse_types("price:decimal(10,2), \"name, quoted:text?\"")?;
/// assert_eq!(columns[0].to_string(), "price:decimal(10,2)");
/// assert_eq!(columns[1].name, "name, quoted");
/// # Ok::<(), zero_kv::typed::SchemaError>(())
/// ```
pub fn parse_types(text: &str) -> Result<Vec<typed::Column>, SchemaError> {
    let (mut columns, mut rest) = (Vec::new(), text);
    loop {
        let (column, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted_column(quoted).ok_or_else(|| SchemaError::Syntax { found: rest.to_owned() })?,
            None => {
                let end = end_of_column(rest);
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        columns.push(column.parse()?);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(columns),
        }
    }
}

/// Returns the position of the comma after a column, or the length of the text. A comma in parentheses separates the
/// parameters of a type.
fn end_of_column(text: &str) -> usize {
    let mut depth = 0_usize;
    let end = text.bytes().position(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b',' && depth == 0
    });
    end.unwrap_or(text.len())
}

/// Splits a text after an opening quote into the column up to the closing quote, and the text after it, which is empty
/// or begins with a comma. Returns `None` if the quote is not closed, or if other text follows it.
fn quoted_column(text: &str) -> Option<(String, &str)> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        column.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                column.push('"');
                rest = after;
            }
            None => {
                let after = after.trim_start();
                return (after.is_empty() || after.starts_with(',')).then_some((column, after));
            }
        }
    }
}

/// Writes columns and their types in the form that [`parse_types`] parses.
pub fn write_types<'c>(columns: impl IntoIterator<Item = &'c typed::Column>) -> String {
    let text = |column: &typed::Column| {
        let is_plain = column.name.trim() == column.name && !column.name.contains([',', '(', ')', '"']);
        let text = column.to_string();
        if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    };
    columns.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_any_names_are_read_back() {
        let names = ["a", "a b", " a", "a:b", "a,b", "a\"b", "\"", "(", "a)", "ä", ""];
        let types = ["u64", "text?", "decimal(10,2)", "list(f32,128)?", "timestamp(ms)"];
        let columns: Vec<typed::Column> =
            names.iter().flat_map(|name| types.map(|text| format!("{name}:{text}").parse().unwrap())).collect();
        assert_eq!(parse_types(&write_types(&columns)), Ok(columns));
        assert_eq!(write_types(&parse_types(" a:u64 , \"b\":text").unwrap_or_default()), "");
    }

    #[test]
    fn a_text_that_is_not_a_list_of_types_is_rejected() {
        for text in ["", "a", "a:u64,", "a:int", "\"a:u64", "\"a:u64\"x", "a:decimal(1"] {
            assert!(parse_types(text).is_err(), "{text}");
        }
    }
}
