//! Tests of inputs.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::write::GzEncoder;
use tempfile::tempdir;
use twox_hash::XxHash3_128;

use super::*;

/// Returns rows that fill several read buffers even when they are compressed.
fn rows() -> Vec<u8> {
    let rows = (0..30_000u64).map(|row| format!("{row},{:x}\n", row.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    rows.collect::<String>().into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn open(input: Input<'_>) -> Result<OpenInput<'_>, BakeError> {
    match input.open()? {
        Opened::Bytes(open) => Ok(*open),
        Opened::Rows(_) => panic!("rows in memory"),
    }
}

fn read(input: Input<'_>) -> Result<(Vec<u8>, InputFacts), String> {
    let mut open = open(input).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let facts = open.finish().map_err(|error| error.to_string())?;
    Ok((bytes, facts))
}

/// A reader that returns one byte at a time, like a slow pipe.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len_bytes = buffer.len().min(1);
        self.0.read(&mut buffer[..len_bytes])
    }
}

#[test]
fn compression_is_detected_by_the_first_bytes_and_all_bytes_are_read() {
    let rows = rows();
    let (start, end) = rows.split_at(rows.len() / 2);
    let skippable = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
    let cases = [
        (Compression::None, rows.clone()),
        (Compression::Gzip, gzip(&rows)),
        (Compression::Gzip, [gzip(start), gzip(b""), gzip(end)].concat()),
        (Compression::Gzip, [gzip(&rows), vec![0; 1_000_000]].concat()),
        (Compression::Gzip, [gzip(start), vec![0; 512], gzip(end), vec![0]].concat()),
        (Compression::Zstd, zstd(&rows)),
        (Compression::Zstd, [skippable, zstd(start), zstd(b""), zstd(end)].concat()),
    ];
    let folder = tempdir().unwrap();
    for (case, (compression, raw)) in cases.iter().enumerate() {
        let path = folder.path().join(case.to_string());
        fs::write(&path, raw).unwrap();
        for input in [Input::file(&path), Input::reader("rows", raw.as_slice()), Input::reader("rows", Slow(raw))] {
            let name = input.name().to_owned();
            let (bytes, facts) = read(input).unwrap();
            assert!(bytes == rows, "{case}, {name}");
            assert_eq!(facts.compression, *compression, "{case}, {name}");
            assert_eq!(facts.len_bytes, raw.len() as u64, "{case}, {name}");
            assert_eq!(facts.digest, XxHash3_128::oneshot(raw), "{case}, {name}");
            assert_eq!(facts.name, name);
        }
    }
}

#[test]
fn the_error_for_a_long_window_of_zstd_names_a_command() {
    // A frame with a window of 2 GiB, as `zstd --long=31` writes it from a stream, and one block of 4 bytes.
    let frame = b"\x28\xb5\x2f\xfd\x00\xa8\x21\0\x001,a\n";
    let error = read(Input::reader("rows", &frame[..])).unwrap_err();
    let message = "rows: is compressed by zstd with a window of more than 128 MiB: zstd -dc -M2048MB FILE | baker -";
    assert!(error.starts_with(message), "{error}");
    // The same frame with a window of 128 MiB.
    let frame = b"\x28\xb5\x2f\xfd\x00\x88\x21\0\x001,a\n";
    assert_eq!(read(Input::reader("rows", &frame[..])).unwrap().0, b"1,a\n");
}

#[test]
fn short_inputs_are_read_unchanged() {
    for raw in [b"".as_slice(), b"1", b"1,\n", b"PAR", b"PAR1", b"PAR12", b"\x28\xb5\x2f", b"\x1f", b"\x1f\x8b,1"] {
        let open = open(Input::reader("rows", raw)).unwrap();
        assert_eq!(open.head(), raw, "{raw:?}");
        let (bytes, facts) = read(Input::reader("rows", raw)).unwrap();
        assert_eq!((bytes.as_slice(), facts.len_bytes, facts.compression), (raw, raw.len() as u64, Compression::None));
    }
}

#[test]
fn the_bytes_read_so_far_are_counted_before_decompression() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("rows.csv.gz");
    let raw = gzip(&rows());
    fs::write(&path, &raw).unwrap();
    let mut open = open(Input::file(&path)).unwrap();
    let before = open.read_bytes();
    open.read_exact(&mut vec![0; 600_000]).unwrap();
    assert!(before < open.read_bytes() && open.read_bytes() <= raw.len() as u64);
}

#[test]
fn a_change_after_the_last_byte_is_found_at_the_end() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, "1,one\n").unwrap();
    let mut open = open(Input::file(&path)).unwrap();
    assert_eq!(io::copy(&mut open, &mut io::sink()).unwrap(), 6);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"2,two\n").unwrap();
    let error = open.finish().unwrap_err().to_string();
    assert!(error.contains("rows.csv: grew from 6 to 12 bytes while it was read: "), "{error}");
}

