//! Reads a published table with forged documents: see `tests/fuzz/documents.rs`.
#![no_main]

use std::sync::LazyLock;

use zero_kv_fuzz::fuzz::documents;

static TABLE: LazyLock<documents::Table> = LazyLock::new(documents::Table::publish);

libfuzzer_sys::fuzz_target!(|data: &[u8]| documents::check(&TABLE, data));
