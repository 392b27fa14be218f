//! Helpers of the benches: test mode, and rows.

#![allow(dead_code, reason = "each bench uses some of the helpers")]

use std::io::Write;

/// Warns if the bench was built without optimization.
pub(crate) fn warn_if_slow() {
    if cfg!(debug_assertions) && !is_test() {
        eprintln!("warning: built without optimization, so the results are not valid: use `cargo bench`");
    }
}

/// Returns whether to run everything once on a tiny table without measuring, as with `cargo test --benches` or
/// `cargo bench -- --test`.
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

/// Appends the value of a key: 26 bytes that contain the key, and dots up to the length.
pub(crate) fn push_value(to: &mut Vec<u8>, key: u64, len_bytes: usize) {
    let end = to.len() + len_bytes;
    write!(to, "{key:020}-value").expect("a write to memory");
    to.resize(end, b'.');
}

/// Appends the row of a key as CSV.
pub(crate) fn push_csv_row(to: &mut Vec<u8>, key: u64, value_len_bytes: usize) {
    write!(to, "{key},").expect("a write to memory");
    push_value(to, key, value_len_bytes);
    to.push(b'\n');
}
