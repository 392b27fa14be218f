//! Generations that cannot be served, or that differ from the one before, and the nodes that start or run then.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use zero_kv::bake::Keys;
use zero_kv::publish::{Change, CommitOptions};

use crate::helpers::generations::Shape;
use crate::helpers::published::{
    Published, SHAPE, health, sealed, start_node, wait_for_error, wait_for_polls, wait_until_served,
};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

/// Changes the manifest of a generation.
fn edit_manifest(published: &Published, number: u64, change: impl FnOnce(&mut Value)) {
    let path = published.table().join(format!("manifests/{number:020}.json"));
    let mut document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut document["body"]);
    let new = published.folder.path().join("edited.json");
    fs::write(&new, sealed(&document["body"].to_string())).unwrap();
    fs::rename(new, path).unwrap();
}

/// Publishes a generation with these keys, which differ from those of the one before.
fn publish_other(published: &Published, keys: Keys, rows: &str) -> u64 {
    let db = published.folder.path().join("other.db");
    let _ = fs::remove_file(&db);
    bake_text(&db, keys, rows);
    publish_allowed(published, &db)
}

/// Publishes a file with all changes from the generation before.
fn publish_allowed(published: &Published, db: &Path) -> u64 {
    let options = CommitOptions { allow: Change::ALL.to_vec(), ..CommitOptions::default() };
    published.publish_file(db, &options)
}

