//! Typed tables in a bake: the declared columns, the schema that follows from them and from the first input, and the
//! values of rows.
//!
//! In: the columns that the options declare, the names of an input's columns, and cells. Out: the schema, and the
//! encoded rows. Parsers find the cells; this module knows no format of inputs, except the JSON values of fields.

pub(super) mod infer;
pub(super) mod row_builder;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::columns::{Column, ColumnsFault};
use super::error::{BakeError, Remedy};
use super::keys::{Keys, key_name};
use super::options::{Options, TypedColumns};
use super::warning::Warning;
use crate::format::key::KeyKind;
use crate::format::key_type::{self, KeyType, PartType};
use crate::typed::{self, ColumnType, Schema, SchemaError, TimeUnit};

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
    /// The column with the ends of ranges, which is not stored beside them unless it is chosen.
    end: Option<Column>,
    keys: Keys,
    base: Option<Base>,
    schema: OnceLock<Arc<Schema>>,
    /// Whether the schema was inferred, and the inference has not been reported yet.
    is_news: AtomicBool,
    /// Whether one of the keys of the first rows is text.
    has_text_key: AtomicBool,
    /// The names of columns that an input lacks.
    missing: Mutex<BTreeSet<String>>,
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
        let [is_news, has_text_key] = [(); 2].map(|()| AtomicBool::new(false));
        Some(TypedPlan {
            columns,
            end: options.end_column().cloned(),
            keys: options.keys,
            base,
            schema: OnceLock::new(),
            is_news,
            has_text_key,
            missing: Mutex::default(),
        })
    }

    pub(super) fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.get()
    }

    /// Returns the schema for rows in memory, or for inputs without rows: the declared columns, or the base's columns.
    pub(super) fn declared_schema(&self, options: &Options) -> Result<Option<Arc<Schema>>, BakeError> {
        if let Some(schema) = self.schema() {
            return Ok(Some(schema.clone()));
        }
        let keys: Vec<String> = options.key_columns().filter_map(Column::name).map(str::to_owned).collect();
        let key = key_name(keys.iter().map(String::as_str));
        let unnamed = |column: &Column| {
            let message = format!("column {column} is a number, and nothing numbers the columns: give a name");
            ColumnsFault::new(message, &[Remedy::ChooseColumns])
        };
        let name_of = |column: &Column| column.name().map(str::to_owned).ok_or_else(|| unnamed(column));
        match self.selected(&keys, name_of).map_err(|fault| fault.in_input("typed columns"))? {
            Selected::Typed(columns) => Ok(Some(self.set(&key, columns, "typed columns")?.clone())),
            Selected::Named(_) | Selected::All => Ok(self.base.as_ref().map(|base| base.schema.clone())),
        }
    }

    /// Handles a column that an input lacks. Returns a warning if it is the first input that lacks the column, and the
    /// fault `absent` if the input must have it.
    pub(super) fn missing_column(
        &self,
        column: &typed::Column,
        input: &str,
        absent: ColumnsFault,
    ) -> Result<Option<Warning>, ColumnsFault> {
        if !column.is_nullable {
            return Err(absent.or(Remedy::MakeNullable));
        }
        if self.columns.require_columns {
            return Err(absent);
        }
        let mut missing = self.missing.lock().expect("no thread panics while it holds the lock");
        let is_first = missing.insert(column.name.clone());
        let (input, column) = (input.to_owned(), column.name.clone());
        Ok(is_first.then_some(Warning::MissingColumn { input, column }))
    }

    /// Returns the columns to read from an input. `keys` are the names of its key columns, and `name_of` returns the name
    /// of a chosen column.
    pub(super) fn selected(
        &self,
        keys: &[String],
        mut name_of: impl FnMut(&Column) -> Result<String, ColumnsFault>,
    ) -> Result<Selected, ColumnsFault> {
        if let Some(schema) = self.schema() {
            return Ok(Selected::Typed(schema.columns().to_vec()));
        }
        let TypedColumns { types, columns, .. } = &self.columns;
        let names = columns.iter().map(|column| {
            let name = name_of(column)?;
            match keys.contains(&name) {
                true => Err(ColumnsFault::new(
                    format!("the column {name:?} is the key, which is stored beside the columns: leave it out"),
                    &[Remedy::ChooseColumns],
                )),
                false => Ok(name),
            }
        });
        let names = names.collect::<Result<Vec<String>, _>>()?;
        if types.is_empty() {
            return Ok(if names.is_empty() { Selected::All } else { Selected::Named(names) });
        }
        self.check_key_type(types, keys)?;
        if names.is_empty() {
            // An end without a name is none of the types.
            let end = self.end.as_ref().and_then(|end| name_of(end).ok());
            let is_stored = |column: &&typed::Column| !keys.iter().chain(&end).any(|key| *key == column.name);
            return Ok(Selected::Typed(types.iter().filter(is_stored).cloned().collect()));
        }
        let typed = names.iter().map(|name| {
            types.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
                let message = format!("the column {name:?} has no type: declare its type as well");
                ColumnsFault::new(message, &[Remedy::DeclareTypes])
            })
        });
        Ok(Selected::Typed(typed.collect::<Result<_, _>>()?))
    }

    /// Checks the declared types of the key columns against the type of the keys, which was chosen before the names of
    /// the key columns were known.
    fn check_key_type(&self, types: &[typed::Column], names: &[String]) -> Result<(), ColumnsFault> {
        let declared = keys_of_types(types, names, self.keys)?;
        let Some(declared) = declared.filter(|declared| self.keys != Keys::Auto && self.keys != *declared) else {
            return Ok(());
        };
        let (name, keys) = (key_name(names.iter().map(String::as_str)), self.keys.key_type(KeyKind::Bytes));
        let declared = declared.key_type(KeyKind::Bytes);
        Err(ColumnsFault::new(
            format!("the key column {name:?} is {declared}, and keys are {keys}: choose one of them"),
            &[Remedy::DeclareTypes, Remedy::ChooseKeyKind],
        ))
    }

    /// Sets the schema, unless an earlier input has set it, to columns whose types were inferred from an input. Columns
    /// of the base keep their types. `has_text_key` tells whether one of the keys from which they were inferred is text.
    pub(super) fn set_inferred(
        &self,
        key: &str,
        columns: Vec<typed::Column>,
        has_text_key: bool,
        input: &str,
    ) -> Result<&Arc<Schema>, BakeError> {
        let of_base = |column: &typed::Column| self.base_column(&column.name).map(|old| old.column_type);
        let typed = |column| typed::Column { column_type: of_base(&column).unwrap_or(column.column_type), ..column };
        let columns = columns.into_iter().map(typed).collect();
        self.set_from_file(key, columns, true, has_text_key, input)
    }

    /// Sets the schema, unless an earlier input has set it, to columns that a file declares. `is_news` tells whether
    /// parts of their types were inferred, so that the types are reported, and `has_text_key` whether the key is text.
    /// Lists whose lengths would make the fixed part of a row too long get types without a length. With a base, columns
    /// that can be null there, or that the base lacks, can be null, because rows of the base have no values for them.
    pub(super) fn set_from_file(
        &self,
        key: &str,
        mut columns: Vec<typed::Column>,
        is_news: bool,
        has_text_key: bool,
        input: &str,
    ) -> Result<&Arc<Schema>, BakeError> {
        if self.base.is_some() {
            for column in &mut columns {
                column.is_nullable |= self.base_column(&column.name).is_none_or(|old| old.is_nullable);
            }
        }
        if matches!(Schema::new(key, columns.iter().cloned()), Err(SchemaError::FixedLen { .. })) {
            for column in columns.iter_mut().filter(|column| self.base_column(&column.name).is_none()) {
                if let ColumnType::List { len, .. } = &mut column.column_type {
                    *len = None;
                }
            }
        }
        let schema = self.set(key, columns, input)?;
        self.is_news.store(is_news, Ordering::Relaxed);
        self.has_text_key.store(has_text_key, Ordering::Relaxed);
        Ok(schema)
    }

    fn base_column(&self, name: &str) -> Option<&typed::Column> {
        let schema = &self.base.as_ref()?.schema;
        schema.position(name).map(|position| &schema.columns()[position])
    }

    /// Returns whether the options declare or choose a column with this name, or the base has one.
    pub(super) fn knows(&self, name: &str) -> bool {
        let TypedColumns { types, columns, .. } = &self.columns;
        self.base_column(name).is_some()
            || types.iter().any(|column| column.name == name)
            || columns.iter().any(|column| column.name() == Some(name))
    }

    /// Returns the type of a column of the base, if it has lists with the elements of this type.
    #[cfg(feature = "parquet")]
    pub(super) fn base_list(&self, name: &str, own_type: Option<ColumnType>) -> Option<ColumnType> {
        match (self.base_column(name)?.column_type, own_type?) {
            (of_base @ ColumnType::List { element, .. }, ColumnType::List { element: own, .. }) if element == own => {
                Some(of_base)
            }
            _ => None,
        }
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
        let column = |name: &str, column_type| typed::Column { name: name.to_owned(), column_type, is_nullable: false };
        let name = schema.key_name().unwrap_or_default();
        let keys: Vec<_> = match self.keys {
            _ if name.is_empty() => Vec::new(),
            Keys::Auto if self.has_text_key.load(Ordering::Relaxed) => vec![column(name, ColumnType::Text)],
            Keys::Auto => vec![column(name, ColumnType::U64)],
            Keys::Type(key_type) if key_type.is_composite() => {
                let names = key_type::split(name.as_bytes());
                let parts = names.iter().zip(key_type.parts());
                parts.map(|(name, part)| column(&String::from_utf8_lossy(name), type_of_part(*part))).collect()
            }
            Keys::Type(key_type) => vec![column(name, type_of_part(key_type.parts()[0]))],
        };
        Some(write_types(keys.iter().chain(schema.columns())))
    }
}

