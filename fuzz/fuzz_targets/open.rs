//! Opens changed files and looks keys up: see `tests/fuzz/open.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::open;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static FILES: LazyLock<open::Files> = LazyLock::new(|| open::Files::bake(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| open::check(&FILES, data));
