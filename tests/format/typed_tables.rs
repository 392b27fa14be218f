//! Files with a schema: lookups of rows and columns, and damaged and forged schemas.

use std::collections::BTreeMap;
use std::path::PathBuf;

use zero_kv::Lookup;
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;
use zero_kv::store::{OpenOptions, TypedLookupError, Unchecked, Verify};
use zero_kv::typed::{
    ColumnBuffers, ColumnError, ColumnValues, MatrixPlan, Projection, RowEncoder, Schema, TypedRow, Value,
};
use zero_kv::{LookupError, MappedStore, Store, StoreError};

use crate::helpers::encoder::{self, SCHEMA};
use crate::helpers::rows::{KeySpan, Scratch};

fn schema() -> Schema {
    let columns = ["a:f32?", "name:text", "b:f32", "stock:u16?"];
    Schema::new("id", columns.map(|column| column.parse().unwrap())).unwrap()
}

fn cells(key: u64, name: &str) -> [Value<'_>; 4] {
    let nullable = |value, every| if key.is_multiple_of(every) { Value::Null } else { value };
    [
        nullable(Value::F32(key as f32 / 2.0), 3),
        Value::Text(name),
        Value::F32(-(key as f32)),
        nullable(Value::Uint(key % 60_000), 5),
    ]
}

fn name(key: u64) -> String {
    "n".repeat(key as usize % 40) + &key.to_string()
}

/// Returns a file with the even keys below `2 * count`.
fn typed_file(count: u64) -> Vec<u8> {
    let schema = schema();
    let mut encoder = RowEncoder::new(&schema);
    let mut row = |key| encoder.encode(&cells(key, &name(key))).unwrap().to_vec();
    let rows: BTreeMap<u64, Vec<u8>> = (0..count).map(|i| (2 * i, row(2 * i))).collect();
    encoder::encode_typed(&rows, &schema.encode())
}

/// Writes a file, and returns its path.
fn write(scratch: &Scratch, bytes: &[u8]) -> PathBuf {
    std::fs::write(scratch.path(), bytes).unwrap();
    scratch.path()
}

zero_kv::row_struct! {
    struct Stock {
        stock: Option<u16>,
    }
}

zero_kv::row_struct! {
    struct WrongStock {
        stock: Option<u32>,
    }
}

#[test]
fn rows_are_read_as_structs() {
    let scratch = Scratch::new();
    let store = Store::open(write(&scratch, &typed_file(100))).unwrap();
    let rows = store.rows_as::<Stock>().unwrap();
    for key in 0..300_u64 {
        let row = store.get_row(key).unwrap();
        let expected = row.map(|row| row.get::<Option<u16>>("stock").unwrap());
        assert_eq!(rows.get(key).unwrap().map(|row| row.stock), expected);
    }
    let error = store.rows_as::<WrongStock>().unwrap_err();
    assert!(error.to_string().contains("column \"stock\" is u16, where u32 was requested"), "{error}");
    assert!(rows.get("7").is_err(), "the keys are numbers");
}

