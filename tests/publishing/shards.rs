//! Generations of several files.

use std::fs;

use zero_kv::slots::slot_of;

use super::stores::Store;

/// Bakes the rows of two ranges of slots, and all rows. Returns the arguments that publish the two files.
fn bake_shards(store: &Store) -> [&'static str; 2] {
    let line = |key: &u64| format!("{key},value of {key}\n");
    let keys: Vec<u64> = (0..2000).collect();
    let (low, high): (Vec<u64>, Vec<u64>) = keys.iter().partition(|key| slot_of((**key).into()) < 8192);
    assert!(!low.is_empty() && !high.is_empty());
    store.bake("low.db", &low.iter().map(line).collect::<String>());
    store.bake("high.db", &high.iter().map(line).collect::<String>());
    store.bake("all.db", &keys.iter().map(line).collect::<String>());
    ["low.db:0-8191", "high.db:8192-16383"]
}

pub(crate) fn a_generation_of_several_files_is_pulled_as_one(store: &Store) {
    let [low, high] = bake_shards(store);
    let published = store.zkv(&["publish", high, low, "--to", "URL"]).succeeds();
    assert!(published.contains(": generation 1: 2 files, 2000 rows, "), "{published}");
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("all.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    store.zkv(&["publish", "all.db:0-16383", "--to", "URL"]).succeeds();
}

pub(crate) fn slots_that_do_not_cover_everything_are_rejected(store: &Store) {
    let [low, high] = bake_shards(store);
    for (files, problem) in [
        (&[low][..], "no file has the slots 8192-16383"),
        (&[low, low], "several files have the slots 0-8191; no file has the slots 8192-16383"),
        (&[low, high, high], "several files have the slots 8192-16383"),
        (&["low.db:0-8190", high], "no file has slot 8191"),
        (&["low.db", "high.db"], "name the slots, such as users-1.db:0-8191"),
        (&["low.db:0-20000"], "found \"0-20000\", expected two slots from 0 to 16383"),
    ] {
        store.zkv(&[&["publish", "--to", "URL"], files].concat()).fails(2, &[problem]);
    }
    assert_eq!(store.objects("data"), [""; 0], "nothing was uploaded");
}

pub(crate) fn keys_outside_their_slots_are_rejected(store: &Store) {
    bake_shards(store);
    let ran = store.zkv(&["publish", "high.db:0-8191", "low.db:8192-16383", "--to", "URL"]);
    ran.fails(2, &["high.db: row 0 has slot ", "expected a slot of 0-8191"]);
    assert_eq!(store.objects("manifests"), [""; 0]);
}
