//! Any bytes a client of Redis may send, cut anywhere, to a server: see `tests/fuzz/session.rs`.
#![no_main]

#[path = "../../tests/common/frames.rs"]
mod common;
#[allow(dead_code, reason = "tests of the wire use the rest")]
#[path = "../../tests/wire/reference.rs"]
mod reference;
#[path = "../../tests/fuzz/served.rs"]
mod served;
#[path = "../../tests/fuzz/session.rs"]
mod session;
#[path = "../../tests/fuzz/source.rs"]
mod source;
#[expect(dead_code, reason = "its other half is the target resp")]
#[path = "../../tests/resp/splits.rs"]
mod splits;

use std::sync::LazyLock;

static TABLES: LazyLock<session::Tables> = LazyLock::new(session::Tables::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| session::check(&TABLES, data));
