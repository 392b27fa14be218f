//! Tables that were baked before: `--base` and `baker merge`.

use std::fs;
use zero_kv::Lookup;

use serde_json::Value;

use crate::helpers::baker_runs::{BAKER, Folder, rows};
use crate::helpers::forged::forge;

#[test]
fn rows_of_the_input_replace_and_remove_rows_of_the_base() {
    let folder = Folder::new();
    folder.bake_text("1,one\n2,two\n3,three\n", &[]).succeeds();
    // The base may be the output, which is storage.db by default.
    let delta = ["--base", "storage.db", "--delete-marker", "GONE"];
    let ended =
        folder.bake_text("2,dos\n4,four\n3,GONE\n9,GONE\n", &[&delta[..], &["--report", "report.json"]].concat());
    let counts = "storage.db: 3 rows (1 replaced, 1 removed, 1 removals of absent keys), ";
    assert!(ended.succeeds().out.starts_with(counts), "{}", ended.out);
    assert_eq!(folder.rows(), rows([(1, b"one"), (2, b"dos"), (4, b"four")]));
    let report: Value = serde_json::from_slice(&fs::read(folder.path("report.json")).unwrap()).unwrap();
    assert_eq!((&report["base"]["name"], &report["base"]["rows"]), (&"storage.db".into(), &3.into()));
    let counted = &report["rows"];
    assert_eq!((&counted["base_replaced"], &counted["base_removed"]), (&1.into(), &1.into()));
    assert_eq!(counted["absent_removed"], 1);

    let ended = folder.bake_text("5,five\n", &["--base", "none.db"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.starts_with("baker: none.db: "), "{}", ended.err);
    assert_eq!(folder.rows(), rows([(1, b"one"), (2, b"dos"), (4, b"four")]));
}

#[test]
fn the_base_determines_the_kind_of_keys_by_default() {
    let folder = Folder::new();
    folder.bake_text("a,one\n", &["--keys", "bytes"]).succeeds();
    folder.bake_text("b,two\n", &["--base", "storage.db"]).succeeds();
    assert_eq!(folder.open("storage.db").len(), 2);
    let ended = folder.bake_text("3,three\n", &["--base", "storage.db", "--keys", "u64"]);
    assert!(ended.err.contains("keys of the base storage.db are bytes"), "{}", ended.err);
    // The slots of a, b, and c are 15495, 3300, and 7365.
    let slots = ["--base", "storage.db", "--slots", "0-7999", "-o", "low.db"];
    folder.bake_text("c,three\n", &slots).succeeds();
    let low = folder.open("low.db");
    let keys: Vec<_> = low.iter().map(Result::unwrap).map(|(key, _)| key.as_bytes().unwrap()).collect();
    assert_eq!(keys, [b"b", b"c"]);
}

#[test]
fn tables_are_merged_in_the_order_given() {
    let folder = Folder::new();
    folder.bake_text("1,one\n2,two\n", &["-o", "a.db"]).succeeds();
    folder.bake_text("2,dos\n3,tres\n", &["-o", "b.db"]).succeeds();
    let ended = folder.bake(&["merge", "a.db", "b.db", "-o", "c.db"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.err.contains("b.db: row 0: key 2 is already on row 1 of a.db"), "{}", ended.err);
    assert_eq!(folder.names(), ["a.db", "b.db"]);
    let last = ["merge", "a.db", "b.db", "--duplicates", "last", "--report", "-"];
    let ended = folder.bake(&last);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["tables"][0]["name"], &report["tables"][1]["rows"]), (&"a.db".into(), &2.into()));
    assert_eq!(folder.rows(), rows([(1, b"one"), (2, b"dos"), (3, b"tres")]));
    folder.bake(&["merge", "a.db", "b.db", "--duplicates", "first", "-o", "a.db"]).succeeds();
    // The slots of 1, 2, and 3 are 9842, 5649, and 1584.
    folder.bake(&["merge", "a.db", "--slots", "5650-16383"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"one")]));
    folder
        .bake(&["merge", "a.db", "b.db", "--report", "b.db"])
        .fails("b.db: is also the report: name another file with --report");
}

#[test]
fn an_input_called_merge_is_named_with_its_folder() {
    let folder = Folder::new();
    folder.write("merge", "1,one\n");
    folder.write("help", "2,two\n");
    folder.bake(&["./merge", "help"]).succeeds();
    assert_eq!(folder.rows(), rows([(1, b"one"), (2, b"two")]));
    for args in [&["merge"][..], &["merge", "a.db", "--header"], &[]] {
        let ended = folder.bake(args);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", ended.err);
    }
}

/// The header of a table can declare any length, and the limit on memory applies anyway.
#[test]
fn the_memory_of_a_bake_does_not_depend_on_the_length_that_a_base_declares() {
    /// The limit on the data of the process. It leaves the program and the stacks of its threads more than enough.
    const DATA_LEN_MAX_KIB: u64 = 256 << 10;
    let folder = Folder::new();
    folder.write("one.csv", "1,x\n");
    let block_sums_len_bytes = forge(&folder.path("forged.db"), 1 << 40);
    assert!(block_sums_len_bytes >= 2 * (DATA_LEN_MAX_KIB << 10));
    let script = format!("ulimit -d {DATA_LEN_MAX_KIB} && exec \"$0\" \"$@\" --memory 16MiB -o new.db");
    for args in [&["--base", "forged.db", "one.csv"][..], &["merge", "forged.db"]] {
        let mut command = folder.command("sh");
        let ended = folder.run(command.args(["-c", &script, &BAKER]).args(args), b"");
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {}", ended.err);
        let expected = "baker: forged.db: section block sums has checksum ";
        assert!(ended.err.starts_with(expected), "{args:?}: {}", ended.err);
        assert_eq!(folder.names(), ["forged.db", "one.csv"]);
    }
}
