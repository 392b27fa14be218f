//! Tests that write Parquet files and read them.

use std::io::{Seek, Write};
use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use super::*;
use crate::bake::parse::tests::{Lines, name};

type GroupWriter<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// Writes the next column of a row group. `$levels` are definition levels: 1 for a value, and 0 for null. By default,
/// no value is null.
macro_rules! write_column {
    ($group:expr, $type:ty, $values:expr $(, $levels:expr)?) => {{
        let levels: Option<&[i16]> = None $(.or(Some($levels)))?;
        let mut column = $group.next_column().unwrap().unwrap();
        column.typed::<$type>().write_batch($values, levels, None).unwrap();
        column.close().unwrap();
    }};
}

/// Returns a file with `groups` row groups. Each call of `write` writes one row group.
fn written(
    schema: &str,
    compression: Compression,
    groups: usize,
    write: impl Fn(usize, &mut GroupWriter<'_>),
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_row_count_limit(1000)
        .set_write_batch_size(500)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for group in 0..groups {
        let mut group_writer = writer.next_row_group().unwrap();
        write(group, &mut group_writer);
        group_writer.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Returns a file with a column of integers and a column of lists of integers.
fn with_a_list() -> Vec<u8> {
    let schema = "message lists { required int32 id; required group tags (LIST) { repeated group list { required \
                  int32 element; } } }";
    written(schema, Compression::UNCOMPRESSED, 1, |_, group| {
        write_column!(group, Int32Type, &[1]);
        let mut list = group.next_column().unwrap().unwrap();
        list.typed::<Int32Type>().write_batch(&[1, 2], Some(&[1, 1]), Some(&[0, 1])).unwrap();
        list.close().unwrap();
    })
}

fn open(bytes: &[u8], options: &Options) -> Result<Decoder, BakeError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    Decoder::open(file, options, None, "t.parquet")
}

fn rows(bytes: &[u8], options: &Options) -> Result<Vec<String>, BakeError> {
    let mut decoder = open(bytes, options)?;
    let mut lines = Lines::default();
    while let Some(decoded) = decoder.next()? {
        ParquetPiece { columns: decoder.columns.clone(), decoded }.parse_into(&mut lines)?;
    }
    Ok(lines.0)
}

fn columns(key: &str, value: &str) -> Options {
    Options { key: Some(name(key)), value: ValueSpec::Column(name(value)), ..Options::default() }
}

fn packed(key: &str, values: &[&str]) -> Options {
    let values = values.iter().map(|value| name(value)).collect();
    Options { key: Some(name(key)), value: ValueSpec::Packed(values), ..Options::default() }
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

/// Returns a file with one row and a column of each type.
fn all_types() -> Vec<u8> {
    let schema = "message all {
        required int32 i8 (INTEGER(8, true));
        required int32 u32 (INTEGER(32, false));
        required int64 i64;
        required int64 u64 (INTEGER(64, false));
        required binary text (UTF8);
        required binary bytes;
        required fixed_len_byte_array(3) fixed;
        required fixed_len_byte_array(16) uuid (UUID);
        required boolean bool;
        required float float;
        required double double;
        required int32 date (DATE);
        required int32 time (TIME(MILLIS, true));
        required int64 stamp (TIMESTAMP(MICROS, true));
        required int64 local (TIMESTAMP(NANOS, false));
        required int96 old;
        required int32 small (DECIMAL(5, 2));
        required fixed_len_byte_array(16) large (DECIMAL(38, 3));
        required group inner { required int32 a; }
        repeated int32 list;
        required fixed_len_byte_array(12) interval (INTERVAL);
    }";
    written(schema, Compression::UNCOMPRESSED, 1, |_, group| {
        let fixed = |bytes: &[u8]| [FixedLenByteArray::from(bytes.to_vec())];
        write_column!(group, Int32Type, &[-5]);
        write_column!(group, Int32Type, &[-1]);
        write_column!(group, Int64Type, &[i64::MIN]);
        write_column!(group, Int64Type, &[-1]);
        write_column!(group, ByteArrayType, &[text("ü \"x\"")]);
        write_column!(group, ByteArrayType, &[ByteArray::from(vec![0xff, 0])]);
        write_column!(group, FixedLenByteArrayType, &fixed(b"abc"));
        write_column!(group, FixedLenByteArrayType, &fixed(&(0x10..0x20).collect::<Vec<u8>>()));
        write_column!(group, BoolType, &[true]);
        write_column!(group, FloatType, &[0.1]);
        write_column!(group, DoubleType, &[1e300]);
        write_column!(group, Int32Type, &[-1]);
        write_column!(group, Int32Type, &[86_399_999]);
        write_column!(group, Int64Type, &[-1]);
        write_column!(group, Int64Type, &[1_700_000_000_000_000_001]);
        write_column!(group, Int96Type, &[Int96::from(vec![1_000_000_007, 0, 2_440_589])]);
        write_column!(group, Int32Type, &[-7]);
        write_column!(group, FixedLenByteArrayType, &fixed(&(-1234567i128).to_be_bytes()));
        write_column!(group, Int32Type, &[9]);
        let mut list = group.next_column().unwrap().unwrap();
        list.typed::<Int32Type>().write_batch(&[1, 2], Some(&[1, 1]), Some(&[0, 1])).unwrap();
        list.close().unwrap();
        write_column!(group, FixedLenByteArrayType, &fixed(&[0; 12]));
    })
}

#[test]
fn values_of_each_type_become_text() {
    let file = all_types();
    let expected = [
        ("i8", "-5"),
        ("u32", "4294967295"),
        ("i64", "-9223372036854775808"),
        ("u64", "18446744073709551615"),
        ("text", "ü \"x\""),
        ("bytes", "\u{fffd}\0"),
        ("fixed", "abc"),
        ("uuid", "10111213-1415-1617-1819-1a1b1c1d1e1f"),
        ("bool", "true"),
        ("float", "0.1"),
        ("double", "1e+300"),
        ("date", "1969-12-31"),
        ("time", "23:59:59.999"),
        ("stamp", "1969-12-31T23:59:59.999999Z"),
        ("local", "2023-11-14T22:13:20.000000001"),
        ("old", "1970-01-02T00:00:01.000000007"),
        ("small", "-0.07"),
        ("large", "-1234.567"),
        ("inner.a", "9"),
    ];
    for (column, value) in expected {
        assert_eq!(rows(&file, &columns("i8", column)).unwrap(), [format!("1: -5 = {value}")], "{column}");
    }
}

#[test]
fn keys_are_integers_text_or_binary() {
    let file = all_types();
    let keys = [
        ("u32", "4294967295"),
        ("u64", "18446744073709551615"),
        ("text", "\\xc3\\xbc \\\"x\\\""),
        ("bytes", "\\xff\\x00"),
        ("fixed", "abc"),
        ("uuid", "10111213-1415-1617-1819-1a1b1c1d1e1f"),
    ];
    for (column, key) in keys {
        assert_eq!(rows(&file, &columns(column, "i8")).unwrap(), [format!("1: {key} = -5")], "{column}");
    }
    for (column, found) in [("bool", "booleans"), ("double", "floats"), ("small", "decimals")] {
        let error = rows(&file, &columns(column, "i8")).unwrap_err().to_string();
        let expected = format!(
            "t.parquet: the key column \"{column}\" has {found}, where integers, text, binary, dates, or timestamps were"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn packed_values_keep_their_types() {
    let file = all_types();
    let packed_columns = ["u64", "text", "uuid", "bool", "float", "stamp", "inner.a"];
    let json = rows(&file, &packed("i8", &packed_columns)).unwrap();
    let expected = concat!(
        r#"1: -5 = {"u64":18446744073709551615,"text":"ü \"x\"","uuid":"10111213-1415-1617-1819-1a1b1c1d1e1f","#,
        r#""bool":true,"float":0.1,"stamp":"1969-12-31T23:59:59.999999Z","inner.a":9}"#
    );
    assert_eq!(json, [expected]);
    let error = rows(&file, &packed("i8", &["bytes"])).unwrap();
    assert!(error[0].starts_with("1: \"bytes\" is binary, which JSON cannot represent"), "{error:?}");
}

#[test]
fn an_unsuitable_column_is_named() {
    let file = all_types();
    let cases = [
        (columns("i8", "none"), "the value column \"none\" does not exist: rows have i8, u32, "),
        (columns("i8", "inner"), "the value column \"inner\" is a group: choose a column inside, such as \"inner.a\""),
        (columns("i8", "list"), "the value column \"list\" is a list, which can have several values per row"),
        (
            columns("interval", "i8"),
            "the key column \"interval\" is of type FIXED_LEN_BYTE_ARRAY (INTERVAL), which is not supported",
        ),
        (
            Options { key: Some(Column::Number(22)), ..columns("i8", "i8") },
            "the key column 22 does not exist: rows have 21",
        ),
        (Options { key: Some(Column::Number(0)), ..columns("i8", "i8") }, "the key column 0 does not exist"),
        (
            Options { value: ValueSpec::Unnamed, ..columns("i8", "i8") },
            "rows have 21 columns: choose the key column and",
        ),
        (Options { key: None, ..packed("i8", &["i8"]) }, "rows have 21 columns: choose the key column and"),
        (
            Options { delete_column: Some(name("gone")), ..columns("i8", "i8") },
            "the delete column \"gone\" does not exist",
        ),
    ];
    for (options, expected) in cases {
        let error = rows(&file, &options).unwrap_err().to_string();
        assert!(error.starts_with(&format!("t.parquet: {expected}")), "{error}");
    }
    for column in ["tags", "tags.list.element"] {
        let error = rows(&with_a_list(), &columns("id", column)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("t.parquet: the value column {column:?} is a list")), "{error}");
    }
}

const TWO: &str = "message two { required int64 id; optional binary name (UTF8); }";

#[test]
fn rows_of_all_groups_and_pages_are_read_in_order_and_nulls_are_faults() {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    const ROWS: i64 = 20_000;
    for codec in codecs {
        let file = written(TWO, codec, 3, |group, writer| {
            let ids: Vec<i64> = (0..ROWS).map(|row| row + group as i64 * ROWS).collect();
            let levels: Vec<i16> = ids.iter().map(|id| i16::from(id % 7 != 0)).collect();
            let names: Vec<_> =
                ids.iter().filter(|id| *id % 7 != 0).map(|id| text(&format!("name {}", id % 1000))).collect();
            write_column!(writer, Int64Type, &ids);
            write_column!(writer, ByteArrayType, &names, &levels);
        });
        let found = rows(&file, &Options::default()).unwrap();
        assert_eq!(found.len() as i64, 3 * ROWS, "{codec:?}");
        for (id, row) in found.iter().enumerate() {
            let line = id + 1;
            match id % 7 {
                0 => assert!(row.starts_with(&format!("{line}: \"name\" is null: ")), "{codec:?}: {row}"),
                _ => assert_eq!(*row, format!("{line}: {id} = name {}", id % 1000), "{codec:?}"),
            }
        }
    }
}

#[test]
fn pieces_are_bounded_by_the_length_of_their_rows() {
    let value = "x".repeat(100_000);
    let file = written(TWO, Compression::UNCOMPRESSED, 1, |_, writer| {
        write_column!(writer, Int64Type, &(0..100).collect::<Vec<i64>>());
        let values: Vec<_> = (0..100).map(|row| text(&format!("{row}{value}"))).collect();
        write_column!(writer, ByteArrayType, &values, &[1; 100]);
    });
    let mut decoder = open(&file, &Options::default()).unwrap();
    let mut rows = 0;
    while let Some(piece) = decoder.next().unwrap() {
        assert_eq!(piece.first_row, rows + 1);
        assert!(piece.rows as u64 * 100_000 <= PIECE_LEN_BYTES, "{}", piece.rows);
        rows += piece.rows as u64;
    }
    assert_eq!(rows, 100);
}

#[test]
fn lists_whose_elements_take_no_room_in_the_file_are_read_in_short_pieces() {
    const LISTS: usize = 500;
    const LEN: usize = 4000;
    let schema = "message lists { required int32 id; required group tags (LIST) { repeated group list { required \
                  int32 element; } } }";
    let bytes = written(schema, Compression::UNCOMPRESSED, 1, |_, group| {
        write_column!(group, Int32Type, &(0..LISTS as i32).collect::<Vec<_>>());
        let (zeros, levels) = (vec![0; LISTS * LEN], vec![1; LISTS * LEN]);
        let starts: Vec<i16> = (0..LISTS * LEN).map(|at| i16::from(at % LEN > 0)).collect();
        let mut list = group.next_column().unwrap().unwrap();
        list.typed::<Int32Type>().write_batch(&zeros, Some(&levels), Some(&starts)).unwrap();
        list.close().unwrap();
    });
    assert!(bytes.len() < 200_000, "{} bytes", bytes.len());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    let description = file.metadata().file_metadata().schema_descr().column(1);
    let column = ColumnType::new(1, &description, ColumnRole::Typed).ok().unwrap();
    let group = Group::open(&file, 0, std::slice::from_ref(&column)).unwrap();
    // An element takes 4 bytes, and so do its levels.
    let piece_len_bytes = group.piece_rows * (LEN * 8) as u64;
    assert!((PIECE_LEN_BYTES / 2..=PIECE_LEN_BYTES).contains(&piece_len_bytes), "{piece_len_bytes}");
}

#[test]
fn columns_are_chosen_by_number_or_name_and_choosing_one_of_two_also_chooses_the_other() {
    let file = written(TWO, Compression::UNCOMPRESSED, 1, |_, writer| {
        write_column!(writer, Int64Type, &[1, 2]);
        write_column!(writer, ByteArrayType, &[text("one")], &[1, 0]);
    });
    let unnamed = |key| Options { key, ..Options::default() };
    for options in [unnamed(None), unnamed(Some(Column::Number(1))), unnamed(Some(name("id"))), columns("id", "name")] {
        assert_eq!(rows(&file, &options).unwrap()[0], "1: 1 = one");
    }
    for options in [unnamed(Some(Column::Number(2))), Options { key: None, ..columns("", "id") }] {
        let found = rows(&file, &options).unwrap();
        assert_eq!(found[0], "1: one = 1");
        assert!(found[1].starts_with("2: \"name\" is null: "));
    }
    assert_eq!(rows(&file, &packed("id", &["name", "id"])).unwrap()[1], r#"2: 2 = {"name":null,"id":2}"#);
}

#[test]
fn a_row_that_removes_its_key_needs_no_value() {
    let schema = "message three { required int64 id; optional binary name (UTF8); optional boolean gone; }";
    let file = written(schema, Compression::SNAPPY, 1, |_, writer| {
        write_column!(writer, Int64Type, &[1, 2, 3]);
        write_column!(writer, ByteArrayType, &[text("two")], &[0, 1, 0]);
        write_column!(writer, BoolType, &[true, false], &[1, 0, 1]);
    });
    let found = rows(&file, &Options { delete_column: Some(name("gone")), ..columns("id", "name") }).unwrap();
    assert_eq!(found[..2], ["1: 1 =  ! true", "2: 2 = two"]);
    assert!(found[2].starts_with("3: \"name\" is null: "));
}

#[test]
fn dates_beyond_the_calendar_are_faults() {
    let schema = "message two { required int64 stamp (TIMESTAMP(MILLIS, true)); required int32 id; }";
    let file = written(schema, Compression::UNCOMPRESSED, 1, |_, writer| {
        write_column!(writer, Int64Type, &[i64::MAX, 0]);
        write_column!(writer, Int32Type, &[1, 2]);
    });
    let found = rows(&file, &columns("id", "stamp")).unwrap();
    assert_eq!(found[0], "1: \"stamp\" is outside the calendar: correct it, or choose another column []");
    assert_eq!(found[1], "2: 2 = 1970-01-01T00:00:00.000Z");
}

/// A truncated or damaged file gives an error or rows, and never a panic.
#[test]
fn damaged_files_do_not_panic() {
    let file = written(TWO, Compression::SNAPPY, 2, |_, writer| {
        let ids: Vec<i64> = (0..2000).collect();
        write_column!(writer, Int64Type, &ids);
        let names: Vec<_> = ids.iter().map(|id| text(&format!("name {}", id % 100))).collect();
        write_column!(writer, ByteArrayType, &names, &[1; 2000]);
    });
    for len_bytes in [0, 4, 8, 11, 12, 100, file.len() / 2, file.len() - 1] {
        let error = rows(&file[..len_bytes], &Options::default()).unwrap_err().to_string();
        assert!(error.starts_with("t.parquet: cannot be read as Parquet: "), "{error}");
    }
    let mut random = 0x5eed_u64;
    for _ in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut damaged = file.clone();
        let at = (random >> 33) as usize % damaged.len();
        damaged[at] ^= 1 << (random >> 30 & 7);
        if let Err(error) = rows(&damaged, &Options::default()) {
            assert!(error.to_string().starts_with("t.parquet: "), "byte {at}: {error}");
        }
    }
}

#[test]
fn integers_of_any_length_are_parsed_if_they_fit() {
    assert_eq!(column::from_be_bytes(&[]), None);
    assert_eq!(column::from_be_bytes(&[0x80]), Some(-128));
    assert_eq!(column::from_be_bytes(&[0, 0x80]), Some(128));
    assert_eq!(column::from_be_bytes(&i128::MIN.to_be_bytes()), Some(i128::MIN));
    assert_eq!(column::from_be_bytes(&[&[0xff; 4], &i128::MIN.to_be_bytes()[..]].concat()), Some(i128::MIN));
    assert_eq!(column::from_be_bytes(&[&[0xff; 4], &i128::MAX.to_be_bytes()[..]].concat()), None);
    assert_eq!(column::from_be_bytes(&[&[1], &0i128.to_be_bytes()[..]].concat()), None);
}