#[test]
fn rows_columns_and_matrices_have_the_cells_of_their_keys() {
    let scratch = Scratch::new();
    let path = write(&scratch, &typed_file(2000));
    let (store, mapped) = (Store::open(&path).unwrap(), MappedStore::open(&path).unwrap());
    assert_eq!(*store.schema().unwrap(), schema());
    let schema = mapped.schema().unwrap();
    let keys: Vec<u64> = (0..900).map(|i| i * 7919 % 4100).collect();
    let has = |key: u64| key < 4000 && key.is_multiple_of(2);
    for key in &keys {
        let name = name(*key);
        let expected = has(*key).then(|| cells(*key, &name));
        let row = store.get_row(*key).unwrap();
        assert!(row.is_some() == expected.is_some());
        if let (Some(row), Some(expected)) = (row, expected) {
            assert!(row.values().map(Result::unwrap).eq(expected));
        }
        let stock = |row: Option<&TypedRow<'_>>| row.map(|row| row.get::<Option<u16>>("stock").unwrap());
        let expected = expected.map(|cells| if let Value::Uint(stock) = cells[3] { Some(stock as u16) } else { None });
        assert_eq!(mapped.get_row_with(*key, stock).unwrap(), expected);
    }

    let projection = Projection::new(&schema, &["name", "b", "a"]).unwrap();
    let mut buffers = [ColumnBuffers::new(&schema, &projection), ColumnBuffers::new(&schema, &projection)];
    store.fill_columns(&keys, &mut buffers[0]).unwrap();
    mapped.fill_columns(&keys, &mut buffers[1]).unwrap();
    for buffers in &buffers {
        assert_eq!(buffers.row_count(), keys.len());
        let (ColumnValues::Data { data, ends }, ColumnValues::F32(a)) =
            (&buffers.column(0).values, &buffers.column(2).values)
        else {
            panic!("text and floats")
        };
        let mut start = 0;
        for (i, key) in keys.iter().enumerate() {
            let expected = if has(*key) { name(*key) } else { String::new() };
            assert_eq!(&data[start..ends[i]], expected.as_bytes(), "key {key}");
            start = ends[i];
            let is_valid = has(*key) && !key.is_multiple_of(3);
            assert_eq!(buffers.column(2).is_valid[i], is_valid, "key {key}");
            assert_eq!(a[i], if is_valid { *key as f32 / 2.0 } else { 0.0 });
        }
    }

    let plan = MatrixPlan::new(&schema, &Projection::new(&schema, &["b", "a"]).unwrap(), -1.0_f32).unwrap();
    let mut matrix = vec![0.0; 2 * keys.len()];
    let found = keys.iter().filter(|key| has(**key)).count();
    for is_mapped in [false, true] {
        matrix.fill(0.0);
        let copied = match is_mapped {
            false => store.get_matrix(&keys, &plan, &mut matrix),
            true => mapped.get_matrix(&keys, &plan, &mut matrix),
        };
        assert_eq!(copied, Ok(found));
        for (key, row) in keys.iter().zip(matrix.chunks_exact(2)) {
            let a = if key.is_multiple_of(3) { -1.0 } else { *key as f32 / 2.0 };
            assert_eq!(row, if has(*key) { [-(*key as f32), a] } else { [-1.0, -1.0] }, "key {key}");
        }
    }
}

#[test]
fn columns_and_matrices_of_ranges_have_the_cells_of_the_range_of_each_key() {
    let schema = schema();
    let mut encoder = RowEncoder::new(&schema);
    // The ranges 0 to 3, 10 to 13, and so on.
    let span = |first: u64| KeySpan { first, last: first + 3 };
    let rows: BTreeMap<_, _> =
        (0..500).map(|i| (span(10 * i), encoder.encode(&cells(10 * i, &name(10 * i))).unwrap().to_vec())).collect();
    let scratch = Scratch::new();
    let path = write(&scratch, &encoder::encode_typed(&rows, &schema.encode()));
    let (store, mapped) = (Store::open(&path).unwrap(), MappedStore::open(&path).unwrap());
    let keys: Vec<u64> = (0..900).map(|i| i * 7919 % 5100).collect();
    let first_of = |key: &u64| (*key < 5000 && key % 10 < 4).then(|| key / 10 * 10);
    let plan = MatrixPlan::new(&schema, &Projection::new(&schema, &["b"]).unwrap(), 1.0_f32).unwrap();
    let expected: Vec<f32> = keys.iter().map(|key| first_of(key).map_or(1.0, |first| -(first as f32))).collect();
    for is_mapped in [false, true] {
        let mut matrix = vec![0.0; keys.len()];
        let (copied, buffers) = match is_mapped {
            false => (store.cover_matrix(&keys, &plan, &mut matrix), store.cover_columns(&keys, &["name"])),
            true => (mapped.cover_matrix(&keys, &plan, &mut matrix), mapped.cover_columns(&keys, &["name"])),
        };
        assert_eq!(copied, Ok(keys.iter().filter_map(first_of).count()));
        assert_eq!(matrix, expected);
        let buffers = buffers.unwrap();
        let ColumnValues::Data { data, ends } = &buffers.column(0).values else { panic!("text") };
        let mut start = 0;
        for (key, end) in keys.iter().zip(ends) {
            assert_eq!(&data[start..*end], first_of(key).map(name).unwrap_or_default().as_bytes(), "key {key}");
            start = *end;
        }
    }
    let single = Store::open(write(&scratch, &typed_file(10))).unwrap();
    let found = single.cover_matrix(&[2], &plan, &mut [0.0]);
    assert_eq!(found, Err(TypedLookupError::Lookup(LookupError::NoRanges)));
}

