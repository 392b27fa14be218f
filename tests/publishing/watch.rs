//! `zkv watch`.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::lost_responses::Proxied;
use super::nodes::start_in_zones;
use super::stores::{Ran, Store};
use crate::helpers::fault_proxy::ProxyFault;
use crate::helpers::published::sealed;
use crate::helpers::terminal::Terminal;
use crate::helpers::trials::Missing;

const HOSTILE: &str = "a\x1b[2J\u{9b}1;1H\u{202e}\n9";
const ESCAPED: &str = r"a\u001b[2J\u009b1;1H\u202e\n9";

/// Writes the status of a node that serves generation 1, with some other fields.
fn write_status(store: &Store, node: &str, change: Value) {
    let mut status = json!({"node": node, "serving": 1, "digest": "", "prepared": 0, "newest": 1, "pin": 0, "lag_s": 0,
        "error": "", "failed": 0, "updated": "", "tool": ""});
    change.as_object().unwrap().iter().for_each(|(field, value)| status[field] = value.clone());
    store.write(&format!("status/{node}.json"), sealed(&status.to_string()));
}

/// Returns the text of standard output until a line contains a text.
fn read_until(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) -> String {
    let mut read = String::new();
    for line in lines.map_while(Result::ok) {
        read += &format!("{line}\n");
        if line.contains(text) {
            return read;
        }
    }
    panic!("{text:?} is not in {read}");
}

fn stop(mut child: Child) -> Ran {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.stdout.take();
    Ran::new(child.wait_with_output().unwrap())
}

