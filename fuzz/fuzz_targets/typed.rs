//! Opens typed files whose schema and rows are forged: see `tests/fuzz/typed.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::typed;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| typed::check(&FOLDER.path().join("storage.db"), &typed::file(data)));
