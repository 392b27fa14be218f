//! Two servers with one name.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::helpers::published::{Published, health, start_node};
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

fn name_problem(node: &Server) -> String {
    node.info().get("published_name_problem").unwrap().to_owned()
}

/// Returns the value of the metric that says whether another process has the name of a node.
fn name_taken(endpoint: &Path) -> String {
    let mut stream = UnixStream::connect(endpoint).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: zero-kv\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let value = metrics.lines().find_map(|line| line.strip_prefix("zero_kv_published_name_taken "));
    value.unwrap_or_else(|| panic!("{metrics}")).to_owned()
}

/// Returns the texts of the instances in the status of a node.
fn instances(published: &Published) -> (String, String) {
    let statuses = published.publication.statuses().unwrap();
    let status = statuses.into_iter().find(|status| status.node == "a").unwrap();
    (status.instance, status.other_instance)
}

#[test]
fn two_servers_with_one_name_are_unhealthy() {
    let published = Published::new();
    published.publish(1);
    let endpoint = published.folder.path().join("metrics.sock");
    let mut command = published.node_command("a", published.publication.url());
    command.arg("--metrics").arg(&endpoint);
    let first = start_node(command, &published.socket("a"));
    assert_eq!((name_taken(&endpoint).as_str(), first.info().get("published_poll_s")), ("0", Some("0.05")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.args(["--from", published.publication.url(), "--node", "a", "--poll", "50ms", "--cache"]);
    command.arg(published.cache("second")).arg("--socket").arg(published.socket("second")).env("RUST_LOG", "info");
    let mut second = start_node(command, &published.socket("second"));
    // Each of them reports each generation, and finds the report of the other one.
    let mut generation = 1;
    eventually("both servers notice each other", || {
        generation += 1;
        published.publish(generation);
        [&first, &second].iter().for_each(|node| node.wait_for("published_generation", generation));
        !name_problem(&first).is_empty() && !name_problem(&second).is_empty()
    });
    let expected = "two processes report as node a, instances ";
    for node in [&first, &second] {
        let (status, text) = health(node);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(expected) && text.contains(": give each its own name"), "{text}");
        assert_eq!(name_taken(&endpoint), "1");
    }
    eventually("the status names both", || !instances(&published).1.is_empty());
    assert!(published.publication.take_warnings().iter().any(|warning| warning.starts_with(expected)));
    second.kill();
}

#[test]
fn a_server_that_starts_again_is_no_second_one() {
    let published = Published::new();
    published.publish(1);
    let mut instances_before = Vec::new();
    for generation in 2..=4 {
        let mut node = published.node("a");
        published.publish(generation);
        node.wait_for("published_generation", generation);
        eventually("the status has the generation", || published.status_serving("a") == Some(generation));
        let (instance, other) = instances(&published);
        assert_eq!((name_problem(&node), other), (String::new(), String::new()));
        assert!(!instances_before.contains(&instance), "{instance} is the instance of an earlier process");
        assert_eq!(health(&node), (Some(0), String::new()));
        instances_before.push(instance);
        node.kill();
    }
}
