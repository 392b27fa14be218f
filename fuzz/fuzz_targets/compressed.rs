//! Inputs of a bake in gzip and Zstandard: see `tests/fuzz/compressed.rs`.
#![no_main]

#[path = "../../tests/fuzz/compressed.rs"]
mod compressed;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/fuzz/tamper.rs"]
mod tamper;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| compressed::check(FOLDER.path(), data));
