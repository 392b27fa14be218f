//! Pins and requested reloads.

use zero_kv::publish::Pin;

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, wait_for_error, wait_for_polls, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::store_server::StoreServer;
use crate::helpers::waiting::eventually;

#[test]
fn a_pin_rolls_back_under_load_without_a_download() {
    let published = Published::new();
    published.publish(1);
    let store = StoreServer::start(&published.store());
    let node = published.node_of("a", &store.url("users"));
    let load = MixedLoad::start(&node, SHAPE, 1);
    load.allow(2);
    published.publish(2);
    wait_until_served(&node, 2);
    let fetched = node.number("published_fetched_bytes");
    for _ in 0..5 {
        published.pin(Some(1));
        wait_until_served(&node, 1);
        published.pin(None);
        wait_until_served(&node, 2);
    }
    load.wait_for_right(1000);
    assert_eq!(load.finish(), 0);
    assert_eq!(node.number("published_fetched_bytes"), fetched);
    assert_eq!(node.number("published_pin"), 10);
}

#[test]
fn a_pinned_node_keeps_the_pinned_generation_after_a_restart_without_the_store() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    published.publish(2);
    wait_until_served(&node, 2);
    published.pin(Some(1));
    wait_until_served(&node, 1);
    drop(node);
    let unreachable = "http://127.0.0.1:1/users";
    let node = published.node_of("a", unreachable);
    wait_until_served(&node, 1);
}

#[test]
fn a_pin_of_one_node_does_not_move_another() {
    let published = Published::new();
    published.publish(1);
    let (a, b) = (published.node("a"), published.node("b"));
    published.publish(2);
    [&a, &b].into_iter().for_each(|node| wait_until_served(node, 2));
    let mut pin = Pin::new(Some(1));
    pin.nodes = vec!["a".to_owned()];
    published.publication.create_pin(&pin).unwrap();
    wait_until_served(&a, 1);
    wait_for_polls(&b);
    wait_until_served(&b, 2);
    eventually("the statuses name both generations", || {
        (published.status_serving("a"), published.status_serving("b")) == (Some(1), Some(2))
    });
    // A pin can also name the generation of the other nodes.
    (pin.generation, pin.others) = (Some(2), Some(1));
    published.publication.create_pin(&pin).unwrap();
    wait_until_served(&a, 2);
    wait_until_served(&b, 1);
}

#[test]
fn a_reload_looks_for_a_new_generation_and_returns_its_outcome() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--poll", "1h"]);
    let node = Server::of(command, &published.socket("a"));
    node.expect_logged("serving published generation 1", 1);
    let outcome = |node: &Server| node.outcome_of(node.client().reload().unwrap());
    assert_eq!(outcome(&node), "published generation 1 is already served");
    published.publish(2);
    assert_eq!(outcome(&node), "published generation 2 is served");
    wait_until_served(&node, 2);
    std::fs::write(published.table().join("manifests/00000000000000000003.json"), "{}").unwrap();
    let refused = outcome(&node);
    assert!(refused.starts_with("refused: ") && refused.contains("is not a document"), "{refused}");
    wait_for_error(&node, "is not a document");
}

#[test]
fn a_node_refuses_a_rollback_and_names_the_pin_to_create() {
    let published = Published::new();
    published.publish(1);
    let node = published.node("a");
    published.publish(2);
    wait_until_served(&node, 2);
    let refused = node.outcome_of(node.client().rollback().unwrap());
    assert!(refused.starts_with("refused: this server follows "), "{refused}");
    assert!(refused.contains(&format!("`zkv pin {} NUMBER`", published.publication.url())), "{refused}");
    assert_eq!((node.number("published_generation"), node.number("rollbacks")), (2, 0));
    assert_eq!(node.info().get("rolled_back"), Some("no"));
}
