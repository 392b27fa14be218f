//! `zkv rollout` with nodes.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::nodes::start;
use super::stores::{Ran, Store};
use crate::helpers::terminal::Terminal;
use crate::helpers::waiting::eventually;

/// Returns a table with generations 1 and 2, whose nodes are pinned to generation 1.
fn pinned_table() -> Store {
    let store = Store::folder();
    store.publish(1);
    store.zkv(&["pin", "URL", "1"]).succeeds();
    store.publish(2);
    store
}

fn rollout(store: &Store, args: &[&str]) -> Ran {
    store.zkv(&[&["rollout", "URL", "2", "--interval", "20ms"], args].concat())
}

/// Returns the nodes and states of a rollout in JSON.
fn states(report: &Value) -> Vec<(&str, &str)> {
    let nodes = report["nodes"].as_array().unwrap().iter();
    nodes.map(|node| (node["node"].as_str().unwrap(), node["state"].as_str().unwrap())).collect()
}

/// Returns the pins as JSON, in order.
fn pins(store: &Store) -> Vec<Value> {
    let read = |name: &String| serde_json::from_slice::<Value>(&store.read(name)).unwrap()["body"].clone();
    store.objects("pins").iter().map(read).collect()
}

pub(crate) fn canary_nodes_serve_first() {
    let store = pinned_table();
    let nodes = start(&store, ["c", "a", "b"], 1);
    let text = rollout(&store, &["--canary-nodes", "2", "--wait"]).succeeds();
    let at = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line:?} is not in {text}"));
    let [canaries, a, b, all] = [
        "pin 2: nodes a,b serve generation 2, and other nodes serve generation 1\n",
        "a: serving, serves 2\n",
        "b: serving, serves 2\n",
        "pin 3: all nodes serve generation 2\n",
    ]
    .map(at);
    assert!(canaries < a && canaries < b && a < all && b < all, "{text}");
    assert!(nodes.iter().all(|node| node.serving() == 2));
    let report = rollout(&store, &["--wait", "--json"]).json();
    assert_eq!(report["result"], "done");
    assert_eq!(states(&report), [("a", "serving"), ("b", "serving"), ("c", "serving")]);
}

