//! A table that looks like a failed export does not replace a good one, neither in a bake nor in a server.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use zero_kv::client::{Client, Info};

use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::eventually;

/// Bakes rows of text with some options.
fn baker(input: &str, output: &Path, options: &[&str]) -> Output {
    let csv = output.with_extension("csv");
    fs::write(&csv, input).unwrap();
    let mut baker = Command::new(env!("CARGO_BIN_EXE_baker"));
    baker.arg(csv).arg("--output").arg(output).args(options).stdin(Stdio::null()).output().unwrap()
}

fn zkv(command: &str, table: &Table, options: &[&str]) -> Output {
    let mut zkv = Command::new(env!("CARGO_BIN_EXE_zkv"));
    zkv.args([command, "--timeout", "60", "--socket"]).arg(table.socket()).args(options).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

type Args = &'static [&'static str];

const TEN_ROWS: &str = "1,a\n2,b\n3,c\n4,d\n5,e\n6,f\n7,g\n8,h\n9,i\n10,j\n";

/// Tables that replace one with ten numbers: the rows, the options of the bake, the options that reject the table, the
/// options that allow it, and the text of the rejection.
const CASES: [(&str, Args, Args, Args, &str); 5] = [
    ("", &[], &[], &["--allow-empty"], "has no rows, and the old one has 10: check the input, or allow an empty table"),
    (
        "a,1\nb,2\n",
        &["--keys", "bytes"],
        &[],
        &["--allow-key-type-change"],
        "keys of the new table are bytes, but keys of the old table are u64",
    ),
    (
        TEN_ROWS,
        &["--keys", "i64"],
        &[],
        &["--allow-key-type-change"],
        "keys of the new table are i64, but keys of the old table are u64",
    ),
    (
        "1,a\n2,b\n3,c\n4,d\n",
        &[],
        &["--max-shrink", "50%"],
        &["--max-shrink", "60"],
        "has 4 rows, and the old one has 10, of which at most 50 % may be lost",
    ),
    (
        "1,a\n2,b\n3,c\n4,d\n",
        &[],
        &["--min-rows", "5"],
        &["--min-rows", "4"],
        "has 4 rows, and at least 5 are required",
    ),
];

#[test]
fn baker_does_not_put_a_suspicious_table_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    for (rows, keys, rejecting, allowing, reason) in CASES {
        assert!(baker(TEN_ROWS, &db, &["--allow-key-type-change"]).status.success());
        let before = fs::read(&db).unwrap();
        let rejected = baker(rows, &db, &[keys, rejecting].concat());
        let message = text(&rejected.stderr);
        assert_eq!(rejected.status.code(), Some(1), "{message}");
        assert!(
            message.contains(reason) && message.contains("storage.db: ") && message.contains("nothing was put"),
            "{message}"
        );
        assert!(message.contains(allowing[0]), "the option that allows it: {message}");
        assert!(fs::read(&db).unwrap() == before, "the old table stays");
        let allowed = baker(rows, &db, &[keys, allowing].concat());
        assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    }
    // Any table replaces a file that is not a table.
    fs::write(&db, "no table").unwrap();
    assert!(baker("", &db, &[]).status.success());
    assert!(baker("a,1\n", &db, &["--keys", "bytes"]).status.success(), "an empty table is replaced by any other");
    let usage = baker("", &db, &["--allow-empty", "--min-rows", "1"]);
    assert_eq!(usage.status.code(), Some(2));
    for percent in ["101", "-1", "50%%", "half"] {
        let usage = baker("", &db, &[&format!("--max-shrink={percent}")]);
        assert_eq!(usage.status.code(), Some(2));
        assert!(text(&usage.stderr).contains("expected a whole percentage from 0% to 100%"));
    }
}

fn info(table: &Table) -> Info {
    Client::connect(table.socket()).unwrap().info().unwrap()
}

/// Bakes a table beside the served one, and renames it into place.
fn put_in_place(table: &Table, rows: &str, options: &[&str]) {
    let next = table.folder.path().join("next.db");
    let _ = fs::remove_file(&next);
    let baked = baker(rows, &next, options);
    assert!(baked.status.success(), "{}", text(&baked.stderr));
    fs::rename(next, table.db()).unwrap();
}

#[test]
fn a_server_does_not_serve_a_suspicious_table_in_place_of_a_good_one() {
    for (rows, keys, rejecting, allowing, reason) in CASES {
        let table = Table::of_rows(10);
        let server = table.serve_with(rejecting);
        put_in_place(&table, rows, keys);
        eventually("the file is rejected", || info(&table).number::<u64>("refused_files") == Some(1));
        let refused = info(&table);
        assert_eq!((refused.get("generation"), refused.get("rows")), (Some("1"), Some("10")));
        let message = refused.get("file_refused").unwrap();
        assert!(message.contains(reason) && message.contains(allowing[0]), "{message}");
        let health = zkv("health", &table, &[]);
        assert_eq!(health.status.code(), Some(0));
        assert!(text(&health.stderr).contains(reason) && text(&health.stderr).contains("storage.db"));
        let reload = zkv("reload", &table, &[]);
        assert_eq!(reload.status.code(), Some(1));
        assert!(text(&reload.stderr).contains(reason), "{}", text(&reload.stderr));
        // A good table is served after the rejection.
        put_in_place(&table, TEN_ROWS, &[]);
        eventually("the next file is served", || info(&table).get("generation") == Some("2"));
        assert_eq!(info(&table).get("file_refused"), Some(""));
        assert_eq!(zkv("health", &table, &[]).stderr, b"");
        drop(server);

        let _server = table.serve_with(allowing);
        put_in_place(&table, rows, keys);
        eventually("the file is served", || info(&table).get("generation") == Some("2"));
        // A rollback is always allowed.
        let back = zkv("reload", &table, &["--rollback"]);
        assert_eq!(back.status.code(), Some(0), "{}", text(&back.stderr));
        assert_eq!(info(&table).get("rows"), Some("10"));
    }
}

#[test]
fn a_rollback_is_allowed_regardless_of_the_rules() {
    let table = Table::new([]);
    let _server = table.serve_with(&[]);
    put_in_place(&table, TEN_ROWS, &[]);
    eventually("the rows are served", || info(&table).get("generation") == Some("2"));
    let back = zkv("reload", &table, &["--rollback"]);
    assert_eq!(back.status.code(), Some(0), "{}", text(&back.stderr));
    assert_eq!(info(&table).get("rows"), Some("0"));
}

#[test]
fn a_server_starts_with_a_table_without_rows_unless_rows_are_required() {
    let table = Table::new([]);
    let mut server = Server::spawn(table.command(&[]), &table.socket());
    let line = server.wait_for_log("has no rows");
    assert!(line.contains("WARN") && line.contains("--min-rows"), "{line}");
    server.wait_for_log("ready");
    drop(server);
    let rejected = table.command(&["--min-rows", "1"]).output().unwrap();
    assert_eq!(rejected.status.code(), Some(1));
    let reason =
        "storage.db: the new table has 0 rows, and at least 1 are required: check the input, or lower the minimum";
    assert!(text(&rejected.stderr).contains(reason), "{}", text(&rejected.stderr));
}
