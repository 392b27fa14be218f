//! What a server passes to a client that maps the file: see `tests/fuzz/descriptors.rs`.
#![no_main]

#[path = "../../tests/fuzz/descriptors.rs"]
mod descriptors;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;
#[path = "../../tests/fuzz/served.rs"]
mod served;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../../tests/fuzz/tamper.rs"]
mod tamper;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static PASSING: LazyLock<descriptors::Passing> = LazyLock::new(|| descriptors::Passing::start(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| descriptors::check(&PASSING, data));
