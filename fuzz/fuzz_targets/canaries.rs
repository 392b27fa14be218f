//! Files of canaries: see `tests/fuzz/canaries.rs`.
#![no_main]

#[path = "../../tests/fuzz/canaries.rs"]
mod canaries;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/fuzz/tamper.rs"]
mod tamper;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static TABLES: LazyLock<canaries::Tables> = LazyLock::new(|| canaries::Tables::bake(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| canaries::check(&TABLES, data));
