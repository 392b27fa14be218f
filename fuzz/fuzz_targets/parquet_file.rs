//! Bakes changed Parquet files: see `tests/fuzz/parquet_file.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::parquet_file;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static INPUTS: LazyLock<parquet_file::Inputs> = LazyLock::new(parquet_file::Inputs::write);

libfuzzer_sys::fuzz_target!(
    // A bake catches panics of the crate `parquet`, but libFuzzer's panic hook would end the process first. Panics that
    // nothing catches still end the process.
    init: drop(std::panic::take_hook()),
    |data: &[u8]| parquet_file::check(&INPUTS, FOLDER.path(), data)
);
