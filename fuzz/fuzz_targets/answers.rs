//! Decodes responses and pages that were changed on their way to a client: see `tests/fuzz/answers.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::answers;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static TABLES: LazyLock<answers::Tables> = LazyLock::new(|| answers::Tables::start(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| answers::check(&TABLES, data));
