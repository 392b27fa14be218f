//! `zkv inspect`: what it tells is what the file has.

use serde_json::Value;
use zero_kv::Store;
use zero_kv::format::header::{Layout, SectionKind};

use super::*;
use crate::support::encoder;

fn inspect(db: &Path) -> Output {
    zkv().arg("inspect").arg(db).output().unwrap()
}

/// Exit status and object; standard error is left to the text form.
fn inspect_json(db: &Path) -> (Option<i32>, Value) {
    let output = zkv().args(["inspect", "--json"]).arg(db).output().unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn header_and_sections_are_those_of_the_file() {
    let (_folder, db) = baked();
    let bytes = fs::read(&db).unwrap();
    let layout = Layout::decode(&bytes).unwrap();
    let (status, told) = inspect_json(&db);
    assert_eq!(status, Some(0));
    assert_eq!(told["len_bytes"], bytes.len());
    assert_eq!(told["digest"], format!("{:032x}", Store::open(&db).unwrap().digest()));
    assert_eq!((&told["keys"], &told["rows"]), (&Value::from("u64"), &Value::from(4)));
    assert_eq!(told["hash_seed"], layout.dimensions.hash_seed);
    let sections = told["sections"].as_array().unwrap();
    assert_eq!(sections.len(), layout.sections().len());
    for (told, (kind, section)) in sections.iter().zip(layout.sections()) {
        assert_eq!(told["name"], kind.to_string());
        assert_eq!(told["offset_bytes"], section.offset_bytes);
        assert_eq!(told["len_bytes"], section.len_bytes);
        assert_eq!(told["checksum"], format!("{:016x}", section.checksum));
        assert_eq!(told["is_damaged"], false);
    }
    assert_eq!(told["damage"], Value::Null);

    let output = inspect(&db);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    for (kind, section) in layout.sections() {
        let line = text.lines().find(|line| line.starts_with(&kind.to_string())).unwrap();
        assert!(line.contains(&format!(" {} ", section.offset_bytes)), "{line}");
        assert!(line.ends_with(&format!("{:016x}", section.checksum)), "{line}");
    }
}

#[test]
fn sizes_of_values_are_those_of_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // One value of each length from 0 to 999, and one of 100,000 bytes.
    let lens = (0..1000).chain([100_000]);
    let csv: String = lens.enumerate().map(|(key, len)| format!("{key},{}\n", "v".repeat(len))).collect();
    bake_as(Keys::U64, csv.as_bytes(), &db).unwrap();
    let (_, told) = inspect_json(&db);
    let (table, value) = (&told["table"], &told["table"]["value_len_bytes"]);
    assert_eq!((&table["first_key"], &table["last_key"]), (&Value::from(0), &Value::from(1000)));
    assert_eq!(table["common_prefix"], Value::Null);
    let sum = 999 * 1000 / 2 + 100_000;
    assert_eq!(value["sum"], sum);
    assert_eq!(value["mean"], sum as f64 / 1001.0);
    for (percentile, len_bytes) in [("p0", 0), ("p50", 500), ("p90", 900), ("p99", 990), ("p100", 100_000)] {
        assert_eq!(value[percentile], len_bytes, "{percentile}");
    }
    let len_bytes = fs::metadata(&db).unwrap().len();
    assert_eq!(table["overhead_bytes_per_row"], (len_bytes - sum as u64) as f64 / 1001.0);
    let bins: Vec<[u64; 3]> = value["histogram"].as_array().unwrap().iter().map(bin).collect();
    assert_eq!(bins[..3], [[0, 0, 1], [1, 1, 1], [2, 3, 2]]);
    assert_eq!((bins[10], bins[11]), ([512, 1023, 488], [1024, 2047, 0]));
    assert_eq!((bins.len(), bins[17]), (18, [65536, 131_071, 1]));
    assert_eq!(bins.iter().map(|bin| bin[2]).sum::<u64>(), 1001);
}

fn bin(bin: &Value) -> [u64; 3] {
    ["least", "most", "rows"].map(|name| bin[name].as_u64().unwrap())
}

#[test]
fn keys_of_bytes_are_told_with_what_they_have_in_common() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    bake_as(Keys::Bytes, b"user:\x1b[1m,a\nuser:\xff,b\n", &db).unwrap();
    let (_, told) = inspect_json(&db);
    assert_eq!(told["keys"], "bytes");
    assert_eq!(told["table"]["common_prefix"], "user:");
    assert_eq!(told["table"]["first_key"], "user:\x1b[1m");
    assert_eq!(told["table"]["last_key"], "user:\u{fffd}");
    let text = String::from_utf8(inspect(&db).stdout).unwrap();
    for line in [r#"first key     "user:\x1b[1m""#, r#"last key      "user:\xff""#, r#"prefix of all "user:""#] {
        assert!(text.lines().any(|told| told == line), "{text}");
    }
}

#[test]
fn a_table_without_rows_has_a_header_and_sections() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    for keys in [Keys::U64, Keys::Bytes] {
        bake_as(keys, b"", &db).unwrap();
        let (status, told) = inspect_json(&db);
        assert_eq!((status, &told["rows"]), (Some(0), &Value::from(0)));
        assert_eq!(told["table"]["first_key"], Value::Null);
        assert_eq!(told["table"]["value_len_bytes"]["histogram"], Value::Array(Vec::new()));
        assert_eq!(inspect(&db).status.code(), Some(0));
    }
}

#[test]
fn of_a_damaged_file_the_header_is_told_and_which_sections_are_damaged() {
    let (_folder, db) = baked();
    let whole = fs::read(&db).unwrap();
    for (kind, section) in Layout::decode(&whole).unwrap().sections() {
        let mut bytes = whole.clone();
        bytes[section.offset_bytes as usize] ^= 1;
        fs::write(&db, bytes).unwrap();
        let (status, told) = inspect_json(&db);
        assert_eq!((status, &told["rows"], &told["table"]), (Some(1), &Value::from(4), &Value::Null));
        for told in told["sections"].as_array().unwrap() {
            assert_eq!(told["is_damaged"], told["name"] == kind.to_string(), "{kind}");
        }
        let damage = told["damage"].as_str().unwrap();
        let output = inspect(&db);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("  damaged\n").count(), 1, "{text}");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("zkv: {damage}\n"));
    }
    // The header says nothing that can be believed.
    let mut bytes = whole.clone();
    bytes[20] ^= 1;
    fs::write(&db, bytes).unwrap();
    assert_damaged(&inspect(&db), "table.db: ");
    fs::remove_file(&db).unwrap();
    assert_error(&inspect(&db), &["table.db: ", "No such file"]);
}

#[test]
fn both_checksums_and_contents_are_looked_at() {
    let (_folder, db) = baked();
    let mut bytes = fs::read(&db).unwrap();
    // Two rows that are not in order, with checksums that are right, are still damage.
    let layout = Layout::decode(&bytes).unwrap();
    let (_, records) = layout.sections().into_iter().find(|(kind, _)| *kind == SectionKind::Records).unwrap();
    bytes[records.offset_bytes as usize] = 200;
    encoder::seal(&mut bytes);
    fs::write(&db, bytes).unwrap();
    let (status, told) = inspect_json(&db);
    assert_eq!(status, Some(1));
    assert!(told["sections"].as_array().unwrap().iter().all(|section| section["is_damaged"] == false));
    assert!(told["damage"].as_str().unwrap().contains("row "), "{}", told["damage"]);
}
