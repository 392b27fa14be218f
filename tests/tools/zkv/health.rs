//! `zkv health`: the exit status for scripts.

use std::os::unix::fs::FileExt;

use zero_kv::store::Unchecked;

use super::*;
use crate::helpers::scripted_server::{ERROR, found, response_header};
use crate::helpers::tables::Table;
use crate::helpers::waiting::{PATIENCE, eventually};

fn health(socket: &Path, args: &[&str]) -> Output {
    zkv().arg("health").args(args).arg("--socket").arg(socket).output().unwrap()
}

#[test]
fn a_serving_server_is_healthy_and_nothing_is_printed() {
    let table = Table::of_rows(1000);
    // A mapped file is noted where leases do not reveal every writer.
    let _server = table.serve_with(&["--memory", "copy"]);
    let timeout = PATIENCE.as_secs().to_string();
    assert_answer(&health(&table.socket(), &["--timeout", &timeout]), 0, b"");
    let output = health(&table.socket(), &["--verbose", "--timeout", &timeout]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    assert!(line.starts_with("generation 1, digest ") && line.ends_with(", 1000 rows\n"), "{line}");
}

#[test]
fn a_server_whose_file_was_changed_in_place_is_unhealthy() {
    let table = Table::of_rows(1000);
    let _server = table.serve();
    fs::File::options().write(true).open(table.db()).unwrap().set_len(0).unwrap();
    let mut output = None;
    eventually("the server detects that its file was changed", || {
        let _ = zkv().args(["get", "7", "--socket"]).arg(table.socket()).output().unwrap();
        let found = output.insert(health(&table.socket(), &["--timeout", "60"]));
        found.status.code() == Some(1)
    });
    // A second line may report that the server rejected the changed file as a new one.
    let lines = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(lines.lines().any(|line| line.contains("storage.db was changed in place: ")), "{lines}");
}

#[test]
fn a_server_whose_file_has_one_damaged_block_is_unhealthy() {
    let table = Table::of_rows(10_000);
    let _server = table.serve();
    let records = Unchecked::open(table.db()).unwrap().layout().records;
    let file = fs::File::options().write(true).open(table.db()).unwrap();
    file.write_all_at(b"!", records.offset_bytes + records.len_bytes / 2).unwrap();
    drop(file);
    let mut stderr = String::new();
    eventually("the server detects the damaged block", || {
        // A scan reads every block.
        let _ = zkv().args(["scan", "--socket"]).arg(table.socket()).output().unwrap();
        let output = health(&table.socket(), &["--timeout", "60"]);
        stderr = String::from_utf8(output.stderr).unwrap();
        output.status.code() == Some(1) && stderr.contains("storage.db has damaged blocks, 1 of ")
    });
}

#[test]
fn each_problem_is_one_line() {
    let ask = |answer: &[u8]| health(&ScriptedServer::answering(&[answer]).socket(), &["--timeout", "20"]);
    assert_answer(&ask(&found(b"state serving\n")), 0, b"");
    assert_damaged(&ask(&found(b"state changed\nfile f\n")), "peer.sock: f was changed in place");
    assert_answer(&ask(&found(b"state serving\nblocks 9\nblocks_damaged 0\n")), 0, b"");
    let damaged = ask(&found(b"state serving\nfile f\nblocks 9\nblocks_damaged 2\n"));
    assert_damaged(&damaged, "peer.sock: f has damaged blocks, 2 of 9: bake it again");
    let two = ask(&found(b"state changed\nfile f\nthread_problems the supervisor thread has ended\n"));
    let lines = String::from_utf8(two.stderr).unwrap();
    assert_eq!((two.status.code(), lines.lines().count()), (Some(1), 2), "{lines}");
    assert!(lines.contains("peer.sock: the supervisor thread has ended: restart the server"), "{lines}");
    let twice = ask(&found(b"state serving\npublished_name_problem two processes report as node a\n"));
    assert_damaged(&twice, "peer.sock: two processes report as node a");
    let refused = ask(&found(b"state serving\nfile_refused refused: f: why\n"));
    assert_eq!(refused.status.code(), Some(0));
    let note = String::from_utf8(refused.stderr).unwrap();
    assert!(note.ends_with("peer.sock: the file at the path is refused: f: why\n"), "{note}");
    assert_damaged(&ask(&found(b"state s\x1b[31m\n")), "the state is \"s\\u{1b}[31m\"");
    assert_damaged(&ask(&found(b"pid 1\n")), "does not report its state");
    assert_damaged(&ask(ERROR), "older version");
    let closed = ScriptedServer::closing_after(&[&[0; 3]]);
    assert_damaged(&health(&closed.socket(), &["--timeout", "20"]), "closed the connection after 3 of 8 bytes");
    let silent = ScriptedServer::answering(&[&response_header(0, 100)]);
    assert_damaged(&health(&silent.socket(), &["--timeout", "0.2"]), "peer.sock: no response within 0.2 s");
    let folder = tempfile::tempdir().unwrap();
    assert_damaged(&health(&folder.path().join("none.sock"), &[]), "none.sock: cannot connect");
}

#[test]
fn a_server_that_cannot_detect_writers_is_healthy_with_a_note() {
    let info =
        found(b"state serving\nfile f\nwriters_detected no: the file system has no leases that reveal every writer\n");
    let output = health(&ScriptedServer::answering(&[&info]).socket(), &["--timeout", "20"]);
    let note = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b""[..]));
    assert!(
        note.contains("write to f cannot be detected: the file system has no leases that reveal every writer"),
        "{note}"
    );
}

#[test]
fn a_usage_error_does_not_report_an_unhealthy_server() {
    let silent = ScriptedServer::answering(&[]);
    for timeout in ["0", "-1", "inf", "NaN", "x", ""] {
        assert_usage_error(&health(&silent.socket(), &[&format!("--timeout={timeout}")]), "0.01 to 1000000 seconds");
    }
    assert_usage_error(&health(&silent.socket(), &["now"]), "unexpected argument");
}

#[test]
fn a_server_is_unhealthy_if_it_has_not_read_its_store_for_ten_polls_and_thirty_seconds() {
    let health_of = |age_s: u64, poll_s: u64, args: &[&str]| {
        let info = format!(
            "state serving\npublished_url file:///t\npublished_poll_age_s {age_s}\npublished_poll_s {poll_s}\n\
             published_error the store is unreachable\n"
        );
        let server = ScriptedServer::answering(&[&found(info.as_bytes())]);
        health(&server.socket(), &[&["--timeout", "20"], args].concat())
    };
    // Polls of less than a second are reported as 0 s.
    for (poll_s, limit_s) in [(0, 30), (1, 30), (3, 30), (5, 50), (60, 600)] {
        assert_eq!(health_of(limit_s, poll_s, &[]).status.code(), Some(0), "{poll_s}");
        let problem = format!(
            "file:///t was not read successfully for {} s, so newer generations and pins are unknown: the store is unreachable",
            limit_s + 1
        );
        let output = health_of(limit_s + 1, poll_s, &[]);
        let lines = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && lines.contains(&problem), "{poll_s}: {lines}");
        assert_eq!(health_of(limit_s + 1, poll_s, &["--stale-after", "86400"]).status.code(), Some(0));
    }
    let help = String::from_utf8(zkv().args(["health", "--help"]).output().unwrap().stdout).unwrap();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[default: ten polls, and at least 30 s]"), "{help}");
}
