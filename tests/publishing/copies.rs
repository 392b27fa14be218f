//! Copies of generations in other tables.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::interrupts::{bake_large, signal_when};
use super::stores::{Ran, Store};
use crate::helpers::store_server::StoreServer;
use crate::helpers::trials::Missing;

/// Returns the URL of a table in a folder, beside the files of a test.
fn target(store: &Store) -> String {
    format!("file://{}/copies/users", store.files.path().display())
}

fn names(store: &Store) -> Vec<String> {
    let names = fs::read_dir(store.files.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "published" && name != "copies").collect();
    names.sort();
    names
}

pub(crate) fn a_copy_has_the_bytes_and_the_facts_of_the_original(store: &Store) {
    store.publish(1);
    store.bake("table.db", "1,one\n7,seven\n8,eight\n");
    let canaries = store.zkv(&["canary", "table.db", "7"]).succeeds();
    fs::write(store.path("canaries"), canaries).unwrap();
    let publish = ["publish", "table.db", "--to", "URL", "--note", "second", "--canary", "canaries", "--json"];
    let original = store.zkv(&publish).json();
    let (to, before) = (target(store), names(store));
    let report = store.zkv(&["copy", "URL", &to, "--json"]).json();
    assert_eq!((&report["from_number"], &report["was_complete"]), (&json!(2), &json!(false)));
    let copy = &report["manifest"];
    assert_eq!((&copy["number"], &copy["parent"]), (&json!(1), &json!(0)));
    for field in ["job", "note", "canaries", "key_kind", "table"] {
        assert_eq!(copy[field], original[field], "{field}");
    }
    for field in ["digest", "rows", "bytes", "first_slot", "last_slot"] {
        assert_eq!(copy["entries"][0][field], original["entries"][0][field], "{field}");
    }
    store.zkv(&["pull", &to, "-o", "copy.db"]).succeeds();
    assert!(fs::read(store.path("table.db")).unwrap() == fs::read(store.path("copy.db")).unwrap());
    fs::remove_file(store.path("copy.db")).unwrap();
    // A copy is not repeated, and leaves nothing but the copy.
    let again = store.zkv(&["copy", "URL", &to]).succeeds();
    assert_eq!(
        again,
        format!("{to}: generation 1 is already a copy of generation 2 (the newest one) of {}\n", store.url())
    );
    assert_eq!(names(store), before);
    // The other direction, to a table that has generations.
    let back = store.zkv(&["copy", &to, "URL", "1"]).succeeds();
    assert!(back.contains("generation 2 is already a copy of generation 1 (requested) of "), "{back}");
    store.zkv(&["publish", "table.db", "--to", &to]).succeeds();
    let back = store.zkv(&["copy", &to, "URL"]).succeeds();
    assert!(back.contains("generation 3: a copy of generation 2 (the newest one) of "), "{back}");
}

pub(crate) fn what_cannot_be_copied_is_rejected() {
    let store = Store::folder();
    let to = target(&store);
    store.zkv(&["copy", "URL", &to]).fails(1, &["has no generation"]);
    store.publish(1);
    store.zkv(&["copy", "URL", &to, "2"]).fails(1, &["has no generation 2"]);
    store.zkv(&["copy", "URL", "http://127.0.0.1/users"]).fails(2, &["can only be read"]);
    store.bake("table.db", "1,one\n2,two\n3,three\n4,four\n");
    store.zkv(&["publish", "table.db", "--to", &to]).succeeds();
    store.zkv(&["copy", "URL", &to]).fails(2, &["it has 2 rows, expected at least 3", "(--allow-shrink)"]);
    assert_eq!(
        store.zkv(&["copy", "URL", &to, "--allow-shrink", "--json"]).json()["manifest"]["allowed"],
        json!(["shrink"])
    );
    // A damaged file is not copied.
    store.publish(2);
    let object = store
        .objects("data")
        .into_iter()
        .max_by_key(|object| fs::metadata(store.path("published/users").join(object)).unwrap().modified().unwrap());
    let object = object.unwrap();
    let mut bytes = store.read(&object);
    bytes[100] ^= 1;
    store.write(&object, bytes);
    let failed = store.zkv(&["copy", "URL", &to]);
    assert_eq!(failed.output.status.code(), Some(2), "{failed:?}");
    assert_eq!(store.zkv(&["generations", &to, "--json"]).json()["generations"].as_array().unwrap().len(), 2);
}

pub(crate) fn an_interrupted_copy_continues() {
    let store = Store::folder();
    bake_large(&store);
    fs::rename(store.path("large.db"), store.path("whole.db")).unwrap();
    let mut bake = store.command(env!("CARGO_BIN_EXE_baker"));
    bake.args(["merge", "whole.db", "--shards", "2", "-o", "shards"]);
    Ran::new(bake.output().unwrap()).succeeds();
    store.zkv(&["publish", "shards/0-8191.db", "shards/8192-16383.db", "--to", "URL"]).succeeds();
    let server = StoreServer::start(store.files.path());
    let (to, from) = (target(&store), server.url("published/users"));
    let copy = ["copy", &from, &to, "--bandwidth", "30MB"];
    let is_first_copied = || names(&store).iter().any(|name| name.ends_with(".copy.json"));
    let ran = signal_when(store.zkv_command(&copy), Signal::INT, is_first_copied);
    assert!(ran.err.contains("repeat the command in the same folder to continue"), "{ran:?}");
    let generations = store.zkv(&["generations", &to]);
    assert_eq!(generations.output.status.code(), Some(1), "{generations:?}");
    // The first file is not transferred again.
    let first = store.objects("data").into_iter().find(|object| object.contains("/0-8191-")).unwrap();
    store.remove(&first);
    store.zkv(&copy).succeeds();
    assert!(!names(&store).iter().any(|name| name.contains("copy") || name.ends_with(".zkv")), "{:?}", names(&store));
    store.zkv(&["pull", &to, "-o", "pulled.db"]).succeeds();
    assert!(fs::read(store.path("whole.db")).unwrap() == fs::read(store.path("pulled.db")).unwrap());
}

pub(crate) fn two_stores_have_their_own_variables() -> Result<(), Missing> {
    let (source, remote) = (Store::folder(), Store::s3()?);
    source.publish(1);
    let mut command = remote.command("env");
    // The variables without the prefix name a store that does not exist.
    let variables = remote.variables();
    command.args(
        variables.iter().flat_map(|(name, value)| [format!("TO_{name}={value}"), format!("{name}=http://127.0.0.1:1")]),
    );
    command.arg(env!("CARGO_BIN_EXE_zkv")).args(["copy", source.url(), remote.url()]);
    Ran::new(command.output().unwrap()).succeeds();
    assert_eq!(remote.objects("manifests").len(), 1);
    Ok(())
}
