//! Small tables of any rows, merged: see `tests/fuzz/merge.rs`.
#![no_main]

#[path = "../../tests/fuzz/merge.rs"]
mod merge;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;
#[path = "../../tests/fuzz/source.rs"]
mod source;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| merge::check(FOLDER.path(), data));
