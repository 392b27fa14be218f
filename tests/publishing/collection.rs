//! Deletion of files that are no longer needed.

use serde_json::json;

use super::stores::Store;

pub(crate) fn files_are_deleted_only_if_nothing_needs_them_and_they_are_old(store: &Store) {
    for generation in 1..=5 {
        store.publish(generation);
    }
    store.zkv(&["pin", "URL", "2"]).succeeds();
    let before = store.objects("data");
    let gc = |args: &[&str]| store.zkv(&[&["gc", "URL", "--keep", "2"], args].concat());
    let young = gc(&[]).succeeds();
    assert_eq!(young, "not needed: 0 files, 0 bytes\nretained: 2 files that are not needed but younger than 1day\n");
    let dry = gc(&["--older-than", "0s"]).succeeds();
    assert!(dry.contains("not needed: 2 files, ") && dry.ends_with(": pass --delete to delete them\n"), "{dry}");
    assert_eq!(store.objects("data"), before, "nothing was deleted");
    let report = gc(&["--older-than", "0s", "--delete", "--json"]).json();
    assert_eq!((&report["deleted"], report["objects"].as_array().unwrap().len()), (&json!(true), 2));
    assert_eq!(store.objects("data").len(), 3);
    for kept in ["2", "4", "5"] {
        store.zkv(&["pull", "URL", kept, "-o", "copy.db"]).succeeds();
    }
    store.zkv(&["pull", "URL", "1", "-o", "copy.db"]).fails(2, &["not found"]);
    // The generation of the nodes that a pin does not name is needed, too.
    store.zkv(&["pin", "URL", "5", "--node", "a"]).succeeds();
    assert!(gc(&["--older-than", "0s"]).succeeds().starts_with("not needed: 0 files"));
}

pub(crate) fn nothing_is_deleted_if_a_manifest_is_damaged(store: &Store) {
    for generation in 1..=3 {
        store.publish(generation);
    }
    let before = store.objects("data");
    store.write("manifests/00000000000000000003.json", b"{}".to_vec());
    store
        .zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s", "--delete"])
        .fails(2, &["manifests/00000000000000000003.json: is not a document"]);
    assert_eq!(store.objects("data"), before);
}
