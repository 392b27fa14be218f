//! Sends arbitrary bytes to a server as Redis commands, split anywhere: see `tests/fuzz/session.rs`.
#![no_main]

use std::sync::LazyLock;

use zero_kv_fuzz::fuzz::session;

static TABLES: LazyLock<session::Tables> = LazyLock::new(session::Tables::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| session::check(&TABLES, data));
