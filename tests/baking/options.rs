//! The options for rows and inputs.

use zero_kv::slots::SlotRange;

use crate::helpers::baker_runs::{Folder, rows};

#[test]
fn several_files_and_patterns_are_one_table() {
    let folder = Folder::new();
    folder.write("b.csv", "3,b\n");
    folder.write("a.csv", "1,a\n2,a\n");
    folder.write("more.csv", "2,more\n");
    folder.write(".hidden.csv", "9,hidden\n");
    folder.bake(&["[ab].csv", "-o", "storage.db"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a"), (2, b"a"), (3, b"b")]));
    folder.bake(&["*.csv", "--duplicates", "last"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a"), (2, b"more"), (3, b"b")]));
    folder.bake(&["more.csv", "a.csv", "--duplicates", "first"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"a"), (2, b"more")]));
    let remedy = "remove one, or choose which row to keep (--duplicates first or --duplicates last)";
    folder.bake(&["*.csv"]).fails(&format!("more.csv:1: key 2 is already on line 2 of a.csv: {remedy}"));
    folder.bake(&["*.tsv"]).fails("*.tsv: is not a file, and matches no file as a pattern: check the path");
}

#[test]
fn the_format_follows_from_the_name_or_the_option() {
    let folder = Folder::new();
    let expected = rows([(1, b"one"), (2, b"two")]);
    let json = "{\"key\":2,\"value\":\"two\"}\n{\"key\":1,\"value\":\"one\"}\n";
    for (name, text) in [("rows.csv", "2,two\n1,one\n"), ("rows.tsv", "2\ttwo\n1\tone\n"), ("rows.jsonl", json)] {
        folder.write(name, text);
        folder.bake(&[name]).succeeds();
        assert_eq!(folder.rows(), expected, "{name}");
    }
    folder.bake_text("2\ttwo\n1\tone\n", &["--format", "tsv"]).succeeds();
    assert_eq!(folder.rows(), expected);
    folder.bake_text(json, &["--format", "jsonl"]).succeeds();
    assert_eq!(folder.rows(), expected);
    // An explicit delimiter also applies to TSV.
    folder.write("rows.tsv", "2|two\n1|one\n");
    folder.bake(&["rows.tsv", "--delimiter", "|"]).succeeds();
    assert_eq!(folder.rows(), expected);
    #[cfg(feature = "full")]
    folder.bake_text(json, &["--format", "parquet"]).fails(
        "standard input: cannot be read as Parquet: Parquet error: Invalid Parquet file. Corrupt footer: write it again",
    );
    assert_eq!(folder.rows(), expected);
}

#[test]
fn columns_are_packed_with_their_names() {
    let wide = "id,name,note\n2,two,\"a \"\"b\"\"\"\n1,one,\n";
    let folder = Folder::new();
    let columns = ["--header", "--key", "id", "--columns", "name,note"];
    folder.bake_text(wide, &columns).succeeds();
    let json: [(u64, &[u8]); 2] = [(1, br#"{"name":"one","note":""}"#), (2, br#"{"name":"two","note":"a \"b\""}"#)];
    assert_eq!(folder.rows(), rows(json));
}

#[test]
fn a_value_or_a_column_marks_rows_that_remove_their_key() {
    let folder = Folder::new();
    let last = ["--duplicates", "last"];
    folder.bake_text("1,a\n2,b\n1,GONE\n", &[&last[..], &["--delete-marker", "GONE"]].concat()).succeeds();
    assert_eq!(folder.rows(), rows([(2, b"b")]));
    let text = "id,name,gone\n1,a,0\n2,b,\n1,,1\n3,c,no\n";
    folder.bake_text(text, &[&last[..], &["--header", "--delete-column", "gone"]].concat()).succeeds();
    assert_eq!(folder.rows(), rows([(2, b"b"), (3, b"c")]));
}

#[test]
fn bad_rows_are_skipped_with_line_and_reason_up_to_a_limit() {
    let folder = Folder::new();
    let text = "1,one\nx,two\n3\n4,four\n";
    let skip = ["--bad-rows", "skip", "--bad-rows-file", "bad.csv"];
    let ended = folder.bake_text(text, &skip);
    assert!(ended.succeeds().out.starts_with("storage.db: 2 rows (2 bad rows skipped), "), "{}", ended.out);
    assert_eq!(folder.rows(), rows([(1, b"one"), (4, b"four")]));
    let bad = std::fs::read_to_string(folder.path("bad.csv")).unwrap();
    let lines: Vec<_> = bad.lines().collect();
    assert_eq!(lines.len(), 3, "{bad}");
    assert_eq!(lines[0], "input,line,reason,row");
    assert!(lines[1].starts_with("standard input,2,") && lines[1].ends_with(",\"x,two\""), "{bad}");
    assert!(lines[2].starts_with("standard input,3,") && lines[2].ends_with(",3"), "{bad}");

    let before = std::fs::read(folder.path("storage.db")).unwrap();
    let ended = folder.bake_text(text, &[&skip[..], &["--max-bad-rows", "1"]].concat());
    assert_eq!(ended.status.code(), Some(1));
    let message = ": this is bad row 2, where at most 1 are allowed: nothing was put in place; correct the rows, or allow more bad rows (--max-bad-rows)\n";
    assert!(ended.err.starts_with("baker: standard input:3: ") && ended.err.ends_with(message), "{}", ended.err);
    assert!(std::fs::read(folder.path("storage.db")).unwrap() == before);

    assert_eq!(
        std::fs::read_to_string(folder.path("bad.csv")).unwrap(),
        bad,
        "the bad row is written to the file of bad rows"
    );
    assert_eq!(folder.names(), ["bad.csv", "storage.db"]);

    // The default limit is one thousand rows.
    let many = "x,bad\n".repeat(1000) + "1,one\n";
    folder.bake_text(&many, &["--bad-rows", "skip"]).succeeds();
    let ended = folder.bake_text("x,bad\n".to_owned() + &many, &["--bad-rows", "skip"]);
    assert!(ended.err.contains("this is bad row 1001, where at most 1000 are allowed"), "{}", ended.err);
}

#[test]
fn every_row_belongs_to_one_range_of_slots() {
    let folder = Folder::new();
    let text: String = (0..1000).map(|key| format!("{key},v{key}\n")).collect();
    folder.bake_text(&text, &[]).succeeds();
    let all = folder.rows();
    let mut found = Vec::new();
    for slots in ["0-5000", "5001-5020", "5021-16383"] {
        folder.bake_text(&text, &["--slots", slots]).succeeds();
        let (rows, range) = (folder.rows(), slots.parse::<SlotRange>().unwrap());
        assert!(rows.iter().all(|(key, _)| range.has_key((*key).into())), "{slots}");
        found.extend(rows);
    }
    found.sort();
    assert_eq!(found, all);
}

#[test]
fn auto_reports_which_key_is_not_a_number() {
    let folder = Folder::new();
    let auto = ["--keys", "auto"];
    folder.write("a.csv", "7,a\n");
    folder.write("b.csv", "8,b\n\n\n09,c\nx,d\n");
    let ended = folder.bake(&["a.csv", "b.csv", "--keys", "auto"]);
    assert!(
        ended.succeeds().out.ends_with("; keys are bytes, because the key on b.csv:4 is not a number\n"),
        "{}",
        ended.out
    );
    let ended = folder.bake_text("7,a\nx,b\n", &auto);
    let end = "; keys are bytes, because the key on standard input:2 is not a number\n";
    assert!(ended.succeeds().out.ends_with(end), "{}", ended.out);
}

#[test]
fn memory_threads_and_the_folder_for_temporary_files_do_not_change_the_file() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("temp")).unwrap();
    let text: Vec<u8> =
        (0..40_000_u64).flat_map(|key| format!("{},{key}\n", key * 7919 % 40_000).into_bytes()).collect();
    let mut lens = Vec::new();
    for layout in ["fast", "compact"] {
        folder.bake_text(&text, &["--layout", layout]).succeeds();
        let expected = std::fs::read(folder.path("storage.db")).unwrap();
        for args in [
            &["--memory", "16MiB", "--threads", "1"][..],
            &["--memory", "100mb", "--threads", "3", "--temp-dir", "temp", "--verify", "full"],
        ] {
            folder.bake_text(&text, &[args, &["--layout", layout]].concat()).succeeds();
            assert!(std::fs::read(folder.path("storage.db")).unwrap() == expected, "{args:?}, {layout}");
        }
        lens.push(expected.len());
    }
    assert!(lens[1] + 40_000 * 28 < lens[0], "{lens:?}");
    let ended = folder.bake_text(&text, &["--memory", "1MiB"]);
    ended.fails("1048576 bytes of memory, where at least 16777216 are needed: allow more memory (--memory)");
    assert_eq!(folder.names(), ["storage.db", "temp"]);
}
