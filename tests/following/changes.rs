//! Documents that change, or are damaged or missing, while a node fetches or starts.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use zero_kv::publish::Decision;

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{
    Published, SHAPE, health, names, start_node, wait_for_error, wait_for_polls, wait_until_served,
};
use crate::helpers::servers::Server;
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

/// Starts a node that serves generation 1 and waits for the file of generation 2.
fn fetching(published: &Published) -> (StoreServer, Server) {
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    store.fail("/data/", Fault::Stalled);
    published.publish(2);
    eventually("the fetch has begun", || store.fault_count() > 0);
    (store, node)
}

#[test]
fn a_pin_that_is_created_during_a_fetch_is_obeyed() {
    let published = Published::new();
    let (store, node) = fetching(&published);
    let load = MixedLoad::start(&node, SHAPE, 1);
    published.pin(Some(1));
    node.wait_for("published_pin", 1);
    store.recover();
    wait_for_polls(&node);
    load.wait_for_right(1000);
    // The load does not expect generation 2.
    assert_eq!((load.finish(), node.number("published_generation")), (0, 1));
    published.pin(None);
    wait_until_served(&node, 2);
}

#[test]
fn a_rollout_that_is_aborted_during_a_fetch_is_not_served() {
    let published = Published::new();
    published.publish(1);
    published.pin(Some(1));
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    let load = MixedLoad::start(&node, SHAPE, 1);
    store.fail("/data/", Fault::Stalled);
    published.publish(2);
    let pin = published.hold(2);
    eventually("the fetch has begun", || store.fault_count() > 0);
    published.publication.decide(pin, Decision::Abort).unwrap();
    let pin = published.pin(Some(1));
    node.wait_for("published_pin", pin);
    store.recover();
    wait_for_polls(&node);
    assert_eq!((load.finish(), node.number("published_generation")), (0, 1));
}

#[test]
fn a_node_that_starts_while_pins_are_missing_follows_the_pin_that_it_knows() {
    let published = Published::new();
    published.publish(1);
    published.pin(Some(1));
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    node.wait_for("published_pin", 1);
    published.publish(2);
    wait_for_polls(&node);
    drop(node);
    for fault in [Fault::Status(404), Fault::Status(500), Fault::Dead] {
        store.fail("/pins/", fault);
        let node = published.node_of("a", &store.url("users"));
        let load = MixedLoad::start(&node, SHAPE, 1);
        wait_for_polls(&node);
        assert_eq!((node.number("published_pin"), node.number("published_generation")), (1, 1), "{fault:?}");
        store.recover();
        wait_for_polls(&node);
        assert_eq!((load.finish(), node.number("published_generation")), (0, 1), "{fault:?}");
    }
}

#[test]
fn a_pin_and_a_new_generation_lead_out_of_a_damaged_manifest() {
    for damaged in [&b""[..], b"{}", b"{\"body\":{}}"] {
        let published = Published::new();
        (1..=2).for_each(|number| published.publish(number));
        let node = published.node("a");
        wait_until_served(&node, 2);
        fs::write(published.table().join("manifests/00000000000000000003.json"), damaged).unwrap();
        wait_for_error(&node, "manifests/00000000000000000003.json");
        published.pin(Some(1));
        wait_until_served(&node, 1);
        published.publish(4);
        published.pin(None);
        wait_until_served(&node, 4);
        eventually("the error is gone", || node.info().get("published_error") == Some(""));
    }
}

#[test]
fn a_file_in_the_cache_whose_blocks_are_damaged_is_fetched_again_while_the_node_serves() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    drop(published.node_of("a", &store.url("users")));
    let data = published.cache("a").join("data");
    let file = data.join(names(&data).remove(0));
    let len_bytes = file.metadata().unwrap().len();
    File::options().write(true).open(&file).unwrap().write_all_at(&[0; 20480], len_bytes / 5).unwrap();
    let sent_bytes = store.sent_bytes();
    // The damage is found when the file is opened, or by lookups.
    let node = published.node_of("a", &store.url("users"));
    let is_intact = || {
        let value = |key: u64| node.client().get(key).map(|value| assert_eq!(value, SHAPE.value(1, key)));
        (1..=SHAPE.rows).all(|key| value(key).is_ok())
    };
    eventually("the file is intact", || is_intact() && node.number("blocks_damaged") == 0);
    // Only the damaged blocks are fetched.
    let sent_bytes = store.sent_bytes() - sent_bytes;
    assert!((20480..len_bytes / 4).contains(&sent_bytes), "{sent_bytes} of {len_bytes} bytes were fetched");
    assert_eq!(fs::read(&file).unwrap(), fs::read(published.data_file(1)).unwrap());
    assert_eq!(health(&node), (Some(0), String::new()));
}

