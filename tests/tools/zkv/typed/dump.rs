//! `zkv dump` of typed tables. Each test reads the dump back, encodes the rows again, and compares them with the table.

use parquet::data_type::{AsBytes, Decimal};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::printer::print_schema;
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{self, Input, Options};
use zero_kv::replace::ReplaceRules;
use zero_kv::typed::{ColumnType, TextParser, write_text};

use super::*;

const ROWS: u64 = 300;

fn dump(db: &Path, more: &[&str]) -> Output {
    zkv().arg("dump").arg(db).args(more).output().unwrap()
}

/// Returns a table with a column of each type, and its schema.
fn table_of_all_types() -> (TempDir, PathBuf, Schema) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let (lists, schema) = (Lists::new(), schema("id", ALL_TYPES));
    let rows: Vec<_> = (0..ROWS).map(|row| (row * row, lists.cells(row))).collect();
    write_table(&db, &schema, &rows);
    (folder, db, schema)
}

/// Returns the row with these texts. `None` is null.
fn encoded(schema: &Schema, texts: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut parsers = vec![TextParser::default(); texts.len()];
    let cells = texts.iter().zip(schema.columns()).zip(&mut parsers).map(|((text, column), parser)| match text {
        Some(text) => parser.parse(column.column_type, text).unwrap(),
        None => Value::Null,
    });
    RowEncoder::new(schema).encode(&cells.collect::<Vec<_>>()).unwrap().to_vec()
}

/// Checks that these rows are those of the file.
fn assert_rows_of(db: &Path, rows: impl IntoIterator<Item = (u64, Vec<u8>)>) {
    let store = Store::open(db).unwrap();
    let mut count = 0;
    for ((key, value), expected) in rows.into_iter().zip(store.iter().map(Result::unwrap)) {
        assert!((zero_kv::Key::U64(key), &value[..]) == expected, "key {key}");
        count += 1;
    }
    assert_eq!(count, store.len());
}

#[test]
fn delimited_text_has_every_cell() {
    let (_folder, db, schema) = table_of_all_types();
    let output = dump(&db, &["--format", "csv"]);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let mut reader = csv::Reader::from_reader(&output.stdout[..]);
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), [&["id"], &names[..]].concat());
    let rows: Vec<_> = reader.byte_records().map(Result::unwrap).collect();
    let rows = rows.iter().map(|record| {
        let text = |(field, column): (&[u8], &Column)| {
            let is_null = field.is_empty() && column.is_nullable;
            (!is_null).then(|| field.to_vec())
        };
        let texts: Vec<_> = record.iter().skip(1).zip(schema.columns()).map(text).collect();
        (str::from_utf8(&record[0]).unwrap().parse().unwrap(), encoded(&schema, &texts))
    });
    assert_rows_of(&db, rows);
    let tsv = db.with_extension("tsv");
    let output = dump(&db, &["--format", "tsv", "-o", tsv.to_str().unwrap()]);
    assert_error(&output, &["has a tab, a line end,", "which TSV cannot express", "--format csv"]);
    assert!(!tsv.exists());
}

#[test]
fn tsv_has_a_row_of_column_names_and_no_quotes() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let schema = schema("id", &["name:text", "stock:u8?"]);
    write_table(&db, &schema, &[(7_u64, vec![Value::Text("5\" pipe, red"), Value::Null])]);
    assert_answer(&dump(&db, &["--format", "tsv"]), 0, b"id\tname\tstock\n7\t5\" pipe, red\t\n");
}

#[test]
fn json_lines_have_every_cell() {
    let (_folder, db, schema) = table_of_all_types();
    let output = dump(&db, &["--format", "jsonl"]);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let lines: Vec<_> = output.stdout.split_inclusive(|byte| *byte == b'\n').collect();
    let rows = lines.iter().map(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(line.as_object().unwrap().len(), 1 + schema.columns().len());
        let texts = schema.columns().iter().map(|column| match &line[&column.name] {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.as_bytes().to_vec()),
            value => Some(value.to_string().into_bytes()),
        });
        (line["id"].as_u64().unwrap(), encoded(&schema, &texts.collect::<Vec<_>>()))
    });
    assert_rows_of(&db, rows);
}

