//! Inputs of a bake in Parquet: see `tests/fuzz/parquet_file.rs`.
#![no_main]

#[path = "../../tests/fuzz/parquet_file.rs"]
mod parquet_file;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[path = "../../tests/fuzz/tamper.rs"]
mod tamper;

use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static INPUTS: LazyLock<parquet_file::Inputs> = LazyLock::new(parquet_file::Inputs::write);

libfuzzer_sys::fuzz_target!(|data: &[u8]| parquet_file::check(&INPUTS, FOLDER.path(), data));