/// Damages a block of the file that node `a` has. Returns the file, and the node's store, which does not send the file
/// again until it recovers.
fn damage_a_block(published: &Published) -> (PathBuf, StoreServer) {
    let store = StoreServer::start(&published.store());
    drop(published.node_of("a", &store.url("users")));
    let data = published.cache("a").join("data");
    let file = data.join(names(&data).remove(0));
    let len_bytes = file.metadata().unwrap().len();
    // A server looks up 16 rows of its first file, which are elsewhere.
    File::options().write(true).open(&file).unwrap().write_all_at(&[0; 4096], len_bytes * 39 / 200).unwrap();
    store.fail("/data/", Fault::Stalled);
    (file, store)
}

#[test]
fn a_node_is_not_ready_while_damaged_blocks_are_fetched_again() {
    let published = Published::new();
    published.publish(1);
    let (_, store) = damage_a_block(&published);
    let metrics = published.folder.path().join("metrics.sock");
    let mut command = published.node_command("a", &store.url("users"));
    command.arg("--metrics").arg(&metrics);
    let node = start_node(command, &published.socket("a"));
    let readiness = || {
        let mut stream = UnixStream::connect(&metrics).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: zero-kv\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    eventually("lookups have found the damage", || {
        (1..=SHAPE.rows).any(|key| node.client().get(key).is_err()) && readiness().starts_with("HTTP/1.1 503 ")
    });
    assert!(readiness().contains(" damaged blocks: the file is fetched again"), "{}", readiness());
    let (status, text) = health(&node);
    assert!(status == Some(1) && text.contains(": the server fetches it again"), "{text}");
    store.recover();
    eventually("the node is ready", || readiness().starts_with("HTTP/1.1 200 "));
    eventually("nothing is reported", || health(&node) == (Some(0), String::new()));
}

#[test]
fn a_node_that_is_killed_while_it_fetches_damaged_blocks_serves_the_intact_rows_when_it_starts_again() {
    let published = Published::new();
    published.publish(1);
    let (file, store) = damage_a_block(&published);
    for _ in 0..2 {
        let faults = store.fault_count();
        // The node serves although it cannot fetch anything.
        let mut node = published.node_of("a", &store.url("users"));
        eventually("lookups have found the damage, and the fetch has begun", || {
            let mut client = node.client();
            (1..=SHAPE.rows).any(|key| client.get(key).is_err()) && store.fault_count() > faults
        });
        let mut client = node.client();
        assert!((1..=SHAPE.rows).any(|key| client.get(key).is_ok()));
        node.kill();
    }
    store.recover();
    let node = published.node_of("a", &store.url("users"));
    eventually("the file is intact", || {
        let mut client = node.client();
        (1..=SHAPE.rows).all(|key| client.get(key).is_ok()) && node.number("blocks_damaged") == 0
    });
    assert_eq!(fs::read(&file).unwrap(), fs::read(published.data_file(1)).unwrap());
    published.wait_until_tidy("a");
}

#[test]
fn a_generation_in_the_cache_that_is_damaged_when_it_is_served_again_is_fetched_again() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    let data = published.cache("a").join("data");
    let first = data.join(names(&data).remove(0));
    published.publish(2);
    wait_until_served(&node, 2);
    let mut bytes = fs::read(&first).unwrap();
    bytes[0] ^= 1;
    fs::remove_file(&first).unwrap();
    fs::write(&first, bytes).unwrap();
    published.pin(Some(1));
    wait_until_served(&node, 1);
    assert_eq!(node.client().get(7).unwrap(), SHAPE.value(1, 7));
}
