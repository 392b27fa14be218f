//! Properties of a typed bake of any bytes as text.
//!
//! Equal rows give equal files and equal inferred types, however the text was split into pieces. Every value of the
//! table is a row of its schema, and is what the encoder makes of its cells. With declared types, the rows of delimited
//! text are those that a second parser finds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{BadRows, BakeError, Column, Duplicates, Format, Options, RowFault, TypedColumns, parse_types};
use zero_kv::store::{OpenOptions, Verify};
use zero_kv::typed::{RowEncoder, TextParser, TypedRow, Value, write_text};

use super::csv::{Dialect, ResourceOptions, number, records};
use super::source::Source;
use crate::helpers::rows::write_new;

/// The types of the columns that [`HEADER`] names.
const TYPES: [&str; 4] = [
    "a:i64?,b:text,c:f64?",
    "b:decimal(6,2)?,a:u8",
    "id:u64,c:list(i16)?,a:bool?,b:timestamp(ms)",
    // The header lacks the column d.
    "a:date?,b:list(text)?,c:list(f32,2),d:bytes?",
];
const HEADER: &[u8] = b"id,a,b,c\n";

/// Bakes what the bytes describe, in its own folder.
pub fn check(folder: &Path, data: &[u8]) {
    let mut source = Source::new(data);
    let declared = [None, Some(TYPES[source.below(TYPES.len())])][usize::from(!source.one_in(3))];
    let options = options(&mut source, declared);
    let machines = [(); 2].map(|()| ResourceOptions::draw(&mut source));
    let is_delimited = options.format == Format::Delimited;
    let text = [if is_delimited { HEADER } else { b"" }, source.rest()].concat();
    let output = folder.join("new.db");
    let baked = machines.map(|machine| {
        let _ = fs::remove_file(&output);
        let report = machine.bake(std::slice::from_ref(&text), &output, &options);
        report.map(|report| (report.schema.expect("a typed table").to_string(), fs::read(&output).unwrap()))
    });
    match &baked {
        [Ok(one), Ok(other)] => {
            assert_eq!(one.0, other.0, "other resources give other types");
            assert!(one.1 == other.1, "other resources give a different file");
            write_new(&output, &one.1);
            check_table(&output);
            if let Some(types) = declared.filter(|_| is_delimited) {
                assert_eq!(table(&output), expected(&text, types), "{types}");
            }
        }
        // With less memory, fewer bytes of a row are accepted. No other error depends on the resources.
        [Ok(_), Err(error)] | [Err(error), Ok(_)] => {
            let is_long = matches!(error, BakeError::Row { fault: RowFault::Endless { .. }, .. });
            assert!(is_long, "one bake failed: {error}");
        }
        [Err(_), Err(_)] => {}
    }
    let _ = fs::remove_file(&output);
}

fn options(source: &mut Source<'_>, declared: Option<&str>) -> Options {
    let mut options = Options::default();
    options.replace = zero_kv::replace::ReplaceRules::any();
    options.format = [Format::Delimited, Format::Delimited, Format::JsonLines][source.below(3)];
    options.header = true;
    options.key = Some(Column::Name("id".to_owned()));
    options.duplicates = Duplicates::Last;
    options.bad_rows = BadRows::Skip { file: None, max: u64::MAX };
    options.compare_rows = source.below(2) == 1;
    let mut typed = TypedColumns::default();
    typed.types = declared.map_or_else(Vec::new, |types| parse_types(types).expect("types"));
    options.typed = Some(typed);
    options
}

/// Checks that each value is what the encoder makes of the cells in it, and that the texts of cells are read back.
fn check_table(path: &Path) {
    let full = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
    let store = Store::open_with(path, &full).unwrap();
    let schema = store.schema().expect("a typed table");
    let (mut encoder, mut parser, mut text) = (RowEncoder::new(&schema), TextParser::default(), Vec::new());
    for (_, value) in store.iter().map(Result::unwrap) {
        let row = TypedRow::new(&schema, value).unwrap();
        row.check().unwrap();
        let cells: Vec<_> = row.values().map(Result::unwrap).collect();
        assert_eq!(encoder.encode(&cells).unwrap(), value);
        for (cell, column) in cells.iter().zip(schema.columns()).filter(|(cell, _)| **cell != Value::Null) {
            text.clear();
            write_text(cell, &mut text);
            // The text of a number that is not a number has only one spelling.
            assert_eq!(format!("{:?}", parser.parse(column.column_type, &text).unwrap()), format!("{cell:?}"));
        }
    }
}

/// Returns the texts of the cells of each row.
fn table(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let store = Store::open(path).unwrap();
    let schema = store.schema().expect("a typed table");
    let row = |value| TypedRow::new(&schema, value).unwrap().values().map(|cell| shown(&cell.unwrap())).collect();
    store.iter().map(Result::unwrap).map(|(key, value)| (key.as_u64().unwrap(), row(value))).collect()
}

fn shown(value: &Value<'_>) -> String {
    format!("{value:?}")
}

/// Returns the rows that a byte-by-byte parser of RFC 4180 finds. The last row with a key is kept.
fn expected(text: &[u8], types: &str) -> BTreeMap<u64, Vec<String>> {
    let columns = parse_types(types).expect("types");
    let columns: Vec<_> = columns.iter().filter(|column| column.name != "id").collect();
    let mut rows = BTreeMap::new();
    for record in &records(text, &Dialect::CSV).0[1..] {
        if record.is_bad || record.fields.len() != 4 {
            continue;
        }
        let cells = columns.iter().map(|column| {
            let Some(position) = ["id", "a", "b", "c"].iter().position(|name| *name == column.name) else {
                return column.is_nullable.then(|| shown(&Value::Null));
            };
            match &record.fields[position] {
                field if field.is_empty() && column.is_nullable => Some(shown(&Value::Null)),
                field => TextParser::default().parse(column.column_type, field).ok().map(|value| shown(&value)),
            }
        });
        if let (Some(key), Some(cells)) = (number(&record.fields[0]), cells.collect::<Option<Vec<_>>>()) {
            rows.insert(key, cells);
        }
    }
    rows
}
