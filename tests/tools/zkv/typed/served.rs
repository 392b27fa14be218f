//! Rows of typed tables that a server sends.

use std::io::{BufRead, BufReader, Read};

use super::*;
use crate::helpers::servers::Server;

/// Runs `zkv` on a file, over a socket, and in direct mode, and checks that the outcomes are equal.
#[track_caller]
fn assert_equal_everywhere(db: &Path, server: &Server, command_line: &[&str]) {
    let file = ask_file(db, command_line);
    for options in [&["--socket"][..], &["--direct", "--socket"]] {
        let found = zkv().args(command_line).args(options).arg(server.socket()).output().unwrap();
        assert_eq!((found.status.code(), &found.stdout), (file.status.code(), &file.stdout), "{command_line:?}");
    }
}

/// Replaces the table of a server, and waits until the server serves the new table.
fn replace<K: Keyed + Ord + Clone>(db: &Path, server: &Server, schema: &Schema, rows: &[(K, Vec<Value<'_>>)]) {
    let (new, generation) = (db.with_extension("new"), server.number("generation"));
    write_table(&new, schema, rows);
    fs::rename(new, db).unwrap();
    server.wait_for("generation", generation + 1);
}

#[test]
fn a_server_sends_the_columns_that_the_file_has() {
    let (folder, db) = products();
    let server = Server::start(&db, &folder.path().join("s.sock"));
    for command_line in [
        &["get", "7"][..],
        &["get", "8", "--columns", "stock,name"],
        &["get", "1"],
        &["get", "9", "1", "7"],
        &["get", "7", "-f", "json"],
        &["get", "8", "-f", "raw", "--columns", "name"],
        &["floor", "8", "100", "1", "--columns", "stock"],
        &["ceiling", "8", "100", "1", "-f", "json"],
        &["first"],
        &["last", "--only", "values"],
        &["range"],
        &["range", "--reverse", "--limit", "2"],
        &["range", "--from", "8", "-f", "json", "--columns", "price,stock"],
        &["range", "--limit", "0"],
        &["range", "--only", "keys"],
        &["count"],
        &["exists", "7", "--print", "present"],
        &["get", "7", "--columns", "weight"],
    ] {
        assert_equal_everywhere(&db, &server, command_line);
    }
    let error = zkv().args(["get", "7", "--columns", "weight", "--socket"]).arg(server.socket()).output().unwrap();
    assert_error(&error, &["the table has no column \"weight\": its columns are price, name, stock"]);
}

#[test]
fn rows_of_byte_keys_and_of_many_pages_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (db, lists) = (folder.path().join("table.db"), Lists::new());
    let rows: Vec<_> = (0..3000).map(|row| (format!("{row:05}").into_bytes(), lists.cells(row))).collect();
    write_table(&db, &schema("", ALL_TYPES), &rows);
    let server = Server::start(&db, &folder.path().join("s.sock"));
    for command_line in [
        &["range", "-f", "json"][..],
        &["range", "--reverse", "--limit", "2500"],
        &["scan", "--prefix", "01", "--columns", "days,i64"],
        &["range", "--after", "00999", "--to", "01500"],
    ] {
        assert_equal_everywhere(&db, &server, command_line);
    }
}

#[test]
fn each_batch_of_keys_has_the_columns_of_its_table() {
    let (folder, db) = products();
    let server = Server::start(&db, &folder.path().join("s.sock"));
    let mut child = zkv()
        .args(["get", "-", "-f", "json", "--socket"])
        .arg(server.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut rows) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = || {
        let mut row = String::new();
        keys.write_all(b"7\n").unwrap();
        rows.read_line(&mut row).unwrap();
        row
    };
    assert_eq!(ask(), "{\"id\":7,\"price\":1.5,\"name\":\"pen\",\"stock\":12}\n");
    // The columns of the new tables have other types and places.
    replace(
        &db,
        &server,
        &schema("id", &["stock:text", "price:u64"]),
        &[(7_u64, vec![Value::Text("none"), Value::Uint(3)])],
    );
    assert_eq!(ask(), "{\"id\":7,\"stock\":\"none\",\"price\":3}\n");
    replace(
        &db,
        &server,
        &schema("id", &["price:f32", "name:text", "stock:u16?"]),
        &[(7_u64, vec![Value::F32(2.5), Value::Text("ink"), Value::Null])],
    );
    assert_eq!(ask(), "{\"id\":7,\"price\":2.5,\"name\":\"ink\",\"stock\":null}\n");
    drop(keys);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Starts to print all rows of a large table, replaces the table by a table with these columns, and returns the rest of
/// the output. `zkv` cannot finish before, because a pipe holds only a part of the rows.
fn range_across_a_swap(columns: &[&str], cell: Value<'_>) -> (Output, usize) {
    const ROWS: u64 = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let rows: Vec<_> =
        (0..ROWS).map(|key| (key, vec![Value::Text("a text of some bytes"), Value::Uint(key)])).collect();
    write_table(&db, &schema("id", &["name:text", "number:u64"]), &rows);
    let server = Server::start(&db, &folder.path().join("s.sock"));
    let mut command = zkv();
    command.args(["range", "--columns", "number", "--socket"]).arg(server.socket());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut rows = child.stdout.take().unwrap();
    rows.read_exact(&mut [0; 4]).unwrap();
    let new: Vec<_> = (0..ROWS).map(|key| (key, vec![cell; columns.len()])).collect();
    replace(&db, &server, &schema("id", columns), &new);
    let mut stdout = Vec::new();
    rows.read_to_end(&mut stdout).unwrap();
    let printed = 1 + stdout.iter().filter(|byte| **byte == b'\n').count();
    let output = child.wait_with_output().unwrap();
    let numbers = String::from_utf8([&b"0,0\n"[..], &stdout].concat()).unwrap();
    for (key, line) in numbers.lines().enumerate() {
        assert!(line == format!("{key},{key}") || line == format!("{key},7"), "{line}");
    }
    (output, printed - 1)
}

#[test]
fn a_range_never_reads_rows_by_the_schema_of_another_table() {
    let (output, _) = range_across_a_swap(&["number:f64"], Value::F64(1e300));
    assert_error(&output, &["the server replaced its table", "run the command again"]);
    // The columns are the same in another order, and one is new.
    let (output, printed) = range_across_a_swap(&["number:u64", "other:u64"], Value::Uint(7));
    assert_error(&output, &["the server replaced its table"]);
    assert!(printed < 50_000);
}

#[test]
fn a_range_continues_with_a_table_that_has_the_same_columns() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let rows = |number| (0..50_000_u64).map(move |key| (key, vec![Value::Uint(number)])).collect::<Vec<_>>();
    let schema = schema("id", &["number:u64"]);
    write_table(&db, &schema, &rows(1));
    let server = Server::start(&db, &folder.path().join("s.sock"));
    let mut child = zkv().args(["range", "--socket"]).arg(server.socket()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 4]).unwrap();
    // The new table has fewer rows.
    replace(&db, &server, &schema, &rows(2)[..40_000]);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.starts_with("1,1\n") && rest.ends_with("\n39999,2\n"), "{} rows", rest.lines().count());
}
