//! Conflicting arguments are rejected before anything is written.

use std::fs;

use crate::helpers::baker_runs::{BAKER, Folder};

#[test]
fn conflicting_options_exit_with_2() {
    let folder = Folder::new();
    for (args, part) in [
        (&["--value", "2", "--columns", "1,2"][..], "'--value <COLUMN>' cannot be used with '--columns"),
        (&["--columns", "2,name,2"], "--columns names a column twice: name it once"),
        (&["--bad-rows-file", "bad.csv"], "--bad-rows-file requires --bad-rows skip: pass both"),
        (&["--max-bad-rows", "5"], "--max-bad-rows requires --bad-rows skip: pass both"),
        (&["--slots", "3"], "found \"3\", expected two slots from 0 to 16383, such as 0-8191"),
        (&["--slots", "2-1"], "found \"2-1\", expected two slots from 0 to 16383, such as 0-8191"),
        (&["--slots", "0-16384"], "found \"0-16384\", expected two slots"),
        (&["--slots", "0-8191", "--keys", "auto"], "with --slots, give the type of the keys (--keys u64)"),
        (&["--memory", "much"], "expected a size, such as 4096, 512MiB, 1.5GiB, or 2GB"),
        (&["--memory", "99999999TiB"], "the size does not fit into 64 bits"),
        (&["--threads", "0"], "--threads"),
        (&["--verify", "some"], "possible values: sample, full"),
        (&["--format", "xml"], "possible values: auto, csv, tsv, jsonl, parquet"),
    ] {
        let ended = folder.bake_text("1,a\n", args);
        assert_eq!((ended.status.code(), &*ended.out), (Some(2), ""), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
        assert_eq!(folder.names(), [""; 0], "{args:?}");
    }
}

#[test]
fn options_before_merge_are_rejected() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,a\n");
    folder.bake(&["rows.csv", "-o", "a.db"]).succeeds();
    let ended = folder.bake(&["--quiet", "merge", "a.db", "-o", "b.db"]);
    assert_eq!((ended.status.code(), &*ended.out), (Some(2), ""), "{}", ended.err);
    assert!(ended.err.contains("options of merge must follow it"), "{}", ended.err);
    assert_eq!(folder.names(), ["a.db", "rows.csv"]);
}

#[test]
fn an_unwritable_folder_is_an_error_before_anything_is_read() {
    let folder = Folder::new();
    // Reading this input would fail.
    folder.write("bad.csv", "no row\n");
    folder.bake(&["bad.csv", "--temp-dir", "none"]).fails(
        "temporary files in none: No such file or directory (os error 2): nothing was put in place; choose another folder (--temp-dir)",
    );
    let ended = folder.bake(&["bad.csv", "--keys", "auto", "-o", "none/b.db"]);
    assert!(ended.err.contains("none/b.db: No such file or directory"), "{}", ended.err);
    assert_eq!(folder.names(), ["bad.csv"]);
}

#[test]
fn files_of_other_formats_are_detected_by_their_first_bytes() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,a\n");
    folder.bake(&["rows.csv", "-o", "a.db"]).succeeds();
    folder
        .bake(&["a.db", "-o", "b.db"])
        .fails("a.db: is a baked table: use it as the base, or merge tables (--base, or baker merge)");
    let tar = [&[b'x'; 257][..], b"ustar\0"].concat();
    let utf_16: Vec<u8> = "id,näme\n1,ä€\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big_endian: Vec<u8> = "id,näme\n1,ä€\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (bytes, what, remedy) in [
        (&b"\xfd7zXZ\0\0"[..], "compressed by xz", "xz -dc FILE | baker -"),
        (b"BZh91AY&SY\x12", "compressed by bzip2", "bzip2 -dc FILE | baker -"),
        (b"\x04\x22\x4d\x18", "compressed by LZ4", "lz4 -dc FILE | baker -"),
        (b"PK\x03\x04", "a zip archive", "unzip -p FILE | baker -"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x -so FILE | baker -"),
        (&tar, "a tar archive", "tar -xOf FILE | baker -"),
        (b"ARROW1\0\0", "an Arrow IPC file", "Parquet"),
        (b"ORC\n\x03\0", "an ORC file", "Parquet"),
        (b"Obj\x01\x04", "an Avro file", "Parquet"),
        (b"SQLite format 3\0", "an SQLite database", "sqlite3 -csv"),
        (b"\xff\xfe1\0", "UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | baker -"),
        (&utf_16, "UTF-16 text without", "iconv -f UTF-16LE"),
        (&big_endian, "UTF-16 text without", "iconv -f UTF-16BE"),
    ] {
        fs::write(folder.path("input"), bytes).unwrap();
        let ended = folder.bake(&["input", "-o", "b.db"]);
        let expected = format!("baker: input: is {what}");
        assert!(ended.status.code() == Some(1) && ended.err.starts_with(&expected), "{what}: {}", ended.err);
        assert!(ended.err.contains("which is not supported: ") && ended.err.contains(remedy), "{}", ended.err);
    }
    // Keys can have these letters.
    for key in ["ORC", "BZh9", "FEA1", "REDIS0011", "PK", "LZIP"] {
        folder.bake_text(format!("{key},1\nb,2\n"), &["--keys", "bytes", "-o", "letters.db"]).succeeds();
    }
    folder
        .bake(&["-", "-", "-o", "b.db"])
        .fails("standard input: is named twice, but can be read only once: name it once");
}

