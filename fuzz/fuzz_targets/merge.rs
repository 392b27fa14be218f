//! Merges small tables: see `tests/fuzz/merge.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::merge;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| merge::check(FOLDER.path(), data));
