//! `zkv dump`: text that bakes to an identical file.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, symlink};
use std::process::Stdio;

use serde_json::Value;
use zero_kv::Lookup;
use zero_kv::bake::{self, Format, Options};
use zero_kv::{Key, Store};

use super::*;
use crate::helpers::random::Random;
use crate::helpers::rows::{TestKey, bake_to};

/// Bytes that delimited text or JSON must quote or escape, and bytes that are not UTF-8.
const SPECIAL: &[&[u8]] = &[
    b",",
    b"\t",
    b"\"",
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b" ",
    b"\\",
    b"a",
    b"\xc3\xa9",
    b"\x1b",
    b"#",
];

fn dump(db: &Path, more: &[&str]) -> Output {
    zkv().arg("dump").arg(db).args(more).output().unwrap()
}

fn special_bytes(random: &mut Random, min_pieces: usize, is_text: bool) -> Vec<u8> {
    let pieces = min_pieces + random.below(6);
    let piece = |random: &mut Random| loop {
        let piece = SPECIAL[random.below(SPECIAL.len())];
        if !is_text || str::from_utf8(piece).is_ok() {
            return piece;
        }
    };
    (0..pieces).flat_map(|_| piece(random).to_vec()).collect()
}

/// Bakes tables of various sizes. In some of them, the smallest key begins with a byte order mark.
fn tables<K: TestKey>(folder: &Path, mut key: impl FnMut(&mut Random) -> K, is_text: bool) -> Vec<PathBuf> {
    let seed = 0xd09;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let tables = [0, 1, 2, 100, 1000].map(|count| {
        let mut rows: Vec<_> = (0..count).map(|_| (key(&mut random), special_bytes(&mut random, 0, is_text))).collect();
        rows.sort();
        rows.dedup_by(|a, b| a.0 == b.0);
        let db = folder.join(format!("{count}.db"));
        bake_to(&db, &rows);
        db
    });
    tables.to_vec()
}

fn assert_bakes_to_identical_file<K: TestKey>(db: &Path, more: &[&str], format: Format, delimiter: u8) {
    let again = db.with_extension("again");
    let output = dump(db, more);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let mut options = Options::default();
    options.replace = zero_kv::replace::ReplaceRules::any();
    options.keys = K::KEYS;
    options.format = format;
    options.delimiter = Some(delimiter);
    bake::bake_csv(&output.stdout[..], &again, &options).unwrap();
    assert!(fs::read(db).unwrap() == fs::read(&again).unwrap(), "{} {more:?}", db.display());
}

/// Checks that the JSON Lines of a dump have the rows of the file.
fn assert_lines_match_rows(db: &Path) {
    let output = dump(db, &["--format", "jsonl"]);
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let store = Store::open(db).unwrap();
    let mut lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    for (key, value) in store.iter().map(Result::unwrap) {
        let line: Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
        assert_eq!(line.as_object().unwrap().len(), 2, "{line}");
        match key {
            Key::U64(key) => assert_eq!(line["key"], key),
            Key::Bytes(key) => assert_eq!(line["key"].as_str().unwrap().as_bytes(), key),
        }
        assert_eq!(line["value"].as_str().unwrap().as_bytes(), value);
    }
    assert!(lines.next().is_none());
}

#[test]
fn a_dump_of_a_table_of_numbers_bakes_to_an_identical_file() {
    let folder = tempfile::tempdir().unwrap();
    for db in tables(folder.path(), |random| random.next() >> random.below(64), false) {
        assert_bakes_to_identical_file::<u64>(&db, &[], Format::Delimited, b',');
        assert_bakes_to_identical_file::<u64>(&db, &["--format", "csv"], Format::Delimited, b',');
    }
    for db in tables(folder.path(), |random| random.next() >> random.below(64), true) {
        assert_lines_match_rows(&db);
        assert_bakes_to_identical_file::<u64>(&db, &["--format", "jsonl"], Format::JsonLines, b',');
    }
}