pub(super) fn final_schema(options: &Options, plan: Option<&TypedPlan>) -> Result<Option<Arc<Schema>>, BakeError> {
    let Some(plan) = plan else { return Ok(None) };
    plan.declared_schema(options)?.ok_or(BakeError::NoTypes).map(Some)
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
    let names: Option<Vec<String>> = options.key_columns().map(|column| column.name().map(str::to_owned)).collect();
    let keys = keys_of_types(&typed.types, &names.unwrap_or_default(), options.keys);
    Ok(keys.map_err(|fault| fault.in_input("typed columns"))?.unwrap_or(options.keys))
}

/// Returns the type of keys that the declared types of the key columns select. Returns `None` if no key column has a
/// declared type.
fn keys_of_types(types: &[typed::Column], names: &[String], keys: Keys) -> Result<Option<Keys>, ColumnsFault> {
    let declared: Vec<_> = names.iter().map(|name| types.iter().find(|column| column.name == *name)).collect();
    match declared[..] {
        [Some(declared)] => keys_of_type(declared, keys).map(Some),
        _ if declared.iter().all(Option::is_none) => Ok(None),
        _ => {
            let key_type = keys.key_type(KeyKind::Bytes);
            let parts = declared.iter().enumerate().map(|(i, declared)| {
                let part = key_type.parts().get(i).filter(|_| key_type.is_composite()).unwrap_or(&PartType::Bytes);
                let Some(declared) = declared else { return Ok(*part) };
                let keys = keys_of_type(declared, KeyType::of(*part).into())?;
                Ok(keys.key_type(KeyKind::Bytes).parts()[0])
            });
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            Ok(KeyType::of_parts(&parts).map(Keys::Type))
        }
    }
}

