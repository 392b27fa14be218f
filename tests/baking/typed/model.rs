//! Random typed rows give the same file from delimited text, JSON Lines, Parquet, and memory.

use std::fmt::Write;
use std::io;
use std::sync::Arc;

use parquet::basic::Type;
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use zero_kv::bake::{self, Input, Options, RowPiece, TypedColumns, parse_types};
use zero_kv::for_each_number;
use zero_kv::typed::{Column, ColumnType, ElementType, List, RowEncoder, Schema, TextList, Value, write_text};

use crate::helpers::baker_runs::Folder;
use crate::helpers::random::Random;

/// The types of columns, each with its Parquet type. A `?` in the Parquet type is the repetition.
const COLUMNS: &[(&str, &str)] = &[
    ("bool", "? boolean NAME"),
    ("i8", "? int32 NAME (INTEGER(8,true))"),
    ("i16", "? int32 NAME (INTEGER(16,true))"),
    ("i32", "? int32 NAME"),
    ("i64", "? int64 NAME"),
    ("u8", "? int32 NAME (INTEGER(8,false))"),
    ("u16", "? int32 NAME (INTEGER(16,false))"),
    ("u32", "? int32 NAME (INTEGER(32,false))"),
    ("u64", "? int64 NAME (INTEGER(64,false))"),
    ("f32", "? float NAME"),
    ("f64", "? double NAME"),
    ("text", "? binary NAME (STRING)"),
    ("bytes", "? binary NAME"),
    ("date", "? int32 NAME (DATE)"),
    ("timestamp(ms)", "? int64 NAME (TIMESTAMP(MILLIS,true))"),
    ("timestamp(us)", "? int64 NAME (TIMESTAMP(MICROS,true))"),
    ("timestamp(ns)", "? int64 NAME (TIMESTAMP(NANOS,true))"),
    ("decimal(9,2)", "? int32 NAME (DECIMAL(9,2))"),
    ("decimal(18,0)", "? int64 NAME (DECIMAL(18,0))"),
    ("decimal(38,10)", "? binary NAME (DECIMAL(38,10))"),
    ("list(f32)", "? group NAME (LIST) { repeated group list { required float element; } }"),
    ("list(i16)", "? group NAME (LIST) { repeated group list { optional int32 element (INTEGER(16,true)); } }"),
    (
        "list(timestamp(us))",
        "? group NAME (LIST) { repeated group list { required int64 element (TIMESTAMP(MICROS,true)); } }",
    ),
    ("list(text)", "? group NAME (LIST) { repeated group list { optional binary element (STRING); } }"),
];

/// A cell of a random row. Lists contain the values of their elements.
#[derive(Clone)]
enum Cell {
    Null,
    Scalar(Value<'static>),
    Text(String),
    List(ElementType, Vec<Value<'static>>),
    TextList(Vec<String>),
}

fn scalar(random: &mut Random, column_type: ColumnType) -> Value<'static> {
    let bits = random.next() >> random.below(64);
    let float = |random: &mut Random| (bits as f64 - 1e6) / [1.0, 3.0, 1e9][random.below(3)];
    macro_rules! scalar {
        (@number F32 $number:ident) => { Value::F32(float(random) as f32) };
        (@number F64 $number:ident) => { Value::F64(float(random)) };
        (@number $value:ident $number:ident) => { Value::$value((bits as $number).into()) };
        ([] $($variant:ident $number:ident $value:ident),*) => {
            match column_type {
                ColumnType::Bool => Value::Bool(bits & 1 == 1),
                $(ColumnType::$variant => scalar!(@number $value $number),)*
                ColumnType::Date => Value::Date(bits as i32 >> 8),
                ColumnType::Timestamp(unit) => Value::Timestamp(bits as i64 >> 8, unit),
                ColumnType::Decimal { precision, scale } => {
                    let unscaled = (i128::from(bits) << 40) % 10_i128.pow(precision.into());
                    Value::Decimal { unscaled: if bits & 2 == 2 { -unscaled } else { unscaled }, scale }
                }
                ColumnType::Text | ColumnType::Bytes | ColumnType::List { .. } | ColumnType::TextList => {
                    unreachable!("not scalars")
                }
            }
        };
    }
    for_each_number!(scalar)
}

fn cell(random: &mut Random, column: &Column) -> Cell {
    if column.is_nullable && random.below(4) == 0 {
        return Cell::Null;
    }
    let text = |random: &mut Random, len_min: usize| -> String {
        let parts = ["a", "ä", "\"", ",", "\n", "\\", "0", "null", " "];
        (0..len_min + random.below(6)).map(|_| parts[random.below(parts.len())]).collect()
    };
    match column.column_type {
        // An empty field of delimited text is null in a column that can be null.
        ColumnType::Text | ColumnType::Bytes => Cell::Text(text(random, usize::from(column.is_nullable))),
        ColumnType::TextList => Cell::TextList((0..random.below(4)).map(|_| text(random, 0)).collect()),
        ColumnType::List { element, .. } => {
            let len = random.below(4);
            Cell::List(element, (0..len).map(|_| scalar(random, element.column_type())).collect())
        }
        column_type => Cell::Scalar(scalar(random, column_type)),
    }
}

impl Cell {
    /// Returns the text of the cell, as in delimited text.
    fn text(&self) -> String {
        let mut text = Vec::new();
        match self {
            Cell::Null => {}
            Cell::Scalar(value) => write_text(value, &mut text),
            Cell::Text(text) => return text.clone(),
            Cell::List(element, _) => {
                let bytes = self.elements();
                write_text(&Value::List(List::new(*element, &bytes).unwrap()), &mut text);
            }
            // Another spelling of the list.
            Cell::TextList(texts) => return serde_json::to_string_pretty(texts).unwrap(),
        }
        String::from_utf8(text).unwrap()
    }