pub(crate) fn a_terminal_shows_a_live_table_of_nodes() {
    let store = pinned_table();
    let _nodes = start(&store, ["a", "b"], 1);
    let mut terminal = Terminal::new();
    let args = ["rollout", "URL", "2", "--interval", "20ms", "--canary-nodes", "1", "--wait"];
    let mut child = terminal.start(&store.zkv_command(&args));
    terminal.wait_for("waiting");
    // A table that changes again at once may not be drawn, unlike these lines, which are drawn together with a table.
    terminal.wait_for("pin 2: nodes a serve generation 2");
    terminal.wait_for("pin 3: all nodes serve generation 2");
    terminal.wait_for("a     serving");
    // The table of the result.
    terminal.wait_for("b     serving       2");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

pub(crate) fn a_terminal_that_cannot_redraw_shows_lines() {
    let store = pinned_table();
    let _nodes = start(&store, ["a", "b"], 1);
    let mut terminal = Terminal::new();
    let mut command = store.zkv_command(&["rollout", "URL", "2", "--interval", "20ms", "--wait"]);
    let mut child = terminal.start(command.env("TERM", "dumb"));
    terminal.wait_for("b: waiting, serves 1\r\n");
    terminal.wait_for("pin 2: all nodes serve generation 2\r\n");
    terminal.wait_for("b     serving       2");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

pub(crate) fn a_failed_canary_node_stops_the_rollout() {
    let store = pinned_table();
    let nodes = start(&store, ["a", "b"], 1);
    nodes[0].reject();
    let ran = rollout(&store, &["--canary-nodes", "1"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("zkv: node a: generation 2 is rejected: the canary failed\n"), "{ran:?}");
    assert!(ran.err.contains("generation 2: nodes failed"), "{ran:?}");
    assert_eq!(pins(&store).len(), 2, "the other nodes are not pinned to the generation");
    assert_eq!(nodes[0].serving(), 1);
    let report = rollout(&store, &["--canary-nodes", "1", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&report.out).unwrap()["result"], "failed");
}

pub(crate) fn a_barrier_makes_all_nodes_serve_after_the_decision() {
    let store = pinned_table();
    let nodes = start(&store, ["a", "b", "c"], 1);
    let text = rollout(&store, &["--barrier"]).succeeds();
    let (before, after) = text.split_once("generation 2 is activated\n").unwrap_or_else(|| panic!("{text}"));
    for node in &nodes {
        assert!(before.contains(&format!("{}: prepared, serves 1\n", node.name)), "{text}");
        assert!(after.contains(&format!("{}: serving, serves 2\n", node.name)), "{text}");
    }
    assert!(before.contains("pin 2: all nodes prepare generation 2\n") && !before.contains("serves 2"), "{text}");
    // What is activated cannot be aborted.
    let ran = rollout(&store, &["--abort"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("nodes serve it already: use zkv pin"), "{ran:?}");
}

pub(crate) fn an_aborted_rollout_goes_back_to_the_generation_before() {
    let store = pinned_table();
    let nodes = start(&store, ["a", "b"], 1);
    store.zkv(&["pin", "URL", "2", "--hold"]).succeeds();
    let text = rollout(&store, &["--abort"]).succeeds();
    assert!(text.contains("the rollout of generation 2 is aborted\npin 3: all nodes serve generation 1\n"), "{text}");
    let ran = rollout(&store, &["--barrier"]);
    assert!(ran.err.contains("the rollout was aborted: publish again, or use zkv pin"), "{ran:?}");
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(nodes.iter().all(|node| node.serving() == 1));

    // Without an earlier pin, the nodes are pinned to what they serve, because the aborted generation is the newest.
    let store = Store::folder();
    store.publish(1);
    let nodes = start(&store, ["a"], 1);
    store.publish(2);
    store.zkv(&["pin", "URL", "2", "--hold"]).succeeds();
    eventually("the node serves or holds", || nodes[0].serving() > 0);
    let text = rollout(&store, &["--abort"]).succeeds();
    assert!(text.contains("pin 2: all nodes serve generation 1\n"), "{text}");
}

pub(crate) fn too_few_ready_nodes_are_reported_after_the_time() {
    let store = pinned_table();
    let [a, b] = start(&store, ["a", "b"], 1);
    // The node has reported recently, but will not prepare the generation.
    drop(b);
    let ran = rollout(&store, &["--barrier", "--timeout", "500ms"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("generation 2: not done within 500ms: repeat the command"), "{ran:?}");
    assert_eq!(a.serving(), 1);
    // Half of the nodes is enough, but the command waits until all nodes serve.
    let report = rollout(&store, &["--barrier", "--ready", "50%", "--timeout", "5s", "--json"]);
    assert_eq!(report.output.status.code(), Some(1), "{report:?}");
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["result"], "timed_out");
    assert_eq!(states(&report), [("a", "serving"), ("b", "waiting")]);
}

pub(crate) fn a_rollout_that_no_node_confirms_is_not_done() {
    let store = pinned_table();
    let nodes = start(&store, ["a"], 1);
    store.zkv(&["pin", "URL", "2"]).succeeds();
    eventually("the node reports generation 2", || {
        let report = store.zkv(&["generations", "URL", "--json"]).json();
        let generations = report["generations"].as_array().unwrap().iter();
        let reported = |generation: &Value| generation["number"] == 2 && generation["nodes"][0] == "a";
        generations.into_iter().any(reported)
    });
    drop(nodes);
    // The only node has stopped an hour ago.
    let status = store.path("published/users/status/a.json");
    let file = std::fs::File::options().write(true).open(status).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    for args in [&["--wait"][..], &["--barrier"], &["--canary-nodes", "1"]] {
        let ran = rollout(&store, args);
        assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
        assert!(ran.err.contains("no node has reported within 3 minutes"), "{ran:?}");
        assert!(ran.err.contains("warning: node a has not reported for 36"), "{ran:?}");
    }
}

pub(crate) fn a_rollout_without_nodes_is_rejected() {
    let store = pinned_table();
    for args in [&["--barrier"][..], &["--canary-nodes", "1"]] {
        let ran = rollout(&store, args);
        assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
        assert!(ran.err.contains("no node has reported within 3 minutes"), "{ran:?}");
    }
    assert_eq!(pins(&store).len(), 1);
    assert_eq!(rollout(&store, &[]).succeeds(), "pin 2: all nodes serve generation 2\nnode  state  serves  error\n");
}
