//! Endless rows are rejected with their line, in little memory.

#[cfg(feature = "full")]
use flate2::write::GzEncoder;

use super::memory::{FinalMessage, REFUSAL_MAX_BYTES, long_name, run};
use super::*;

const GIB: usize = 1 << 30;
const CHUNK_LEN_BYTES: usize = 1 << 20;
/// The limit on a row is one eighth of the memory.
const ROW_LEN_MAX_BYTES: usize = 2 << 20;

/// Bakes the bytes that `feed` writes, and asserts that they are rejected as one row, at this line.
#[track_caller]
fn assert_endless(what: &str, line: u64, args: &[&str], feed: impl FnOnce(&mut dyn Write) + Send) {
    let scene = Scene::new();
    // Standard input, by a long name.
    std::os::unix::fs::symlink("/dev/stdin", scene.folder.path("rows")).unwrap();
    let name = long_name("rows");
    let mut command = scene.folder.command(&BAKER);
    command.args([&*name, "--temp-dir", "temp"]).args(LEAST_MEMORY).args(args);
    let memory_use = run(command, FinalMessage::Error, feed);
    println!("{what}: {} KiB at most", memory_use.peak_bytes >> 10);
    let message = format!(
        "baker: {name}:{line}: a row of more than {ROW_LEN_MAX_BYTES} bytes begins here: close its quote, split the value, \
         or, if the row has at most 1073741824 bytes, allow memory of eight times its length (--memory)\n"
    );
    assert_eq!(memory_use.final_message.replace(&name, "NAME"), message.replace(&name, "NAME"), "{what}");
    assert!(memory_use.peak_bytes <= REFUSAL_MAX_BYTES, "{what}: {} KiB", memory_use.peak_bytes >> 10);
    scene.assert_untouched();
}

/// Writes a start, and then a GiB of one byte, as long as the process reads.
fn gib_of(start: &'static [u8], byte: u8) -> impl FnOnce(&mut dyn Write) + Send {
    move |stdin| {
        let chunk = vec![byte; CHUNK_LEN_BYTES];
        let _ =
            stdin.write_all(start).and_then(|()| (0..GIB / CHUNK_LEN_BYTES).try_for_each(|_| stdin.write_all(&chunk)));
    }
}

#[test]
fn the_error_for_a_line_of_a_gib_names_its_number() {
    assert_endless("one value", 1, &[], gib_of(b"1,", b'x'));
    assert_endless("one value behind rows", 4, &[], gib_of(b"1,a\n2,\"b\nc\"\n3,", b'x'));
    assert_endless("one key", 1, &["--keys", "bytes"], gib_of(b"", b'x'));
    assert_endless("a quoted value", 2, &[], gib_of(b"1,a\n2,\"", b'x'));
    assert_endless("a quoted value of lines", 2, &[], gib_of(b"1,a\n2,\"", b'\n'));
    assert_endless("a quoted value of quotes", 2, &[], gib_of(b"1,a\n2,\"", b'"'));
    assert_endless("delimiters", 1, &[], gib_of(b"1", b','));
    assert_endless("zeros", 1, &[], gib_of(b"", 0));
    assert_endless(
        "a JSON string",
        2,
        &["--format", "jsonl"],
        gib_of(b"{\"key\":1,\"value\":0}\n{\"key\":2,\"value\":\"", b'x'),
    );
    assert_endless("a header", 1, &["--header"], gib_of(b"id", b'x'));
}

#[test]
fn an_input_without_end_is_rejected() {
    let scene = Scene::new();
    let message = "/dev/zero:1: a row of more than 2097152 bytes begins here: close its quote, split the value, \
                   or, if the row has at most 1073741824 bytes, allow memory of eight times its length (--memory)";
    scene.assert_fails(&[&["/dev/zero"], &LEAST_MEMORY[..]].concat(), b"", message);
}

#[cfg(feature = "full")]
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a start and a GiB of one byte, compressed to a megabyte or less by repeating one member or frame.
#[cfg(feature = "full")]
fn compressed_gib(compress: impl Fn(&[u8]) -> Vec<u8>, start: &[u8], byte: u8) -> Vec<u8> {
    let part = compress(&vec![byte; 8 << 20]);
    let compressed_gib = [compress(start), part.repeat(GIB / (8 << 20))].concat();
    assert!(compressed_gib.len() < 5 << 18, "{} bytes", compressed_gib.len());
    compressed_gib
}

#[cfg(feature = "full")]
#[test]
fn a_gib_compressed_to_a_megabyte_is_rejected_in_little_memory() {
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
    for (what, start, byte) in [("zeros", &b""[..], 0), ("a quoted field", b"1,a\n2,\"", b'x')] {
        let line = if start.is_empty() { 1 } else { 2 };
        for (compression, compressed_gib) in
            [("gzip", compressed_gib(gzip, start, byte)), ("zstd", compressed_gib(zstd, start, byte))]
        {
            assert_endless(&format!("{what} in {compression}"), line, &[], move |stdin| {
                let _ = stdin.write_all(&compressed_gib);
            });
        }
    }
}

#[cfg(feature = "full")]
#[test]
fn a_zstd_window_larger_than_the_memory_is_rejected() {
    let scene = Scene::new();
    // A frame whose header declares a window of 2 GiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (31 - 10) << 3];
    frame.extend_from_slice(&[0; 64]);
    let ended = scene.folder.run(&mut scene.baker(&[&["-"], &LEAST_MEMORY[..]].concat()), &frame);
    ended.fails(
        "standard input: is compressed by zstd with a window of more than 128 MiB: zstd -dc -M2048MB FILE | baker -, or \
         compress it again with a shorter window",
    );
    scene.assert_untouched();
}
