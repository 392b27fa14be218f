//! Answers and pages that a server tampered with: see `tests/fuzz/answers.rs`.
#![no_main]

#[path = "../../tests/fuzz/answers.rs"]
mod answers;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;
#[path = "../../tests/fuzz/served.rs"]
mod served;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/fuzz/tamper.rs"]
mod tamper;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static TABLES: LazyLock<answers::Tables> = LazyLock::new(|| answers::Tables::start(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| answers::check(&TABLES, data));
