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
        (&["--slots", "0-8191", "--keys", "auto"], "with --slots, give --keys u64 or --keys bytes"),
        (&["--memory", "much"], "expected a size, such as 512MiB or 2GB"),
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
    fs::write(folder.path("a.csv.xz"), b"\xfd7zXZ\0\0").unwrap();
    fs::write(folder.path("a.zip"), b"PK\x03\x04").unwrap();
    for (name, message) in [
        ("a.db", "a.db: is a baked table: use it as the base, or merge tables (--base, or baker merge)"),
        ("a.csv.xz", "a.csv.xz: is compressed by xz, which baker does not read: xz -dc FILE | baker -"),
        ("a.zip", "a.zip: is a zip archive, which baker does not read: unzip -p FILE | baker -"),
    ] {
        folder.bake(&[name, "-o", "b.db"]).fails(message);
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
