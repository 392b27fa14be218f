//! Invalid command lines are rejected with exit status 2 before any request is sent.

use super::test_server::*;

#[test]
fn arguments_out_of_range_are_usage_errors() {
    let served = TestServer::new(small_rows(), correct_response);
    for (name, values) in [
        ("--clients", &["0", "10001"][..]),
        ("--pipeline", &["0", "65537"]),
        ("--seconds", &["0", "NaN", "inf", "1e300", "soon"]),
        ("--warmup", &["NaN", "1e300"]),
        ("--miss-ratio", &["1.1", "NaN"]),
        ("--op", &["put"]),
    ] {
        for value in values {
            assert_eq!(served.run(&[&format!("{name}={value}")]).status.code(), Some(2), "{name} {value}");
        }
    }
}

#[test]
fn invalid_arguments_are_usage_errors() {
    let served = TestServer::new(small_rows(), correct_response);
    for (name, values) in [
        ("--op", &["get,exists", "get:0.5", "get:0.5,get:0.5", "get:0.9,exists:0.2"][..]),
        ("--distribution", &["normal"]),
        ("--zipf-exponent", &["0", "NaN", "11"]),
        ("--rate", &["0", "1000000001", "fast"]),
    ] {
        for value in values {
            assert_eq!(served.run(&[&format!("{name}={value}")]).status.code(), Some(2), "{name} {value}");
        }
    }
    for (together, named) in [
        (&["--zipf-exponent=1"][..], "'--distribution zipf'"),
        (&["--zipf-exponent=1", "--distribution=uniform"], "'--distribution zipf'"),
        (&["--p99-us=5"], "--sweep"),
        (&["--sweep", "--p99-us=0"], "--p99-us"),
        (&["--sweep", "--rate=5"], "--rate"),
        (&["--sweep", "--memory"], "--memory"),
        (&["--sweep", "--ceiling"], "--ceiling"),
        (&["--sweep", "--report=/dev/null"], "--report"),
        (&["--sweep", "--hdr=/dev/null"], "--hdr"),
        (&["--ceiling", "--rate=5"], "--rate"),
        (&["--ceiling", "--verify"], "--verify"),
        (&["--verify", "--op=exists"], "'--op exists'"),
        (&["--verify", "--miss-ratio=1"], "'--miss-ratio 1'"),
        (&["--rate=10", "--seconds=1", "--pipeline=16"], "'--rate <REQUESTS>'"),
    ] {
        let output = served.run(together);
        assert_eq!(output.status.code(), Some(2), "{together:?}");
        assert!(stderr(&output).contains(named), "{named} is not in {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
    assert_eq!(served.take_requests(), []);
}
