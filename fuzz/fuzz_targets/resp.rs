//! Parses arbitrary bytes as Redis commands, split anywhere: see `tests/fuzz/resp.rs`.
#![no_main]

use zero_kv_fuzz::fuzz::resp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| resp::check(data));