    /// Returns the cell as JSON.
    fn json(&self) -> String {
        match self {
            Cell::Null => "null".to_owned(),
            Cell::Text(text) => serde_json::to_string(text).unwrap(),
            Cell::Scalar(Value::Date(_) | Value::Timestamp(..)) => format!("\"{}\"", self.text()),
            Cell::TextList(texts) => {
                let string = |text: &String| serde_json::to_string(text).unwrap().replace('ä', "\\u00e4");
                format!("[ {} ]", texts.iter().map(string).collect::<Vec<_>>().join(" , "))
            }
            Cell::Scalar(_) | Cell::List(..) => self.text(),
        }
    }

    /// Returns the encoding of a list.
    fn elements(&self) -> Vec<u8> {
        if let Cell::TextList(texts) = self {
            return serde_json::to_vec(texts).unwrap();
        }
        let Cell::List(element, values) = self else { return Vec::new() };
        let bytes = |value: &Value<'_>| match *value {
            Value::F32(value) => value.to_le_bytes().to_vec(),
            Value::Int(value) | Value::Timestamp(value, _) => value.to_le_bytes()[..element.len_bytes()].to_vec(),
            _ => unreachable!("no column has lists of other elements"),
        };
        values.iter().flat_map(bytes).collect()
    }

    fn value<'c>(&'c self, column_type: ColumnType, elements: &'c [u8]) -> Value<'c> {
        match (self, column_type) {
            (Cell::Null, _) => Value::Null,
            (Cell::Scalar(value), _) => *value,
            (Cell::Text(text), ColumnType::Bytes) => Value::Bytes(text.as_bytes()),
            (Cell::Text(text), _) => Value::Text(text),
            (Cell::List(element, _), _) => Value::List(List::new(*element, elements).unwrap()),
            (Cell::TextList(_), _) => Value::TextList(TextList::from_bytes(elements).unwrap()),
        }
    }

    /// Returns the values that are not null: the value of a scalar, or the elements of a list.
    fn values(&self) -> Vec<Value<'_>> {
        match self {
            Cell::Null => Vec::new(),
            Cell::Scalar(value) => vec![*value],
            Cell::Text(text) => vec![Value::Bytes(text.as_bytes())],
            Cell::List(_, values) => values.clone(),
            Cell::TextList(texts) => texts.iter().map(|text| Value::Bytes(text.as_bytes())).collect(),
        }
    }
}

fn csv(columns: &[Column], rows: &[(u64, Vec<Cell>)]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = columns.iter().map(|column| column.name.clone());
    writer.write_record(std::iter::once("id".to_owned()).chain(names)).unwrap();
    for (key, cells) in rows {
        writer.write_record(std::iter::once(key.to_string()).chain(cells.iter().map(Cell::text))).unwrap();
    }
    writer.into_inner().unwrap()
}

fn json_lines(random: &mut Random, columns: &[Column], rows: &[(u64, Vec<Cell>)]) -> String {
    let mut text = String::new();
    for (key, cells) in rows {
        // Null and a missing field are the same.
        let mut fields: Vec<_> = cells
            .iter()
            .zip(columns)
            .filter(|(cell, _)| !matches!(cell, Cell::Null) || random.below(2) == 0)
            .map(|(cell, column)| format!("\"{}\":{}", column.name, cell.json()))
            .collect();
        fields.push(format!("\"id\":{key}"));
        random.shuffle(&mut fields);
        writeln!(text, "{{{}}}", fields.join(",")).unwrap();
    }
    text
}

