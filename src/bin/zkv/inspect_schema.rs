//! The schema in the report of `zkv inspect`.
//!
//! In: a schema. Out: its columns with their types and widths, as text or JSON.

use std::fmt;

use serde::Serialize;
use zero_kv::printable::Printable;
use zero_kv::typed::{ColumnType, Schema};

use crate::text_table::{Align, lines};

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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nschema        {}", self.id)?;
        if let Some(name) = &self.key_name {
            writeln!(f, "key column    {}", Printable(name))?;
        }
        writeln!(f, "fixed part    {} bytes per row\n", self.fixed_len_bytes)?;
        let mut rows = vec![["column", "type", "nullable", "bytes"].map(str::to_owned)];
        for ColumnReport { name, column_type, is_nullable, width_bytes, is_bit } in &self.columns {
            let width = match width_bytes {
                Some(bytes) => bytes.to_string(),
                None if *is_bit => "1 bit".to_owned(),
                None => "varies".to_owned(),
            };
            let nullable = if *is_nullable { "yes" } else { "no" }.to_owned();
            rows.push([name.clone(), column_type.clone(), nullable, width]);
        }
        f.write_str(&lines([Align::Left, Align::Left, Align::Right, Align::Right], &rows))
    }
}