#[test]
fn a_dump_of_a_table_of_bytes_bakes_to_an_identical_file() {
    let folder = tempfile::tempdir().unwrap();
    for db in tables(folder.path(), |random| special_bytes(random, 1, false), false) {
        assert_bakes_to_identical_file::<Vec<u8>>(&db, &[], Format::Delimited, b',');
    }
    for db in tables(folder.path(), |random| special_bytes(random, 1, true), true) {
        assert_lines_match_rows(&db);
        assert_bakes_to_identical_file::<Vec<u8>>(&db, &["--format", "jsonl"], Format::JsonLines, b',');
    }
    // The file's first key begins with a byte order mark, and so does the text.
    let db = folder.path().join("mark.db");
    bake_to(&db, &[(b"\xef\xbb\xbfmark".to_vec(), b"v".to_vec()), (b"\xf0".to_vec(), Vec::new())]);
    assert_bakes_to_identical_file::<Vec<u8>>(&db, &[], Format::Delimited, b',');
}

#[test]
fn tsv_has_no_quotes_and_bakes_to_an_identical_file() {
    let folder = tempfile::tempdir().unwrap();
    let seed = 0x75f;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let db = folder.path().join("table.db");
    for _ in 0..20 {
        let field = |bytes: Vec<u8>| bytes.into_iter().filter(|byte| !b"\t\r\n".contains(byte)).collect::<Vec<u8>>();
        let mut rows: Vec<_> = (0..100)
            .map(|i| {
                let key = [format!("k{i}").into_bytes(), field(special_bytes(&mut random, 0, false))].concat();
                (key, field(special_bytes(&mut random, 0, false)))
            })
            .collect();
        rows.sort();
        bake_to(&db, &rows);
        assert_bakes_to_identical_file::<Vec<u8>>(&db, &["--format", "tsv"], Format::Tsv, b'\t');
    }
    for (key, value) in [("a\tb", "v"), ("k", "v\n"), ("k", "\r"), ("\u{feff}k", "v")] {
        bake_to(&db, &[(key.as_bytes().to_vec(), value.as_bytes().to_vec())]);
        assert_error(&dump(&db, &["--format", "tsv"]), &["which TSV cannot express", "--format csv"]);
    }
}

#[test]
fn a_row_that_json_cannot_hold_is_an_error_that_names_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let lines = |db: &Path| dump(db, &["--format", "jsonl", "-o", db.with_extension("jsonl").to_str().unwrap()]);
    bake_to(&db, &[(7_u64, b"seven".to_vec()), (8, b"\xff".to_vec())]);
    assert_error(&lines(&db), &["value of key 8 is not UTF-8", "--format csv"]);
    bake_to(&db, &[(b"k\xff".to_vec(), b"v".to_vec())]);
    assert_error(&lines(&db), &[r#"the key "k\xff" is not UTF-8"#, "--format csv"]);
    assert_eq!(files(folder.path()), ["table.db"], "no incomplete file is left");
}

#[test]
fn a_range_of_rows_can_be_dumped() {
    let (_folder, db) = baked();
    assert_answer(&dump(&db, &["--to", "8"]), 0, b"7,seven\n8,\n");
    assert_answer(&dump(&db, &["--after", "8", "--before", "9"]), 0, b"");
    assert_answer(&dump(&db, &["--from=8", "--to=8", "--format=jsonl"]), 0, b"{\"key\":8,\"value\":\"\"}\n");
    bake_text(&db, Keys::BYTES, b"ant,1\nbee,2\nbumblebee,3\n");
    assert_answer(&dump(&db, &["--prefix", "b", "--format", "tsv"]), 0, b"bee\t2\nbumblebee\t3\n");
    assert_usage_error(&dump(&db, &["--prefix", "b", "--to", "c"]), "cannot be used with");
}

#[test]
fn the_output_appears_only_when_it_is_complete() {
    let (folder, db) = baked();
    let text = folder.path().join("table.csv");
    fs::write(&text, "old").unwrap();
    let to_text = |db: &Path| dump(db, &["-o", text.to_str().unwrap()]);
    // A failed dump does not touch the old file.
    let whole = fs::read(&db).unwrap();
    fs::write(&db, &whole[1..]).unwrap();
    assert_error(&to_text(&db), &["table.db: "]);
    assert_eq!(fs::read(&text).unwrap(), b"old");
    fs::write(&db, &whole).unwrap();
    assert_answer(&to_text(&db), 0, b"");
    assert_eq!(fs::read(&text).unwrap(), dump(&db, &[]).stdout);
    assert_eq!(files(folder.path()), ["table.csv", "table.db"]);

    let link = folder.path().join("link.csv");
    symlink("table.csv", &link).unwrap();
    fs::write(&text, "old").unwrap();
    assert_answer(&dump(&db, &["-o", link.to_str().unwrap()]), 0, b"");
    assert_eq!(fs::read(&text).unwrap(), b"old", "a link is replaced, not followed");
    assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
    fs::rename(&link, &text).unwrap();
    assert_eq!(fs::read(&text).unwrap(), dump(&db, &[]).stdout);
    // A link of root is followed to a device.
    assert_answer(&dump(&db, &["-o", "/dev/stdout"]), 0, &fs::read(&text).unwrap());

    let onto_itself = dump(&db, &["-o", db.to_str().unwrap()]);
    assert_error(&onto_itself, &["table.db: the output is also the input"]);
    assert_eq!(fs::read(&db).unwrap(), whole);
    assert_error(&dump(&db, &["-o", "/no/such/folder/table.csv"]), &["/no/such/folder/table.csv: No such file"]);
    assert_error(&dump(&db, &["-o", "/dev/full"]), &["/dev/full: No space left"]);
    assert_answer(&dump(&db, &["-o", "/dev/null"]), 0, b"");
    assert_answer(&dump(&db, &["-o", "-"]), 0, &fs::read(&text).unwrap());
}

/// Returns the sorted names in a folder.
fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_closed_pipe_ends_the_program_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // The text exceeds the capacity of the pipe and the buffers.
    let rows: Vec<(u64, Vec<u8>)> = (0..2000).map(|key| (key, vec![b'v'; 1000])).collect();
    bake_to(&db, &rows);
    for format in ["csv", "tsv", "jsonl"] {
        let mut command = zkv();
        command.args(["dump", "--format", format]).arg(&db).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(0), ""), "{format} {line}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = zkv().arg("dump").arg(&db).stdout(full).output().unwrap();
    assert_error(&output, &["standard output: No space left"]);
}

