//! Rollouts: nodes that prepare a generation and wait for a decision.

use zero_kv::publish::{Decision, Pin};

use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::published::{Published, SHAPE, start_node, wait_until_served};
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
    let mut pin = Pin::new(Some(1));
    published.publication.create_pin(&pin).unwrap();
    nodes.iter().for_each(|(node, _)| node.wait_for("published_pin", 1));
    published.publish(2);
    pin.generation = Some(2);
    pin.hold = true;
    published.publication.create_pin(&pin).unwrap();
    eventually("both nodes have prepared generation 2", || {
        published.publication.statuses().unwrap().iter().filter(|status| status.prepared == 2).count() == 2
    });
    for (node, _) in &nodes {
        let polls = node.number("published_polls");
        node.wait_for("published_polls", polls + 2);
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
fn nodes_that_hold_a_generation_drop_it_when_it_is_aborted() {
    let published = Published::new();
    let nodes = holding(&published);
    published.publication.decide(2, Decision::Abort).unwrap();
    for (node, _) in &nodes {
        let polls = node.number("published_polls");
        node.wait_for("published_polls", polls + 2);
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
    for zone in ["east,west", "../x"] {
        let mut command = published.node_command("b", published.publication.url());
        let output = command.args(["--zone", zone]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains("the zone of the node is "), "{error}");
    }
}
