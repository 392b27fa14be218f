//! Any bytes, baked as text: see `tests/fuzz/csv.rs`.
#![no_main]

#[path = "../../tests/fuzz/csv.rs"]
mod csv;
#[path = "../../tests/fuzz/source.rs"]
mod source;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| csv::check(FOLDER.path(), data));