#[test]
fn the_memory_of_a_dump_does_not_grow_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // 16 MB of values that must be quoted or escaped.
    let rows: Vec<(u64, Vec<u8>)> = (0..80).map(|key| (key, [&b"\""[..], &[b'v'; 200_000]].concat())).collect();
    bake_to(&db, &rows);
    for format in ["csv", "tsv", "jsonl"] {
        let mut command = zkv_within(4 << 10);
        let output = command.args(["dump", "--format", format, "-o", "/dev/null"]).arg(&db).output().unwrap();
        assert_answer(&output, 0, b"");
    }
}

#[test]
fn a_file_that_changes_during_a_dump_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    // The text exceeds the capacity of the pipe and the buffers.
    let rows: Vec<(u64, Vec<u8>)> = (0..2000).map(|key| (key, vec![b'v'; 1000])).collect();
    for format in ["csv", "tsv", "jsonl"] {
        bake_to(&db, &rows);
        let mut command = zkv();
        command.args(["dump", "--format", format]).arg(&db).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut text = child.stdout.take().unwrap();
        // Once the first bytes are written, the file has been opened and checked.
        text.read_exact(&mut [0]).unwrap();
        let bytes = fs::read(&db).unwrap();
        let last_value_at = bytes.windows(1000).rposition(|window| window == [b'v'; 1000]).unwrap();
        // Overwrites the header of the record.
        let file = fs::File::options().write(true).open(&db).unwrap();
        file.write_all_at(&[0xff; 8], last_value_at as u64 - 8).unwrap();
        text.read_to_end(&mut Vec::new()).unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{format} {stderr}");
        assert!(stderr.starts_with("zkv: the result depends on damaged bytes of the file: "), "{format} {stderr}");
    }
}

#[test]
fn a_dump_beyond_the_file_size_limit_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let rows: Vec<(u64, Vec<u8>)> = (0..200).map(|key| (key, vec![b'v'; 1000])).collect();
    bake_to(&db, &rows);
    let mut command = Command::new("sh");
    // The shell's unit is a block of 512 bytes or 1 KiB.
    command.args(["-c", "ulimit -f 8 && exec \"$0\" dump table.db -o table.csv", env!("CARGO_BIN_EXE_zkv")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("table.csv") && stderr.contains("File too large"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
