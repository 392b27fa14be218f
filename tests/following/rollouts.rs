//! Rollouts: nodes that prepare a generation and wait for a decision.

use zero_kv::publish::Decision;

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, start_node, wait_for_polls, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

/// Lets two nodes prepare generation 2. Returns them with their load.
fn holding(published: &Published) -> [(Server, MixedLoad); 2] {
    published.publish(1);
    let nodes = ["a", "b"].map(|name| {
        let node = published.node(name);
        let load = MixedLoad::start(&node, SHAPE, 1);
        (node, load)
    });
    published.pin(Some(1));
    nodes.iter().for_each(|(node, _)| node.wait_for("published_pin", 1));
    published.publish(2);
    assert_eq!(published.hold(2), 2);
    eventually("both nodes have prepared generation 2", || {
        published.publication.statuses().unwrap().iter().filter(|status| status.prepared == 2).count() == 2
    });
    for (node, _) in &nodes {
        wait_for_polls(node);
        assert_eq!((node.number("published_generation"), node.number("published_prepared")), (1, 2));
    }
    nodes
}

#[test]
fn nodes_that_hold_a_generation_serve_it_when_it_is_activated() {
    let published = Published::new();
    let nodes = holding(&published);
    nodes.iter().for_each(|(_, load)| load.allow(2));
    assert_eq!(published.publication.decide(2, Decision::Activate).unwrap(), Decision::Activate);
    // The first decision is final.
    assert_eq!(published.publication.decide(2, Decision::Abort).unwrap(), Decision::Activate);
    for (node, load) in nodes {
        wait_until_served(&node, 2);
        assert_eq!(load.finish(), 0);
    }
}

#[test]
fn a_decision_applies_only_to_its_pin() {
    let published = Published::new();
    let nodes = holding(&published);
    nodes.iter().for_each(|(_, load)| load.allow(2));
    published.publication.decide(2, Decision::Activate).unwrap();
    nodes.iter().for_each(|(node, _)| wait_until_served(node, 2));
    for decision in [Decision::Abort, Decision::Activate] {
        // The nodes go back, and prepare the generation again.
        published.pin(Some(1));
        nodes.iter().for_each(|(node, _)| wait_until_served(node, 1));
        let pin = published.hold(2);
        nodes.iter().for_each(|(node, _)| node.wait_for("published_prepared", 2));
        nodes.iter().for_each(|(node, _)| wait_for_polls(node));
        assert!(nodes.iter().all(|(node, _)| node.number("published_generation") == 1));
        published.publication.decide(pin, decision).unwrap();
    }
    nodes.iter().for_each(|(node, _)| wait_until_served(node, 2));
    // Only a pin with a generation that nodes hold needs a decision.
    for pin in [1, 99] {
        let error = published.publication.decide(pin, Decision::Activate).unwrap_err().to_string();
        assert!(error.contains("is not a pin whose generation nodes hold"), "{error}");
    }
    nodes.into_iter().for_each(|(_, load)| assert_eq!(load.finish(), 0));
}

#[test]
fn nodes_that_hold_a_generation_drop_it_when_it_is_aborted() {
    let published = Published::new();
    let nodes = holding(&published);
    published.publication.decide(2, Decision::Abort).unwrap();
    for (node, _) in &nodes {
        wait_for_polls(node);
    }
    for (node, load) in nodes {
        wait_until_served(&node, 1);
        assert_eq!(load.finish(), 0);
    }
}

#[test]
fn a_node_reports_its_zone() {
    let published = Published::new();
    published.publish(1);
    let mut command = published.node_command("a", published.publication.url());
    command.args(["--zone", "east-1"]);
    let _node = start_node(command, &published.socket("a"));
    eventually("the node reports its zone", || {
        published.publication.statuses().unwrap().iter().any(|status| status.zone == "east-1")
    });
    for args in [["--zone", "east,west"], ["--zone", "../x"], ["--zone", "a b"], ["--fetch-bandwidth", "0"]] {
        let mut command = published.node_command("b", published.publication.url());
        let output = command.args(args).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains("expected at "), "{args:?}: {error}");
    }
    let output = published.node_command("a/b", published.publication.url()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
