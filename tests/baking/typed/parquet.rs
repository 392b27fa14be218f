//! What only Parquet inputs have: types that columns do not have, the Arrow schema, the index of pandas, 96-bit
//! timestamps, equal names, and lists whose lengths are inferred.

use std::sync::Arc;

use ::parquet::basic::Encoding;
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
    Int96, Int96Type,
};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use zero_kv::Lookup;

use super::model::put;
use crate::helpers::baker_runs::{Ended, Folder, rows};

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// Returns a file whose row groups the functions write.
fn file_with(properties: WriterPropertiesBuilder, columns: &str, groups: &[&dyn Fn(&mut Group<'_>)]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {columns} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for write in groups {
        let mut group = writer.next_row_group().unwrap();
        write(&mut group);
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn file(columns: &str, groups: &[&dyn Fn(&mut Group<'_>)]) -> Vec<u8> {
    file_with(WriterProperties::builder(), columns, groups)
}

const LISTS: &str = "required int64 id; optional group v (LIST) { repeated group list { required float element; } }";

/// Returns a function that writes a row group of `LISTS` with lists of these lengths. `None` is null.
fn lists(first_key: i64, lens: Vec<Option<usize>>) -> impl Fn(&mut Group<'_>) {
    move |group| {
        put::<Int64Type>(group, &(first_key..).take(lens.len()).collect::<Vec<_>>(), &[], &[]);
        let (mut defs, mut reps, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for len in &lens {
            let (def, count) = match len {
                None => (0, 1),
                Some(0) => (1, 1),
                Some(len) => (2, *len),
            };
            defs.extend(std::iter::repeat_n(def, count));
            reps.extend((0..count).map(|i| i16::from(i > 0)));
            values.extend((0..len.unwrap_or(0)).map(|i| i as f32));
        }
        put::<FloatType>(group, &values, &defs, &reps);
    }
}

fn bake(folder: &Folder, file: &[u8], args: &[&str]) -> Ended {
    bake_without_key(folder, file, &[&["--key", "id"], args].concat())
}

fn bake_without_key(folder: &Folder, file: &[u8], args: &[&str]) -> Ended {
    folder.write("t.parquet", file);
    folder.bake(&[&["t.parquet"], args].concat())
}

#[test]
fn lists_of_one_length_get_a_type_with_this_length() {
    let folder = Folder::new();
    let threes = || lists(1, vec![Some(3), None, Some(3)]);
    bake(&folder, &file(LISTS, &[&threes()]), &["--typed"]).infers("'id:u64,v:list(f32,3)?'");
    assert_eq!(folder.typed_rows(), ["1 v=[0,1,2]", "2 v=null", "3 v=[0,1,2]"]);
    bake(&folder, &file(LISTS, &[&threes(), &lists(4, vec![Some(3), None, Some(3)])]), &["--typed"])
        .infers("'id:u64,v:list(f32,3)?'");
    // A later row group has lists of another length, which the metadata tells.
    for other in [0, 2, 4] {
        bake(&folder, &file(LISTS, &[&threes(), &lists(4, vec![Some(3), Some(other)])]), &["--typed"]).succeeds();
        assert_eq!(folder.schema(), "v:list(f32)?", "{other}");
    }
    // One element, no elements, or only null is not taken for a length.
    for len in [Some(1), Some(0), None] {
        bake(&folder, &file(LISTS, &[&lists(1, vec![len, len])]), &["--typed"]).succeeds();
        assert_eq!(folder.schema(), "v:list(f32)?", "{len:?}");
    }
}

#[test]
fn inferred_types_have_the_type_of_keys_of_text() {
    let folder = Folder::new();
    let columns = "required binary id (STRING); optional group v (LIST) { repeated group list { required double element; \
                   } }";
    let file = file(
        columns,
        &[&|group| {
            put::<ByteArrayType>(group, &["a", "b"].map(ByteArray::from), &[], &[]);
            put::<DoubleType>(group, &[0.5, 1.5], &[2, 2, 0], &[0, 1, 0]);
        }],
    );
    bake(&folder, &file, &["--typed"]).infers("'id:text,v:list(f64,2)?'");
    // The printed types bake the same table.
    bake(&folder, &file, &["--types", "id:text,v:list(f64,2)?"]).succeeds();
    assert_eq!(folder.typed_rows(), ["a v=[0.5,1.5]", "b v=null"]);
}

/// Returns a file with the columns `age`, `score`, and `id`, and this index in the metadata of pandas.
fn with_pandas_index(columns: &str, index: &str) -> Vec<u8> {
    let value = format!("{{\"index_columns\":[{index}],\"columns\":[],\"pandas_version\":\"2.3.3\"}}");
    let entry = KeyValue { key: "pandas".to_owned(), value: Some(value) };
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![entry]));
    let count = columns.split(';').count() - 1;
    let write = |group: &mut Group<'_>| {
        for first in [31, 50, 1001].into_iter().skip(3 - count) {
            put::<Int64Type>(group, &[first, first + 1], &[], &[]);
        }
    };
    file_with(properties, columns, &[&write])
}

#[test]
fn a_named_index_of_pandas_is_the_key() {
    let folder = Folder::new();
    let file = with_pandas_index("required int64 age; required int64 score; required int64 id;", "\"id\"");
    bake_without_key(&folder, &file, &["--typed"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1001 age=31 score=50", "1002 age=32 score=51"]);
    assert_eq!(folder.open("storage.db").schema().unwrap().key_name(), Some("id"));
    bake_without_key(&folder, &file, &["--types", "id:u64,score:u8"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1001 score=50", "1002 score=51"]);
    bake_without_key(&folder, &file, &["--value", "score"]).succeeds();
    assert_eq!(folder.rows(), rows([(1001, b"50"), (1002, b"51")]));
    bake_without_key(&folder, &file, &["--columns", "score"]).succeeds();
    assert_eq!(folder.rows(), rows([(1001, b"{\"score\":50}"), (1002, b"{\"score\":51}")]));
    // Another column can be the key, and the index is then a column like others.
    bake_without_key(&folder, &file, &["--typed", "--key", "age"]).succeeds();
    assert_eq!(folder.typed_rows(), ["31 score=50 id=1001", "32 score=51 id=1002"]);
    let two = with_pandas_index("required int64 score; required int64 id;", "\"id\"");
    bake_without_key(&folder, &two, &[]).succeeds();
    assert_eq!(folder.rows(), rows([(1001, b"50"), (1002, b"51")]));
    bake_without_key(&folder, &two, &["--value", "id"]).succeeds();
    assert_eq!(folder.rows(), rows([(50, b"1001"), (51, b"1002")]));
}

#[test]
fn an_index_of_pandas_that_is_not_in_the_file_is_no_column() {
    let folder = Folder::new();
    let range = "{\"kind\":\"range\",\"name\":null,\"start\":0,\"stop\":2,\"step\":1}";
    for index in [range, "", "\"other\""] {
        let file = with_pandas_index("required int64 score; required int64 id;", index);
        bake_without_key(&folder, &file, &[]).succeeds();
        assert_eq!(folder.rows(), rows([(50, b"1001"), (51, b"1002")]), "{index}");
    }
}

#[test]
fn an_index_of_pandas_that_may_have_the_keys_is_refused_with_a_remedy() {
    let folder = Folder::new();
    let unnamed = "required int64 score; required int64 __index_level_0__;";
    for (columns, index, message, key) in [
        (
            unnamed,
            "\"__index_level_0__\"",
            "the column \"__index_level_0__\" is a pandas index without a name, which may have the keys: choose the key \
             column, or name the index, as in df.rename_axis(\"id\"), before you write the file",
            "__index_level_0__",
        ),
        (
            "required int64 score; required int64 id;",
            "\"score\",\"id\"",
            "the file has a pandas index of 2 levels, where a key is one value: choose the key column, or make a column \
             with the key of each row before you write the file",
            "id",
        ),
        (
            "required int64 score; required int64 id;",
            "{\"kind\":\"range\",\"name\":\"row\",\"start\":0,\"stop\":2,\"step\":1}",
            "the pandas index \"row\" is a range of numbers, which is not in the file: choose the key column, or write the file \
             with df.to_parquet(path, index=True)",
            "id",
        ),
    ] {
        let file = with_pandas_index(columns, index);
        for args in [&[][..], &["--typed"], &["--value", "score"]] {
            bake_without_key(&folder, &file, args).fails(&format!("t.parquet: {message} (--key)"));
            bake_without_key(&folder, &file, &[args, &["--key", key]].concat()).succeeds();
        }
        assert_eq!(folder.rows(), rows([(1001, b"50"), (1002, b"51")]));
    }
}

#[test]
fn a_list_of_another_length_than_the_inferred_one_is_a_bad_row_with_a_remedy() {
    let folder = Folder::new();
    // The numbers of values are those of lists of length 3.
    let mut lens = vec![Some(3); 20_000];
    lens.extend([Some(2), Some(4)]);
    bake(&folder, &file(LISTS, &[&lists(1, lens)]), &["--typed", "--quiet"]).fails(
        "t.parquet:20001: column \"v\" is \"[0,1]\", where list(f32,3) was expected (a list of the column's length; a type \
         without a length has lists of any length): correct the row, or declare another type (--types)",
    );
    let rows: String = (0..10).map(|id| format!("{{\"id\":{id},\"v\":[{id},0.5]}}\n")).collect();
    let args = ["--format", "jsonl", "--key", "id", "--typed"];
    folder.bake_text(&rows, &args).infers("'id:u64,v:list(f64,2)'");
    let filler = format!("{{\"id\":10,\"v\":[1,2]{}}}\n", " ".repeat(1 << 20));
    let late = format!("{rows}{filler}{{\"id\":11,\"v\":[1,2,3]}}\n");
    folder.bake_text(late, &[&args[..], &["--quiet"]].concat()).fails(
        "standard input:12: column \"v\" is \"[1,2,3]\", where list(f64,2) was expected (a list of the column's length; a \
         type without a length has lists of any length): correct the row, or declare another type (--types)",
    );
}

#[test]
fn lists_of_the_base_keep_their_length() {
    let folder = Folder::new();
    bake(&folder, &file(LISTS, &[&lists(1, vec![Some(3), Some(2)])]), &["--typed"]).succeeds();
    let delta = file(LISTS, &[&lists(2, vec![Some(4), Some(4)])]);
    bake(&folder, &delta, &["--typed", "--base", "storage.db"]).succeeds();
    assert_eq!(folder.schema(), "v:list(f32)?");
    assert_eq!(folder.typed_rows(), ["1 v=[0,1,2]", "2 v=[0,1,2,3]", "3 v=[0,1,2,3]"]);
}

#[test]
fn columns_that_can_be_null_in_the_base_can_be_null_after_an_update_whose_file_has_none() {
    let folder = Folder::new();
    let write = |group: &mut Group<'_>| {
        put::<Int64Type>(group, &[2], &[], &[]);
        put::<Int64Type>(group, &[20], &[], &[]);
        put::<Int64Type>(group, &[200], &[], &[]);
    };
    let base = file(
        "required int64 id; optional int64 a;",
        &[&|group| {
            put::<Int64Type>(group, &[1], &[], &[]);
            put::<Int64Type>(group, &[], &[0], &[]);
        }],
    );
    bake(&folder, &base, &["--typed"]).succeeds();
    let delta = file("required int64 id; required int64 a; required int64 b;", &[&write]);
    bake(&folder, &delta, &["--typed", "--base", "storage.db"]).succeeds();
    assert_eq!(folder.schema(), "a:i64?,b:i64?");
    assert_eq!(folder.typed_rows(), ["1 a=null b=null", "2 a=20 b=200"]);
}

#[test]
fn lists_that_are_too_long_for_the_fixed_part_of_a_row_have_no_length() {
    let folder = Folder::new();
    bake(&folder, &file(LISTS, &[&lists(1, vec![Some(20_000); 2])]), &["--typed"]).infers("'id:u64,v:list(f32)?'");
    let row = |id: u32| format!("{{\"id\":{id},\"v\":[{}1]}}\n", "1,".repeat(9_000));
    let args = ["--format", "jsonl", "--key", "id", "--typed"];
    folder.bake_text(row(1) + &row(2), &args).infers("'id:u64,v:list(i64)'");
}

/// The columns `id: uint64`, `v: fixed_size_list<float>[64]`, `d: duration[us]`, and others, as pyarrow describes them.
const ARROW_SCHEMA: &str = include_str!("../../../src/bake/parse/parquet/arrow_schema.txt");

fn with_arrow_schema() -> WriterPropertiesBuilder {
    let entry = KeyValue { key: "ARROW:schema".to_owned(), value: Some(ARROW_SCHEMA.trim().to_owned()) };
    WriterProperties::builder().set_key_value_metadata(Some(vec![entry]))
}

#[test]
fn the_arrow_schema_tells_the_length_of_lists() {
    let folder = Folder::new();
    let file = file_with(with_arrow_schema(), LISTS, &[&lists(1, vec![None, Some(64)])]);
    // Nothing is inferred from rows, so nothing is printed.
    bake(&folder, &file, &["--typed"]).succeeds();
    assert_eq!(folder.schema(), "v:list(f32,64)?");
    let empty = file_with(with_arrow_schema(), LISTS, &[]);
    bake(&folder, &empty, &["--typed", "--allow-empty"]).succeeds();
    assert_eq!(folder.schema(), "v:list(f32,64)?");
    bake(&folder, &file, &["--types", "v:list(f32)?"]).succeeds();
    assert_eq!(folder.schema(), "v:list(f32)?");
}

#[test]
fn durations_are_stored_only_with_a_declared_type() {
    let folder = Folder::new();
    let columns = "required int64 id; required int64 d;";
    let write = |group: &mut Group<'_>| {
        put::<Int64Type>(group, &[1], &[], &[]);
        put::<Int64Type>(group, &[90], &[], &[]);
    };
    let file = file_with(with_arrow_schema(), columns, &[&write]);
    bake(&folder, &file, &["--typed"]).fails(
        "t.parquet: the typed column \"d\" has durations in microseconds, which no type has: declare d:i64 to store the \
         numbers of microseconds, or leave it out (--types, --columns)",
    );
    for args in [&["--value", "d"][..], &["--columns", "d"]] {
        let role = if args[0] == "--value" { "value" } else { "packed" };
        bake(&folder, &file, args).fails(&format!(
            "t.parquet: the {role} column \"d\" has durations in microseconds, which are not supported: convert it to an \
             integer, or choose another column ({})",
            args[0]
        ));
    }
    bake(&folder, &file, &["--types", "d:i64"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 d=90"]);
}

#[test]
fn floats_of_16_bits_become_floats_of_32_bits() {
    let folder = Folder::new();
    let columns = "required int64 id; required fixed_len_byte_array(2) h (FLOAT16); required group v (LIST) { repeated \
                   group list { required fixed_len_byte_array(2) element (FLOAT16); } }";
    let file = file(
        columns,
        &[&|group| {
            put::<Int64Type>(group, &[1, 2], &[], &[]);
            // 1.5, and the largest number.
            let values = [0x3e00_u16, 0x7bff].map(|bits| bits.to_le_bytes().to_vec().into());
            put::<FixedLenByteArrayType>(group, &values, &[], &[]);
            put::<FixedLenByteArrayType>(group, &values, &[1, 1], &[0, 0]);
        }],
    );
    bake(&folder, &file, &["--typed"]).succeeds();
    assert_eq!(folder.schema(), "h:f32,v:list(f32)");
    assert_eq!(folder.typed_rows(), ["1 h=1.5 v=[1.5]", "2 h=65504 v=[65504]"]);
    bake(&folder, &file, &["--columns", "h"]).succeeds();
    assert_eq!(folder.rows()[1].1, b"{\"h\":65504.0}");
}

/// Returns a 96-bit timestamp at midnight plus nanoseconds. Day 0 is 1970-01-01.
fn int96(day: i64, nanos: u64) -> Int96 {
    const JULIAN_DAY_1970: i64 = 2_440_588;
    Int96::from(vec![nanos as u32, (nanos >> 32) as u32, (day + JULIAN_DAY_1970) as u32])
}

const DAY_0001_01_01: i64 = -719_162;
const DAY_9999_12_31: i64 = 2_932_896;

fn with_int96(values: &[Int96]) -> Vec<u8> {
    let columns = "required int64 id; required int96 t; required group v (LIST) { repeated group list { required int96 \
                   element; } }";
    file(
        columns,
        &[&|group| {
            put::<Int64Type>(group, &(0..values.len() as i64).collect::<Vec<_>>(), &[], &[]);
            put::<Int96Type>(group, values, &[], &[]);
            put::<Int96Type>(group, values, &vec![1; values.len()], &vec![0; values.len()]);
        }],
    )
}

#[test]
fn far_96_bit_timestamps_have_every_type_that_has_their_values() {
    let folder = Folder::new();
    let file = with_int96(&[int96(DAY_0001_01_01, 0), int96(DAY_9999_12_31, 0)]);
    for (name, suffix) in [
        ("timestamp(us)", "T00:00:00.000000Z"),
        ("timestamp(ms)", "T00:00:00.000Z"),
        ("date", ""),
        ("text", "T00:00:00.000000000Z"),
    ] {
        bake(&folder, &file, &["--types", &format!("t:{name}")]).succeeds();
        assert_eq!(
            folder.typed_rows(),
            [format!("0 t=0001-01-01{suffix}"), format!("1 t=9999-12-31{suffix}")],
            "{name}"
        );
    }
    for (name, suffix) in [("timestamp(us)", "T00:00:00.000000Z"), ("date", "")] {
        bake(&folder, &file, &["--types", &format!("v:list({name})")]).succeeds();
        let row = |id: u32, day: &str| format!("{id} v=[\\\"{day}{suffix}\\\"]");
        assert_eq!(folder.typed_rows(), [row(0, "0001-01-01"), row(1, "9999-12-31")], "{name}");
    }
}

#[test]
fn a_96_bit_timestamp_that_does_not_fit_its_type_is_named() {
    let folder = Folder::new();
    let far = with_int96(&[int96(DAY_9999_12_31, 0)]);
    let years = "a time in the years 1678 to 2261; timestamp(us) has the others, too";
    let exactly = "a value that fits exactly";
    let precise = with_int96(&[int96(0, 1_000_001)]);
    for (file, column, column_type, found, expected) in [
        (&far, "t", "timestamp(ns)", "9999-12-31T00:00:00.000000000Z", years),
        (&far, "v", "list(timestamp(ns))", "9999-12-31T00:00:00.000000000Z", years),
        (&precise, "t", "timestamp(ms)", "1970-01-01T00:00:00.001000001Z", exactly),
        (&precise, "t", "date", "1970-01-01T00:00:00.001000001Z", exactly),
        (&precise, "v", "list(timestamp(us))", "1970-01-01T00:00:00.001000001Z", exactly),
    ] {
        bake(&folder, file, &["--types", &format!("{column}:{column_type}")]).fails(&format!(
            "t.parquet:1: column \"{column}\" is \"{found}\", where {column_type} was expected ({expected}): correct the \
             row, or declare another type (--types)"
        ));
    }
    bake(&folder, &far, &["--typed", "--columns", "t"]).fails(&format!(
        "t.parquet:1: column \"t\" is \"9999-12-31T00:00:00.000000000Z\", where timestamp(ns) was expected ({years}): \
         correct the row, or declare another type (--types)"
    ));
    bake(&folder, &precise, &["--typed", "--columns", "t"]).succeeds();
    assert_eq!(folder.typed_rows(), ["0 t=1970-01-01T00:00:00.001000001Z"]);
}

#[test]
fn a_name_that_several_columns_have_is_ambiguous() {
    let folder = Folder::new();
    let columns = "required int64 id; required int32 a; required int32 a; required int32 b;";
    let file = file(
        columns,
        &[&|group| {
            put::<Int64Type>(group, &[1], &[], &[]);
            [2, 3, 4].into_iter().for_each(|value| put::<Int32Type>(group, &[value], &[], &[]));
        }],
    );
    let several = "appears several times in the file";
    for (args, role) in [(&["--value", "a"][..], "value"), (&["--columns", "b,a"], "packed")] {
        bake(&folder, &file, args)
            .fails(&format!("t.parquet: the {role} column \"a\" {several}: choose it by number ({})", args[0]));
    }
    for args in [&["--typed", "--columns", "a"][..], &["--types", "a:i32"]] {
        bake(&folder, &file, args)
            .fails(&format!("t.parquet: the typed column \"a\" {several}: rename one of the columns (--columns)"));
    }
    bake(&folder, &file, &["--typed"])
        .fails("t.parquet: two columns have the name \"a\": rename one (--types, --columns)");
    bake(&folder, &file, &["--typed", "--columns", "b"]).succeeds();
    assert_eq!(folder.typed_rows(), ["1 b=4"]);
    for (number, value) in [("2", "2"), ("3", "3")] {
        bake(&folder, &file, &["--value", number]).succeeds();
        assert_eq!(folder.rows(), [(1, value.as_bytes().to_vec())]);
    }
}

#[test]
fn differences_that_are_too_wide_are_refused_with_a_remedy() {
    let folder = Folder::new();
    let properties =
        WriterProperties::builder().set_dictionary_enabled(false).set_encoding(Encoding::DELTA_BINARY_PACKED);
    let mut file = file_with(
        properties,
        "required int64 id; required int32 v;",
        &[&|group| {
            put::<Int64Type>(group, &[1, 2], &[], &[]);
            put::<Int32Type>(group, &[0, i32::MIN], &[], &[]);
        }],
    );
    // The only difference, as DuckDB would write it with 64 bits.
    let difference = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let at = file.windows(difference.len()).position(|bytes| bytes == difference).expect("the difference");
    file[at + 4] = 0x7f;
    let ended = bake(&folder, &file, &["--value", "v"]);
    assert!(ended.err.starts_with("baker: t.parquet: cannot be read as Parquet: Parquet error: 'min_delta' too large"));
    let remedy = ": write it again without delta encoding, in DuckDB with PARQUET_VERSION v1\n";
    assert!(ended.err.ends_with(remedy), "{}", ended.err);
}

const NO_NULL: &str = "elements of the list's type, without null; text has all lists, as JSON";

/// Returns a file with the lists `[first,null,second]`, `[]`, null, and `[second]`.
fn with_null_elements<T: DataType>(element: &str, values: [T::T; 2]) -> Vec<u8> {
    let columns =
        format!("required int64 id; optional group v (LIST) {{ repeated group list {{ optional {element}; }} }}");
    let [first, second] = values;
    file(
        &columns,
        &[&|group| {
            put::<Int64Type>(group, &[1, 2, 3, 4], &[], &[]);
            let values = [first.clone(), second.clone(), second.clone()];
            put::<T>(group, &values, &[3, 2, 3, 1, 0, 3], &[0, 1, 1, 0, 0, 0]);
        }],
    )
}

#[test]
fn a_null_element_of_a_list_of_floats_is_nan() {
    let folder = Folder::new();
    let floats = with_null_elements::<FloatType>("float element", [1.5, 2.0]);
    let doubles = with_null_elements::<DoubleType>("double element", [1.5, 2.0]);
    for (file, element) in [(&floats, "f32"), (&doubles, "f64")] {
        bake(&folder, file, &["--typed"]).succeeds();
        assert_eq!(folder.schema(), format!("v:list({element})?"));
        assert_eq!(folder.typed_rows(), ["1 v=[1.5,NaN,2]", "2 v=[]", "3 v=null", "4 v=[2]"]);
        bake(&folder, file, &["--types", "v:text?"]).succeeds();
        assert_eq!(folder.typed_rows(), ["1 v=[1.5,null,2]", "2 v=[]", "3 v=null", "4 v=[2]"]);
    }
    bake(&folder, &doubles, &["--types", "v:list(f32)?"]).succeeds();
    assert_eq!(folder.typed_rows()[0], "1 v=[1.5,NaN,2]");
}

#[test]
fn other_lists_with_a_null_element_need_the_type_text() {
    let folder = Folder::new();
    let int32 = |element| with_null_elements::<Int32Type>(element, [1, 2]);
    for (file, list, texts) in [
        (int32("int32 element"), "list(i32)", ["[1,null,2]", "[2]"]),
        (int32("int32 element (INTEGER(8, false))"), "list(u8)", ["[1,null,2]", "[2]"]),
        (
            int32("int32 element (DATE)"),
            "list(date)",
            ["[\\\"1970-01-02\\\",null,\\\"1970-01-03\\\"]", "[\\\"1970-01-03\\\"]"],
        ),
        (
            with_null_elements::<BoolType>("boolean element", [true, false]),
            "list(u8)",
            ["[true,null,false]", "[false]"],
        ),
    ] {
        bake(&folder, &file, &["--typed"]).fails(&format!(
            "t.parquet:1: column \"v\" is \"[null]\", where {list} was expected ({NO_NULL}): correct the row, or declare \
             another type (--types)"
        ));
        bake(&folder, &file, &["--types", "v:text?"]).succeeds();
        let [first, last] = texts;
        assert_eq!(folder.typed_rows(), [&format!("1 v={first}"), "2 v=[]", "3 v=null", &format!("4 v={last}")]);
    }
}

#[test]
fn lists_of_booleans_become_lists_of_small_integers() {
    let folder = Folder::new();
    let columns = "required int64 id; required group v (LIST) { repeated group list { required boolean element; } }";
    let file = file(
        columns,
        &[&|group| {
            put::<Int64Type>(group, &[1, 2], &[], &[]);
            put::<BoolType>(group, &[true, false, false, true], &[1, 1, 1, 1], &[0, 1, 0, 1]);
        }],
    );
    bake(&folder, &file, &["--typed"]).infers("'id:u64,v:list(u8,2)'");
    assert_eq!(folder.typed_rows(), ["1 v=[1,0]", "2 v=[0,1]"]);
    for (column_type, row) in [("list(u8)", "[1,0]"), ("list(f32,2)", "[1,0]"), ("text", "[true,false]")] {
        bake(&folder, &file, &["--types", &format!("v:{column_type}")]).succeeds();
        assert_eq!(folder.typed_rows()[0], format!("1 v={row}"), "{column_type}");
    }
}

#[test]
fn lists_of_strings_become_lists_of_texts() {
    let folder = Folder::new();
    let columns =
        "required int64 id; optional group t (LIST) { repeated group list { optional binary element (STRING); } }";
    let with = |texts: &[&str], last_def: i16| {
        let texts: Vec<_> = texts.iter().map(|text| ByteArray::from(text.as_bytes().to_vec())).collect();
        file(
            columns,
            &[&|group| {
                put::<Int64Type>(group, &[1, 2, 3, 4], &[], &[]);
                put::<ByteArrayType>(group, &texts, &[3, 3, 1, 0, last_def], &[0, 1, 0, 0, 0]);
            }],
        )
    };
    let file = with(&["a", "\"ü\n", ""], 3);
    bake(&folder, &file, &["--typed"]).succeeds();
    assert_eq!(folder.schema(), "t:list(text)?");
    let rows = ["[\"a\",\"\\\"ü\\n\"]", "[]", "null", "[\"\"]"];
    let row = |(i, text): (usize, &&str)| format!("{} t={}", i + 1, text.as_bytes().escape_ascii());
    assert_eq!(folder.typed_rows(), rows.iter().enumerate().map(row).collect::<Vec<_>>());
    bake(&folder, &file, &["--types", "t:text?"]).succeeds();
    assert_eq!(folder.typed_rows().len(), 4);
    let null = with(&["a", "b"], 2);
    let fault = |found: &str, expected: &str| {
        format!(
            "t.parquet:4: column \"t\" is \"{found}\", where list(text) was expected ({expected}): correct the row, or \
             declare another type (--types)"
        )
    };
    bake(&folder, &null, &["--typed"]).fails(&fault("[null]", NO_NULL));
    bake(&folder, &null, &["--types", "t:text?"]).succeeds();
    assert_eq!(folder.typed_rows()[3], "4 t=[null]");
    let mut invalid = with(&["a", "b", "~~~~~~"], 3);
    let at = invalid.windows(6).position(|bytes| bytes == b"~~~~~~").unwrap();
    invalid[at] = 0xff;
    bake(&folder, &invalid, &["--typed"]).fails(&fault("\u{fffd}~~~~~", "UTF-8 text"));
}
