//! Lookups of rows and columns.

use super::*;
use crate::helpers::servers::Server;

#[track_caller]
fn assert_output(db: &Path, command_line: &[&str], stdout: &str) {
    assert_answer(&ask_file(db, command_line), 0, stdout.as_bytes());
}

#[test]
fn a_single_row_has_a_line_per_column() {
    let (_folder, db) = products();
    assert_output(&db, &["get", "7"], "price: 1.5\nname: pen\nstock: 12\n");
    assert_output(&db, &["get", "8"], "price: 0.1\nname: two\\nlines, \"quoted\"\nstock: null\n");
    assert_output(&db, &["get", "7", "--columns", "stock,name"], "stock: 12\nname: pen\n");
    assert_output(&db, &["get", "8", "-f", "raw", "--columns", "name"], "two\nlines, \"quoted\"");
    assert_output(&db, &["get", "7", "-f", "json"], "{\"id\":7,\"price\":1.5,\"name\":\"pen\",\"stock\":12}\n");
    assert_output(&db, &["get", "7", "-f", "csv"], "7,1.5,pen,12\n");
    assert_output(&db, &["get", "8", "-f", "escaped"], "0.1\ttwo\\nlines, \\\"quoted\\\"\t\n");
    assert_output(&db, &["get", "7", "-f", "hex", "--columns", "name"], "70656e\n");
    assert_answer(&ask_file(&db, &["get", "1"]), 1, b"");
}

#[test]
fn rows_have_a_field_per_column() {
    let (_folder, db) = products();
    let csv = "7,1.5,pen,12\n8,0.1,\"two\nlines, \"\"quoted\"\"\",\n9,NaN,null,0\n";
    assert_output(&db, &["range"], csv);
    assert_output(&db, &["get", "9", "7"], "9,NaN,null,0\n7,1.5,pen,12\n");
    assert_output(&db, &["floor", "100", "--columns", "stock"], "9,0\n");
    assert_output(&db, &["ceiling", "1", "8", "--columns", "stock"], "1,7,12\n8,8,\n");
    assert_output(&db, &["first", "-f", "raw"], "7\t1.5\tpen\t12\n");
    assert_output(&db, &["last", "--only", "values"], "NaN,null,0\n");
    assert_output(&db, &["range", "--only", "keys"], "7\n8\n9\n");
    let json = "{\"id\":8,\"price\":0.1,\"stock\":null}\n{\"id\":9,\"price\":\"NaN\",\"stock\":0}\n";
    assert_output(&db, &["range", "--from", "8", "-f", "json", "--columns", "price,stock"], json);
    assert_output(&db, &["floor", "8", "99", "-f", "json", "--columns", "stock"], {
        "{\"asked\":8,\"id\":8,\"stock\":null}\n{\"asked\":99,\"id\":9,\"stock\":0}\n"
    });
    assert_output(&db, &["count"], "3\n");
    assert_output(&db, &["exists", "7", "--print", "present"], "7\n");
}

#[test]
fn cells_of_every_type_are_json_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let lists = Lists::new();
    write_table(&db, &schema("", ALL_TYPES), &[(b"k\xff".to_vec(), lists.cells(3)), (b"l".to_vec(), lists.cells(1))]);
    let json = concat!(
        r#"{"key":"l","bool":false,"i8":-1,"i16":-1,"i32":-2147483648,"i64":null,"u8":1,"u16":65534,"u32":4294967294,"#,
        r#""u64":18446744073709551614,"f32":0.1,"f64":8.988465674311579e+307,"text":"plain","bytes":null,"#,
        r#""date":"1969-12-31","ms":"1969-12-31T23:59:59.999Z","us":"2026-11-21T19:09:38.123455Z","#,
        r#""ns":"1677-09-21T00:12:43.145224193Z","short":"12.50","long":"999999999999999999999999999999999.99998","#,
        r#""floats":null,"days":["1970-01-01"],"times":["2026-11-21T19:09:38.123Z"],"tags":[""]}"#,
        "\n"
    );
    assert_output(&db, &["get", "l", "-f", "json"], json);
    let last = ask_file(&db, &["first", "-f", "json", "--columns", "floats,bytes"]);
    assert_answer(&last, 0, b"{\"key_hex\":\"6bff\",\"floats\":[1.5,-0.0,1e+30],\"bytes\":\"\\r\\n\"}\n");
}

#[test]
fn bytes_that_are_not_utf8_are_written_as_digits_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // One column has the name of the key's field.
    let schema = schema("", &["key:bytes", "a b:text"]);
    write_table(&db, &schema, &[(1_u64, vec![Value::Bytes(b"\xff\x01"), Value::Text("\x1b\\")])]);
    assert_output(&db, &["get", "1", "-f", "json"], "{\"_key\":1,\"key_hex\":\"ff01\",\"a b\":\"\\u001b\\\\\"}\n");
    assert_output(&db, &["get", "1"], "key: \\xff\\x01\na b: \\u001b\\\\\n");
}

#[test]
fn columns_that_do_not_exist_are_an_error() {
    let (_folder, db) = products();
    let error = ask_file(&db, &["get", "7", "--columns", "weight"]);
    assert_error(&error, &["the table has no column \"weight\": its columns are price, name, stock"]);
    assert_error(&ask_file(&db, &["range", "--columns", "name,name"]), &["two columns have the name \"name\""]);
    let (_folder, untyped) = baked();
    assert_error(&ask_file(&untyped, &["get", "7", "--columns", "a"]), &["not typed: omit --columns"]);
}

#[test]
fn a_row_that_is_not_a_row_of_the_schema_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let rows = [(7_u64, vec![0xff; 3])].into();
    fs::write(&db, encoder::encode_typed(&rows, &schema("id", &["a:f32", "b:text"]).encode())).unwrap();
    assert_error(&ask_file(&db, &["get", "7"]), &["the row is not a row of the schema (it is too short)"]);
}

#[test]
fn direct_lookups_return_columns_too() {
    let (folder, db) = products();
    let socket = folder.path().join("s.sock");
    let _server = Server::start(&db, &socket);
    let output = zkv().args(["get", "7", "--direct", "--columns", "name", "--socket"]).arg(&socket).output();
    assert_answer(&output.unwrap(), 0, b"name: pen\n");
}
