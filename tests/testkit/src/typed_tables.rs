//! Typed tables whose cells depend on the key and on the version of the table, and the expected rows of a projection.
//!
//! Expected rows are encoded from cells, without the projection that the server uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zero_kv::typed::{Column, ColumnType, List, RowEncoder, Schema, TextList, TypedRow, Value};

use super::encoder::{Keyed, encode_typed};
use super::frames::answer;
use super::random::Random;
use super::scenes::settle;
use super::servers::Server;

pub const SCHEMA: u32 = 12;
pub const SELECT: u32 = 13;
pub const GET_COLUMNS: u32 = 14;
pub const SCHEMA_CHANGED: u32 = 5;

/// Returns a schema with these columns, such as `price:f32?`, separated by spaces.
pub fn schema(columns: &str) -> Schema {
    Schema::new("id", columns.split_whitespace().map(|column| column.parse().unwrap())).unwrap()
}

/// Columns of all kinds of cells.
pub const MIXED: &str = "flag:bool a:f32? name:text b:i64 tags:list(u16)? c:u8 vector:list(f32,3) data:bytes? \
                                price:decimal(9,2) on:bool? long:text at:timestamp(ms) words:list(text)?";

/// A folder with a typed table, and its rows.
pub struct TypedTable<K> {
    folder: TempDir,
    pub schema: Schema,
    pub rows: BTreeMap<K, Vec<u8>>,
}

/// Returns a row whose cells depend on a number. Some values of variable width are much longer than others.
pub fn row_of(schema: &Schema, number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let len = [0, 1, 7, 60, 300, 4090, 6000, 70_000][(random.next() % 64).saturating_sub(56) as usize];
    let data = random.bytes(len.max(64) + 8);
    let text: String = data.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    let mut texts = Vec::new();
    TextList::encode(text.as_bytes()[..len % 3000].chunks(9).map(|text| str::from_utf8(text).unwrap()), &mut texts);
    let cell = |column: &Column, random: &mut Random| -> Value<'_> {
        let bits = random.next();
        if column.is_nullable && bits.is_multiple_of(4) {
            return Value::Null;
        }
        match column.column_type {
            ColumnType::Bool => Value::Bool(bits & 64 == 64),
            ColumnType::F32 => Value::F32((bits % 1000) as f32 / 4.0),
            ColumnType::F64 => Value::F64((bits % 1000) as f64 / 4.0),
            ColumnType::I64 => Value::Int(bits as i64),
            ColumnType::U8 => Value::Uint(bits % 256),
            ColumnType::U32 => Value::Uint(bits % (1 << 32)),
            ColumnType::Timestamp(unit) => Value::Timestamp(bits as i64, unit),
            ColumnType::Decimal { scale, .. } => Value::Decimal { unscaled: (bits % 1_000_000).into(), scale },
            ColumnType::Text => Value::Text(if column.name == "long" { &text[..len] } else { &text[..len % 40] }),
            ColumnType::Bytes => Value::Bytes(&data[..len % 5000]),
            ColumnType::TextList => Value::TextList(TextList::from_bytes(&texts).unwrap()),
            ColumnType::List { element, len } => {
                let count = len.map_or(bits as usize % 8, |len| len as usize);
                Value::List(List::new(element, &data[..count * element.len_bytes()]).unwrap())
            }
            other => unreachable!("the tables have no column of the type {other}"),
        }
    };
    let cells: Vec<Value<'_>> = schema.columns().iter().map(|column| cell(column, &mut random)).collect();
    RowEncoder::new(schema).encode(&cells).unwrap().to_vec()
}

impl<K: Keyed + Ord + Clone> TypedTable<K> {
    /// Creates a table. Its cells depend on `version` and on the positions of the keys.
    pub fn new(columns: &str, keys: impl IntoIterator<Item = K>, version: u64) -> TypedTable<K> {
        let schema = schema(columns);
        let row = |at: usize| row_of(&schema, version << 32 | at as u64);
        let rows = keys.into_iter().enumerate().map(|(at, key)| (key, row(at))).collect();
        let table = TypedTable { folder: tempfile::tempdir().unwrap(), schema, rows };
        table.write(&table.db());
        table
    }

    pub fn bytes(&self) -> Vec<u8> {
        encode_typed(&self.rows, &self.schema.encode())
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
        settle(path);
    }

    pub fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    pub fn serve(&self) -> Server {
        Server::start(&self.db(), &self.socket())
    }

    /// Replaces the file of another table by this table's.
    pub fn replace<L: Keyed + Ord + Clone>(&self, other: &TypedTable<L>) {
        let new = other.folder.path().join("storage.db.new");
        self.write(&new);
        std::fs::rename(new, other.db()).unwrap();
    }

    /// Returns the row of a key with only the columns at these positions.
    pub fn projected(&self, key: &K, columns: &[usize]) -> Option<Vec<u8>> {
        let row = TypedRow::new(&self.schema, self.rows.get(key)?).unwrap();
        let declared = columns.iter().map(|column| self.schema.columns()[*column].clone());
        let projected = Schema::new("id", declared).unwrap();
        let cells: Vec<Value<'_>> = columns.iter().map(|column| row.value(*column).unwrap()).collect();
        Some(RowEncoder::new(&projected).encode(&cells).unwrap().to_vec())
    }

    /// Returns the expected response to a GetColumns after these columns were selected.
    pub fn answer(&self, key: &K, columns: &[usize]) -> Vec<u8> {
        self.projected(key, columns).map_or_else(|| answer(1, b""), |row| answer(0, &row))
    }
}

/// Returns the body of a Select.
pub fn selection(schema_id: u64, columns: &[usize]) -> Vec<u8> {
    let columns = columns.iter().flat_map(|column| u16::try_from(*column).unwrap().to_be_bytes());
    schema_id.to_be_bytes().into_iter().chain(columns).collect()
}

/// Returns some columns of a schema, in random order.
pub fn some_columns(schema: &Schema, random: &mut Random) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..schema.columns().len()).collect();
    random.shuffle(&mut columns);
    columns.truncate(1 + random.below(columns.len()));
    columns
}
