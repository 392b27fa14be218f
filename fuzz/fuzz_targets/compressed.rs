//! Bakes damaged gzip and Zstandard inputs: see `tests/fuzz/compressed.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::compressed;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| compressed::check(FOLDER.path(), data));
