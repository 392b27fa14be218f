//! Responses are checked and counted, and errors reported.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use zero_kv::bake::Keys;

use super::resp::PROTOCOLS;
use super::test_server::*;
use crate::helpers::rows::bake_text;

#[test]
fn a_good_run_reports_consistent_numbers() {
    let output =
        TestServer::new(small_rows(), correct_response).run(&["--json", "--verify", "--seed", "7", "--warmup", "0.01"]);
    assert_good(&output);
    let json = stdout(&output);
    assert_eq!(json.lines().count(), 1);
    assert!(json.starts_with('{') && json.ends_with("}\n"), "{json}");
    let of = |name: &str| number(&json, name);
    let requests = of("requests");
    // Each of 4 clients counts at least one pipeline of 16.
    assert!(requests >= 64.0 && requests % 16.0 == 0.0, "{json}");
    assert_eq!((of("hits"), of("misses"), of("errors"), of("hit_rate")), (requests, 0.0, 0.0, 1.0));
    assert_eq!((of("clients"), of("pipeline_requests"), of("seed")), (4.0, 16.0, 7.0));
    // The printed rate is rounded to a tenth.
    assert!((of("requests_per_second") - requests / of("elapsed_seconds")).abs() < 1.0, "{json}");
    // A header of 8 bytes, and a value of 22 to 25.
    let bytes_per_response = of("bytes_per_second") / of("requests_per_second");
    assert!((29.0..34.0).contains(&bytes_per_response), "{json}");
    let latencies = ["p50", "p90", "p99", "p99_9", "max"].map(|name| of(&format!("latency_us_{name}")));
    assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{latencies:?}");
    assert!(latencies[4] < of("elapsed_seconds") * 1e6, "{json}");
}

#[test]
fn the_report_for_people_has_the_same_quantities() {
    let output = TestServer::new(small_rows(), correct_response).run(&["--seed", "42"]);
    assert_good(&output);
    let text = stdout(&output);
    for expected in ["seed 42", "requests/s", "100.00% hits", "0 errors", "bytes/s", "p50", "p99.9", "max"] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
}

#[test]
fn with_verification_a_wrong_value_is_detected() {
    for (protocol, correct) in PROTOCOLS {
        let served = TestServer::new(small_rows(), move |rows, number, op, key| {
            let mut response = correct(rows, number, op, key)?;
            if number == 10 {
                // In both protocols, this byte belongs to the value.
                *response.iter_mut().nth_back(2)? ^= 1;
            }
            Some(response)
        });
        let output = served.run(&[protocol, "--json", "--verify"]);
        assert_bad(&output, "the value differs from the file's");
        assert_eq!(number(&stdout(&output), "errors"), 4.0);
        assert_good(&served.run(&[protocol, "--json"]));
    }
}

#[test]
fn more_responses_than_requests_are_detected() {
    for (protocol, correct) in PROTOCOLS {
        let served =
            TestServer::new(small_rows(), move |rows, number, op, key| Some(correct(rows, number, op, key)?.repeat(2)));
        assert_bad(&served.run(&[protocol, "--json", "--pipeline", "1"]), "follow the last response");
    }
}

#[test]
fn an_incomplete_response_is_reported() {
    for (protocol, correct) in PROTOCOLS {
        // The server sends a part of a response and closes the connection.
        let served = TestServer::new(small_rows(), move |rows, number, op, key| match number {
            20 => None,
            19 => correct(rows, number, op, key).map(|response| response[..12].to_vec()),
            _ => correct(rows, number, op, key),
        });
        let output = served.run(&[protocol, "--json", "--seconds", "30"]);
        assert_bad(&output, "the server closed the connection after 19 responses (3 of 16 in its");
    }
}

#[test]
fn long_pipelines_and_values_do_not_deadlock() {
    for (protocol, correct) in PROTOCOLS {
        let rows = (0..20).map(|key| (key * 1_000, vec![b'a' + key as u8; 100_000])).collect();
        let output = TestServer::new(rows, correct).run(&[protocol, "--json", "--verify", "--pipeline", "64"]);
        assert_good(&output);
        assert!(number(&stdout(&output), "requests") >= 256.0);
        // 65,536 requests are more than a socket holds.
        let args = [protocol, "--json", "--verify", "--pipeline", "65536", "--clients", "2"];
        let output = TestServer::new(small_rows(), correct).run(&args);
        assert_good(&output);
        assert!(number(&stdout(&output), "requests") >= 131_072.0);
    }
}

#[test]
fn a_short_value_is_always_detected() {
    let short: Respond = |rows, _, _, key| Some(frame(OK, &rows[&key][1..]));
    let served = TestServer::new(small_rows(), short);
    assert_bad(&served.run(&["--json", "--verify"]), " bytes, got ");
    assert_bad(&served.run(&["--json"]), " bytes, got ");
}

