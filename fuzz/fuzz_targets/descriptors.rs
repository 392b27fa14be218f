//! Changes what a server passes to a client in direct mode: see `tests/fuzz/descriptors.rs`.
#![no_main]

use std::sync::LazyLock;

use tempfile::TempDir;
use zero_kv_fuzz::fuzz::descriptors;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for temporary files"));
static PASSING: LazyLock<descriptors::TamperingServer> =
    LazyLock::new(|| descriptors::TamperingServer::start(FOLDER.path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| descriptors::check(&PASSING, data));