fn parquet_file(columns: &[Column], parquet_types: &[String], rows: &[(u64, Vec<Cell>)]) -> Vec<u8> {
    let schema = format!("message rows {{ required int64 id (INTEGER(64,false)); {} }}", parquet_types.join(" "));
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let properties = WriterProperties::builder().set_data_page_row_count_limit(100).set_write_batch_size(50).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for rows in rows.chunks(rows.len().div_ceil(2)) {
        let mut group = writer.next_row_group().unwrap();
        let keys: Vec<i64> = rows.iter().map(|(key, _)| *key as i64).collect();
        put::<Int64Type>(&mut group, &keys, &[], &[]);
        for (at, column) in columns.iter().enumerate() {
            put_column(&mut group, column, &rows.iter().map(|(_, cells)| &cells[at]).collect::<Vec<_>>());
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Writes the next column of a row group. Without definition levels, no value is null.
pub(super) fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    defs: &[i16],
    reps: &[i16],
) {
    let mut column = group.next_column().unwrap().unwrap();
    let levels = |levels: &[i16]| (!levels.is_empty()).then(|| levels.to_vec());
    column.typed::<T>().write_batch(values, levels(defs).as_deref(), levels(reps).as_deref()).unwrap();
    column.close().unwrap();
}

fn put_column(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, column: &Column, cells: &[&Cell]) {
    let (mut defs, mut reps) = (Vec::new(), Vec::new());
    let nullable = i16::from(column.is_nullable);
    let list = matches!(column.column_type, ColumnType::List { .. } | ColumnType::TextList);
    // The elements of lists of i16 and of text are optional in the file.
    let is_optional =
        matches!(column.column_type, ColumnType::List { element: ElementType::I16, .. } | ColumnType::TextList);
    for cell in cells {
        match cell {
            Cell::List(..) | Cell::TextList(_) if !cell.values().is_empty() => {
                let count = cell.values().len();
                defs.extend(std::iter::repeat_n(nullable + 1 + i16::from(is_optional), count));
                reps.extend((0..count).map(|i| i16::from(i > 0)));
            }
            Cell::List(..) | Cell::TextList(_) => {
                defs.push(nullable);
                reps.push(0);
            }
            cell => {
                defs.push(i16::from(!matches!(cell, Cell::Null)));
                reps.push(0);
            }
        }
    }
    if !list {
        reps.clear();
        defs.truncate(if column.is_nullable { defs.len() } else { 0 });
    }
    let values: Vec<_> = cells.iter().flat_map(|cell| cell.values()).collect();
    let integer = |value: &Value<'_>| match *value {
        Value::Int(value) | Value::Timestamp(value, _) => value,
        Value::Uint(value) => value as i64,
        Value::Date(value) => value.into(),
        Value::Decimal { unscaled, .. } => unscaled as i64,
        _ => unreachable!("not stored as an integer"),
    };
    let int32 = || values.iter().map(|value| integer(value) as i32).collect::<Vec<_>>();
    let int64 = || values.iter().map(integer).collect::<Vec<_>>();
    match physical(column.column_type) {
        Type::BOOLEAN => {
            let values: Vec<_> = values.iter().map(|value| *value == Value::Bool(true)).collect();
            put::<BoolType>(group, &values, &defs, &reps);
        }
        Type::INT32 => put::<Int32Type>(group, &int32(), &defs, &reps),
        Type::INT64 => put::<Int64Type>(group, &int64(), &defs, &reps),
        Type::FLOAT => {
            let float = |value: &Value<'_>| if let Value::F32(value) = value { *value } else { unreachable!() };
            put::<FloatType>(group, &values.iter().map(float).collect::<Vec<_>>(), &defs, &reps);
        }
        Type::DOUBLE => {
            let float = |value: &Value<'_>| if let Value::F64(value) = value { *value } else { unreachable!() };
            put::<DoubleType>(group, &values.iter().map(float).collect::<Vec<_>>(), &defs, &reps);
        }
        _ => {
            let bytes = |value: &Value<'_>| match value {
                Value::Bytes(bytes) => bytes.to_vec().into(),
                Value::Decimal { unscaled, .. } => unscaled.to_be_bytes().to_vec().into(),
                _ => unreachable!("not stored as bytes"),
            };
            put::<ByteArrayType>(group, &values.iter().map(bytes).collect::<Vec<_>>(), &defs, &reps);
        }
    }
}

fn physical(column_type: ColumnType) -> Type {
    match column_type {
        ColumnType::Bool => Type::BOOLEAN,
        ColumnType::I64 | ColumnType::U64 | ColumnType::Timestamp(_) => Type::INT64,
        ColumnType::F32 => Type::FLOAT,
        ColumnType::F64 => Type::DOUBLE,
        ColumnType::Text | ColumnType::Bytes | ColumnType::TextList => Type::BYTE_ARRAY,
        ColumnType::Decimal { precision: 0..=9, .. } => Type::INT32,
        ColumnType::Decimal { precision: 0..=18, .. } => Type::INT64,
        ColumnType::Decimal { .. } => Type::BYTE_ARRAY,
        ColumnType::List { element, .. } => physical(element.column_type()),
        _ => Type::INT32,
    }
}

