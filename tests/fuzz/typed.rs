//! Typed files whose schema and rows are forged, with correct checksums: a file is rejected, or every cell is read the
//! same way by each kind of lookup. A row that passes its check is the row that the encoder makes of its cells.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::store::{OpenOptions, TypedLookupError, Verify};
use zero_kv::typed::{
    Column, ColumnBuffers, ColumnError, ColumnType, List, MatrixNumber, MatrixPlan, Projection, RowEncoder, Schema,
    TextList, TextParser, TypedRow, Value, write_text,
};

use super::source::Source;
use crate::helpers::encoder::{self, SCHEMA};
use crate::helpers::rows::write_new;

/// The columns of tables to forge from.
const SCHEMAS: [&[&str]; 4] = [
    &["a:f32?", "b:text", "c:f32", "d:u16?", "e:bool?"],
    &["a:bytes?", "b:list(f64)", "c:bool", "d:list(u8,3)?", "e:text?", "f:list(text)?"],
    &["a:decimal(38,5)?", "b:decimal(10,2)", "c:i8", "d:date?", "e:timestamp(ns)", "f:list(i16)?"],
    &["a:i64", "b:f64?", "c:list(f32,2)", "d:f64", "e:f32", "f:u64", "g:i32?", "h:list(timestamp(ms))"],
];
/// The number of bytes from which a cell is derived.
const CELL_LEN_BYTES: usize = 24;

/// Returns a file that the bytes describe.
pub fn file(data: &[u8]) -> Vec<u8> {
    let mut source = Source::new(data);
    let columns = SCHEMAS[source.below(SCHEMAS.len())];
    let columns = columns.iter().map(|column| column.parse::<Column>().expect("a column"));
    let schema = Schema::new("id", columns).expect("a schema");
    let (schema_changes, row_count) = (source.below(8).saturating_sub(4), source.below(4) as u64);
    let mut section = schema.encode();
    (0..schema_changes).for_each(|_| change(&mut source, &mut section));
    let mut encoder = RowEncoder::new(&schema);
    let mut row = || {
        let buffers = schema.columns().iter().map(|_| {
            let mut buffer = [0; CELL_LEN_BYTES];
            let used_bytes = 1 + source.below(CELL_LEN_BYTES);
            buffer[..used_bytes].fill_with(|| source.byte());
            buffer
        });
        let buffers: Vec<_> = buffers.collect();
        let cells: Vec<_> =
            schema.columns().iter().zip(&buffers).map(|(column, buffer)| cell(column, buffer)).collect();
        let mut row = encoder.encode(&cells).expect("cells of the schema").to_vec();
        (0..source.below(6).saturating_sub(2)).for_each(|_| change(&mut source, &mut row));
        row
    };
    let rows: BTreeMap<u64, Vec<u8>> = (0..row_count).map(|key| (key, row())).collect();
    encoder::encode_typed(&rows, &section)
}

/// Returns a cell of a column that the bytes of a buffer determine.
fn cell<'b>(column: &Column, buffer: &'b [u8; CELL_LEN_BYTES]) -> Value<'b> {
    let selector = usize::from(buffer[CELL_LEN_BYTES - 1]);
    if column.is_nullable && selector % 3 == 1 {
        return Value::Null;
    }
    match column.column_type {
        ColumnType::Bool => Value::Bool(buffer[0] & 1 == 1),
        ColumnType::Text => Value::Text(["", "a", "\u{e9}\n", "longer text"][selector % 4]),
        ColumnType::Bytes => Value::Bytes(&buffer[..selector % CELL_LEN_BYTES]),
        ColumnType::TextList => {
            let json = ["[]", r#"[""]"#, r#"["a","é\n"]"#, r#"["\"\\","\u0001"]"#][selector % 4];
            Value::TextList(TextList::from_bytes(json.as_bytes()).expect("a list of texts"))
        }
        ColumnType::Decimal { precision, scale } => {
            let number = i128::from_le_bytes(*buffer.first_chunk().expect("sixteen bytes"));
            Value::Decimal { unscaled: number % 10_i128.pow(precision.into()), scale }
        }
        ColumnType::List { element, len } => {
            let len = len.map_or(selector % 4, |len| len as usize).min(CELL_LEN_BYTES / element.len_bytes());
            Value::List(List::new(element, &buffer[..len * element.len_bytes()]).expect("whole elements"))
        }
        fixed => {
            let len_bytes = fixed.fixed_len_bytes().expect("a type of fixed length");
            Value::from_fixed_bytes(fixed, &buffer[..len_bytes]).expect("a value of this length")
        }
    }
}

