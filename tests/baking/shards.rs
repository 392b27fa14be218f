//! `baker --shards` and `--shard-size`.

use std::fs;

use serde_json::Value;

use crate::helpers::baker_runs::Folder;

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
        .fails("shards: has files, such as \"old.db\", where a new or empty folder was expected: name another folder");
    let ended = folder.bake_text("1,one\n", &["--shards", "2", "-o", "few", "--min-rows", "2"]);
    assert!(ended.err.starts_with("baker: few: the new table has 1 row"), "{}", ended.err);
    assert!(!folder.path("few").exists());
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
