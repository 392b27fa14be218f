//! Properties of a bake whose input is compressed: intact input gives the file of the uncompressed text, and damaged
//! input gives that file or an error.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::write::GzEncoder;
use zero_kv::bake::{self, BakeError, Format, Input, Keys, Options};

use super::source::Source;
use super::tamper;

/// The number of bytes at the start of an input by which its format is detected.
const MAGIC_LEN_BYTES: usize = 4;

/// Compresses text that the bytes describe, damages it, and bakes it.
pub fn check(folder: &Path, data: &[u8]) {
    let mut source = Source::new(data);
    let (is_gzip, has_two_parts) = (source.one_in(2), source.one_in(3));
    let damage_len = if source.one_in(4) { 0 } else { 1 + source.below(12) };
    let damage = source.bytes(damage_len).to_vec();
    if source.one_in(8) {
        // Any bytes that begin with the magic number of a compressed format.
        let magic: &[u8] = if is_gzip { &[0x1f, 0x8b, 8] } else { &[0x28, 0xb5, 0x2f, 0xfd] };
        let _ = baked(folder, &[magic, source.rest()].concat());
        return;
    }
    let text = text(&mut source);
    let middle = if has_two_parts { text.len() / 2 } else { text.len() };
    let parts: Vec<Vec<u8>> = [&text[..middle], &text[middle..]]
        .into_iter()
        .enumerate()
        .filter(|(part, _)| *part == 0 || has_two_parts)
        .map(|(_, part)| compressed(part, is_gzip))
        .collect();
    let intact = parts.concat();
    let mut bytes = intact.clone();
    tamper::change(&mut Source::new(&damage), &mut bytes);
    let outcome = baked(folder, &bytes);
    let expected = baked(folder, &text).expect("text that has only valid rows");
    if bytes == intact {
        assert!(outcome.expect("an intact input") == expected, "the file differs from the file of the text");
    } else if is_recognized_and_damaged(&parts, &bytes) {
        // Every part has a checksum.
        assert!(outcome.map_or(true, |file| file == expected), "a damaged input gave other rows");
    }
}

/// Returns whether the first damaged part still begins with its magic number, so that its checksum must reveal the
/// damage. Otherwise the bytes are another intact input, possibly with trailing bytes.
fn is_recognized_and_damaged(parts: &[Vec<u8>], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for part in parts {
        match rest.strip_prefix(&part[..]) {
            Some(after) => rest = after,
            None => return rest.starts_with(&part[..MAGIC_LEN_BYTES]),
        }
    }
    false
}

/// Returns rows with unique keys of bytes.
fn text(source: &mut Source<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for row in 0..1 + source.below(300) {
        let value = [b'a' + source.byte() % 26].repeat(source.below(40));
        text.extend_from_slice(format!("key{row},{}\n", String::from_utf8(value).unwrap()).as_bytes());
    }
    text
}

fn compressed(bytes: &[u8], is_gzip: bool) -> Vec<u8> {
    if is_gzip {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        return encoder.finish().unwrap();
    }
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns the file that is baked from an input, or the error. Nothing else is left.
fn baked(folder: &Path, bytes: &[u8]) -> Result<Vec<u8>, BakeError> {
    let output = folder.join("new.db");
    let mut options = Options::default();
    (options.format, options.keys) = (Format::Delimited, Keys::BYTES);
    let report = bake::bake(vec![Input::reader("input", bytes)], &output, &options);
    assert_eq!(fs::read_dir(folder).unwrap().count(), usize::from(report.is_ok()), "nothing is left behind");
    report?;
    let file = fs::read(&output).unwrap();
    fs::remove_file(&output).unwrap();
    Ok(file)
}