/// Changes a byte, a number, or the length.
fn change(source: &mut Source<'_>, bytes: &mut Vec<u8>) {
    let at = source.below(1 << 16) % bytes.len().max(1);
    match source.below(6) {
        _ if bytes.is_empty() => bytes.push(source.byte()),
        0 | 1 => bytes[at] ^= 1 << source.below(8),
        2 => bytes[at] = source.byte(),
        3 => bytes[at] = bytes[at].wrapping_add(1),
        4 => bytes.truncate(at),
        _ => {
            let len = bytes.len() + 1 + source.below(16);
            bytes.resize(len, source.byte());
        }
    }
}

/// Opens a file in every mode, and reads all cells in each way.
pub fn check(path: &Path, file: &[u8]) {
    write_new(path, file);
    for verify in [Verify::Full, Verify::Touch] {
        let options = OpenOptions { verify, ..OpenOptions::default() };
        let Ok(store) = Store::open_with(path, &options) else { continue };
        let (start, len) = encoder::section(file, SCHEMA);
        let Some(schema) = store.schema() else {
            assert_eq!(len, 0, "only an empty section is no schema");
            continue;
        };
        assert!(schema.encode() == file[start..start + len], "the encoding of a schema is unique");
        let mut valid = Vec::new();
        for (key, value) in store.iter().map(Result::unwrap) {
            let key = key.as_u64().expect("keys are numbers");
            let Ok(row) = TypedRow::new(&schema, value) else {
                assert!(store.get_row(key).is_err(), "a row that is too short");
                valid.push(false);
                continue;
            };
            let found = store.get_row(key).expect("a row").expect("a key of the table");
            assert_eq!(found.as_bytes(), value);
            let is_valid = row.check().is_ok();
            check_cells(&row, is_valid);
            check_projections(&row, is_valid);
            valid.push(is_valid);
        }
        assert!(verify != Verify::Full || valid.iter().all(|is_valid| *is_valid), "a full check checks every row");
        check_columns(&store, &schema, &valid);
        check_matrix(
            &store,
            &schema,
            ColumnType::F32,
            -1.0_f32,
            |value| match value {
                Value::F32(value) => Some(value.to_bits()),
                _ => None,
            },
            f32::to_bits,
        );
        check_matrix(
            &store,
            &schema,
            ColumnType::F64,
            0.5_f64,
            |value| match value {
                Value::F64(value) => Some(value.to_bits()),
                _ => None,
            },
            f64::to_bits,
        );
        check_matrix(
            &store,
            &schema,
            ColumnType::I64,
            7_i64,
            |value| match value {
                Value::Int(value) => Some(value),
                _ => None,
            },
            |value| value,
        );
    }
}

fn same(a: &impl Debug, b: &impl Debug) -> bool {
    // Values that are not numbers are not equal, but have the same text.
    format!("{a:?}") == format!("{b:?}")
}

/// Reads all cells of a row. A valid row is encoded again, and its cells are read back from their text.
fn check_cells(row: &TypedRow<'_>, is_valid: bool) {
    let cells: Vec<_> = row.values().collect();
    let Ok(cells) = cells.into_iter().collect::<Result<Vec<_>, _>>() else {
        assert!(!is_valid, "a cell of a valid row cannot be read");
        return;
    };
    if !is_valid {
        return;
    }
    let mut encoder = RowEncoder::new(row.schema());
    assert_eq!(encoder.encode(&cells).expect("cells of the schema"), row.as_bytes(), "the encoding of cells is unique");
    for (cell, column) in cells.iter().zip(row.schema().columns()).filter(|(cell, _)| **cell != Value::Null) {
        let (mut text, mut parser) = (Vec::new(), TextParser::default());
        write_text(cell, &mut text);
        let parsed = parser.parse(column.column_type, &text);
        assert!(same(&parsed, &Ok::<_, ()>(cell)), "{column}: {cell:?}, {parsed:?}");
    }
}

