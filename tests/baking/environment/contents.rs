//! Bytes that are not text, and compressed inputs that are damaged or truncated.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zero_kv::Lookup;

#[cfg(feature = "full")]
use flate2::write::GzEncoder;

use super::*;

const DECIMAL: &str = "where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected";
const REMEDY: &str = "correct the row, choose another key column, or take keys as bytes (--key, --keys bytes)";

#[cfg(feature = "full")]
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[cfg(feature = "full")]
fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn bytes_that_are_not_text_are_accepted_where_text_is_not_required() {
    let scene = Scene::new();
    let text = b"1,\xff\xfe\n2,\xc3\n3,a\0b\n4,\0\n\"5\",\"\0\xed\xa0\x80,\"\n";
    scene.folder.run(&mut scene.baker(&["-"]), text).succeeds();
    let expected = [(1, &b"\xff\xfe"[..]), (2, b"\xc3"), (3, b"a\0b"), (4, b"\0"), (5, b"\0\xed\xa0\x80,")];
    assert_eq!(scene.folder.rows(), rows(expected));
    scene
        .folder
        .run(&mut scene.baker(&["-", "--keys", "bytes", "--allow-key-type-change"]), b"\xff\0,1\n\0,2\n")
        .succeeds();
    let store = scene.folder.open("storage.db");
    assert_eq!(
        (store.get(&b"\xff\0"[..]).unwrap(), store.get(&b"\0"[..]).unwrap()),
        (Some(&b"1"[..]), Some(&b"2"[..]))
    );
    // Columns are found by name if their names are text; other columns do not matter.
    let header = b"\xff\xfe,id,\0,name\nx,1,y,one\n";
    let args = ["-", "--header", "--key", "id", "--value", "name", "--allow-key-type-change"];
    scene.folder.run(&mut scene.baker(&args), header).succeeds();
    assert_eq!(scene.folder.rows(), rows([(1, b"one")]));
}

#[test]
fn the_error_for_bytes_that_are_not_text_names_them_where_text_is_required() {
    let scene = Scene::new();
    let cases: [(&[u8], &[&str], String); 7] = [
        (b"1,a\n\xff2,b\n", &[], format!(":2: the key is \"\u{fffd}2\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n2\0,b\n", &[], format!(":2: the key is \"2\\0\" {DECIMAL}: {REMEDY}")),
        (b"1,a\n\0,b\n", &[], format!(":2: the key is \"\\0\" {DECIMAL}: {REMEDY}")),
        (
            b"\xff,b\nx,1\n",
            &["--header", "--key", "id"],
            ": the key column \"id\" does not exist: the header has \u{fffd}, b (--key)".to_owned(),
        ),
        (
            b"id,note\n1,a\n2,x\xffy\n",
            &["--header", "--key", "id", "--columns", "note"],
            ":3: \"note\" is not UTF-8 at byte 2: convert it, or leave it out of the packed columns (--columns)".to_owned(),
        ),
        (
            b"{\"key\": 1, \"value\": \"a\"}\n{\"key\": 2, \"value\": \"\xff\"}\n",
            &["--format", "jsonl"],
            ":2: invalid JSON at byte 22: invalid unicode code point: an object was expected".to_owned(),
        ),
        (
            b"{\"key\": 1, \"value\": \"a\0\"}\n",
            &["--format", "jsonl"],
            ":1: invalid JSON at byte 22: control character (\\u0000-\\u001F) found while parsing a string: an object was expected".to_owned(),
        ),
    ];
    for (text, args, message) in cases {
        scene.assert_fails(&[&["-"], args].concat(), text, &format!("standard input{message}"));
    }
}

#[test]
fn file_names_need_not_be_text() {
    let scene = Scene::new();
    let name = OsStr::from_bytes(b"r\xff.csv");
    let path = scene.folder.path("").join(name);
    std::fs::write(&path, "1,one\n").unwrap();
    let bake = |output: &OsStr| scene.folder.run(scene.baker(&[]).arg(name).arg("-o").arg(output), b"");
    let output = OsStr::from_bytes(b"t\xfe.db");
    bake(output).succeeds();
    assert_eq!(zero_kv::Store::open(scene.folder.path("").join(output)).unwrap().len(), 1);
    std::fs::write(&path, "x,one\n").unwrap();
    let message = "the key is \"x\" where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected";
    let remedy = "if this row names the columns, read it as a header; if keys are text, take them as bytes (--header, --keys bytes)";
    bake(output).fails(&format!("r\u{fffd}.csv:1: {message}: {remedy}"));
    bake(OsStr::from_bytes(b"temp/\xff/t.db"))
        .fails("temp/\u{fffd}/t.db: No such file or directory (os error 2): nothing was put in place");
    std::fs::remove_file(path).unwrap();
    scene.assert_untouched();
}

#[cfg(feature = "full")]
#[test]
fn a_compressed_input_truncated_at_any_length_is_an_error() {
    let scene = Scene::new();
    let text = sorted_rows(3000, 100);
    for (raw, what, part) in [(gzip(&text), "gzip", "member"), (zstd(&text), "zstd", "frame")] {
        let cut = if what == "gzip" { 2 } else { 4 };
        for len_bytes in [cut, 4, 5, 10, raw.len() / 2, raw.len() - 1] {
            let message = format!(
                "standard input: is compressed by {what} and ends after {len_bytes} bytes in the middle of a {part}: \
                 copy or compress it again"
            );
            scene.assert_fails(&["-"], &raw[..len_bytes], &message);
        }
        // The second of two members or frames is truncated.
        let both = [&raw[..], &raw[..raw.len() - 1]].concat();
        let message = format!(
            "standard input: is compressed by {what} and ends after {} bytes in the middle of a {part}: copy or compress it \
             again",
            both.len()
        );
        scene.assert_fails(&["-"], &both, &message);
    }
}

#[cfg(feature = "full")]
#[test]
fn damaged_and_trailing_bytes_of_compressed_inputs_are_errors() {
    let scene = Scene::new();
    let (text, garbage) = (b"1,one\n", b"and then no gzip");
    let advice = "copy or compress it again";
    for (raw, what, why) in [
        ([gzip(text), garbage.to_vec()].concat(), "gzip", "invalid gzip header"),
        ([zstd(text), garbage.to_vec()].concat(), "zstd", "Unknown frame descriptor"),
        ([&gzip(text)[..10], &[0xff; 20]].concat(), "gzip", "corrupt deflate stream"),
        ([&zstd(text)[..6], &[0xff; 20]].concat(), "zstd", "Data corruption detected"),
    ] {
        let message = format!(
            "standard input: cannot be decompressed as {what}: {why}, within the first {} bytes: {advice}",
            raw.len()
        );
        scene.assert_fails(&["-"], &raw, &message);
    }
    // The decompressed bytes are compressed.
    let ended = scene.folder.run(&mut scene.baker(&["-"]), &gzip(&gzip(&sorted_rows(10, 10))));
    assert!(ended.err.starts_with("baker: standard input: is compressed twice"), "{ended:?}");
    scene.assert_untouched();
}
