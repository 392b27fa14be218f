//! Output formats of rows and values.

use super::both::Both;
use super::*;

fn table() -> Both {
    Both::new(Keys::BYTES, b"ant,\"a\tb\n\"\"\"\nbee,\nb\xff,\x00\xc3\xa9\x80\n\xc3\xa9,acute\n")
}

#[test]
fn a_single_value_is_written_in_each_format() {
    let table = table();
    let assert = |args: &[&str], stdout: &[u8]| {
        let found = table.ask_with(&[&["get"], args].concat(), b"");
        assert_eq!(found, (Some(0), stdout.to_vec(), String::new()), "{args:?}");
    };
    assert(&["ant"], b"a\tb\n\"");
    assert(&["ant", "--format", "raw"], b"a\tb\n\"");
    assert(&["ant", "-z"], b"a\tb\n\"\0");
    assert(&["ant", "--format", "escaped"], b"a\\tb\\n\\\"\n");
    assert(&["ant", "-f", "hex"], b"6109620a22\n");
    assert(&["ant", "-f", "json"], b"{\"key\":\"ant\",\"value\":\"a\\tb\\n\\\"\"}\n");
    assert(&["ant", "-f", "csv"], b"ant,\"a\tb\n\"\"\"\n");
    assert(&["bee"], b"");
    assert(&["bee", "-f", "hex"], b"\n");
    assert(&["bee", "-f", "csv", "--only", "values"], b"\"\"\n");
    assert(&["-e", "b\\xff", "-f", "escaped"], b"\\x00\\xc3\\xa9\\x80\n");
    assert(&["-e", "b\\xff", "-f", "json"], b"{\"key_hex\":\"62ff\",\"value_hex\":\"00c3a980\"}\n");
    assert(&["-e", "b\\xff", "-f", "json", "--only", "values"], b"{\"value_hex\":\"00c3a980\"}\n");
    assert(&["\u{e9}", "-f", "json"], "{\"key\":\"\u{e9}\",\"value\":\"acute\"}\n".as_bytes());
}

#[test]
fn rows_are_written_in_each_format() {
    let table = table();
    let assert = |args: &[&str], stdout: &[u8]| {
        let found = table.ask_with(args, b"");
        assert_eq!(found, (Some(0), stdout.to_vec(), String::new()), "{args:?}");
    };
    assert(&["scan", "b", "-f", "raw"], b"bee\t\nb\xff\t\0\xc3\xa9\x80\n");
    assert(&["scan", "b", "-f", "raw", "-z", "--only", "keys"], b"bee\0b\xff\0");
    assert(&["scan", "b", "-f", "escaped"], b"bee\t\nb\\xff\t\\x00\\xc3\\xa9\\x80\n");
    assert(&["scan", "b", "-f", "hex"], b"626565\t\n62ff\t00c3a980\n");
    assert(
        &["scan", "b", "-f", "json"],
        b"{\"key\":\"bee\",\"value\":\"\"}\n{\"key_hex\":\"62ff\",\"value_hex\":\"00c3a980\"}\n",
    );
    assert(&["scan", "--only", "keys", "--limit", "2"], b"ant\nbee\n");
    assert(&["scan", "--limit", "1"], b"ant,\"a\tb\n\"\"\"\n");
    assert(&["last", "-f", "hex", "--only", "values"], b"6163757465\n");
    assert(&["floor", "beach", "-f", "escaped"], b"ant\ta\\tb\\n\\\"\n");
    let numbers = Both::new(Keys::U64, b"7,seven\n8,\xff\n");
    numbers.assert(&["range", "-f", "hex"], 0, "7\t736576656e\n8\tff\n");
    numbers.assert(&["range", "-f", "json"], 0, "{\"key\":7,\"value\":\"seven\"}\n{\"key\":8,\"value_hex\":\"ff\"}\n");
    numbers.assert(&["first", "-f", "raw"], 0, "7\tseven\n");
    numbers.assert(&["first", "-f", "json", "--only", "keys"], 0, "{\"key\":7}\n");
}
