//! `--keys`: the valid keys of each kind, and how they are stored.

use zero_kv::KeyKind;
use zero_kv::Lookup;

use crate::helpers::baker_runs::Folder;
use crate::helpers::encoder::KEY_KIND;

/// Returns the rows of `storage.db`, whose keys are bytes.
fn byte_rows(folder: &Folder) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = folder.open("storage.db");
    assert_eq!(store.key_kind(), KeyKind::Bytes);
    store
        .iter()
        .map(Result::unwrap)
        .map(|(key, value)| (key.as_bytes().expect("bytes").to_vec(), value.to_vec()))
        .collect()
}

#[track_caller]
fn assert_bakes<const N: usize>(text: impl AsRef<[u8]>, args: &[&str], expected: [(&[u8], &[u8]); N]) {
    let folder = Folder::new();
    let args: Vec<&str> = ["--keys", "bytes"].iter().chain(args).copied().collect();
    folder.bake_text(text, &args).succeeds();
    assert_eq!(byte_rows(&folder), expected.map(|(key, value)| (key.to_vec(), value.to_vec())));
}

#[track_caller]
fn assert_refused(text: impl AsRef<[u8]>, args: &[&str], message: &str) {
    let folder = Folder::new();
    folder.bake_text(text, args).fails(&format!("standard input{message}"));
    assert_eq!(folder.names(), [""; 0]);
}

/// Returns the file that a bake with these keys writes.
fn baked(text: &[u8], keys: &str) -> Vec<u8> {
    let folder = Folder::new();
    folder.bake_text(text, &["--keys", keys]).succeeds();
    std::fs::read(folder.path("storage.db")).unwrap()
}

#[test]
fn keys_of_bytes_are_the_unchanged_fields() {
    assert_bakes("b,2\na,1\n", &[], [(b"a", b"1"), (b"b", b"2")]);
    // Numbers are text too: they are not trimmed or parsed.
    assert_bakes(
        "10,a\n9,b\n010,c\n 9,d\n-1,e\n",
        &[],
        [(b" 9", b"d"), (b"-1", b"e"), (b"010", b"c"), (b"10", b"a"), (b"9", b"b")],
    );
    assert_bakes("n,id\nx,K\ny,k\n", &["--header", "--key", "id", "--value", "n"], [(b"K", b"x"), (b"k", b"y")]);
}

#[test]
fn keys_may_hold_quotes_delimiters_line_ends_and_any_byte() {
    assert_bakes(
        "\"say \"\"so\"\"\",1\n\"a,b\",2\n\"two\r\nlines\n\",3\n\"\"\"\",4\n",
        &[],
        [(b"\"", b"4"), (b"a,b", b"2"), (b"say \"so\"", b"1"), (b"two\r\nlines\n", b"3")],
    );
    assert_bakes(
        b"a\0,1\n\0,2\na,3\n\xff\xfe,4\n\xc3\xa9,5\n",
        &[],
        [(b"\0", b"2"), (b"a", b"3"), (b"a\0", b"1"), (b"\xc3\xa9", b"5"), (b"\xff\xfe", b"4")],
    );
    let all: Vec<u8> = (0..=255).filter(|byte| !b"\",\r\n".contains(byte)).collect();
    assert_bakes([&all[..], b",all\n"].concat(), &[], [(&all, b"all")]);
}

#[test]
fn keys_of_bytes_are_ordered_by_their_bytes() {
    let text = "b\na\nab\naa\n\u{e9}\nB\na \nzz\nz\n~\n".replace('\n', ",v\n");
    let folder = Folder::new();
    folder.bake_text(&text, &["--keys", "bytes"]).succeeds();
    let keys: Vec<Vec<u8>> = byte_rows(&folder).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["B", "a", "a ", "aa", "ab", "b", "z", "zz", "~", "\u{e9}"].map(|key| key.as_bytes().to_vec()));
}

#[test]
fn a_key_is_1_to_65535_bytes() {
    let long = |len: usize| "k".repeat(len);
    let folder = Folder::new();
    folder.bake_text(format!("{},long\nk,short\n", long(65_535)), &["--keys", "bytes"]).succeeds();
    assert_eq!(byte_rows(&folder), [(b"k".to_vec(), b"short".to_vec()), (long(65_535).into_bytes(), b"long".to_vec())]);
    let allowed = "where 1 to 65535 are allowed: correct the row, or choose another key column (--key)";
    for keys in ["bytes", "auto"] {
        let args = ["--keys", keys];
        assert_refused("a,1\n,2\n", &args, &format!(":2: a key of 0 bytes, {allowed}"));
        assert_refused("a,1\r\n\r\n\"\",2\r\n", &args, &format!(":3: a key of 0 bytes, {allowed}"));
        for len in [65_536, 65_537, 1 << 17] {
            let text = format!("a,\"x\ny\"\n{},2\nb,3\n", long(len));
            assert_refused(text, &args, &format!(":3: a key of {len} bytes, {allowed}"));
        }
    }
}

