//! Damage in the store: what was published is pulled, or nothing.

use std::fs;

use super::stores::Store;
use crate::helpers::published::sealed;

/// Publishes a generation, pulls it, and returns the name of its only object.
fn published(store: &Store) -> String {
    store.publish(1);
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    let objects = store.objects("data");
    assert_eq!(objects.len(), 1);
    objects.into_iter().next().unwrap()
}

/// Checks that a pull fails, and that the file of the pull before stays.
#[track_caller]
fn assert_rejected(store: &Store, texts: &[&str]) {
    let before = fs::read(store.path("copy.db")).unwrap();
    store.zkv(&["pull", "URL", "-o", "copy.db"]).fails(2, texts);
    assert!(fs::read(store.path("copy.db")).unwrap() == before);
}

pub(crate) fn a_changed_object_is_rejected(store: &Store) {
    let object = published(store);
    let bytes = store.read(&object);
    for at in [0, 40, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        store.write(&object, changed);
        assert_rejected(
            store,
            &[&object, "the object in the store is damaged: publish the generation again from the original"],
        );
        let copy = store.zkv(&["copy", "URL", &format!("file://{}", store.path("copied").display())]);
        copy.fails(2, &[&object, "the object in the store is damaged: publish the generation again from the original"]);
        assert!(!copy.err.contains("bake it") && !copy.err.contains("bake the"), "{copy:?}");
    }
    store.write(&object, bytes);
    store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds();
    // An intact file with other rows is not the published one.
    store.bake("other.db", "1,generation 1\n7,SEVEN\n");
    store.write(&object, fs::read(store.path("other.db")).unwrap());
    assert_rejected(store, &[&object, "found digest "]);
}

pub(crate) fn a_truncated_object_is_rejected(store: &Store) {
    let object = published(store);
    let bytes = store.read(&object);
    for len in [1, bytes.len() / 2, bytes.len() - 1] {
        store.write(&object, bytes[..len].to_vec());
        assert_rejected(store, &[&object]);
    }
}

pub(crate) fn a_missing_object_is_rejected(store: &Store) {
    let object = published(store);
    store.remove(&object);
    assert_rejected(store, &[&object, "not found"]);
}

pub(crate) fn a_damaged_manifest_is_rejected(store: &Store) {
    published(store);
    let name = "manifests/00000000000000000001.json";
    let bytes = store.read(name);
    let mut changed = bytes.clone();
    let digit = changed.windows(9).position(|part| part == b"\"digest\":").unwrap() + 11;
    changed[digit] = if changed[digit] == b'0' { b'1' } else { b'0' };
    for (damaged, problem) in [
        (changed, "is damaged: its checksum is "),
        (bytes[..bytes.len() / 2].to_vec(), "is not a document"),
        (b"{}".to_vec(), "is not a document"),
        (Vec::new(), "is not a document"),
    ] {
        store.write(name, damaged);
        assert_rejected(store, &[name, problem]);
        store.zkv(&["generations", "URL"]).fails(2, &[name, problem]);
    }
}

pub(crate) fn a_manifest_of_a_newer_format_is_rejected(store: &Store) {
    published(store);
    let name = "manifests/00000000000000000001.json";
    store.write(name, sealed(r#"{"format":2,"something":"new"}"#));
    assert_rejected(store, &[name, "has format 2, and this version reads up to 1: install a newer version"]);
    // Publishing is still possible, and the next generation can be read.
    store.publish(2);
    assert!(store.zkv(&["pull", "URL", "-o", "copy.db"]).succeeds().contains("generation 2 "));
}
