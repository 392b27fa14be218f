//! `zkv canary`: keys and the digests of their values.

use twox_hash::XxHash3_128;
use zero_kv::Lookup;
use zero_kv::Store;

use super::*;
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, bake};

fn canary(db: &Path, args: &[&str]) -> Output {
    zkv().arg("canary").arg(db).args(args).output().unwrap()
}

fn canary_of_lines(db: &Path, lines: &[u8]) -> Output {
    let mut command = zkv();
    command.arg("canary").arg(db).arg("-");
    output_with(command, lines)
}

fn digest(value: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(value))
}

#[test]
fn each_line_has_the_digest_of_the_value_or_absent() {
    let (_folder, db) = baked();
    let lines = format!("9,{}\n7,{}\n10,absent\n8,{}\n", digest(BINARY), digest(b"seven"), digest(b""));
    assert_answer(&canary(&db, &["9", "7", "10", "8"]), 0, lines.as_bytes());
    assert_answer(&canary_of_lines(&db, b"9\n7\n10\n8\n"), 0, lines.as_bytes());
    assert_answer(&canary_of_lines(&db, b"9\n7\n10\n8"), 0, lines.as_bytes());
    assert_answer(&canary_of_lines(&db, b""), 0, b"");
    // Computed with `xxhsum -H2`, the reference program of XXH3-128.
    assert_answer(&canary(&db, &["8"]), 0, b"8,99aa06d3014798d86001c324468d497f\n");
}

#[test]
fn keys_that_are_bytes_are_written_unchanged() {
    let (_folder, db) = baked();
    bake_text(&db, Keys::BYTES, b"\"a,b\",1\n-,2\n\"c\nd\",3\n\xff,4\n");
    let lines = format!("a,b,{}\n-,{}\n\",absent\n", digest(b"1"), digest(b"2"));
    assert_answer(&canary(&db, &["--", "a,b", "-", "\""]), 0, lines.as_bytes());
    assert_answer(&canary_of_lines(&db, b"a,b\n-\n\"\n"), 0, lines.as_bytes());
    // A key that a line cannot hold is an error, and is left out of a sample.
    assert_error(&canary(&db, &["c\nd"]), &["the key \"c\\nd\" has a line end or is not UTF-8"]);
    let sample = format!("-,{}\na,b,{}\n", digest(b"2"), digest(b"1"));
    assert_answer(&canary(&db, &["--sample", "4"]), 0, sample.as_bytes());
}

#[test]
fn a_server_checks_files_with_the_printed_canaries() {
    let table = Table::of_rows(1000);
    let lines = table.folder.path().join("canary");
    fs::write(&lines, canary(&table.db(), &["--sample", "100"]).stdout).unwrap();
    let serve = || {
        let mut command = table.command(&[]);
        command.arg("--canary").arg(&lines);
        command
    };
    drop(Server::of(serve(), &table.socket()));
    bake(&[(1, b"another value".to_vec())].into(), &table.db());
    let refused = serve().output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && stderr.contains("canary 1: "), "{stderr}");
}

#[test]
fn a_sample_is_evenly_spaced_over_the_table() {
    let (_folder, db) = baked();
    let rows: Vec<u8> = (0..=1000).flat_map(|key| format!("{},{key}\n", key * key).into_bytes()).collect();
    bake_text(&db, Keys::U64, &rows);
    let line = |key: u64| format!("{},{}\n", key * key, digest(key.to_string().as_bytes()));
    let lines = |keys: &[u64]| keys.iter().map(|key| line(*key)).collect::<String>();
    assert_answer(&canary(&db, &["--sample", "1"]), 0, lines(&[0]).as_bytes());
    assert_answer(&canary(&db, &["--sample", "2"]), 0, lines(&[0, 1000]).as_bytes());
    assert_answer(&canary(&db, &["--sample=5"]), 0, lines(&[0, 250, 500, 750, 1000]).as_bytes());
    let all: Vec<u64> = (0..=1000).collect();
    for sample in ["1001", "1002", "18446744073709551615"] {
        assert_answer(&canary(&db, &["--sample", sample]), 0, lines(&all).as_bytes());
    }
    bake_text(&db, Keys::U64, b"");
    assert!(Store::open(&db).unwrap().is_empty());
    assert_answer(&canary(&db, &["--sample", "3"]), 0, b"");
}

#[test]
fn an_invalid_key_is_rejected_with_its_line() {
    let (_folder, db) = baked();
    assert_error(&canary(&db, &["7", "seven"]), &["the key is \"seven\"", "an unsigned 64-bit decimal"]);
    let output = canary_of_lines(&db, b"7\n8\r\n");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("zkv: standard input, line 2: the key is \"8\\r\""), "{stderr}");
    assert_usage_error(&canary(&db, &[]), "<KEY>");
    assert_usage_error(&canary(&db, &["--sample", "0"]), "invalid value");
    assert_usage_error(&canary(&db, &["--sample", "1", "7"]), "cannot be used with");
    assert_error(&canary(&db.with_extension("none"), &["7"]), &["No such file"]);
}
