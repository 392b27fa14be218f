//! Forged files: every checksum is correct, but the content violates the format.

mod bytes;
mod contents;
mod groups;
mod header;
mod mutations;
mod ranges;

use zero_kv::format::FormatError;

use crate::helpers::encoder::{put, seal};
use crate::helpers::rows::{Rows, Scratch};

pub(crate) fn rows(count: u64) -> Rows {
    (0..count).map(|i| (i * 3 + 1, vec![b'a' + (i % 26) as u8; (i % 30) as usize])).collect()
}

/// Returns a file of `count` rows with one changed number and correct checksums.
pub(crate) fn forged(scratch: &Scratch, count: u64, at: usize, number: u64) -> Vec<u8> {
    let mut file = scratch.bake(&rows(count));
    put(&mut file, at, number);
    seal(&mut file);
    file
}

/// The error text for a row that the index does not lead to.
pub(crate) const NOT_FOUND_BY_INDEX: &str = "the index does not find it";

pub(crate) fn row(row: u64, what: &'static str) -> FormatError {
    FormatError::Row { row, what }
}

#[track_caller]
pub(crate) fn assert_refused(refusal: &FormatError, expected: &FormatError, message: &str) {
    assert_eq!((refusal, &*refusal.to_string()), (expected, message));
}

#[test]
fn sealing_a_good_file_changes_nothing() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(300));
    let mut sealed = good.clone();
    seal(&mut sealed);
    assert!(sealed == good, "resealing an unchanged file must give the same bytes");
}
