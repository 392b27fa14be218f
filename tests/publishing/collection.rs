//! Deletion of files that are no longer needed.

use serde_json::json;

use super::stores::Store;
use crate::helpers::published::sealed;

pub(crate) fn files_are_deleted_only_if_nothing_needs_them_and_they_are_old(store: &Store) {
    for generation in 1..=5 {
        store.publish(generation);
    }
    store.zkv(&["pin", "URL", "2"]).succeeds();
    let before = store.objects("data");
    let gc = |args: &[&str]| store.zkv(&[&["gc", "URL", "--keep", "2"], args].concat());
    let young = gc(&[]).succeeds();
    assert_eq!(young, "not needed: 0 files, 0 bytes\nretained: 2 files not needed but younger than 1day\n");
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
    let pins = store.objects("pins");
    let deleted = ["the files of generation 3 were deleted", "pin one of the generations that exist: 2, 4 to 5"];
    store.zkv(&["pin", "URL", "3"]).fails(2, &deleted);
    store.zkv(&["rollout", "URL", "3", "--wait"]).fails(2, &deleted);
    store
        .zkv(&["pin", "URL", "9"])
        .fails(2, &["has no generation 9: pin one of the generations that exist: 2, 4 to 5"]);
    assert_eq!(store.objects("pins"), pins);
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
        .fails(2, &["manifests/00000000000000000003.json: is not a document", "publish the next one"]);
    assert_eq!(store.objects("data"), before);
    // The remedies lead out.
    store.publish(4);
    let gc = |keep: &str| store.zkv(&["gc", "URL", "--keep", keep, "--older-than", "0s", "--delete"]);
    gc("2").fails(2, &["nothing is deleted: retain at most 1 generation\n"]);
    gc("4").fails(2, &["nothing is deleted: retain at most 1 generation\n"]);
    assert_eq!(store.objects("data").len(), 4);
    gc("1").succeeds();
    assert_eq!(store.objects("data").len(), 1);
    store.write("manifests/00000000000000000001.json", b"{}".to_vec());
    let status = json!({"node": "a", "serving": 1, "digest": "", "prepared": 1, "newest": 4, "pin": 0, "lag_s": 0,
        "error": "", "failed": 0, "updated": "", "tool": ""});
    store.write("status/a.json", sealed(&status.to_string()));
    gc("1").fails(2, &["a pin or a node needs it: pin another generation, and wait until no node serves this one"]);
}

pub(crate) fn nothing_is_deleted_if_the_newest_manifests_were_deleted(store: &Store) {
    let gc = || store.zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s", "--delete"]);
    assert_eq!(gc().succeeds(), "deleted: 0 files, 0 bytes\n");
    for generation in 1..=3 {
        store.publish(generation);
    }
    let before = store.objects("data");
    let manifests: Vec<_> = store.objects("manifests").into_iter().map(|name| (store.read(&name), name)).collect();
    let retained = |texts: &[&str]| {
        gc().fails(2, texts);
        assert_eq!(store.objects("data"), before);
    };
    // Without anything else that names a generation, only the missing manifests show that something is wrong.
    manifests.iter().for_each(|(_, name)| store.remove(name));
    retained(&["has files, but no manifest: nothing is deleted: restore the deleted manifests"]);
    // A status or a pin names the generation whose manifest is missing.
    let (first, name) = &manifests[0];
    store.write(name, first.clone());
    let named = "the newest manifest is 1, but generation 3 was used: nothing is deleted";
    let status = json!({"node": "a", "serving": 1, "digest": "", "prepared": 1, "newest": 3, "pin": 0, "lag_s": 0,
        "error": "", "failed": 0, "updated": "", "tool": ""});
    store.write("status/a.json", sealed(&status.to_string()));
    retained(&[named]);
    store.remove("status/a.json");
    store.write("pins/00000000000000000001.json", sealed(r#"{"generation": 3, "created": ""}"#));
    retained(&[named]);
    store.remove("pins/00000000000000000001.json");
    // Restored manifests, and a next generation, end this state.
    manifests.iter().for_each(|(manifest, name)| store.write(name, manifest.clone()));
    assert!(gc().succeeds().starts_with("data/"));
    assert_eq!(store.objects("data").len(), 1);
}

pub(crate) fn files_of_a_publication_that_never_ended_are_retained_without_a_manifest(store: &Store) {
    store.bake("table.db", "1,one\n");
    let object = "data/00112233445566778899aabbccddeeff/0-16383-00112233445566778899aabbccddeeff.zkv";
    store.write(object, vec![1]);
    let gc = || store.zkv(&["gc", "URL", "--keep", "1", "--older-than", "0s", "--delete"]);
    gc().fails(2, &["has files, but no manifest"]);
    store.publish(1);
    assert_eq!(gc().succeeds(), format!("{object}\ndeleted: 1 file, 1 byte\n"));
}
