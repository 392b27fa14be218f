//! `zkv` and typed tables: schemas, columns, and cells.

mod diff;
#[cfg(feature = "full")]
mod dump;
mod lookups;
mod reports;
mod served;

use std::collections::BTreeMap;

use tempfile::TempDir;
use zero_kv::typed::{Column, ElementType, List, RowEncoder, Schema, TextList, TimeUnit, Value};

use super::*;
use crate::helpers::encoder::{self, Keyed};

fn schema(key_name: &str, columns: &[&str]) -> Schema {
    Schema::new(key_name, columns.iter().map(|column| column.parse::<Column>().unwrap())).unwrap()
}

/// Writes a typed table to a file.
fn write_table<K: Keyed + Ord + Clone>(path: &Path, schema: &Schema, rows: &[(K, Vec<Value<'_>>)]) {
    let mut encoder = RowEncoder::new(schema);
    let rows: BTreeMap<K, Vec<u8>> =
        rows.iter().map(|(key, cells)| (key.clone(), encoder.encode(cells).unwrap().to_vec())).collect();
    fs::write(path, encoder::encode_typed(&rows, &schema.encode())).unwrap();
}

/// Returns a table of products: prices, names, and stocks.
fn products() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("products.db");
    let rows = [
        (7_u64, vec![Value::F32(1.5), Value::Text("pen"), Value::Uint(12)]),
        (8, vec![Value::F32(0.1), Value::Text("two\nlines, \"quoted\""), Value::Null]),
        (9, vec![Value::F32(f32::NAN), Value::Text("null"), Value::Uint(0)]),
    ];
    write_table(&db, &schema("id", &["price:f32", "name:text", "stock:u16?"]), &rows);
    (folder, db)
}

/// The columns of a table with every type.
const ALL_TYPES: &[&str] = &[
    "bool:bool",
    "i8:i8?",
    "i16:i16",
    "i32:i32",
    "i64:i64?",
    "u8:u8",
    "u16:u16?",
    "u32:u32",
    "u64:u64",
    "f32:f32?",
    "f64:f64",
    "text:text",
    "bytes:bytes?",
    "date:date",
    "ms:timestamp(ms)?",
    "us:timestamp(us)",
    "ns:timestamp(ns)",
    "short:decimal(10,2)?",
    "long:decimal(38,5)",
    "floats:list(f32)?",
    "days:list(date)",
    "times:list(timestamp(ms))",
    "tags:list(text)?",
];

/// Lists of texts.
const TAGS: [&str; 4] = ["[]", r#"[""]"#, r#"["a","é","\"\\,\n"]"#, r#"["\u0001"]"#];

/// Buffers for the lists of a table with every type.
struct Lists {
    floats: Vec<u8>,
    days: Vec<u8>,
    times: Vec<u8>,
}

impl Lists {
    fn new() -> Lists {
        Lists {
            floats: [1.5_f32, -0.0, 1e30].map(f32::to_le_bytes).concat(),
            days: [0_i32, 20_778].map(i32::to_le_bytes).concat(),
            times: [1_795_288_178_123_i64].map(i64::to_le_bytes).concat(),
        }
    }

    /// Returns the cells of a row. Every third value of a column that can be null is null.
    fn cells(&self, row: u64) -> Vec<Value<'_>> {
        let mut nullables = 0;
        let mut nullable = |value| {
            nullables += 1;
            if (row + nullables).is_multiple_of(3) { Value::Null } else { value }
        };
        let signed = row as i64 * if row.is_multiple_of(2) { 1 } else { -1 };
        vec![
            Value::Bool(row.is_multiple_of(2)),
            nullable(Value::Int(signed % 128)),
            Value::Int(i64::from(signed as i16)),
            Value::Int(i64::from(i32::MIN)),
            nullable(Value::Int(i64::MAX - row as i64)),
            Value::Uint(row % 256),
            nullable(Value::Uint(65_535 - row % 100)),
            Value::Uint(u64::from(u32::MAX) - row),
            Value::Uint(u64::MAX - row),
            nullable(Value::F32(0.1 * row as f32)),
            Value::F64(f64::MAX / (1.0 + row as f64)),
            Value::Text(["", "plain", "a,\"b\"\n", "\u{e9}"][row as usize % 4]),
            nullable(Value::Bytes([&b"x"[..], b"a\tb", b"\\", b"\r\n"][row as usize % 4])),
            Value::Date(signed as i32),
            nullable(Value::Timestamp(signed, TimeUnit::Millis)),
            Value::Timestamp(1_795_288_178_123_456 + signed, TimeUnit::Micros),
            Value::Timestamp(i64::MIN + row as i64, TimeUnit::Nanos),
            nullable(Value::Decimal { unscaled: -1250 * i128::from(signed), scale: 2 }),
            Value::Decimal { unscaled: 10_i128.pow(38) - 1 - i128::from(row), scale: 5 },
            nullable(Value::List(List::new(ElementType::F32, &self.floats[..row as usize % 4 * 4]).unwrap())),
            Value::List(List::new(ElementType::Date, &self.days[..row as usize % 3 * 4]).unwrap()),
            Value::List(
                List::new(ElementType::Timestamp(TimeUnit::Millis), &self.times[..row as usize % 2 * 8]).unwrap(),
            ),
            nullable(Value::TextList(TextList::from_bytes(TAGS[row as usize % TAGS.len()].as_bytes()).unwrap())),
        ]
    }
}
