//! `benchmarker --protocol resp` against a real Redis that holds the rows of a baked file.

use std::path::Path;
use std::process::Command;

use zero_kv::bake::Keys;

use crate::helpers::redis_server::Redis;
use crate::helpers::rows::{bake_text, csv_row};
use crate::helpers::trials::Missing;

const OPTIONS: [&[&str]; 3] = [&["--op=get"], &["--op=get:0.7,exists:0.3", "--miss-ratio=0.3"], &["--memory"]];

/// Bakes rows, stores them in a Redis, and lets benchmarker verify every value.
fn assert_verifies(rows: &[(Vec<u8>, Vec<u8>)], keys: Keys) -> Result<(), Missing> {
    let redis = Redis::start()?;
    redis.fill(rows.iter().map(|(key, value)| (&key[..], &value[..])));
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake_text(&db, keys, rows.iter().flat_map(|(key, value)| csv_row(key, value)).collect::<Vec<u8>>());
    for options in OPTIONS {
        assert_run_is_good(&db, redis.socket(), options);
    }
    Ok(())
}

#[track_caller]
fn assert_run_is_good(db: &Path, socket: &Path, options: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_benchmarker"));
    command.args([
        "--protocol=resp",
        "--json",
        "--verify",
        "--seconds=0.2",
        "--warmup=0",
        "--clients=4",
        "--pipeline=16",
    ]);
    let output = command.arg("--db").arg(db).arg("--socket").arg(socket).args(options).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{options:?}: {error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Each of the four clients completes at least one pipeline of 16.
    assert!(report["requests"].as_u64().unwrap() >= 64, "{report}");
    assert_eq!(report["errors"], 0, "{report}");
}

pub(crate) fn a_real_redis_answers_for_byte_keys_of_all_bytes_and_lengths() -> Result<(), Missing> {
    let bytes = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
    let lengths = (1..300).chain([4_000, 65_535]);
    let rows: Vec<_> = lengths.map(|len| (bytes(len), len.to_string().into_bytes())).collect();
    assert_verifies(&rows, Keys::BYTES)
}

pub(crate) fn a_real_redis_with_the_same_rows_passes_verification() -> Result<(), Missing> {
    let row = |key: u64| (key.to_string().into_bytes(), format!("value_content_at_key_{key}").into_bytes());
    assert_verifies(&(1..=1_000).map(row).collect::<Vec<_>>(), Keys::U64)
}