#[test]
fn a_name_of_several_columns_is_rejected() {
    let folder = Folder::new();
    let rows = "id,name,name\n1,a,b\n";
    for (option, role) in [("--value", "value column"), ("--columns", "packed column")] {
        let ended = folder.bake_text(rows, &["--header", "--key", "id", option, "name"]);
        let message = format!(
            "standard input: the {role} \"name\" appears several times in the header: choose it by number ({option})"
        );
        ended.fails(&message);
    }
    folder.bake_text(rows, &["--header", "--key", "id", "--value", "3"]).succeeds();
}

#[test]
fn a_header_is_suggested_only_where_one_is_possible() {
    let folder = Folder::new();
    let hint = "if this row names the columns, read it as a header";
    folder.write("rows.jsonl", "{\"key\":\"id\",\"value\":1}\n");
    for (rows, args, hinted) in
        [("id,name\n", &[][..], true), ("key,value\nid,name\n", &["--header"], false), ("", &["rows.jsonl"], false)]
    {
        let ended = if rows.is_empty() { folder.bake(args) } else { folder.bake_text(rows, args) };
        assert!(ended.err.contains("the key is \"id\" where"), "{}", ended.err);
        assert_eq!(ended.err.contains(hint), hinted, "{}", ended.err);
    }
}

#[test]
fn no_file_has_two_roles() {
    let folder = Folder::new();
    folder.write("rows.csv", "1,a\n");
    folder.write("other.csv", "2,b\n");
    fs::hard_link(folder.path("rows.csv"), folder.path("link.csv")).unwrap();
    std::os::unix::fs::symlink("rows.csv", folder.path("soft.csv")).unwrap();
    let names = folder.names();
    let bad = ["--bad-rows", "skip", "--bad-rows-file"];
    for (args, message) in [
        (vec!["rows.csv", "-o", "./rows.csv"], "rows.csv: is also the output: name another file with -o"),
        (vec!["rows.csv", "-o", "link.csv"], "rows.csv: is also the output: name another file with -o"),
        (vec!["other.csv", "soft.csv", "-o", "rows.csv"], "soft.csv: is also the output: name another file with -o"),
        (vec!["rows.csv", "--report", "rows.csv"], "rows.csv: is also the report: name another file with --report"),
        (
            vec!["rows.csv", "--report", "./storage.db"],
            "storage.db: is also the report: name another file with --report",
        ),
        (
            [&["rows.csv"], &bad[..], &["rows.csv"]].concat(),
            "rows.csv: is also the file of bad rows: name another file with --bad-rows-file",
        ),
        (
            [&["rows.csv"], &bad[..], &["storage.db"]].concat(),
            "storage.db: is also the output: name another file with -o",
        ),
        (
            [&["rows.csv"], &bad[..], &["new.json", "--report", "./new.json"]].concat(),
            "new.json: is also the report: name another file with --report",
        ),
    ] {
        folder.bake(&args).fails(message);
        assert_eq!(folder.names(), names, "{args:?}");
        assert_eq!(fs::read(folder.path("rows.csv")).unwrap(), b"1,a\n", "{args:?}");
    }
    let stdin = fs::File::open(folder.path("rows.csv")).unwrap();
    let output = folder.command(&BAKER).args(["-", "-o", "rows.csv"]).stdin(stdin).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(err, "baker: standard input: is also the output: name another file with -o\n");
    // Reading an input twice is allowed.
    folder.bake(&["rows.csv", "rows.csv", "--duplicates", "first"]).succeeds();
    folder
        .bake(&["rows.csv", "--report", "/dev/null", "--bad-rows", "skip", "--bad-rows-file", "/dev/null"])
        .succeeds();
}
