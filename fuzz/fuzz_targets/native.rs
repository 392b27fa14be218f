//! Any bytes a client may send, cut anywhere, to a server: see `tests/fuzz/native.rs`.
#![no_main]

#[path = "../../tests/common/frames.rs"]
mod common;
#[path = "../../tests/fuzz/native.rs"]
mod native;
#[allow(dead_code, reason = "tests of the wire use the rest")]
#[path = "../../tests/wire/reference.rs"]
mod reference;
#[path = "../../tests/fuzz/served.rs"]
mod served;
#[path = "../../tests/fuzz/source.rs"]
mod source;

use std::sync::LazyLock;

static TABLES: LazyLock<native::Tables> = LazyLock::new(native::Tables::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| native::check(&TABLES, data));
