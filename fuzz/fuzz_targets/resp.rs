//! Any bytes a client may send, cut anywhere: see `tests/resp/splits.rs`.
#![no_main]

#[path = "../../tests/resp/splits.rs"]
mod splits;

libfuzzer_sys::fuzz_target!(|data: &[u8]| splits::check(data));