#[test]
fn columns_are_read_only_from_a_table_with_their_schema() {
    let scratch = Scratch::new();
    let other = Schema::new("", ["a:f32".parse().unwrap()]).unwrap();
    let projection = Projection::of_all(&other);
    let mut buffers = ColumnBuffers::new(&other, &projection);
    let typed = Store::open(write(&scratch, &typed_file(10))).unwrap();
    let found = typed.schema().unwrap().id();
    let expected = TypedLookupError::SchemaChanged { selected: other.id(), found };
    assert_eq!(typed.fill_columns(&[2], &mut buffers), Err(expected.clone()));
    let plan = MatrixPlan::new(&other, &projection, 0.0_f32).unwrap();
    assert_eq!(typed.get_matrix(&[2], &plan, &mut [0.0]), Err(expected));
    let kind = typed.fill_columns(&["two"], &mut ColumnBuffers::new(&schema(), &Projection::of_all(&schema())));
    assert!(matches!(kind, Err(TypedLookupError::Lookup(LookupError::KeyKind { .. }))), "{kind:?}");

    scratch.bake(&[(2_u64, b"two".to_vec())]);
    let untyped = Store::open(scratch.path()).unwrap();
    assert!(untyped.schema().is_none());
    assert_eq!(untyped.fill_columns(&[2], &mut buffers), Err(TypedLookupError::NotTyped));
    assert_eq!(untyped.get_row(2).unwrap_err(), TypedLookupError::NotTyped);
}

#[test]
fn a_row_that_is_not_a_row_of_the_schema_is_an_error() {
    let scratch = Scratch::new();
    let rows: BTreeMap<u64, Vec<u8>> = [(1, vec![]), (2, vec![0xff; 24])].into();
    let store = Store::open(write(&scratch, &encoder::encode_typed(&rows, &schema().encode()))).unwrap();
    let mut buffers = ColumnBuffers::new(&schema(), &Projection::of_all(&schema()));
    let malformed = store.fill_columns(&[3, 1], &mut buffers);
    assert!(matches!(malformed, Err(TypedLookupError::Column(ColumnError::Malformed { .. }))), "{malformed:?}");
    let malformed = store.fill_columns(&[3, 2], &mut buffers).unwrap_err().to_string();
    assert!(
        malformed.starts_with("column \"") && malformed.contains(" of row 1 has no value of its type ("),
        "{malformed}"
    );
    assert_eq!(buffers.row_count(), 0);
    assert!(matches!(store.get_row(1), Err(TypedLookupError::Column(ColumnError::Malformed { .. }))));
}

#[test]
fn every_changed_byte_of_the_schema_is_rejected_at_open() {
    let scratch = Scratch::new();
    let whole = typed_file(40);
    let (start, len) = encoder::section(&whole, SCHEMA);
    assert!(len > 60);
    for at in start..start + len {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        let path = write(&scratch, &damaged);
        let is_named = |result: Result<(), StoreError>| {
            matches!(
                result,
                Err(StoreError::Format {
                    error: FormatError::SectionChecksum { section: SectionKind::Schema, .. },
                    ..
                })
            )
        };
        for verify in [Verify::Touch, Verify::Full] {
            let options = OpenOptions { verify, ..OpenOptions::default() };
            assert!(is_named(Store::open_with(&path, &options).map(drop)), "byte {at}, {verify:?}");
            assert!(is_named(MappedStore::open_with(&path, &options).map(drop)), "byte {at}, {verify:?}");
        }
        assert_eq!(Unchecked::open(&path).unwrap().damaged_sections(), [SectionKind::Schema]);
    }
}

#[test]
fn a_forged_schema_is_rejected_at_open() {
    let scratch = Scratch::new();
    let rows: BTreeMap<u64, Vec<u8>> = [(1, vec![])].into();
    for (schema, problem) in [
        (&b"x"[..], "the schema section is invalid at byte 1: it ends too early: damaged or forged"),
        (&[0; 8][..], "0 columns, where 1 to 4096 are allowed: choose the columns to store"),
        (&[0xff; 40][..], "the schema section is invalid at byte 6: a reserved field is not zero: damaged or forged"),
    ] {
        let refusal = scratch.refusal(&encoder::encode_typed(&rows, schema));
        assert_eq!(refusal, FormatError::Schema { problem: problem.to_owned() });
    }
    let long = scratch.refusal(&encoder::encode_typed(&rows, &vec![0; (2 << 20) + 1]));
    assert!(matches!(long, FormatError::HeaderField { what: "the length of the schema", .. }), "{long}");
}