fn names(patterns: &[PathBuf]) -> Result<Vec<String>, String> {
    let inputs = Input::expand(patterns).map_err(|error| error.to_string())?;
    Ok(inputs.iter().map(|input| input.name().rsplit('/').next().unwrap().to_owned()).collect())
}

#[test]
fn patterns_match_files_in_order() {
    let folder = tempdir().unwrap();
    for name in ["b.csv", "a.csv", "c.tsv", ".d.csv", "what?.csv", "[1].csv"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let paths = |names: &[&str]| names.iter().map(|name| folder.path().join(name)).collect::<Vec<_>>();
    assert_eq!(names(&paths(&["[a-b].csv"])).unwrap(), ["a.csv", "b.csv"]);
    assert_eq!(names(&paths(&["c.tsv", "?.csv"])).unwrap(), ["c.tsv", "a.csv", "b.csv"]);
    assert_eq!(
        names(&paths(&["what?.csv", "[1].csv"])).unwrap(),
        ["what?.csv", "[1].csv"],
        "existing files are not patterns"
    );
    assert_eq!(names(&paths(&["*"])).unwrap().len(), 5, "hidden files do not match");
    assert_eq!(names(&["-".into()]).unwrap(), ["standard input"]);
    for (pattern, fault) in [
        ("*.json", "is not a file, and matches no file as a pattern"),
        ("no.csv", "No such file"),
        ("a[.csv", "Pattern syntax"),
    ] {
        let error = names(&paths(&["a.csv", pattern])).unwrap_err();
        assert!(error.contains(&format!("/{pattern}: {fault}")), "{error}");
    }
}

#[test]
fn a_seekable_file_is_the_input_or_a_complete_copy() {
    let folder = tempdir().unwrap();
    let rows = rows();
    let (plain, packed) = (folder.path().join("rows"), folder.path().join("rows.gz"));
    fs::write(&plain, &rows).unwrap();
    fs::write(&packed, gzip(&rows)).unwrap();
    let files = fs::read_dir(folder.path()).unwrap().count();
    for (input, raw) in [
        (Input::file(&plain), &rows),
        (Input::file(&packed), &gzip(&rows)),
        (Input::reader("rows", rows.as_slice()), &rows),
    ] {
        let mut open = open(input).unwrap();
        let file = open.seekable(folder.path()).unwrap();
        let mut bytes = vec![0; rows.len()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes == rows && file.metadata().unwrap().len() == rows.len() as u64);
        assert_eq!(open.finish().unwrap().digest, XxHash3_128::oneshot(raw));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), files, "the copies have no names");
    let missing = folder.path().join("none");
    let error = open(Input::reader("rows", rows.as_slice())).unwrap().seekable(&missing).unwrap_err();
    assert!(matches!(&error, BakeError::Temporary { folder, .. } if *folder == missing), "{error}");
}
