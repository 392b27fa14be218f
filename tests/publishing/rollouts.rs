//! `zkv rollout` with nodes.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::lost_responses::Proxied;
use super::nodes::{Node, start, start_in_zones};
use super::stores::{Ran, Store};
use crate::helpers::fault_proxy::ProxyFault;
use crate::helpers::published::sealed;
use crate::helpers::terminal::Terminal;
use crate::helpers::trials::Missing;
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

/// Makes the last report of a stopped node one hour old.
fn make_silent(store: &Store, node: &str) {
    let status = store.path(&format!("published/users/status/{node}.json"));
    let file = std::fs::File::options().write(true).open(status).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
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
    // Another rollout of the generation waits for its own decision.
    store.zkv(&["pin", "URL", "1"]).succeeds();
    eventually("all nodes went back", || nodes.iter().all(|node| node.serving() == 1));
    let [a, b, c] = nodes;
    // The node has reported recently, but will not prepare the generation.
    drop(c);
    let ran = rollout(&store, &["--barrier", "--timeout", "500ms"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert_eq!([a.serving(), b.serving()], [1, 1], "{ran:?}");
}

/// The newest pin selects what nodes serve, so an abort that finds another one has nothing to do.
pub(crate) fn only_a_generation_that_is_rolled_out_can_be_aborted() {
    let store = pinned_table();
    let nodes = start(&store, ["a"], 1);
    let not_rolled_out = || {
        let ran = rollout(&store, &["--abort"]);
        assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
        assert!(ran.err.contains("generation 2: is not rolled out"), "{ran:?}");
    };
    not_rolled_out();
    store.zkv(&["unpin", "URL"]).succeeds();
    eventually("the node serves generation 2", || nodes[0].serving() == 2);
    not_rolled_out();
    assert_eq!(pins(&store).len(), 2);
    // The rollout is not affected.
    store.zkv(&["pin", "URL", "1"]).succeeds();
    eventually("the node serves generation 1", || nodes[0].serving() == 1);
    rollout(&store, &["--barrier"]).succeeds();
}

pub(crate) fn an_abort_restores_what_nodes_served() {
    let store = pinned_table();
    store.publish(3);
    let pin = |args: &[&str]| drop(store.zkv(&[&["pin", "URL"], args].concat()).succeeds());
    let abort = || store.zkv(&["rollout", "URL", "2", "--abort"]).succeeds();
    // A damaged pin, and a pin that nobody has activated, were not followed.
    store.write("pins/00000000000000000002.json", b"{}".to_vec());
    pin(&["3", "--hold"]);
    pin(&["2"]);
    assert!(abort().contains("pin 5: all nodes serve generation 1\n"));
    // A pin that was activated was followed, and needs no decision again.
    pin(&["3", "--hold"]);
    store.write("decisions/00000000000000000006.json", sealed("\"activate\""));
    pin(&["2", "--hold"]);
    assert!(abort().contains("pin 8: all nodes serve generation 3\n"));
}

pub(crate) fn an_aborted_rollout_goes_back_to_the_generation_before() {
    let store = pinned_table();
    let nodes = start(&store, ["a", "b"], 1);
    store.zkv(&["pin", "URL", "2", "--hold"]).succeeds();
    let text = rollout(&store, &["--abort"]).succeeds();
    assert!(text.contains("the rollout of generation 2 is aborted\npin 3: all nodes serve generation 1\n"), "{text}");
    assert!(nodes.iter().all(|node| node.serving() == 1));
    // The generation can be rolled out again.
    rollout(&store, &["--barrier"]).succeeds();
    assert!(nodes.iter().all(|node| node.serving() == 2));

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
    // A number also means nodes that have not reported yet.
    let ran = rollout(&store, &["--barrier", "--ready", "9", "--timeout", "500ms"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("--ready expects 9 nodes, but only 2 have reported: waiting for more"), "{ran:?}");
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
    make_silent(&store, "a");
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

pub(crate) fn tolerated_nodes_are_named() {
    let store = pinned_table();
    let [a, b, c] = start(&store, ["a", "b", "c"], 1);
    b.reject();
    let ran = rollout(&store, &["--wait"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    let ran = rollout(&store, &["--wait", "--tolerate", "1"]);
    assert!(ran.err.contains("warning: tolerated: node b: failed, serves 1: generation 2 is rejected: "), "{ran:?}");
    ran.succeeds();
    assert_eq!([a.serving(), b.serving(), c.serving()], [2, 1, 2]);
    // A node that has stopped a moment ago is not silent yet, and does not serve the generation in time.
    store.publish(3);
    drop(c);
    store.zkv(&["pin", "URL", "3"]).succeeds();
    let reports = |node: &str, text: &str| {
        let status = store.read(&format!("status/{node}.json"));
        String::from_utf8(status).unwrap().contains(text)
    };
    eventually("the nodes serve or reject generation 3", || {
        reports("a", "\"serving\":3") && reports("b", "\"failed\":3")
    });
    let late = |tolerate: &str| {
        store.zkv(&["rollout", "URL", "3", "--interval", "20ms", "--timeout", "2s", "--wait", "--tolerate", tolerate])
    };
    let ran = late("2");
    assert!(ran.err.contains("warning: tolerated: node b: failed, serves 1: "), "{ran:?}");
    assert!(ran.err.contains("warning: tolerated: node c: waiting, serves 2\n"), "{ran:?}");
    ran.succeeds();
    let ran = late("1");
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("generation 3: not done within 2s"), "{ran:?}");
}

pub(crate) fn nodes_that_were_silent_before_the_rollout_count_as_tolerated() {
    let store = pinned_table();
    let [_a, b, _c] = start(&store, ["a", "b", "c"], 1);
    drop(b);
    make_silent(&store, "b");
    let ran = rollout(&store, &["--wait", "--timeout", "2s", "--tolerate", "0"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    for how in ["--wait", "--barrier"] {
        let ran = rollout(&store, &[how, "--tolerate", "1"]);
        assert!(ran.err.contains("warning: tolerated: node b: silent for 36"), "{ran:?}");
        ran.succeeds();
    }
    // Without the option, nobody waits for such a node.
    rollout(&store, &["--wait"]).succeeds();
}

/// Returns a table with generations 1 and 2, and nodes in the zones `a` and `b` and without a zone, which serve 1.
fn zoned_table() -> (Store, [Node; 4]) {
    let store = pinned_table();
    let nodes = start_in_zones(&store, [("a", "a1"), ("a", "a2"), ("b", "b1"), ("", "x")], 1);
    (store, nodes)
}

#[track_caller]
fn assert_order(text: &str, lines: &[&str]) {
    let mut rest = text;
    for line in lines {
        let at = rest.find(line).unwrap_or_else(|| panic!("{line:?} is not after the preceding line in {text}"));
        rest = &rest[at + line.len()..];
    }
}

pub(crate) fn zones_serve_one_after_the_other() {
    let (store, nodes) = zoned_table();
    let text = rollout(&store, &["--zones", "b,a", "--wait"]).succeeds();
    let expected = [
        "zone b\npin 2: nodes b1 serve generation 2, and other nodes serve generation 1\n",
        "b1: serving, serves 2\n",
        "zone a\npin 3: nodes a1,a2,b1 serve generation 2, and other nodes serve generation 1\n",
        "all nodes\npin 4: all nodes serve generation 2\n",
        "x: serving, serves 2\n",
        "a1    a     serving       2\n",
    ];
    assert_order(&text, &expected);
    let (before, after) = text.split_once("zone a\n").unwrap();
    let zone_a = after.split_once("all nodes\n").unwrap().0;
    for node in ["a1", "a2"] {
        let line = format!("{node}: serving, serves 2\n");
        assert!(!before.contains(&line) && zone_a.contains(&line), "{text}");
    }
    assert!(nodes.iter().all(|node| node.serving() == 2));
    let report = rollout(&store, &["--zones", "b,a", "--wait", "--json"]).json();
    assert_eq!((&report["nodes"][2]["zone"], &report["step"]), (&json!("b"), &json!("all nodes")));
}

pub(crate) fn a_failed_zone_keeps_the_next_one_from_beginning() {
    let (store, nodes) = zoned_table();
    nodes[0].reject();
    let ran = rollout(&store, &["--zones", "a,b", "--wait"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("generation 2: zone a: nodes failed"), "{ran:?}");
    assert_eq!(nodes.each_ref().map(Node::serving), [1, 2, 1, 1]);
    // `--tolerate` counts the lost nodes of all zones together.
    let ran = rollout(&store, &["--zones", "a,b", "--wait", "--tolerate", "1"]);
    assert!(ran.err.contains("warning: tolerated: node a1: failed, serves 1"), "{ran:?}");
    ran.succeeds();
    assert_eq!(nodes.each_ref().map(Node::serving), [1, 2, 2, 2]);
    nodes[2].reject();
    store.publish(3);
    let ran = store.zkv(&["rollout", "URL", "3", "--interval", "20ms", "--zones", "a,b", "--tolerate", "1"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("generation 3: zone b: nodes failed"), "{ran:?}");
    assert_eq!(nodes.each_ref().map(Node::serving), [1, 3, 2, 2]);
}

pub(crate) fn zones_with_a_barrier_prepare_first_and_can_be_aborted() {
    let (store, nodes) = zoned_table();
    nodes[2].reject();
    let ran = rollout(&store, &["--zones", "a,b", "--barrier"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    let expected = ["pin 2: all nodes prepare generation 2\n", "zone a\n", "a1: serving, serves 2\n", "zone b\n"];
    assert_order(&ran.out, &expected);
    let prepared = ran.out.split_once("zone a\n").unwrap().0;
    for node in ["a1", "a2", "b1", "x"] {
        assert!(prepared.contains(&format!("{node}: prepared, serves 1\n")), "{}", ran.out);
    }
    assert_eq!(nodes.each_ref().map(Node::serving), [2, 2, 1, 1]);
    let text = rollout(&store, &["--abort"]).succeeds();
    assert!(text.contains("pin 5: all nodes serve generation 1\n"), "{text}");
    eventually("all nodes went back", || nodes.iter().all(|node| node.serving() == 1));
}

pub(crate) fn zones_that_are_not_those_of_the_nodes_are_rejected() {
    let (store, [_a1, _a2, b1, _x]) = zoned_table();
    let known = "zones of a (2 nodes), b (1 node), 1 node without a zone";
    for (zones, expected) in [
        ("a,c", &["no node of zone \"c\" has reported within 3 minutes", known][..]),
        ("a", &["does not name zone \"b\", which has nodes"]),
    ] {
        let ran = rollout(&store, &["--zones", zones]);
        assert_eq!(ran.output.status.code(), Some(2), "{ran:?}");
        assert!(expected.iter().all(|text| ran.err.contains(text)), "{expected:?}: {ran:?}");
    }
    drop(b1);
    make_silent(&store, "b1");
    let ran = rollout(&store, &["--zones", "a,b"]);
    assert!(ran.err.contains("no node of zone \"b\" has reported within 3 minutes"), "{ran:?}");
    assert_eq!(pins(&store).len(), 1);
    rollout(&store, &["--zones", "a", "--wait"]).succeeds();
}

pub(crate) fn a_pin_of_one_node_does_not_activate_what_the_others_hold() {
    let store = pinned_table();
    let [_a, b] = start(&store, ["a", "b"], 1);
    let pin = |args: &[&str]| store.zkv(&[&["pin", "URL"], args].concat()).succeeds();
    pin(&["2", "--hold"]);
    pin(&["2", "--hold"]);
    let expected = "pin 4: nodes a serve generation 2, and other nodes serve generation 1\n";
    assert_eq!(pin(&["2", "--node", "a"]), expected);
    assert_eq!(b.serving(), 1);
    // Without a pin before, the others keep what they report.
    store.zkv(&["unpin", "URL"]).succeeds();
    rollout(&store, &["--wait"]).succeeds();
    store.zkv(&["unpin", "URL"]).succeeds();
    pin(&["1", "--hold"]);
    let expected = "pin 9: nodes a serve generation 1, and other nodes serve generation 2\n";
    assert_eq!(pin(&["1", "--node", "a"]), expected);
    // After a rollout, the pin counts.
    store.publish(3);
    store.zkv(&["rollout", "URL", "3", "--interval", "20ms", "--barrier"]).succeeds();
    let expected = "pin 11: nodes a serve generation 2, and other nodes serve generation 3\n";
    assert_eq!(pin(&["2", "--node", "a"]), expected);
}

pub(crate) fn another_pin_ends_a_rollout() {
    let store = pinned_table();
    let [_a, b] = start(&store, ["a", "b"], 1);
    drop(b);
    let mut command = store.zkv_command(&["rollout", "URL", "2", "--interval", "20ms", "--wait"]);
    let child = command.spawn().unwrap();
    eventually("the rollout has pinned the generation", || pins(&store).len() == 2);
    store.zkv(&["pin", "URL", "1"]).succeeds();
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("another pin was created during the rollout"), "{ran:?}");
}

/// Writes the status of a node that serves generation 1, and has read the pins of the test.
fn write_status(store: &Store, node: &str) {
    // Far beyond the pins of the table, so that it does not count as the number of one.
    write_status_after_pin(store, node, 1 << 52, 0);
}

/// Writes the status of a node that serves generation 1, has read pins up to a number, and could not serve `failed`.
fn write_status_after_pin(store: &Store, node: &str, pin: u64, failed: u64) {
    let serving = u64::from(failed == 0);
    let status = json!({"node": node, "serving": serving, "digest": "", "prepared": 0, "newest": 1, "pin": pin, "lag_s": 0,
        "error": "", "failed": failed, "updated": "", "tool": ""});
    store.write(&format!("status/{node}.json"), sealed(&status.to_string()));
}

pub(crate) fn reports_from_before_a_rollout_confirm_nothing() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    let rollout = |args: &[&str]| {
        proxied.zkv(&[&["rollout", "URL", "1", "--interval", "20ms", "--timeout", "300ms"], args].concat())
    };
    for failed in [0, 1] {
        write_status_after_pin(&proxied.store, "a", 0, failed);
        for args in [&["--wait"][..], &["--wait", "--tolerate", "0"], &["--canary-nodes", "1"]] {
            let ran = rollout(args);
            assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
            assert!(ran.err.contains("not done within 300ms") && ran.out.contains("a: waiting"), "{ran:?}");
        }
    }
    write_status(&proxied.store, "a");
    rollout(&["--wait", "--tolerate", "0"]).succeeds();
    Ok(())
}

pub(crate) fn a_rollout_continues_after_reports_could_not_be_read() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    proxied.store.publish(1);
    write_status(&proxied.store, "a");
    write_status(&proxied.store, "b");
    let rollout =
        |args: &[&str]| proxied.zkv(&[&["rollout", "URL", "1", "--interval", "20ms", "--wait"], args].concat());
    // The HTTP client repeats a request four times, so two reads fail.
    for (part, expected) in
        [("status%2F", "the reports of nodes cannot be read, trying again: "), ("/status/b.json", "b: unreadable: ")]
    {
        proxied.proxy.fail("GET", part, ProxyFault::Status(500, ""), 10);
        let text = rollout(&[]).succeeds();
        let at = text.find(expected).unwrap_or_else(|| panic!("{expected:?} is not in {text}"));
        assert!(text[at..].contains("b: serving, serves 1\n") || part == "status%2F", "{text}");
    }
    proxied.proxy.reset();
    proxied.proxy.fail("GET", "/status/b.json", ProxyFault::Status(500, ""), u64::MAX);
    let ran = rollout(&["--timeout", "2s"]);
    assert_eq!(ran.output.status.code(), Some(1), "{ran:?}");
    assert!(ran.err.contains("zkv: node b: ") && ran.err.contains("/status/b.json: "), "{ran:?}");
    let ran = rollout(&["--timeout", "2s", "--tolerate", "1"]);
    assert!(ran.err.contains("warning: tolerated: node b: unreadable: "), "{ran:?}");
    ran.succeeds();
    proxied.proxy.reset();
    proxied.proxy.fail("GET", "status%2F", ProxyFault::Status(500, ""), u64::MAX);
    let ran = rollout(&["--timeout", "2s"]);
    assert_eq!(ran.output.status.code(), Some(2), "{ran:?}");
    assert!(ran.err.contains("/status: "), "{ran:?}");
    Ok(())
}
