//! Helpers of the benches: detection of test mode, and generation of rows.

#![allow(dead_code, reason = "each bench uses some of the helpers")]

use std::io::Write;

/// Prints a warning if the bench was built without optimization.
pub(crate) fn warn_if_slow() {
    if cfg!(debug_assertions) && !is_test() {
        eprintln!("warning: built without optimization, so the results are not valid: use `cargo bench`");
    }
}

/// Returns whether the bench runs as a test, as with `cargo test --benches` or `cargo bench -- --test`. As a test, the
/// bench runs everything once on a tiny table, without measuring.
pub(crate) fn is_test() -> bool {
    let mut is_bench = false;
    for arg in std::env::args() {
        match &*arg {
            "--test" => return true,
            "--bench" => is_bench = true,
            _ => {}
        }
    }
    !is_bench
}

/// The minimum length of values.
pub(crate) const VALUE_LEN_MIN_BYTES: usize = 26;

/// Appends the value of a key: 26 bytes that contain the key, followed by dots up to the requested length.
pub(crate) fn push_value(to: &mut Vec<u8>, key: u64, len_bytes: usize) {
    let end = to.len() + len_bytes;
    write!(to, "{key:020}-value").expect("a write to memory");
    to.resize(end, b'.');
}

/// Appends a row of CSV for a key.
pub(crate) fn push_csv_row(to: &mut Vec<u8>, key: u64, value_len_bytes: usize) {
    write!(to, "{key},").expect("a write to memory");
    push_value(to, key, value_len_bytes);
    to.push(b'\n');
}
