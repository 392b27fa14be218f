//! `baker --to`.

use std::fs;

use super::stores::{Ran, Store};

fn baker(store: &Store, args: &[&str]) -> Ran {
    let args = args.iter().map(|arg| if *arg == "URL" { store.url() } else { arg });
    Ran::new(store.command(env!("CARGO_BIN_EXE_baker")).args(args).output().unwrap())
}

pub(crate) fn a_bake_is_published_by_the_same_command(store: &Store) {
    fs::write(store.path("rows.csv"), "1,one\n7,seven\n").unwrap();
    let args = ["rows.csv", "-o", "table.db", "--to", "URL", "--note", "nightly", "--parent", "0"];
    let out = baker(store, &args).succeeds();
    assert!(out.starts_with("table.db: 2 rows, "), "{out}");
    assert!(out.contains(&format!("\n{}: generation 1: 2 rows, ", store.url())), "{out}");
    let manifest = store.zkv(&["pull", "URL", "-o", "copy.db", "--json"]).json();
    assert_eq!(manifest["note"], "nightly");
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    // The bake does not begin if it cannot be published.
    fs::remove_file(store.path("table.db")).unwrap();
    let ran = baker(store, &args);
    ran.fails(1, &["baker: ", "generation 1 is the newest one, expected 0"]);
    assert!(!store.path("table.db").exists());
    // The options need a table.
    baker(store, &["rows.csv", "--note", "nightly"]).fails(2, &["--to"]);
    // The file is in place if a canary rejects it.
    fs::write(store.path("canaries"), "8,00000000000000000000000000000000\n").unwrap();
    let ran = baker(store, &["rows.csv", "-o", "table.db", "--to", "URL", "--canary", "canaries"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("baker: table.db is in place, but not published: canary 8: found absent"), "{ran:?}");
    assert!(store.path("table.db").exists());
    assert_eq!(store.objects("manifests").len(), 1);
}

pub(crate) fn shards_are_published_by_the_same_command(store: &Store) {
    let text: String = (0..1000).map(|key| format!("{key},value of {key}\n")).collect();
    fs::write(store.path("rows.csv"), &text).unwrap();
    store.bake("whole.db", &text);
    let out = baker(store, &["rows.csv", "--shards", "2", "-o", "shards", "--to", "URL"]).succeeds();
    assert!(out.starts_with("shards: 2 shards, 1000 rows, "), "{out}");
    assert!(out.contains(": generation 1: 2 files, 1000 rows, "), "{out}");
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("whole.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    // The names of the shards are their slots.
    let low = "shards/0-8191.db";
    let out = store.zkv(&["publish", low, "shards/8192-16383.db", "--to", "URL"]).succeeds();
    assert!(out.contains(": generation 2: 2 files, 1000 rows, "), "{out}");
    store.zkv(&["publish", low, "--to", "URL"]).fails(2, &["no file has the slots 8192-16383"]);
}

pub(crate) fn the_rules_of_a_bake_compare_it_with_the_newest_generation(store: &Store) {
    for (name, rows) in [("all.csv", 1000), ("most.csv", 900), ("few.csv", 700)] {
        fs::write(store.path(name), (0..rows).map(|key| format!("{key},x\n")).collect::<String>()).unwrap();
    }
    let bake =
        |rows: &str, args: &[&str]| baker(store, &[&[rows, "--to", "URL", "--max-shrink", "20%"], args].concat());
    bake("all.csv", &["-o", "1.db"]).succeeds();
    // Neither a new name nor shards hide the loss.
    for args in [&["-q", "-o", "2.db"][..], &["-q", "--shards", "2", "-o", "shards"]] {
        let lost = "the new generation differs from generation 1: it has 700 rows, expected at least 800";
        bake("few.csv", args).fails(1, &["is in place, but not published: ", lost, "(--allow-shrink)"]);
    }
    store.zkv(&["publish", "2.db", "--to", "URL", "--max-shrink", "29%"]).fails(2, &["expected at least 710"]);
    // The next night bakes into the same folder.
    for generation in 2..=3 {
        let out = bake("most.csv", &["--shards", "2", "-o", "shards"]).succeeds();
        assert!(out.contains(&format!(": generation {generation}: 2 files, 900 rows, ")), "{out}");
    }
    bake("few.csv", &["-o", "3.db", "--allow-shrink"]).succeeds();
    assert_eq!(store.objects("manifests").len(), 4);
}

pub(crate) fn a_merge_is_published_by_the_same_command(store: &Store) {
    store.bake("a.db", "1,one\n");
    store.bake("b.db", "7,seven\n");
    baker(store, &["merge", "a.db", "b.db", "-o", "table.db", "--quiet", "--to", "URL"]).succeeds();
    let pulled = store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(pulled.contains("generation 1 (the newest one), 2 rows, "), "{pulled}");
}
