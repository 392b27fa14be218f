//! `baker --shards` and `--shard-size`.

use std::fs;

use serde_json::Value;

use crate::helpers::baker_runs::{Folder, rows};

fn text() -> String {
    (0..2000).map(|key| format!("{key},value of {key}\n")).collect()
}

#[test]
fn shards_are_written_in_one_bake_and_merge_into_the_table() {
    let folder = Folder::new();
    folder.write("rows.csv", text());
    folder.bake(&["rows.csv", "-o", "whole.db"]).succeeds();
    let ended = folder.bake(&["rows.csv", "--shards", "3", "-o", "shards"]);
    assert!(ended.succeeds().out.starts_with("shards: 3 shards, 2000 rows, "), "{}", ended.out);
    let shards = ["shards/0-5460.db", "shards/5461-10921.db", "shards/10922-16383.db"];
    for shard in shards {
        let slots = shard.trim_start_matches("shards/").trim_end_matches(".db");
        folder.bake(&["rows.csv", "--slots", slots, "-o", "alone.db"]).succeeds();
        let [together, alone] = [shard, "alone.db"].map(|name| fs::read(folder.path(name)).unwrap());
        assert!(together == alone, "{shard}");
    }
    folder.bake(&[&["merge", "-o", "merged.db"], &shards[..]].concat()).succeeds();
    let [merged, whole] = ["merged.db", "whole.db"].map(|name| fs::read(folder.path(name)).unwrap());
    assert!(merged == whole);
    folder.bake(&["merge", "whole.db", "--shards", "3", "-o", "divided"]).succeeds();
    for shard in shards {
        let divided = shard.replace("shards/", "divided/");
        assert!(fs::read(folder.path(shard)).unwrap() == fs::read(folder.path(&divided)).unwrap(), "{divided}");
    }
}

#[test]
fn a_report_lists_the_shards() {
    let folder = Folder::new();
    let args = ["--shard-size", "100KB", "-o", "shards", "--report", "-"];
    let ended = folder.bake_text(text(), &args);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let shards = report["output"]["shards"].as_array().unwrap();
    assert!(shards.len() > 1, "{report:#}");
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(shards.iter().map(|shard| number(&shard["rows"])).sum::<u64>(), 2000);
    assert_eq!(number(&report["rows"]["baked"]), 2000);
    let mut next_slot = 0;
    for shard in shards {
        let file = fs::metadata(folder.path(shard["name"].as_str().unwrap())).unwrap();
        assert_eq!(file.len(), number(&shard["len_bytes"]));
        assert!(file.len() <= 100_000);
        assert_eq!(number(&shard["first_slot"]), next_slot);
        next_slot = number(&shard["last_slot"]) + 1;
    }
    assert_eq!(next_slot, 16384);
}

#[test]
fn a_failed_bake_leaves_no_shards() {
    let folder = Folder::new();
    folder
        .bake_text("1,one\n1,uno\n", &["--shards", "2", "-o", "shards"])
        .fails("standard input:2: key 1 is already on line 1: remove one, or choose which row to keep (--duplicates first or --duplicates last)");
    assert_eq!(folder.names(), [""; 0]);
    fs::create_dir(folder.path("shards")).unwrap();
    folder.write("shards/old.db", "");
    folder
        .bake_text("1,one\n", &["--shards", "2", "-o", "shards"])
        .fails("shards: has files, such as \"old.db\", where a new or empty folder was expected, or one with only the shards of an earlier bake of the same slots: name another folder");
    let ended = folder.bake_text("1,one\n", &["--shards", "2", "-o", "few", "--min-rows", "2"]);
    assert!(ended.err.starts_with("baker: few: the new table has 1 row"), "{}", ended.err);
    assert!(!folder.path("few").exists());
}

#[test]
fn shards_replace_those_of_an_earlier_bake_and_nothing_else() {
    let folder = Folder::new();
    let bake = |rows: &str, args: &[&str]| folder.bake_text(rows, &[args, &["-o", "shards", "--keys", "u64"]].concat());
    let names = || {
        let entries = fs::read_dir(folder.path("shards")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    bake("1,one\n2,two\n3,three\n", &["--shards", "4"]).succeeds();
    bake("1,uno\n2,dos\n3,tres\n", &["--shards", "2"]).succeeds();
    assert_eq!(names(), ["0-8191.db", "8192-16383.db"]);
    let merge = || {
        folder.bake(&["merge", "shards/0-8191.db", "shards/8192-16383.db", "-o", "storage.db"]).succeeds();
        folder.rows()
    };
    let before = merge();
    assert_eq!(before, rows([(1, b"uno"), (2, b"dos"), (3, b"tres")]));
    // Rules compare the table with all shards together.
    bake("1,one\n", &["--shards", "2", "--max-shrink", "50%"]).fails(
        "shards: the new table has 1 row, and the old one has 3, of which at most 50 % may be lost: check the input, or \
         allow a greater loss: nothing was put in place (--max-shrink)",
    );
    // Shards of other slots, and other files, stay.
    let only = "or one with only the shards of an earlier bake of the same slots: name another folder";
    let low = bake("1,one\n", &["--shards", "2", "--slots", "0-8191"]);
    low.fails(&format!(
        "shards: has files, such as \"8192-16383.db\", where a new or empty folder was expected, {only}"
    ));
    for name in ["shards/0-100.db", "shards/notes"] {
        folder.write(name, "");
        let ended = bake("1,one\n", &["--shards", "2"]);
        assert!(ended.err.contains(only), "{}", ended.err);
        fs::remove_file(folder.path(name)).unwrap();
    }
    assert_eq!(merge(), before);
    assert_eq!(names(), ["0-8191.db", "8192-16383.db"]);
}

#[test]
fn options_that_contradict_shards_exit_with_2() {
    let folder = Folder::new();
    for (args, part) in [
        (&["--shards", "2"][..], "--output <FILE>"),
        (&["--shards", "2", "--shard-size", "1GB", "-o", "shards"], "cannot be used with"),
        (&["--shards", "many", "-o", "shards"], "invalid digit"),
        #[cfg(feature = "full")]
        (&["--slots", "0-8191", "-o", "low.db", "--to", "file:///store"], "--to cannot be used with --slots"),
    ] {
        let ended = folder.bake_text("1,a\n", args);
        assert_eq!((ended.status.code(), &*ended.out), (Some(2), ""), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
    }
    let ended = folder.bake_text("1,a\n", &["--shards", "0", "-o", "shards"]);
    ended.fails("0 shards, where 1 to 256 were expected: choose another number (--shards or --shard-size)");
    assert_eq!(folder.names(), [""; 0]);
}