/// Projects single columns, and all columns in reverse order.
fn check_projections(row: &TypedRow<'_>, is_valid: bool) {
    let count = row.schema().columns().len();
    let singles = (0..count).map(|column| vec![column]);
    for positions in singles.chain([(0..count).rev().collect()]) {
        let projection = Projection::of_positions(row.schema(), positions).expect("columns of the schema");
        let mut projected = vec![9];
        if projection.project(row, &mut projected).is_err() {
            assert!(!is_valid, "a valid row can be projected");
            assert_eq!(projected, [9], "a failed projection appends nothing");
            continue;
        }
        let copy = TypedRow::new(projection.schema(), &projected[1..]).expect("the fixed part is complete");
        for (at, position) in projection.positions().iter().enumerate() {
            let (expected, found) = (row.value(*position), copy.value(at));
            assert!(same(&expected, &found), "column {position}: {expected:?}, {found:?}");
        }
        assert!(!is_valid || copy.check().is_ok(), "the projection of a valid row is valid");
    }
}

/// Reads all columns of all rows into buffers.
fn check_columns(store: &Store, schema: &Schema, valid: &[bool]) {
    let keys: Vec<u64> = (0..valid.len() as u64 + 1).collect();
    let mut buffers = ColumnBuffers::new(schema, &Projection::of_all(schema));
    match store.fill_columns(&keys, &mut buffers) {
        Ok(()) => {
            assert_eq!(buffers.row_count(), keys.len());
            for (at, column) in buffers.into_columns().into_iter().enumerate() {
                let is_present = |key: &u64| {
                    let row = store.get_row(*key).expect("a row that was read before");
                    row.is_some_and(|row| row.value(at).expect("a cell that was read before") != Value::Null)
                };
                assert_eq!(column.is_valid, keys.iter().map(is_present).collect::<Vec<_>>());
            }
        }
        Err(TypedLookupError::Column(ColumnError::Malformed { .. } | ColumnError::MalformedCell { .. })) => {
            assert!(valid.contains(&false), "a valid row is malformed");
            assert_eq!(buffers.row_count(), 0);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads the columns of one type into a matrix. `bits_of` returns the bits of a value, and `to_bits` those of a number.
fn check_matrix<T: MatrixNumber + Copy, B: PartialEq + Debug>(
    store: &Store,
    schema: &Schema,
    column_type: ColumnType,
    fill: T,
    bits_of: impl Fn(Value<'_>) -> Option<B>,
    to_bits: impl Fn(T) -> B,
) {
    let columns = schema.columns().iter().enumerate().filter(|(_, column)| column.column_type == column_type);
    let positions: Vec<usize> = columns.map(|(position, _)| position).collect();
    if positions.is_empty() {
        return;
    }
    let projection = Projection::of_positions(schema, positions.clone()).expect("columns of the schema");
    let plan = MatrixPlan::new(schema, &projection, fill).expect("columns of the type");
    let keys: Vec<u64> = (0..store.len() as u64 + 1).collect();
    let mut matrix = vec![fill; keys.len() * plan.width()];
    if store.get_matrix(&keys, &plan, &mut matrix).is_err() {
        assert!(keys.iter().any(|key| store.get_row(*key).is_err()), "only rows that are too short are rejected");
        return;
    }
    for (key, numbers) in keys.iter().zip(matrix.chunks(plan.width())) {
        let row = store.get_row(*key).expect("a row that was read before");
        for (position, number) in positions.iter().zip(numbers) {
            let value = row.and_then(|row| bits_of(row.value(*position).expect("a cell of fixed length")));
            assert_eq!(to_bits(*number), value.unwrap_or(to_bits(fill)), "key {key}, column {position}");
        }
    }
}
