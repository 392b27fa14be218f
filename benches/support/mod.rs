//! What the benches share: how they are run, seeded randomness, and rows.

#![allow(dead_code, reason = "each bench uses a part of this")]

use std::io::Write;

/// Warns if what is measured was built without optimisation.
pub(crate) fn warn_if_slow() {
    if cfg!(debug_assertions) && !is_test() {
        eprintln!("warning: built without optimisation, the figures mean nothing: use `cargo bench`");
    }
}

/// Whether to run everything once on a tiny table and measure nothing: by
/// `cargo test --benches` or `cargo bench -- --test`.
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

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// The shortest value that [`push_value`] makes.
pub(crate) const VALUE_LEN_MIN_BYTES: usize = 26;

/// Appends the value of a key: 26 bytes that name the key, and dots up to the
/// length.
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
