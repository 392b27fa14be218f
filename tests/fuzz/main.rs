//! What the fuzz targets try, with random inputs; see fuzz/README.md.

#![cfg(feature = "cli")]

mod csv;
mod merge;
mod rows;
mod source;
#[path = "../support/mod.rs"]
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use support::Random;

/// Pieces that, in a row, are now rows, now nearly rows.
const PIECES: &[&[u8]] = &[
    b"1,one\n", b"2,two\r\n", b"key,b\n", b"3,", b"\n", b",", b"\"", b"\"\"", b"a\"b", b"\r", b"\r\n", b"-", b"7", b"007",
    b"18446744073709551615", b"18446744073709551616", b"\xef\xbb\xbf", b"\xff", b"x", b"\"4\",\"a\nb\"\n", b"5,\"c\"d\n",
    b"{\"key\":1,\"value\":\"x\"}\n", b"{\"key\":\"a\",\"value\":[1]}\n", b"\t", b"6\tsix\n", b"yes", b"8,\xc3\xa9,1\n",
];

/// Cases of choices at random, and then pieces of some kind.
fn try_random(cases: usize, choices_len_bytes: usize, check: impl Fn(&[u8])) {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..cases {
        let mut data = random.bytes(choices_len_bytes);
        let usual = 2 + random.below(PIECES.len() - 1);
        for _ in 0..random.below(40) {
            data.extend_from_slice(PIECES[random.below(usual)]);
        }
        check(&data);
    }
}

#[test]
fn any_text_is_baked_as_its_rows_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    try_random(400, 28, |data| csv::check(folder.path(), data));
}

#[test]
fn a_merge_is_the_bake_of_what_a_map_has_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    try_random(150, 1000, |data| merge::check(folder.path(), data));
}