/// Returns the output of `zkv generations`.
fn generations(published: &Published, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
    command.args(["generations", published.publication.url()]).args(options);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_new_node_serves_the_newest_complete_generation_and_goes_forward_with_the_next_one() {
    type Fault = fn(&Published, u64);
    let faults: [(&str, Fault); 5] = [
        ("not found", |published, number| fs::remove_file(published.data_file(number)).unwrap()),
        ("truncated", |published, number| {
            fs::File::options().write(true).open(published.data_file(number)).unwrap().set_len(4096).unwrap();
        }),
        ("the downloaded file is rejected", |published, number| {
            let file = fs::File::options().write(true).open(published.data_file(number)).unwrap();
            file.write_all_at(&[0; 4096], file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("canary", |published, number| {
            edit_manifest(published, number, |body| {
                body["canaries"] = serde_json::json!([{"key": "1", "digest": "absent"}]);
            });
        }),
        ("its publisher did not allow", |published, number| {
            edit_manifest(published, number, |body| {
                body["key_kind"] = "bytes".into();
                body["entries"][0]["key_kind"] = "bytes".into();
            });
        }),
    ];
    for (reason, damage) in faults {
        let published = Published::new();
        (1..=4).for_each(|number| published.publish(number));
        (3..=4).for_each(|number| damage(&published, number));
        let node = published.node("a");
        wait_until_served(&node, 2);
        wait_for_error(&node, reason);
        let (status, lines) = health(&node);
        assert!(status == Some(0) && lines.contains("serves published generation 2"), "{lines}");
        assert!(lines.contains(reason), "{reason}: {lines}");
        // The reason is in the store, too.
        eventually("the node has reported the reason", || {
            generations(&published, &[]).contains("generation 4 is not served by a: ")
        });
        let listed: Value = serde_json::from_str(&generations(&published, &["--json"])).unwrap();
        assert_eq!(listed["generations"][3]["failed"][0]["node"], "a", "{listed}");
        let db = published.folder.path().join("next.db");
        SHAPE.bake(5, &db);
        publish_allowed(&published, &db);
        wait_until_served(&node, 5);
        eventually("nothing is reported", || node.info().get("published_error") == Some(""));
    }
}

#[test]
fn a_new_node_passes_over_damaged_manifests() {
    let published = Published::new();
    (1..=3).for_each(|number| published.publish(number));
    fs::remove_file(published.data_file(3)).unwrap();
    fs::write(published.table().join("manifests/00000000000000000002.json"), b"{}").unwrap();
    fs::write(published.table().join("manifests/00000000000000000004.json"), b"{}").unwrap();
    let node = published.node("a");
    wait_until_served(&node, 1);
    published.publish(5);
    wait_until_served(&node, 5);
}

#[test]
fn a_new_node_waits_for_the_generation_that_a_pin_selects() {
    let published = Published::new();
    (1..=2).for_each(|number| published.publish(number));
    published.pin(Some(2));
    fs::remove_file(published.data_file(2)).unwrap();
    let mut node = Server::spawn(published.node_command("a", published.publication.url()), &published.socket("a"));
    let line = node.wait_for_log("not found");
    assert!(line.contains(": the server waits"), "{line}");
    assert!(!published.socket("a").exists());
    published.pin(None);
    node.wait_for_log("ready on ");
    wait_until_served(&node, 1);
}

#[test]
fn a_new_node_logs_why_the_newest_generation_failed_while_it_fetches_an_older_one() {
    let published = Published::new();
    (1..=2).for_each(|number| published.publish(number));
    fs::remove_file(published.data_file(2)).unwrap();
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--fetch-bandwidth", "1KB"]);
    let mut node = Server::spawn(command, &published.socket("a"));
    node.wait_for_log("not found");
    assert!(!published.socket("a").exists(), "{}", node.log());
}

#[test]
fn running_nodes_serve_changes_that_the_publisher_has_allowed() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--max-shrink", "10%"]);
    let node = start_node(command, &published.socket("a"));
    let is_served = |number| {
        eventually(&format!("generation {number} is served"), || node.number("published_generation") == number);
        assert_eq!(node.info().get("published_error"), Some(""));
    };
    is_served(publish_other(&published, Keys::U64, "1,one\n"));
    is_served(publish_other(&published, Keys::BYTES, "one,1\ntwo,2\nthree,3\n"));
    is_served(publish_other(&published, Keys::BYTES, ""));
    // A node that was not there meanwhile needs the permissions of all generations that it has missed.
    drop(node);
    published.publish(5);
    let node = published.node("a");
    wait_until_served(&node, 5);
    let node = published.node("b");
    wait_until_served(&node, 5);
}

#[test]
fn a_node_that_missed_a_permission_follows_the_later_generations() {
    let published = Published::new();
    published.publish(1);
    drop(published.node("a"));
    let keys = publish_other(&published, Keys::BYTES, "one,1\ntwo,2\n");
    let db = published.folder.path().join("other.db");
    let next = published.publish_file(&db, &CommitOptions::default());
    assert_eq!((keys, next), (2, 3));
    let node = published.node("a");
    eventually("generation 3 is served", || node.number("published_generation") == 3);
}

#[test]
fn no_node_serves_a_change_without_a_permission_and_all_follow_the_next_generation() {
    let published = Published::new();
    published.publish(1);
    drop(published.node("a"));
    // As an earlier version, or another program, publishes. No node may see the permission that is removed.
    let forget = |number| {
        edit_manifest(&published, number, |body| drop(body.as_object_mut().unwrap().remove("allowed")));
    };
    forget(publish_other(&published, Keys::BYTES, "one,1\n"));
    let running = published.node("a");
    wait_for_error(&running, "its keys are bytes, expected u64");
    wait_for_polls(&running);
    assert_eq!(running.number("published_generation"), 1);
    let new = published.node("b");
    wait_until_served(&new, 1);
    drop((running, new));
    let db = published.folder.path().join("next.db");
    SHAPE.bake(3, &db);
    forget(publish_allowed(&published, &db));
    for name in ["a", "b", "c"] {
        wait_until_served(&published.node(name), 3);
    }
}

#[test]
fn a_new_node_rejects_a_shrunken_generation_like_a_running_one() {
    let published = Published::new();
    published.publish(1);
    let node = |name: &str| {
        let mut command = published.node_command(name, published.publication.url());
        command.args(["--max-shrink", "20%"]);
        start_node(command, &published.socket(name))
    };
    let running = node("running");
    let db = published.folder.path().join("shrunken.db");
    Shape { rows: SHAPE.rows * 3 / 4, ..SHAPE }.bake(2, &db);
    published.publish_file(&db, &CommitOptions::default());
    let new = node("new");
    for node in [&running, &new] {
        wait_for_error(node, "expected at least 1");
        wait_until_served(node, 1);
    }
    // The publisher's permission holds for all nodes.
    let options = CommitOptions { allow: vec![Change::Shrink], ..CommitOptions::default() };
    Shape { rows: SHAPE.rows / 4, ..SHAPE }.bake(3, &db);
    published.publish_file(&db, &options);
    [&running, &new].into_iter().for_each(|node| wait_until_served(node, 3));
}
