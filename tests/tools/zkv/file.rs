//! Lookups in a file.

use super::*;

#[test]
fn values_in_a_file_are_written_unchanged() {
    let (_folder, db) = baked();
    for (key, value) in [("7", &b"seven"[..]), ("8", b""), ("9", BINARY), ("18446744073709551615", b"last")] {
        assert_answer(&ask_file(&db, &["get", key]), 0, value);
        assert_answer(&ask_file(&db, &["exists", key]), 0, b"");
    }
    assert_answer(&ask_file(&db, &["get", "10"]), 1, b"");
    assert_answer(&ask_file(&db, &["exists", "10"]), 1, b"");
}

#[test]
fn every_lookup_in_a_damaged_file_is_an_error() {
    let (_folder, db) = baked();
    let mut bytes = fs::read(&db).unwrap();
    let at = bytes.windows(5).position(|window| window == b"seven").unwrap();
    bytes[at] ^= 1;
    fs::write(&db, bytes).unwrap();
    for command_line in [["get", "7"], ["get", "9"], ["get", "10"], ["exists", "7"], ["exists", "10"]] {
        assert_error(&ask_file(&db, &command_line), &["table.db: ", "damaged"]);
    }
}

#[test]
fn a_missing_file_or_another_kind_of_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    assert_error(&ask_file(&db, &["get", "7"]), &["table.db: ", "No such file"]);
    fs::write(&db, "7,seven\n").unwrap();
    assert_error(&ask_file(&db, &["exists", "7"]), &["table.db: 8 bytes"]);
}
