//! The server of `--ceiling` gets an equal load, sends equally many bytes, and leaves no process or file behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::test_server::*;
use crate::helpers::waiting::eventually;

/// Returns whether a process with this folder for temporary files is running.
fn runs_within(folder: &Path) -> bool {
    let variable = format!("TMPDIR={}", folder.display()).into_bytes();
    let environments = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("environ"));
    environments
        .filter_map(|path| fs::read(path).ok())
        .any(|text| text.split(|byte| *byte == 0).any(|each| each == variable))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn the_ceiling_sends_equally_many_bytes_and_leaves_nothing_behind() {
    let served = TestServer::new(small_rows(), correct_response);
    let temporary = tempfile::tempdir().unwrap();
    let output = served.command(&["--ceiling", "--json"]).env("TMPDIR", temporary.path()).output().unwrap();
    assert_good(&output);
    assert!(is_empty(temporary.path()) && !runs_within(temporary.path()));
    let json = stdout(&output);
    let of = |name: &str| number(&json, name);
    // A header of 8 bytes, and a value of 22 to 25.
    assert!((30.0..33.0).contains(&of("ceiling_answer_len_bytes")), "{json}");
    assert!(of("ceiling_requests_per_second") > 0.0 && of("ceiling_ratio") > 0.0, "{json}");
    // The ratio and the two rates describe the same turns. The rates are rounded to one decimal.
    let ratio = of("requests_per_second") / of("ceiling_requests_per_second");
    assert!((of("ceiling_ratio") / ratio - 1.0).abs() < 1e-4, "{json}");
    // The reported requests are those to the server under test, not those to the ceiling.
    assert_eq!(served.take_requests().len() as f64, of("requests"));

    let text = stdout(&served.run(&["--ceiling"]));
    assert!(text.contains(" requests/s from a server without lookups, responses of 3"), "{text}");
    assert!(text.contains("\nserver / ceiling: "), "{text}");
}

#[test]
fn the_ceiling_responds_to_deep_pipelines_of_any_length() {
    let large = || (0..20).map(|key| (key * 1_000, vec![b'v'; 100_000 + key as usize])).collect();
    let served = TestServer::new(large(), correct_response);
    assert_good(&served.run(&["--ceiling", "--pipeline=64", "--clients=2"]));
    let served = TestServer::new(small_rows(), correct_response);
    assert_good(&served.run(&["--ceiling", "--pipeline=65536", "--clients=2"]));
    assert_good(&served.run(&["--ceiling", "--pipeline=3", "--op=get:0.5,exists:0.5", "--miss-ratio=0.5"]));
    assert_good(&served.run(&["--ceiling", "--op=exists"]));
}

#[test]
fn a_stopped_benchmarker_stops_the_ceiling() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let served = TestServer::new(small_rows(), correct_response);
        let temporary = tempfile::tempdir().unwrap();
        // The ceiling starts after the first second and would run for four more.
        let benchmarker = served.command(&["--ceiling", "--seconds=3"]);
        // Background jobs of a shell, and the processes that they start, ignore SIGINT.
        let mut child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(benchmarker.get_program())
            .args(benchmarker.get_args())
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the ceiling has started", || !is_empty(temporary.path()));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        eventually("the ceiling has ended", || is_empty(temporary.path()) && !runs_within(temporary.path()));
    }
}

#[test]
fn after_wrong_responses_there_is_no_ceiling() {
    let denying: Respond = |_, _, _, _| Some(frame(NOT_FOUND, b""));
    let output = TestServer::new(small_rows(), denying).run(&["--ceiling", "--json"]);
    assert_bad(&output, "expected Ok, got NotFound");
    assert!(!stdout(&output).contains("ceiling"), "{}", stdout(&output));
}