#[test]
fn a_duplicate_key_of_bytes_is_an_error_that_names_both_lines_or_one_is_kept() {
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let keys = ["--keys", "bytes"];
    assert_refused("e,a\nc,b\ne,c\n", &keys, &format!(":3: key \"e\" is already on line 1: {remedy}"));
    // The first duplicate in the input is reported, whatever its key. An additional leading zero makes a different key.
    assert_refused(
        b"k,v\nz,a\na,b\na\0,b\nz,c\na,d\n",
        &["--keys", "bytes", "--header"],
        &format!(":5: key \"z\" is already on line 2: {remedy}"),
    );
    // The keys share their first 60 bytes, more than a message shows.
    let long = "x".repeat(60);
    assert_refused(
        format!("{long}1,a\n{long}2,b\n{long}1,c\n"),
        &keys,
        &format!(":3: key \"{}…\" is already on line 1: {remedy}", &long[..40]),
    );
    for (policy, kept) in [("first", b"a"), ("last", b"d")] {
        let folder = Folder::new();
        let ended = folder.bake_text("e,a\nc,b\ne,c\ne,d\n", &["--keys", "bytes", "--duplicates", policy]);
        assert!(ended.succeeds().out.contains(" 2 rows (2 duplicates dropped), "), "{}", ended.out);
        assert_eq!(byte_rows(&folder), [(b"c".to_vec(), b"b".to_vec()), (b"e".to_vec(), kept.to_vec())]);
    }
}

#[test]
fn the_error_for_a_duplicate_is_one_line_for_any_key() {
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let message = format!(":4: key \"a\\nb \\\"\\u{{1b}}\u{fffd}\" is already on line 2: {remedy}");
    assert_refused(b"x,1\n\"a\nb \"\"\x1b\xff\",2\n\"a\nb \"\"\x1b\xff\",3\n", &["--keys", "bytes"], &message);
}

#[test]
fn auto_takes_numbers_if_every_key_is_a_decimal_without_leading_zeros() {
    let numbers = b"7,a\n18446744073709551615,b\n0,c\n10,d\n";
    assert!(baked(numbers, "auto") == baked(numbers, "u64"));
    // A number with a leading zero, a number that is too great, a word, a sign, and a space.
    for other in ["007", "00", "18446744073709551616", "word", "+7", "-7", " 7", "7 ", "7.0", "0x7", "\u{0667}"] {
        for text in [format!("7,a\n{other},b\n9,c\n"), format!("{other},b\n7,a\n"), format!("{other},b\n")] {
            assert!(baked(text.as_bytes(), "auto") == baked(text.as_bytes(), "bytes"), "{text:?}");
        }
    }
    assert!(baked(b"", "auto") == baked(b"", "u64"), "no key is not a number");
    // Lines are reported correctly in both cases.
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    let auto = ["--keys", "auto"];
    assert_refused("1,\"x\ny\"\n2,b\n1,c\n", &auto, &format!(":4: key 1 is already on line 1: {remedy}"));
    assert_refused("1,\"x\ny\"\nz,b\n1,c\n", &auto, &format!(":4: key \"1\" is already on line 1: {remedy}"));
}

#[test]
fn auto_keeps_the_same_row_of_a_duplicate_key() {
    let folder = Folder::new();
    folder.bake_text("5,a\n3,b\n5,c\n", &["--keys", "auto", "--duplicates", "last"]).succeeds();
    assert_eq!(folder.rows(), [(3, b"b".to_vec()), (5, b"c".to_vec())]);
    // 7 and 007 are one number, and two keys of bytes.
    folder.bake_text("7,a\n007,b\n", &["--keys", "auto", "--allow-key-kind-change"]).succeeds();
    assert_eq!(byte_rows(&folder), [(b"007".to_vec(), b"b".to_vec()), (b"7".to_vec(), b"a".to_vec())]);
}

#[test]
fn keys_are_numbers_by_default_and_the_summary_names_their_kind() {
    let folder = Folder::new();
    for (args, kind) in [
        (&[][..], "unsigned 64-bit numbers"),
        (&["--keys", "u64"], "unsigned 64-bit numbers"),
        (&["--keys", "bytes"], "bytes"),
        (&["--keys", "auto"], "unsigned 64-bit numbers"),
    ] {
        let ended = folder.bake_text("7,a\n", &[args, &["--allow-key-kind-change"]].concat());
        assert!(ended.succeeds().out.ends_with(&format!("; keys are {kind}\n")), "{args:?}: {}", ended.out);
    }
    assert!(baked(b"7,a\n", "u64")[KEY_KIND] == 1 && baked(b"7,a\n", "bytes")[KEY_KIND] == 2);
    let ended = folder.bake_text("7,a\n", &["--keys", "text"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.err.contains("possible values: u64, bytes, auto"), "{}", ended.err);
}
