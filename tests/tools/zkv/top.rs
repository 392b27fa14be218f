//! `zkv top` with lines, because standard output is not a terminal.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Stdio};

use super::*;
use crate::helpers::scripted_server::{ERROR, Script, found};
use crate::helpers::tables::Table;

/// Returns the value of a field.
#[track_caller]
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let found = line.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("{name} in {line}"))
}

fn top(socket: &Path, args: &[&str]) -> Output {
    zkv().args(["top", "--interval", "0.05"]).args(args).arg("--socket").arg(socket).output().unwrap()
}

/// Starts a process that writes lines until it is stopped.
fn start(socket: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = zkv();
    command.args(["top", "--interval", "0.05", "--socket"]).arg(socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[test]
fn the_requested_number_of_lines_is_written() {
    let table = Table::of_rows(1000);
    let _server = table.serve();
    for (args, count) in [(&["--once"][..], 1), (&["--count", "3"], 3)] {
        let output = top(&table.socket(), args);
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.lines().count(), count, "{lines}");
        for line in lines.lines() {
            // Only `zkv top` itself sends requests.
            assert!(value(line, "info_per_s").parse::<u64>().unwrap() > 0, "{line}");
            assert_eq!((value(line, "get_per_s"), value(line, "hit_ratio")), ("0", "-"));
            assert_eq!((value(line, "generation"), value(line, "state")), ("1", "serving"));
            for share in ["resident", "verified"] {
                let share: f64 = value(line, share).parse().unwrap();
                assert!((0.0..=1.0).contains(&share), "{line}");
            }
        }
    }
    assert_usage_error(&top(&table.socket(), &["--count", "0"]), "invalid value");
    assert_usage_error(&top(&table.socket(), &["--count", "1", "--once"]), "cannot be used with");
}

#[test]
fn rates_are_computed_over_the_interval() {
    let first = "pid 7\nuptime_s 1\nrequests_get 1000\nrequests_new 0\nhits 900\nmisses 100\nerrors 7\nbatch_requests_buckets 1:5 255:9\n";
    let second = "pid 7\nuptime_s 2\nrequests_get 1400\nrequests_new 0\nhits 1200\nmisses 200\nerrors 7\nbatch_requests_buckets 1:5 255:9 319:2\nbatch_requests_max 256\nservice_ns_buckets\n";
    let peer = ScriptedServer::answering(&[&found(first.as_bytes()), &found(second.as_bytes())]);
    let output = top(&peer.socket(), &["--once"]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!((value(&line, "hit_ratio"), value(&line, "errors_per_s")), ("0.7500", "0"));
    assert_eq!((value(&line, "batch_requests_p50"), value(&line, "service_us_p50")), ("256", "-"));
    assert_eq!(value(&line, "requests_per_s"), value(&line, "get_per_s"));
    assert_eq!((value(&line, "new_per_s"), value(&line, "generation")), ("0", "-"));
}

#[test]
fn a_stopped_server_is_reported_and_sampled_again_after_its_restart() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let (mut child, mut lines) = start(&table.socket());
    lines.next().unwrap().unwrap();
    drop(server);
    let mut message = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut message).unwrap();
    assert!(
        message.starts_with("zkv: ") && message.ends_with("; retrying\n") && message.contains("cannot connect"),
        "{message}"
    );
    let _server = table.serve();
    // Skips earlier lines. The first line of the restarted server has no rates.
    let restarted = lines.by_ref().map(Result::unwrap).find(|line| value(line, "requests_per_s") == "-").unwrap();
    assert_eq!(value(&restarted, "get_per_s"), "-");
    let next = lines.next().unwrap().unwrap();
    assert!(value(&next, "requests_per_s").parse::<u64>().is_ok(), "{next}");
    // A closed pipe ends the program without an error.
    drop(lines);
    message.clear();
    stderr.read_to_string(&mut message).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*message), (Some(0), ""));
}

#[test]
fn top_fails_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    assert_error(&top(&folder.path().join("none.sock"), &[]), &["none.sock: cannot connect", "is kv_store running"]);
    assert_error(&top(&ScriptedServer::answering(&[ERROR]).socket(), &[]), &["older version"]);
    // The second sample fails. With --count, that is an error.
    let peer =
        ScriptedServer::with_scripts(vec![Script::closing_after(&[&found(b"pid 7\n")]), Script::closing_after(&[])]);
    assert_error(&top(&peer.socket(), &["--once"]), &["peer.sock: "]);
}
