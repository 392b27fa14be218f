//! Sends arbitrary bytes to a server, split anywhere: see `tests/fuzz/native.rs`.
#![no_main]

use std::sync::LazyLock;

use zero_kv_fuzz::fuzz::native;

static TABLES: LazyLock<native::Tables> = LazyLock::new(native::Tables::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| native::check(&TABLES, data));
