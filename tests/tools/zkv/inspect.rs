//! `zkv inspect`: the report matches the file.

use serde_json::Value;
use zero_kv::Store;
use zero_kv::format::header::{Layout, SectionKind};

use super::*;
use crate::helpers::encoder;

fn inspect(db: &Path) -> Output {
    zkv().arg("inspect").arg(db).output().unwrap()
}

/// Returns the exit status and the report. The tests of the text form check standard error.
fn inspect_json(db: &Path) -> (Option<i32>, Value) {
    let output = zkv().args(["inspect", "--json"]).arg(db).output().unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_report_has_the_header_and_the_sections() {
    let (_folder, db) = baked();
    let bytes = fs::read(&db).unwrap();
    let layout = Layout::decode(&bytes).unwrap();
    let (status, report) = inspect_json(&db);
    assert_eq!(status, Some(0));
    assert_eq!(report["len_bytes"], bytes.len());
    assert_eq!(report["digest"], format!("{:032x}", Store::open(&db).unwrap().digest()));
    assert_eq!((&report["keys"], &report["rows"]), (&Value::from("u64"), &Value::from(4)));
    assert_eq!(report["hash_seed"], layout.dimensions.hash_seed);
    let sections = report["sections"].as_array().unwrap();
    assert_eq!(sections.len(), layout.sections().len());
    for (report, (kind, section)) in sections.iter().zip(layout.sections()) {
        assert_eq!(report["name"], kind.to_string());
        assert_eq!(report["offset_bytes"], section.offset_bytes);
        assert_eq!(report["len_bytes"], section.len_bytes);
        assert_eq!(report["checksum"], format!("{:016x}", section.checksum));
        assert_eq!(report["is_damaged"], false);
    }
    assert_eq!(report["damage"], Value::Null);

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
fn the_report_has_the_sizes_of_values() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // The lengths of the values: each length from 0 to 999, and 100,000.
    let lens = (0..1000).chain([100_000]);
    let csv: String = lens.enumerate().map(|(key, len)| format!("{key},{}\n", "v".repeat(len))).collect();
    bake_text(&db, Keys::U64, csv.as_bytes());
    let (_, report) = inspect_json(&db);
    let (table, value) = (&report["table"], &report["table"]["value_len_bytes"]);
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

#[test]
fn the_histogram_of_values_of_one_length_has_one_bin() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let csv: String = (0..7).map(|key| format!("{key},{}\n", "v".repeat(100))).collect();
    bake_text(&db, Keys::U64, csv.as_bytes());
    let (_, report) = inspect_json(&db);
    let bins: Vec<[u64; 3]> =
        report["table"]["value_len_bytes"]["histogram"].as_array().unwrap().iter().map(bin).collect();
    assert_eq!(bins, [[64, 127, 7]]);
}

fn bin(bin: &Value) -> [u64; 3] {
    ["least", "most", "rows"].map(|name| bin[name].as_u64().unwrap())
}

#[test]
fn the_report_has_the_common_prefix_of_keys_that_are_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    bake_text(&db, Keys::BYTES, b"user:\x1b[1m,a\nuser:\xff,b\n");
    let (_, report) = inspect_json(&db);
    assert_eq!(report["keys"], "bytes");
    assert_eq!(report["table"]["common_prefix"], "user:");
    assert_eq!(report["table"]["first_key"], "user:\x1b[1m");
    assert_eq!(report["table"]["last_key"], "user:\u{fffd}");
    let text = String::from_utf8(inspect(&db).stdout).unwrap();
    for line in [r#"first key     "user:\x1b[1m""#, r#"last key      "user:\xff""#, r#"prefix of all "user:""#] {
        assert!(text.lines().any(|report| report == line), "{text}");
    }
}

#[test]
fn the_report_of_an_empty_table_has_a_header_and_sections() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    for keys in [Keys::U64, Keys::BYTES] {
        bake_text(&db, keys, b"");
        let (status, report) = inspect_json(&db);
        assert_eq!((status, &report["rows"]), (Some(0), &Value::from(0)));
        assert_eq!(report["table"]["first_key"], Value::Null);
        assert_eq!(report["table"]["value_len_bytes"]["histogram"], Value::Array(Vec::new()));
        assert_eq!(inspect(&db).status.code(), Some(0));
    }
}

#[test]
fn the_report_of_a_damaged_file_has_the_header_and_the_damaged_sections() {
    let (_folder, db) = baked();
    let whole = fs::read(&db).unwrap();
    // The schema of a table that is not typed is an empty section, which no byte can damage.
    let sections = Layout::decode(&whole).unwrap().sections().into_iter().filter(|(_, section)| section.len_bytes > 0);
    for (kind, section) in sections {
        let mut bytes = whole.clone();
        bytes[section.offset_bytes as usize] ^= 1;
        fs::write(&db, bytes).unwrap();
        let (status, report) = inspect_json(&db);
        assert_eq!((status, &report["rows"], &report["table"]), (Some(1), &Value::from(4), &Value::Null));
        for report in report["sections"].as_array().unwrap() {
            assert_eq!(report["is_damaged"], report["name"] == kind.to_string(), "{kind}");
        }
        let damage = report["damage"].as_str().unwrap();
        let output = inspect(&db);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("  damaged\n").count(), 1, "{text}");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("zkv: {damage}\n"));
    }
    // A damaged header cannot be trusted.
    let mut bytes = whole.clone();
    bytes[20] ^= 1;
    fs::write(&db, bytes).unwrap();
    assert_damaged(&inspect(&db), "table.db: ");
    fs::remove_file(&db).unwrap();
    assert_error(&inspect(&db), &["table.db: ", "No such file"]);
}

#[test]
fn contents_are_checked_even_if_checksums_match() {
    let (_folder, db) = baked();
    let mut bytes = fs::read(&db).unwrap();
    // Rows in the wrong order are damage even if all checksums match.
    let layout = Layout::decode(&bytes).unwrap();
    let (_, records) = layout.sections().into_iter().find(|(kind, _)| *kind == SectionKind::Records).unwrap();
    bytes[records.offset_bytes as usize] = 200;
    encoder::seal(&mut bytes);
    fs::write(&db, bytes).unwrap();
    let (status, report) = inspect_json(&db);
    assert_eq!(status, Some(1));
    assert!(report["sections"].as_array().unwrap().iter().all(|section| section["is_damaged"] == false));
    assert!(report["damage"].as_str().unwrap().contains("row "), "{}", report["damage"]);
}
