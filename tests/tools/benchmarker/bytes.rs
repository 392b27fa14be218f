//! Loads of a file whose keys are bytes, in both protocols.

use std::collections::BTreeSet;

use super::resp::PROTOCOLS;
use super::test_server::*;
use crate::helpers::rows::bake_to;
use crate::helpers::servers::Server;

#[test]
fn a_good_run_reports_consistent_numbers() {
    for (protocol, respond) in PROTOCOLS {
        let served = TestServer::with_keys_of_bytes(small_rows(), respond);
        for verify in [&[][..], &["--verify"]] {
            let output = served.run(&[&[protocol, "--json"], verify].concat());
            assert_good(&output);
            let json = stdout(&output);
            let of = |name: &str| number(&json, name);
            let seen = served.take_requests();
            assert!(seen.len() >= 64 && seen.iter().all(|(op, key)| *op == 0 && (1..=1_000).contains(key)), "{json}");
            assert_eq!(seen.len() as f64, of("requests"));
            assert_eq!((of("hits"), of("misses"), of("errors")), (of("requests"), 0.0, 0.0));
        }
    }
}

#[test]
fn both_protocols_request_the_same_keys() {
    for options in
        [&["--distribution=uniform"][..], &["--distribution=zipf"], &["--op=get:0.5,exists:0.5", "--miss-ratio=0.5"]]
    {
        let [native, resp] = PROTOCOLS.map(|(protocol, respond)| {
            let served = TestServer::with_keys_of_bytes(small_rows(), respond);
            let mut seen = served.requests(100, &[options, &["--clients=1", "--verify", protocol]].concat());
            seen.truncate(100);
            seen
        });
        assert_eq!(native, resp, "{options:?}");
    }
}

#[test]
fn sequential_requests_are_in_the_order_of_bytes() {
    let served = TestServer::with_keys_of_bytes(small_rows(), correct_response);
    assert_good(&served.run(&["--distribution=sequential", "--clients=1", "--pipeline=7", "--json"]));
    let in_order: BTreeSet<String> = (1..=1_000).map(|key: u64| key.to_string()).collect();
    let in_order = in_order.iter().cycle().map(|key| (0, key.parse().unwrap()));
    let seen = served.take_requests();
    assert!(in_order.take(seen.len()).eq(seen.iter().copied()));
}

#[test]
fn misses_ops_and_schedules_work_as_with_numbers() {
    for (protocol, respond) in PROTOCOLS {
        let served = TestServer::with_keys_of_bytes(small_rows(), respond);
        let args = [protocol, "--json", "--verify", "--op=get:0.5,exists:0.5", "--miss-ratio=0.5", "--rate=4000"];
        let output = served.run(&args);
        assert_good(&output);
        let json = stdout(&output);
        let of = |name: &str| number(&json, name);
        assert!(of("hits") > 0.0 && of("misses") > 0.0, "{json}");
        assert_eq!(of("hits") + of("misses"), of("requests"));
        assert_eq!(of("requests") + of("unsent_requests"), 800.0);
        let seen = served.take_requests();
        for op in [0, 1] {
            assert!(seen.iter().any(|(each, key)| *each == op && *key == NO_NUMBER), "{op}");
            assert!(seen.iter().any(|(each, key)| *each == op && *key <= 1_000), "{op}");
        }
        assert_good(&TestServer::with_keys_of_bytes(Rows::new(), respond).run(&[protocol, "--miss-ratio=1"]));
    }
}

#[test]
fn wrong_responses_are_detected() {
    let lying: Respond = |rows, number, op, key| {
        let mut response = correct_response(rows, number, op, key)?;
        if number == 10 {
            *response.last_mut()? ^= 1;
        }
        Some(response)
    };
    let served = TestServer::with_keys_of_bytes(small_rows(), lying);
    assert_bad(&served.run(&["--json", "--verify"]), "the value differs from the file's");
    assert_good(&served.run(&["--json"]));
    let denying: Respond = |_, _, _, _| Some(frame(NOT_FOUND, b""));
    let output = TestServer::with_keys_of_bytes(small_rows(), denying).run(&["--json"]);
    assert_bad(&output, "expected Ok, got NotFound");
    assert_eq!(number(&stdout(&output), "errors"), number(&stdout(&output), "requests"));
}

#[test]
fn a_ceiling_is_rejected() {
    let served = TestServer::with_keys_of_bytes(small_rows(), correct_response);
    let output = served.run(&["--ceiling"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the server of --ceiling supports only numbers"), "{}", stderr(&output));
    assert_eq!(served.take_requests(), []);
}

/// Returns keys of many lengths that contain all bytes.
fn odd_keys() -> Vec<Vec<u8>> {
    let bytes = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect();
    (1..300).chain([4_000, 65_535]).map(bytes).collect()
}

/// Bakes these keys, with their lengths as values.
fn bake_odd_keys(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("storage.db");
    bake_to(&path, &odd_keys().into_iter().map(|key| (key.clone(), key.len().to_string().into())).collect::<Vec<_>>());
    path
}

const OPTIONS: [&[&str]; 2] = [&["--op=get"], &["--op=get:0.7,exists:0.3", "--miss-ratio=0.3"]];

#[test]
fn kv_store_serves_keys_of_all_bytes_and_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let db = bake_odd_keys(&folder);
    let socket = folder.path().join("s.sock");
    let _server = Server::start(&db, &socket);
    let unused = TestServer::new(small_rows(), correct_response);
    for (protocol, _) in PROTOCOLS {
        for options in OPTIONS {
            let place = ["--db", db.to_str().unwrap(), "--socket", socket.to_str().unwrap(), "--verify", "--json"];
            let output = unused.run(&[&place[..], &[protocol], options].concat());
            assert_good(&output);
            assert!(number(&stdout(&output), "requests") >= 64.0);
        }
    }
}