#[test]
fn random_rows_give_the_same_file_from_every_format() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut chosen: Vec<_> = COLUMNS.iter().filter(|_| random.below(3) > 0).collect();
        if chosen.is_empty() {
            chosen.push(&COLUMNS[0]);
        }
        random.shuffle(&mut chosen);
        let mut columns: Vec<Column> = Vec::new();
        let mut parquet_types = Vec::new();
        for (i, (name, parquet_type)) in chosen.into_iter().enumerate() {
            let is_nullable = random.below(2) == 0;
            columns.push(Column { name: format!("c{i}"), column_type: name.parse().unwrap(), is_nullable });
            let repetition = if is_nullable { "optional" } else { "required" };
            let end = if parquet_type.ends_with('}') { "" } else { ";" };
            parquet_types.push(parquet_type.replacen('?', repetition, 1).replace("NAME", &format!("c{i}")) + end);
        }
        let mut rows: Vec<_> = (0..500_u64)
            .map(|key| (key * 3, columns.iter().map(|column| cell(&mut random, column)).collect::<Vec<_>>()))
            .collect();
        random.shuffle(&mut rows);
        let folder = Folder::new();
        let schema = Schema::new("id", columns.clone()).unwrap();
        let types = format!("id:u64,{schema}");
        let bake = |name: &str, bytes: &[u8], types: &[&str]| {
            folder.write(name, bytes);
            folder.bake(&[&[name, "--header", "--key", "id"], types].concat()).succeeds();
            std::fs::read(folder.path("storage.db")).unwrap()
        };
        let expected = bake("rows.csv", &csv(&columns, &rows), &["--types", &types]);
        random.shuffle(&mut rows);
        let of_json = bake("rows.jsonl", json_lines(&mut random, &columns, &rows).as_bytes(), &["--types", &types]);
        assert!(of_json == expected, "JSON Lines: {types}");
        random.shuffle(&mut rows);
        let file = parquet_file(&columns, &parquet_types, &rows);
        assert!(bake("rows.parquet", &file, &["--typed"]) == expected, "Parquet: {types}");
        assert!(bake("rows.parquet", &file, &["--types", &types]) == expected, "Parquet with types: {types}");
        random.shuffle(&mut rows);
        assert!(from_memory(&folder, &schema, &rows) == expected, "memory: {types}");
    }
}

fn from_memory(folder: &Folder, schema: &Schema, rows: &[(u64, Vec<Cell>)]) -> Vec<u8> {
    let mut options = Options::default();
    let mut typed = TypedColumns::default();
    typed.types = parse_types(&format!("id:u64,{schema}")).unwrap();
    options.typed = Some(typed);
    options.key = Some(bake::Column::Name("id".to_owned()));
    let mut encoder = RowEncoder::new(schema);
    let mut left = rows.iter();
    let fill = |piece: &mut RowPiece| -> io::Result<()> {
        while !piece.is_full()
            && let Some((key, cells)) = left.next()
        {
            let elements: Vec<_> = cells.iter().map(Cell::elements).collect();
            let cells = cells.iter().zip(&elements).zip(schema.columns());
            let values: Vec<_> =
                cells.map(|((cell, elements), column)| cell.value(column.column_type, elements)).collect();
            piece.push(*key, encoder.encode(&values).unwrap());
        }
        Ok(())
    };
    let output = folder.path("memory.db");
    bake::bake(vec![Input::rows("rows", fill)], &output, &options).unwrap();
    std::fs::read(output).unwrap()
}

#[test]
fn a_value_from_memory_that_is_not_a_row_is_rejected() {
    let folder = Folder::new();
    let mut options = Options::default();
    let bake_rows = |options: &Options, value: &[u8]| {
        bake::bake_rows([(1, value)], &folder.path("storage.db"), options).map_err(|error| error.to_string())
    };
    options.typed = Some(TypedColumns::default());
    let error = bake_rows(&options, b"").unwrap_err();
    assert_eq!(error, "rows: rows in memory have no names and types of columns: declare them");
    let mut typed = TypedColumns::default();
    typed.types = parse_types("a:u8,b:text").unwrap();
    options.typed = Some(typed);
    let malformed = |what: &str| {
        let remedy = "encode it with these columns, in this order";
        Err(format!("rows:1: the value is not a row of the typed columns ({what}): {remedy}"))
    };
    assert_eq!(bake_rows(&options, b"").map(drop), malformed("it is too short"));
    assert_eq!(bake_rows(&options, &[9, 0, 0, 0, 7, b'x']).map(drop), malformed("a value is not inside the row"));
    bake_rows(&options, &[6, 0, 0, 0, 7, b'x']).unwrap();
    assert_eq!(folder.typed_rows(), ["1 a=7 b=x"]);
}