#[test]
fn a_wrong_status_is_always_detected() {
    let denying: Respond = |rows, number, op, key| match number {
        10 => Some(frame(NOT_FOUND, b"")),
        _ => correct_response(rows, number, op, key),
    };
    let output = TestServer::new(small_rows(), denying).run(&["--json"]);
    assert_bad(&output, "expected Ok, got NotFound");
    // Each client gets one wrong response and continues.
    assert_eq!(number(&stdout(&output), "errors"), 4.0);
    assert_eq!(number(&stdout(&output), "misses"), 4.0);
    assert!(number(&stdout(&output), "requests") >= 64.0);

    let inventing: Respond = |_, _, _, _| Some(frame(OK, b""));
    let output = TestServer::new(small_rows(), inventing).run(&["--json", "--miss-ratio", "0.5"]);
    assert_bad(&output, "expected NotFound, got Ok");

    let unheard_of: Respond = |_, _, _, _| Some(frame(9, b""));
    assert_bad(&TestServer::new(small_rows(), unheard_of).run(&["--json"]), "expected Ok, got unknown status 9");
}

#[test]
fn an_unexpected_value_is_always_detected() {
    let talkative: Respond = |rows, number, _, key| correct_response(rows, number, 0, key);
    let output = TestServer::new(small_rows(), talkative).run(&["--json", "--op", "exists"]);
    assert_bad(&output, "expected no value, got ");
}

#[test]
fn an_impossible_length_ends_the_connection() {
    let boasting: Respond = |_, _, _, _| Some([OK.to_be_bytes(), u32::MAX.to_be_bytes()].concat());
    let output = TestServer::new(small_rows(), boasting).run(&["--json"]);
    assert_bad(&output, "the header states a value of 4294967295 bytes");
    assert_eq!(number(&stdout(&output), "errors"), 4.0);
    assert_eq!(number(&stdout(&output), "requests"), 0.0);
}

#[test]
fn a_closed_connection_is_reported_for_each_client() {
    let leaving: Respond = |rows, number, op, key| match number {
        1_234 => None,
        _ => correct_response(rows, number, op, key),
    };
    let output = TestServer::new(small_rows(), leaving).run(&["--json", "--seconds", "30"]);
    for client in 0..4 {
        // 1,234 responses are 77 pipelines of 16, and 2.
        let line = format!("client {client}: the server closed the connection after 1,234 responses (2 of 16 in its");
        assert_bad(&output, &line);
    }
    assert_eq!(number(&stdout(&output), "errors"), 4.0);
    assert_eq!(number(&stdout(&output), "requests"), 4.0 * 1_232.0);
}

#[test]
fn a_missing_server_is_reported_with_the_remedy() {
    let served = TestServer::new(small_rows(), correct_response);
    let output = served.run(&["--socket", "/no/such/kv.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("benchmarker: /no/such/kv.sock: cannot connect: No such file"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).ends_with(": is kv_store running, and on this socket?\n"), "{}", stderr(&output));
}

#[test]
fn responses_in_pieces_are_read_correctly() {
    // The server writes single bytes, so reads end inside of headers and values.
    let folder = tempfile::tempdir().unwrap();
    let (db, socket) = (folder.path().join("storage.db"), folder.path().join("kv.sock"));
    bake_text(&db, Keys::U64, "5,five\n");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut request = [0; 16];
        loop {
            stream.read_exact(&mut request)?;
            for byte in frame(OK, b"five") {
                stream.write_all(&[byte])?;
            }
        }
    });
    let output = Command::new(env!("CARGO_BIN_EXE_benchmarker"))
        .args(["--seconds", "0.1", "--warmup", "0", "--clients", "1", "--pipeline", "3", "--verify", "--json"])
        .args(["--db", db.to_str().unwrap(), "--socket", socket.to_str().unwrap()])
        .output()
        .unwrap();
    assert_good(&output);
}

#[test]
fn misses_are_counted() {
    let served = TestServer::new(small_rows(), correct_response);
    let output = served.run(&["--json", "--miss-ratio", "1", "--op", "exists"]);
    assert_good(&output);
    let json = stdout(&output);
    assert_eq!((number(&json, "hits"), number(&json, "misses")), (0.0, number(&json, "requests")));

    let output = served.run(&["--json", "--verify", "--miss-ratio", "0.5"]);
    assert_good(&output);
    let json = stdout(&output);
    assert!(number(&json, "hits") > 0.0 && number(&json, "misses") > 0.0, "{json}");
    assert_eq!(number(&json, "hits") + number(&json, "misses"), number(&json, "requests"));
}

#[test]
fn an_empty_table_needs_a_miss_ratio_of_1() {
    let served = TestServer::new(Rows::new(), correct_response);
    let output = served.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the table is empty"), "{}", stderr(&output));
    assert_good(&served.run(&["--miss-ratio", "1"]));
}