/// Returns the text of a Parquet value. `None` is null.
fn field_text(field: &Field, column_type: ColumnType) -> Option<Vec<u8>> {
    let list_elements = |list: &parquet::record::List, element: ColumnType| {
        let quote = if matches!(element, ColumnType::Date | ColumnType::Timestamp(_)) { "\"" } else { "" };
        let elements = list.elements().iter().map(|field| {
            let text = String::from_utf8(field_text(field, element).unwrap()).unwrap();
            format!("{quote}{text}{quote}")
        });
        format!("[{}]", elements.collect::<Vec<_>>().join(",")).into_bytes()
    };
    let value = match (field, column_type) {
        (Field::Null, _) => return None,
        (Field::Str(text), ColumnType::Text) => return Some(text.as_bytes().to_vec()),
        (Field::Bytes(bytes), ColumnType::Bytes) => return Some(bytes.data().to_vec()),
        (Field::ListInternal(list), ColumnType::TextList) => {
            let texts = list.elements().iter().map(|field| match field {
                Field::Str(text) => text,
                other => panic!("{other:?} in a list of texts"),
            });
            return Some(serde_json::to_vec(&texts.collect::<Vec<_>>()).unwrap());
        }
        (Field::ListInternal(list), ColumnType::List { element, .. }) => {
            return Some(list_elements(list, element.column_type()));
        }
        (Field::Bool(value), ColumnType::Bool) => Value::Bool(*value),
        (Field::Byte(value), ColumnType::I8) => Value::Int((*value).into()),
        (Field::Short(value), ColumnType::I16) => Value::Int((*value).into()),
        (Field::Int(value), ColumnType::I32) => Value::Int((*value).into()),
        (Field::Long(value), ColumnType::I64) => Value::Int(*value),
        (Field::UByte(value), ColumnType::U8) => Value::Uint((*value).into()),
        (Field::UShort(value), ColumnType::U16) => Value::Uint((*value).into()),
        (Field::UInt(value), ColumnType::U32) => Value::Uint((*value).into()),
        (Field::ULong(value), ColumnType::U64) => Value::Uint(*value),
        (Field::Float(value), ColumnType::F32) => Value::F32(*value),
        (Field::Double(value), ColumnType::F64) => Value::F64(*value),
        (Field::Date(value), ColumnType::Date) => Value::Date(*value),
        (Field::TimestampMillis(value), ColumnType::Timestamp(unit @ TimeUnit::Millis))
        | (Field::TimestampMicros(value), ColumnType::Timestamp(unit @ TimeUnit::Micros))
        // The crate's records have no timestamps with nanoseconds.
        | (Field::Long(value), ColumnType::Timestamp(unit @ TimeUnit::Nanos)) => Value::Timestamp(*value, unit),
        (Field::Decimal(decimal), ColumnType::Decimal { scale, .. }) => {
            assert_eq!(decimal.scale(), i32::from(scale));
            let unscaled = match decimal {
                Decimal::Int64 { value, .. } => i64::from_be_bytes(*value).into(),
                Decimal::Bytes { value, .. } => i128::from_be_bytes(value.as_bytes().try_into().unwrap()),
                Decimal::Int32 { .. } => panic!("no decimals of 32 bits"),
            };
            Value::Decimal { unscaled, scale }
        }
        (field, column_type) => panic!("{field:?} in a column of {column_type}"),
    };
    let mut text = Vec::new();
    write_text(&value, &mut text);
    Some(text)
}