/// Returns the declared type of a key column that selects the type of a key or a part, or `text`.
fn type_of_part(part: PartType) -> ColumnType {
    match part {
        PartType::U64 => ColumnType::U64,
        PartType::I64 => ColumnType::I64,
        PartType::Bytes => ColumnType::Bytes,
        PartType::Date => ColumnType::Date,
        PartType::Timestamp => ColumnType::Timestamp(TimeUnit::Micros),
        PartType::Ipv4 | PartType::Ip | PartType::Uuid | PartType::Hex => ColumnType::Text,
    }
}

/// Returns the type of keys that the declared type of the key column selects. Text and bytes can be the written form of
/// keys of any type, so the type that the options select is kept, unless it is the default.
fn keys_of_type(declared: &typed::Column, keys: Keys) -> Result<Keys, ColumnsFault> {
    match declared.column_type {
        _ if declared.is_nullable => {}
        ColumnType::U64 => return Ok(Keys::U64),
        ColumnType::I64 => return Ok(KeyType::of(PartType::I64).into()),
        ColumnType::Date => return Ok(KeyType::of(PartType::Date).into()),
        ColumnType::Timestamp(_) => return Ok(KeyType::of(PartType::Timestamp).into()),
        ColumnType::Text | ColumnType::Bytes if keys == Keys::U64 || keys == Keys::Auto => return Ok(Keys::BYTES),
        ColumnType::Text | ColumnType::Bytes => return Ok(keys),
        _ => {}
    }
    let message = format!(
        "the key column is {declared}, where u64, i64, text, bytes, date, or timestamp was expected: declare one of them"
    );
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
