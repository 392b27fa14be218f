//! The schema in the report of `zkv inspect`.
//!
//! In: a schema. Out: its columns with their types and widths, as text or JSON.

use std::fmt;

use serde::Serialize;
use zero_kv::typed::{ColumnType, Schema};

/// The minimum width of the columns of names and types in the text form, in characters.
const TEXT_WIDTH_MIN: usize = 12;

#[derive(Serialize)]
pub(crate) struct SchemaReport {
    /// The schema's ID, as 16 hexadecimal digits.
    id: String,
    key_name: Option<String>,
    /// The length of the part that every row has.
    fixed_len_bytes: usize,
    columns: Vec<ColumnReport>,
}

#[derive(Serialize)]
struct ColumnReport {
    name: String,
    #[serde(rename = "type")]
    column_type: String,
    is_nullable: bool,
    /// The number of bytes that a value takes in every row. `None` if values have different lengths, and for a Boolean,
    /// which takes one bit.
    width_bytes: Option<usize>,
    #[serde(skip)]
    is_bit: bool,
}

impl SchemaReport {
    pub(crate) fn new(schema: &Schema) -> SchemaReport {
        let columns = schema.columns().iter().map(|column| ColumnReport {
            name: column.name.clone(),
            column_type: column.column_type.to_string(),
            is_nullable: column.is_nullable,
            width_bytes: column.column_type.fixed_len_bytes(),
            is_bit: column.column_type == ColumnType::Bool,
        });
        SchemaReport {
            id: format!("{:016x}", schema.id()),
            key_name: schema.key_name().map(str::to_owned),
            fixed_len_bytes: schema.fixed_len_bytes(),
            columns: columns.collect(),
        }
    }
}

impl fmt::Display for SchemaReport {
    /// Escapes control characters in names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |name: &str| name.escape_debug().to_string();
        writeln!(f, "\nschema        {}", self.id)?;
        if let Some(name) = &self.key_name {
            writeln!(f, "key column    {}", escaped(name))?;
        }
        writeln!(f, "fixed part    {} bytes per row", self.fixed_len_bytes)?;
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.fold(TEXT_WIDTH_MIN, usize::max);
        let name_width = width(&mut self.columns.iter().map(|column| escaped(&column.name).chars().count()));
        let type_width = width(&mut self.columns.iter().map(|column| column.column_type.len()));
        writeln!(f, "\n{:<name_width$} {:<type_width$} {:>8} {:>7}", "column", "type", "nullable", "bytes")?;
        for ColumnReport { name, column_type, is_nullable, width_bytes, is_bit } in &self.columns {
            let width = match width_bytes {
                Some(bytes) => bytes.to_string(),
                None if *is_bit => "1 bit".to_owned(),
                None => "varies".to_owned(),
            };
            let (name, nullable) = (escaped(name), if *is_nullable { "yes" } else { "no" });
            writeln!(f, "{name:<name_width$} {column_type:<type_width$} {nullable:>8} {width:>7}")?;
        }
        Ok(())
    }
}