#[test]
fn parquet_has_every_cell_and_type() {
    let (folder, db, schema) = table_of_all_types();
    let path = folder.path().join("table.parquet");
    assert_answer(&dump(&db, &["--format", "parquet", "-o", path.to_str().unwrap()]), 0, b"");
    let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let mut printed = Vec::new();
    print_schema(&mut printed, reader.metadata().file_metadata().schema());
    let printed = String::from_utf8(printed).unwrap();
    for line in [
        "REQUIRED INT64 id (INTEGER(64,false));",
        "OPTIONAL INT32 i8 (INTEGER(8,true));",
        "REQUIRED BYTE_ARRAY text (STRING);",
        "OPTIONAL BYTE_ARRAY bytes;",
        "REQUIRED INT64 ns (TIMESTAMP(NANOS,true));",
        "OPTIONAL INT64 short (DECIMAL(10,2));",
        "REQUIRED FIXED_LEN_BYTE_ARRAY (16) long (DECIMAL(38,5));",
        "OPTIONAL group floats (LIST)",
        "REQUIRED FLOAT element;",
    ] {
        assert!(printed.contains(line), "{line:?} in {printed}");
    }
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let rows = rows.iter().map(|row| {
        let fields: Vec<_> = row.get_column_iter().collect();
        let Field::ULong(key) = fields[0].1 else { panic!("a key: {:?}", fields[0]) };
        let texts = fields[1..].iter().zip(schema.columns()).map(|((name, field), column)| {
            assert_eq!(**name, column.name);
            field_text(field, column.column_type)
        });
        (*key, encoded(&schema, &texts.collect::<Vec<_>>()))
    });
    assert_rows_of(&db, rows);
}

#[test]
fn parquet_of_an_untyped_table_has_keys_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let [db, path] = ["a.db", "a.parquet"].map(|name| folder.path().join(name));
    for count in [0, 1, 70_000] {
        let rows: Vec<(u64, Vec<u8>)> = (0..count).map(|key| (key, format!("{key}\u{0}").into_bytes())).collect();
        bake_to(&db, &rows);
        assert_answer(&dump(&db, &["--format", "parquet", "-o", path.to_str().unwrap()]), 0, b"");
        let mut options = Options::default();
        options.keys = Keys::U64;
        options.replace = ReplaceRules::any();
        let (input, again) = (Input::file(&path), db.with_extension("again"));
        bake::bake(vec![input], &again, &options).unwrap();
        assert!(fs::read(&db).unwrap() == fs::read(again).unwrap(), "{count} rows");
    }
}

#[test]
fn columns_select_and_order_fields() {
    let (folder, db) = products();
    let columns = ["--columns", "stock,price"];
    assert_answer(&dump(&db, &columns), 0, b"id,stock,price\n7,12,1.5\n8,,0.1\n9,0,NaN\n");
    assert_answer(&dump(&db, &["--columns", "stock", "--from", "9"]), 0, b"id,stock\n9,0\n");
    let lines = b"{\"id\":7,\"stock\":12,\"price\":1.5}\n{\"id\":8,\"stock\":null,\"price\":0.1}\n{\"id\":9,\"stock\":0,\"price\":\"NaN\"}\n";
    assert_answer(&dump(&db, &["--format", "jsonl", "--columns", "stock,price"]), 0, lines);
    let path = folder.path().join("table.parquet");
    let output = dump(&db, &["--format", "parquet", "--columns", "name", "-o", path.to_str().unwrap()]);
    assert_answer(&output, 0, b"");
    let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    assert_eq!(columns.iter().map(|column| column.name()).collect::<Vec<_>>(), ["id", "name"]);
    assert_error(&dump(&db, &["--columns", "id"]), &["the table has no column \"id\""]);
    let (_folder, untyped) = baked();
    assert_error(&dump(&untyped, &["--columns", "a"]), &["not typed: omit --columns"]);
}

#[test]
fn cells_that_a_format_cannot_express_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    write_table(&db, &schema("id", &["note:text?"]), &[(7_u64, vec![Value::Text("")])]);
    let output = dump(&db, &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the value of key 7 in column \"note\" is empty but not null"), "{stderr}");
    assert_answer(&dump(&db, &["--format", "jsonl"]), 0, b"{\"id\":7,\"note\":\"\"}\n");
    write_table(&db, &schema("id", &["raw:bytes"]), &[(7_u64, vec![Value::Bytes(b"\xff")])]);
    assert_error(&dump(&db, &["--format", "jsonl"]), &["the value of key 7 is not UTF-8", "--format csv"]);
    assert_answer(&dump(&db, &[]), 0, b"id,raw\n7,\xff\n");
}

#[test]
fn a_dump_of_parquet_to_a_full_device_or_a_closed_pipe_ends_cleanly() {
    let (_folder, db, _) = table_of_all_types();
    let full = dump(&db, &["--format", "parquet", "-o", "/dev/full"]);
    assert_error(&full, &["/dev/full: No space left"]);
    let mut command = zkv();
    command.args(["dump", "--format", "parquet"]).arg(&db).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}
