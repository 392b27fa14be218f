//! `redis-cli --tls` and `redis-benchmark --tls`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::served::*;
use crate::helpers::trials::{Missing, require};

/// Runs a program of Redis over TLS, with these arguments. `has_certificate` is whether the client has a certificate.
fn run(program: &str, served: &TlsServed, has_certificate: bool, args: &[&str], input: &[u8]) -> Output {
    let [ca, certificate, key] = served.client_files();
    let mut command = Command::new(program);
    command.args(["--tls", "--cacert", &ca, "-h", "127.0.0.1", "-p", &served.server.tls().port().to_string()]);
    if has_certificate {
        command.args(["--cert", &certificate, "--key", &key]);
    }
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A client whose handshake fails does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

pub(crate) fn redis_cli_prints_replies_over_tls() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let served = serve_tls(false);
    let cli = |args: &[&str]| {
        let output = run("redis-cli", &served, false, args, b"");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(cli(&["GET", "7"]), "value_content_at_key_7\n");
    assert_eq!(cli(&["--no-raw", "GET", "2000"]), "(nil)\n");
    assert_eq!(cli(&["-3", "--json", "MGET", "1003", "2000"]), "[\"12345\",null]\n");
    assert_eq!(cli(&["GET", &LONG.to_string()]).len(), 100_001);
    assert_eq!(cli(&["--scan"]).lines().count(), rows().len());
    assert_eq!(cli(&["--tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", "GET", "1003"]), "12345\n");
    let gets = (0..100_000_u64).flat_map(|key| line(&format!("GET {}", key % 1000))).collect::<Vec<u8>>();
    let output = run("redis-cli", &served, false, &["--pipe"], &gets);
    assert!(String::from_utf8_lossy(&output.stdout).contains("errors: 0, replies: 100000"), "{output:?}");
    Ok(())
}

pub(crate) fn redis_cli_needs_a_certificate_if_the_server_requires_one() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let served = serve_tls(true);
    let output = run("redis-cli", &served, true, &["GET", "7"], b"");
    assert_eq!(output.stdout, b"value_content_at_key_7\n", "{output:?}");
    let output = run("redis-cli", &served, false, &["GET", "7"], b"");
    assert!(!output.status.success() && output.stdout != b"value_content_at_key_7\n", "{output:?}");
    served.server.wait_for("tls_handshakes_failed", 1);
    Ok(())
}

pub(crate) fn redis_benchmark_runs_over_tls() -> Result<(), Missing> {
    require("redis-benchmark", "--version")?;
    let served = serve_tls(false);
    let rows = PLAIN_ROWS.to_string();
    let mut hits = 0;
    for depth in ["1", "16", "256"] {
        let args = ["-n", "20000", "-c", "20", "-r", &rows, "-P", depth, "get", "__rand_int__"];
        let output = run("redis-benchmark", &served, false, &args, b"");
        let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(output.status.success() && !text.contains("rror"), "{text}");
        hits += 20_000;
        served.server.wait_for("hits", hits);
    }
    assert_eq!(served.server.number("misses"), 0);
    Ok(())
}
