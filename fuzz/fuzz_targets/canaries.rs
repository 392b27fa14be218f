//! Opens a table with canaries that arbitrary bytes describe: see `tests/fuzz/canaries.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::canaries;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static TABLES: LazyLock<canaries::Tables> = LazyLock::new(|| canaries::Tables::bake(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| canaries::check(&TABLES, data));
