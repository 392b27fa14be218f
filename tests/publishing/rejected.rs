//! What cannot be published or pinned.

use std::fs;

use super::stores::Store;

pub(crate) fn another_parent_is_rejected(store: &Store) {
    store.bake("table.db", "1,one\n");
    let publish = |parent: &str| store.zkv(&["publish", "table.db", "--to", "URL", "--parent", parent]);
    publish("1").fails(2, &["generation 0 is the newest one, expected 1"]);
    assert_eq!(store.objects("data"), [""; 0], "nothing was uploaded");
    publish("0").succeeds();
    publish("0").fails(2, &["generation 1 is the newest one, expected 0", "another publisher was first"]);
    publish("1").succeeds();
}

pub(crate) fn a_damaged_file_is_not_published(store: &Store) {
    store.bake("table.db", "1,one\n");
    let mut bytes = fs::read(store.path("table.db")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(store.path("table.db"), bytes).unwrap();
    store.zkv(&["publish", "table.db", "--to", "URL"]).fails(2, &["zkv: table.db: ", "damaged"]);
    store.zkv(&["publish", "absent.db", "--to", "URL"]).fails(2, &["zkv: absent.db: No such file"]);
    assert_eq!((store.objects("data"), store.objects("manifests")), (vec![], vec![]));
}

pub(crate) fn a_canary_that_the_file_fails_is_rejected(store: &Store) {
    store.bake("table.db", "1,one\n7,seven\n");
    let canaries = store.zkv(&["canary", "table.db", "7", "8"]).succeeds();
    fs::write(store.path("canaries"), &canaries).unwrap();
    let publish = || store.zkv(&["publish", "table.db", "--to", "URL", "--canary", "canaries"]);
    publish().succeeds();
    let manifest = store.zkv(&["pull", "URL", "-o", "copy.db", "--json"]).json();
    let written = manifest["canaries"].as_array().unwrap().iter();
    let written =
        written.map(|canary| format!("{},{}\n", canary["key"].as_str().unwrap(), canary["digest"].as_str().unwrap()));
    assert_eq!(written.collect::<String>(), canaries);
    fs::write(store.path("canaries"), format!("{canaries}1,absent\n")).unwrap();
    publish().fails(2, &["canary 1: found ", "expected absent"]);
    fs::write(store.path("canaries"), format!("{canaries}x,absent\n")).unwrap();
    publish().fails(2, &["canary x: not a key of this table"]);
    fs::write(store.path("canaries"), "7,12\n").unwrap();
    publish().fails(2, &["canaries:1: found \"7,12\", expected `key,digest`"]);
    assert_eq!(store.objects("manifests").len(), 1);
}

pub(crate) fn a_pin_to_a_missing_generation_is_rejected(store: &Store) {
    store.publish(1);
    store.zkv(&["pin", "URL", "2"]).fails(2, &["has no generation 2"]);
    store.zkv(&["rollout", "URL", "2", "--wait"]).fails(2, &["has no generation 2"]);
    assert_eq!(store.objects("pins"), [""; 0]);
}

pub(crate) fn malformed_command_lines_are_rejected() {
    let store = Store::folder();
    // The table has a generation, so that a command that is not rejected would write something.
    store.publish(1);
    for url in ["users", "ftp://host/users", "s3://bucket", "file://host/users"] {
        store.zkv(&["publish", "table.db", "--to", url]).fails(2, &[&format!("zkv: {url}: ")]);
    }
    store.zkv(&["publish", "table.db", "--to", "http://127.0.0.1/users"]).fails(2, &["can only be read"]);
    assert!(!store.path("host").exists());
    for args in [
        &["publish", "table.db"][..],
        &["publish", "--to", "URL"],
        &["pin", "URL"],
        &["pull", "URL"],
        &["gc", "URL"],
        &["gc", "URL", "--keep", "0"],
        &["rollout", "URL", "1", "--barrier", "--ready", "0%"],
        &["rollout", "URL", "1", "--ready", "1"],
        &["rollout", "URL", "1", "--timeout", "0"],
        &["rollout", "URL", "1", "--interval", "1e7"],
        &["rollout", "URL", "1", "--timeout", "1ms"],
        &["topology", "watch", "URL", "--once", "--fail-after", "1ms"],
        &["topology", "watch", "URL", "--once", "--interval", "soon"],
        &["rollout", "URL", "1", "--barrier", "--canary-nodes", "1"],
        &["rollout", "URL", "1", "--zones", "a", "--canary-nodes", "1"],
        &["rollout", "URL", "1", "--tolerate", "1"],
        &["rollout", "URL", "1", "--wait", "--tolerate", "-1"],
        &["rollout", "URL", "1", "--abort", "--tolerate", "1"],
        &["rollout", "URL", "1", "--abort", "--zones", "a"],
        &["rollout", "URL", "1", "--zones", ""],
        &["rollout", "URL", "1", "--zones", "a,a"],
        &["rollout", "URL", "1", "--zones", "a,,b"],
        &["pin", "URL", "1", "--node", ""],
        &["pin", "URL", "1", "--node", "a,,b"],
        &["pin", "URL", "1", "--node", "a b"],
        &["pin", "URL", "1", "--node", "a,a"],
        &["pull", "URL", "-o", "copy.db", "--bandwidth", "0"],
        &["copy", "URL", "URL", "--bandwidth", "0"],
        &["generations", "URL", "--socket", "s"],
        &["generations", "--socket", "s", "URL"],
        &["--db", "table.db", "store", "check", "URL"],
    ] {
        let ran = store.zkv(args);
        assert_eq!((ran.output.status.code(), &*ran.out), (Some(2), ""), "{args:?}");
    }
    assert_eq!(store.objects("pins"), [""; 0]);
    for (fail_after, interval) in [("1min", "500ms"), ("60", "0.5")] {
        store
            .zkv(&["topology", "watch", "URL", "--once", "--fail-after", fail_after, "--interval", interval])
            .succeeds();
    }
    for args in [&["publish", "--help"][..], &["store", "check", "--help"], &["rollout", "--help"]] {
        let help = store.zkv(args).succeeds();
        assert!(help.contains("Exit status: 0") && !help.contains("--socket"), "{help}");
    }
}

pub(crate) fn wrong_credentials_are_reported() {
    let store = Store::folder();
    let mut command = store.zkv_command(&["generations", "s3://bucket/users"]);
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    command.env("AWS_ALLOW_HTTP", "true").env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
    // Whoever runs the tests may have credentials.
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].into_iter().for_each(|name| _ = command.env_remove(name));
    let ran = super::stores::Ran::new(command.output().unwrap());
    ran.fails(2, &["zkv: s3://bucket/users/manifests/", "AWS_ACCESS_KEY_ID"]);
}
