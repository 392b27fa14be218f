//! Files that were changed, opened and asked: see `tests/fuzz/open.rs`.
#![no_main]

#[path = "../../tests/fuzz/open.rs"]
mod open;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static FILES: LazyLock<open::Files> = LazyLock::new(|| open::Files::bake(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| open::check(&FILES, data));
