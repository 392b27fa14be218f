//! Bakes arbitrary bytes as typed text: see `tests/fuzz/typed_text.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::typed_text;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| typed_text::check(FOLDER.path(), data));
