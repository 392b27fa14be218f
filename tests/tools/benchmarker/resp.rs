//! Loads in the Redis protocol.

use super::test_server::*;

const RESP: &str = "--protocol=resp";

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Returns the reply of Redis.
pub(crate) fn correct_resp_reply(rows: &Rows, _: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    Some(match (rows.get(&key), op) {
        (Some(value), 0) => bulk(value),
        (None, 0) => b"$-1\r\n".to_vec(),
        (value, _) => format!(":{}\r\n", u32::from(value.is_some())).into_bytes(),
    })
}

/// The option of each protocol, and the server's correct response.
pub(crate) const PROTOCOLS: [(&str, Respond); 2] =
    [("--protocol=native", correct_response), ("--protocol=resp", correct_resp_reply)];

#[test]
fn a_good_run_reports_consistent_numbers() {
    let served = TestServer::new(small_rows(), correct_resp_reply);
    for verify in [&[][..], &["--verify"]] {
        let output = served.run(&[&[RESP, "--json"], verify].concat());
        assert_good(&output);
        let json = stdout(&output);
        let of = |name: &str| number(&json, name);
        assert!(json.contains("\"protocol\":\"resp\""), "{json}");
        assert_eq!(served.take_requests().len() as f64, of("requests"));
        assert_eq!((of("hits"), of("misses"), of("errors")), (of("requests"), 0.0, 0.0));
        // `$22\r\n`, 22 to 25 bytes of value, `\r\n`.
        let bytes_per_reply = of("bytes_per_second") / of("requests_per_second");
        assert!((29.0..33.0).contains(&bytes_per_reply), "{json}");
    }
    assert!(stdout(&served.run(&[RESP])).contains(", Redis protocol"));
}

#[test]
fn both_protocols_request_the_same_keys() {
    for options in [
        &["--distribution=uniform"][..],
        &["--distribution=sequential", "--pipeline=7"],
        &["--distribution=zipf"],
        &["--op=get:0.5,exists:0.5", "--miss-ratio=0.5"],
    ] {
        let [native, resp] =
            [("native", correct_response as Respond), ("resp", correct_resp_reply)].map(|(protocol, respond)| {
                let served = TestServer::new(small_rows(), respond);
                let args = [options, &["--clients=1", "--verify", "--protocol", protocol]].concat();
                let mut seen = served.requests(100, &args);
                seen.truncate(100);
                seen
            });
        assert_eq!(native, resp, "{options:?}");
    }
}

#[test]
fn misses_ops_and_schedules_work_as_in_the_native_protocol() {
    let served = TestServer::new(small_rows(), correct_resp_reply);
    let output = served.run(&[RESP, "--json", "--op=get:0.5,exists:0.5", "--miss-ratio=0.5", "--rate=4000"]);
    assert_good(&output);
    let json = stdout(&output);
    let of = |name: &str| number(&json, name);
    assert!(of("hits") > 0.0 && of("misses") > 0.0, "{json}");
    assert_eq!(of("hits") + of("misses"), of("requests"));
    assert_eq!(of("requests") + of("unsent_requests"), 800.0);
    assert_good(&TestServer::new(Rows::new(), correct_resp_reply).run(&[RESP, "--miss-ratio=1"]));
}

#[test]
fn a_wrong_reply_is_always_detected() {
    let wrong: [(Respond, &[&str], &str); 8] = [
        (|rows, _, _, key| Some(bulk(&rows[&key][1..])), &[], " bytes, got "),
        (|_, _, _, _| Some(b"$-1\r\n".to_vec()), &[], "expected Ok, got NotFound"),
        (|_, _, _, _| Some(b"$1\r\nv\r\n".to_vec()), &["--miss-ratio=1"], "expected NotFound, got Ok"),
        (|_, _, _, _| Some(b"-ERR out of order\r\n".to_vec()), &[], "expected Ok, got -ERR out of order"),
        (|_, _, _, _| Some(b"+OK\r\n".to_vec()), &[], "expected Ok, got +OK"),
        (|_, _, _, _| Some(b":1\r\n".to_vec()), &[], "expected Ok, got :1"),
        (|_, _, _, _| Some(b":2\r\n".to_vec()), &["--op=exists"], "expected Ok, got :2"),
        (|rows, _, _, key| Some(bulk(&rows[&key])), &["--op=exists"], "expected Ok, got $2"),
    ];
    for (respond, more, reason) in wrong {
        let output = TestServer::new(small_rows(), respond).run(&[&[RESP, "--json"], more].concat());
        assert_bad(&output, reason);
        // Every reply is wrong, and the clients continue after each.
        let json = stdout(&output);
        assert_eq!(number(&json, "errors"), number(&json, "requests"), "{reason}");
    }
}

#[test]
fn an_invalid_reply_ends_the_connection() {
    let unended: Respond = |rows, number, op, key| {
        let mut reply = correct_resp_reply(rows, number, op, key)?;
        reply.truncate(reply.len() - 2);
        Some([&reply[..], b"\n\r"].concat())
    };
    let no_reply: [(Respond, &str); 5] = [
        (|_, _, _, _| Some(b"$4294967295\r\n".to_vec()), "the reply states a value of 4294967295 bytes"),
        (|_, _, _, _| Some(b"*1\r\n$1\r\nv\r\n".to_vec()), "\"*1\\r\\n\" where a reply was expected"),
        (|_, _, _, _| Some(vec![0; 9_000]), "where a reply was expected"),
        (unended, "is not followed by a line end"),
        (|_, _, _, _| Some(b"$1\n".to_vec()), "where a reply was expected"),
    ];
    for (respond, reason) in no_reply {
        let output = TestServer::new(small_rows(), respond).run(&[RESP, "--json"]);
        assert_bad(&output, reason);
        assert_eq!((number(&stdout(&output), "errors"), number(&stdout(&output), "requests")), (4.0, 0.0));
    }
}

#[test]
fn a_ceiling_is_rejected() {
    let served = TestServer::new(small_rows(), correct_resp_reply);
    let output = served.run(&[RESP, "--ceiling"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot be used with '--protocol resp'"), "{}", stderr(&output));
    assert_eq!(served.take_requests(), []);
}
