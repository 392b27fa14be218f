//! Faults of the store under load. No fault changes a served value, and every node converges when the fault ends.

use std::fs;

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, health, wait_for_error, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

/// Publishes generation 1, and lets a node follow it through a server that can fail.
fn scene() -> (Published, StoreServer, Server, MixedLoad) {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    let load = MixedLoad::start(&node, SHAPE, 1);
    (published, store, node, load)
}

/// Applies a fault to the objects whose path contains a text, and publishes generation 2 during the fault. Checks that
/// the node reports the fault with a text, and serves generation 2 after it.
fn survives(path_part: &str, fault: Fault, error: &str) {
    let (published, store, node, load) = scene();
    store.fail(path_part, fault);
    published.publish(2);
    eventually("a request has failed", || store.fault_count() > 0);
    wait_for_error(&node, error);
    assert_eq!(node.number("published_generation"), 1);
    let (status, lines) = health(&node);
    assert!(status == Some(0) && lines.contains(error), "{status:?}: {lines}");
    load.wait_for_right(1000);
    load.allow(2);
    store.recover();
    // A requested reload does not wait until the next attempt is due.
    node.client().reload().unwrap();
    wait_until_served(&node, 2);
    load.expect_at_least(2);
    load.wait_for_right(1000);
    assert_eq!(load.finish(), 0);
    assert_eq!(node.info().get("published_error"), Some(""));
    assert!(node.number("published_failures") > 0);
}

#[test]
fn a_store_that_dies_and_returns() {
    survives("/", Fault::Dead, "connection");
}

#[test]
fn a_store_that_returns_internal_errors() {
    survives("/data/", Fault::Status(500), "500");
}

#[test]
fn credentials_that_expire() {
    survives("/manifests/", Fault::Status(403), "403");
}

#[test]
fn an_object_that_is_missing() {
    survives("/data/", Fault::Status(404), "not found");
}

#[test]
fn a_connection_that_is_reset_within_an_object() {
    survives("/data/", Fault::Reset, "users/data/");
}

#[test]
fn an_object_that_is_truncated() {
    survives("/data/", Fault::Truncated, "truncated");
}

#[test]
fn an_object_with_a_flipped_bit() {
    survives("/data/", Fault::Flipped, "rejected");
}

#[test]
fn a_manifest_that_is_truncated() {
    survives("/manifests/", Fault::Truncated, "is not a document");
}

#[test]
fn a_manifest_with_a_flipped_bit() {
    survives("/manifests/", Fault::Flipped, "/manifests/");
}

#[test]
fn a_store_that_stalls() {
    let (published, store, node, load) = scene();
    store.fail("/", Fault::Stalled);
    eventually("a request has stalled", || store.fault_count() > 0);
    published.publish(2);
    load.wait_for_right(5000);
    assert_eq!(node.number("published_generation"), 1);
    load.allow(2);
    store.recover();
    wait_until_served(&node, 2);
    assert_eq!(load.finish(), 0);
}

#[test]
fn a_store_that_returns_an_older_state() {
    let (published, store, node, load) = scene();
    load.allow(2);
    published.publish(2);
    wait_until_served(&node, 2);
    load.expect_at_least(2);
    // A store with only generation 1 must not make a node that starts again go back.
    let socket = node.socket().to_path_buf();
    assert_eq!(load.finish(), 0);
    drop(node);
    let newest = published.table().join("manifests/00000000000000000002.json");
    let hidden = fs::read(&newest).unwrap();
    fs::remove_file(&newest).unwrap();
    let node = Server::of(published.node_command("a", &store.url("users")), &socket);
    let load = MixedLoad::start(&node, SHAPE, 2);
    wait_for_error(&node, "this node serves generation 2");
    assert_eq!(node.number("published_generation"), 2);
    fs::write(&newest, hidden).unwrap();
    load.allow(3);
    published.publish(3);
    wait_until_served(&node, 3);
    assert_eq!(load.finish(), 0);
}

#[test]
fn a_manifest_of_a_newer_format_is_rejected_with_the_remedy() {
    let (published, _store, node, load) = scene();
    let manifest = published.table().join("manifests/00000000000000000002.json");
    // The checksum is the XXH3-128 of the body.
    fs::write(&manifest, r#"{"body":{"format":2,"other":[]},"xxh3_128":"CHECKSUM"}"#.replace("CHECKSUM", NEWER))
        .unwrap();
    wait_for_error(&node, "has format 2, and this version reads up to 1: install a newer version");
    load.wait_for_right(1000);
    assert_eq!(load.finish(), 0);
}

/// The checksum of the body in [`a_manifest_of_a_newer_format_is_rejected_with_the_remedy`].
const NEWER: &str = "a569c521bd7e52a18d864f95b58e08b2";

#[test]
fn fifty_generations_in_a_row() {
    let (published, _store, node, load) = scene();
    // Values whose generation numbers have equally many digits have equal lengths, which the load relies on.
    for number in 2..=50 {
        load.allow(number);
        published.publish(number);
    }
    wait_until_served(&node, 50);
    load.expect_at_least(50);
    load.wait_for_right(1000);
    assert_eq!(load.finish(), 0);
}