pub(crate) fn nodes_are_printed_once() {
    let store = Store::folder();
    store.zkv(&["watch", "URL", "--once"]).fails(1, &["no node has reported"]);
    assert_eq!(store.zkv(&["watch", "URL", "--once", "--json"]).output.status.code(), Some(1));
    write_status(
        &store,
        "fetching",
        json!({"fetching": 2, "fetched_bytes": 1 << 20, "fetch_bytes": 4 << 20,
        "fetch_bytes_per_s": 3 << 19, "zone": "east"}),
    );
    write_status(&store, "failed", json!({"failed": 2, "error": "generation 2 is rejected: the canary failed"}));
    write_status(
        &store,
        "hostile",
        json!({"zone": HOSTILE, "error": HOSTILE, "fetching": 1, "fetch_bytes": 1,
        "fetched_bytes": u64::MAX, "fetch_bytes_per_s": u64::MAX}),
    );
    write_status(&store, "prepared", json!({"prepared": 2}));
    write_status(&store, "serving", json!({}));
    write_status(&store, "stale", json!({"fetching": 2}));
    write_status(&store, "twice", json!({"instance": "11", "other_instance": "22"}));
    write_status(&store, "waiting", json!({"serving": 0}));
    store.write("status/unreadable.json", b"{}".to_vec());
    let file = std::fs::File::options().write(true).open(store.path("published/users/status/stale.json")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();

    let text = store.zkv(&["watch", "URL", "--once"]).succeeds();
    let row = |node: &str| text.lines().find(|line| line.starts_with(&format!("{node} "))).unwrap();
    assert!(
        text.starts_with("9 nodes: 2 serving, 1 prepared, 1 waiting, 2 fetching, 1 failed, 1 stale, 1 unreadable\n"),
        "{text}"
    );
    for (node, expected) in [
        ("fetching", &["  east  ", " 1  generation 2: 25 % of 4.0 MiB at 1.5 MiB/s  "][..]),
        ("failed", &["  failed  ", "generation 2 is rejected: the canary failed"]),
        ("hostile", &[ESCAPED]),
        ("prepared", &["  prepared  ", "  generation 2  "]),
        ("stale", &["  stale  ", " 36"]),
        ("twice", &["  serving  ", "two processes report as node twice, instances 11 and 22: give each its own name"]),
        ("unreadable", &["  unreadable  ", "/status/unreadable.json: is not a document"]),
        ("waiting", &["  waiting  "]),
    ] {
        assert!(expected.iter().all(|part| row(node).contains(part)), "{node}: {expected:?}: {text}");
    }
    assert_eq!(text.lines().count(), 11, "{text}");

    let report = store.zkv(&["watch", "URL", "--once", "--json"]).json();
    let nodes = report["nodes"].as_array().unwrap();
    let states: Vec<_> =
        nodes.iter().map(|node| (node["node"].as_str().unwrap(), node["state"].as_str().unwrap())).collect();
    let expected = [
        ("failed", "failed"),
        ("fetching", "fetching"),
        ("hostile", "fetching"),
        ("prepared", "prepared"),
        ("serving", "serving"),
        ("stale", "stale"),
        ("twice", "serving"),
        ("unreadable", "unreadable"),
        ("waiting", "waiting"),
    ];
    assert_eq!(states, expected);
    let fetching = &nodes[1];
    assert_eq!(
        [&fetching["fetching"], &fetching["fetch_bytes"], &fetching["zone"]],
        [&json!(2), &json!(4 << 20), &json!("east")]
    );
    let generations = store.zkv(&["generations", "URL"]);
    assert!(generations.err.contains("zkv: warning: two processes report as node twice, "), "{generations:?}");
    store.zkv(&["watch", "http://127.0.0.1:1/users", "--once"]).fails(2, &["cannot be listed over HTTP"]);
}

pub(crate) fn a_store_without_readable_statuses_has_no_nameless_node() {
    let store = Store::folder();
    std::fs::write(store.path("published/users/status"), "no folder").unwrap();
    let ran = store.zkv(&["watch", "URL", "--once"]);
    ran.fails(1, &["/status: ", ": no status is read", "no node has reported"]);
    std::fs::rename(store.path("published"), store.path("unmounted")).unwrap();
    for args in [&["watch", "URL", "--once"][..], &["watch", "URL", "--once", "--json"]] {
        store.zkv(args).fails(2, &["/status: ", "No such file or directory", ": check the URL, and the disk"]);
    }
}

pub(crate) fn changes_of_nodes_are_lines() {
    let store = Store::folder();
    store.publish(1);
    let mut command = store.zkv_command(&["watch", "URL", "--interval", "20ms"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let nodes = start_in_zones(&store, [("east", "a"), ("", "b")], 1);
    read_until(&mut lines, "a: serving, serves 1, zone east");
    nodes[1].reject();
    store.publish(2);
    read_until(&mut lines, "b: failed, serves 1, generation 2 is rejected: the canary failed");
    drop(nodes);
    store.remove("status/b.json");
    read_until(&mut lines, "b: gone");
    // The next change finds the closed pipe.
    drop(lines);
    write_status(&store, "c", json!({}));
    assert_eq!(Ran::new(child.wait_with_output().unwrap()).output.status.code(), Some(0));
}

pub(crate) fn a_terminal_shows_printable_text() {
    let store = Store::folder();
    write_status(&store, "a", json!({}));
    write_status(&store, "b", json!({"failed": 2, "zone": HOSTILE, "error": HOSTILE}));
    let mut terminal = Terminal::new();
    let mut child = terminal.start(&store.zkv_command(&["watch", "URL", "--interval", "20ms"]));
    terminal.wait_for("2 nodes: 1 serving, 1 failed");
    // What needs an operator comes first.
    terminal.wait_for(&format!("b     {ESCAPED}"));
    terminal.wait_for("serving");
    write_status(&store, "b", json!({"serving": 2}));
    terminal.wait_for("2 nodes: 2 serving");
    child.kill().unwrap();
    let shown = terminal.wait_for_end(&mut child);
    assert!(!shown.windows(4).any(|bytes| bytes == b"\x1b[2J"), "{}", shown.escape_ascii());
}

pub(crate) fn a_failing_store_is_read_again() -> Result<(), Missing> {
    let proxied = Proxied::new()?;
    write_status(&proxied.store, "a", json!({}));
    proxied.proxy.fail("GET", "status%2F", ProxyFault::Status(500, ""), 5);
    let ran = proxied.zkv(&["watch", "URL", "--once"]);
    ran.fails(2, &["/status: "]);
    // The HTTP client repeats a request four times, so two reads fail.
    proxied.proxy.fail("GET", "status%2F", ProxyFault::Status(500, ""), 10);
    let mut command = proxied.store.zkv_command(&["watch", "URL", "--json", "--interval", "20ms"]);
    let mut child = command.env("AWS_ENDPOINT_URL", proxied.proxy.url()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = read_until(&mut lines, "\"serving\"");
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["nodes"][0]["node"], "a");
    let ran = stop(child);
    assert_eq!(ran.err.matches(": trying again\n").count(), 1, "{ran:?}");
    Ok(())
}
