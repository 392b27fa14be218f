//! Metrics, liveness, and readiness over HTTP.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use zero_kv::client::Client;

use crate::helpers::frames::{EXISTS, answer, expect, gets, request};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answers_to_gets};
use crate::helpers::waiting::{PATIENCE, eventually};

const MONITOR: &str = include_str!("../../docs/operations/monitor.md");
const DASHBOARD: &str = include_str!("../../packaging/grafana/zero-kv.json");
const RULES: &str = include_str!("../../packaging/prometheus/zero-kv.rules.yml");
const RULES_TESTS: &str = include_str!("../../packaging/prometheus/zero-kv.test.yml");

/// Starts a server with metrics. Returns it with the address of the metrics.
fn serve(table: &Table) -> (Server, SocketAddr) {
    let mut server = Server::spawn(table.command(&["--metrics", "127.0.0.1:0"]), &table.socket());
    let line = server.wait_for_log("metrics on http://");
    let url = line.split("http://").nth(1).unwrap();
    let address = url.split('/').next().unwrap().parse().unwrap();
    server.wait_for_log("ready");
    (server, address)
}

/// Sends a request, and reads to the end of the stream. Returns the head and the body of the response.
fn exchange(mut stream: impl Read + Write, asked: &[u8]) -> (String, String) {
    stream.write_all(asked).unwrap();
    let mut answered = String::new();
    stream.read_to_string(&mut answered).unwrap();
    let (head, body) = answered.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answered:?}"));
    (head.to_owned(), body.to_owned())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    exchange(connect(address), format!("GET {path} HTTP/1.1\r\nHost: zero-kv\r\n\r\n").as_bytes())
}

/// Returns the value after a metric's name and labels.
fn value(metrics: &str, of: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(of)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{of} in {metrics}")).parse().unwrap()
}

/// Returns the names of all metrics, which are in their `# TYPE` lines.
fn names(metrics: &str) -> Vec<&str> {
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

#[test]
fn metrics_count_requests() {
    let table = Table::of_rows(100);
    let (server, address) = serve(&table);
    let mut stream = server.connect();
    let asked = [gets(1..=130), request(EXISTS, 7).to_vec(), request(99, 7).to_vec()].concat();
    stream.write_all(&asked).unwrap();
    let answers = [answers_to_gets(&table.model, 1..=130), answer(0, b""), answer(2, b"")].concat();
    expect(&mut stream, &answers);

    // The server counts bytes after it has sent them.
    eventually("the answers are counted", || {
        value(&get(address, "/metrics").1, "zero_kv_written_bytes_total") == answers.len() as f64
    });
    let (head, metrics) = get(address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    for (of, expected) in [
        (r#"zero_kv_requests_total{op="get",status="ok"}"#, 100.0),
        (r#"zero_kv_requests_total{op="get",status="not_found"}"#, 30.0),
        (r#"zero_kv_requests_total{op="exists",status="ok"}"#, 1.0),
        (r#"zero_kv_requests_total{op="other",status="error"}"#, 1.0),
        (r#"zero_kv_requests_total{op="redis",status="ok"}"#, 0.0),
        ("zero_kv_hits_total", 101.0),
        ("zero_kv_misses_total", 30.0),
        ("zero_kv_read_bytes_total", asked.len() as f64),
        (r#"zero_kv_batch_requests_bucket{le="2048"}"#, value(&metrics, "zero_kv_batch_requests_count")),
        ("zero_kv_batch_requests_sum", 132.0),
        (r#"zero_kv_service_seconds_bucket{le="+Inf"}"#, value(&metrics, "zero_kv_service_seconds_count")),
        ("zero_kv_connections", 1.0),
        ("zero_kv_generation", 1.0),
        ("zero_kv_ready", 1.0),
        ("zero_kv_rows", 100.0),
        ("zero_kv_file_bytes", table.db().metadata().unwrap().len() as f64),
        ("zero_kv_file_modified_timestamp_seconds", table.db().metadata().unwrap().mtime() as f64),
    ] {
        assert_eq!(value(&metrics, of), expected, "{of}");
    }
    eventually("the first batch is timed", || {
        value(&get(address, "/metrics").1, "zero_kv_service_seconds_count") == 1.0
    });
    let digest = Client::connect(table.socket()).unwrap().info().unwrap().digest().unwrap();
    assert!(metrics.contains(&format!("digest=\"{digest:032x}\"")), "{metrics}");
}

#[test]
fn the_document_lists_exactly_the_existing_metrics() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let (_, metrics) = get(address, "/metrics");
    let section = MONITOR.split("## Metrics").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    assert_eq!(rows.filter(|name| name.starts_with("zero_kv_")).collect::<Vec<_>>(), names(&metrics));
}

#[test]
fn the_dashboard_shows_exactly_the_existing_metrics() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let (_, metrics) = get(address, "/metrics");
    let series = series(&metrics);
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            for name in metrics_in(target["expr"].as_str().unwrap()) {
                assert!(series.contains(name), "{name} of {:?}", panel["title"]);
                shown.insert(name);
            }
        }
    }
    // An expression names the series of a histogram, such as its buckets.
    let is_shown = |name: &&&str| shown.iter().any(|shown| shown.strip_prefix(**name).is_some_and(is_suffix));
    let names = names(&metrics);
    let hidden: Vec<_> = names.iter().filter(|name| !is_shown(name)).collect();
    assert!(hidden.is_empty(), "metrics without a panel: {hidden:?}");
}

/// Returns whether the name of a series of a metric ends like this after the metric's name.
fn is_suffix(rest: &str) -> bool {
    ["", "_bucket", "_sum", "_count"].contains(&rest)
}

#[test]
fn panels_of_the_dashboard_do_not_overlap() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut cells, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let number = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(ids.insert(panel["id"].as_u64()) && number("x") + number("w") <= 24, "{}", panel["title"]);
        for x in number("x")..number("x") + number("w") {
            for y in number("y")..number("y") + number("h") {
                assert!(cells.insert((x, y)), "{} overlaps another panel", panel["title"]);
            }
        }
    }
}

#[test]
fn each_alert_has_a_test_in_which_it_fires() {
    let alerts: Vec<_> = RULES.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    // The test of an alert that fires lists the expected alerts below its name.
    let tests: Vec<_> = RULES_TESTS.split("alertname: ").skip(1).collect();
    for alert in &alerts {
        let fires = |test: &&str| {
            let name = test.split([',', '\n']).next().unwrap().trim();
            name == *alert && test.contains("exp_alerts:")
        };
        assert!(tests.iter().any(fires), "{alert}");
    }
    assert!(alerts.len() > 15, "{alerts:?}");
}

#[test]
fn the_alerts_are_about_existing_metrics() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let (_, metrics) = get(address, "/metrics");
    let series = series(&metrics);
    let mut alerts = BTreeSet::new();
    for name in metrics_in(RULES) {
        assert!(series.contains(name), "{name}");
        alerts.insert(name);
    }
    for name in ["zero_kv_ready", "zero_kv_published_poll_age_seconds", "zero_kv_published_lag_seconds"] {
        assert!(alerts.contains(name), "{name}");
    }
}

/// Returns the names of all metrics and of their series.
fn series(metrics: &str) -> BTreeSet<&str> {
    let series = metrics.lines().filter_map(|line| line.split(['{', ' ']).next());
    series.filter(|name| name.starts_with("zero_kv_")).chain(names(metrics)).collect()
}

/// Returns the names of metrics in expressions.
fn metrics_in(expressions: &str) -> impl Iterator<Item = &str> {
    let words = expressions.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("zero_kv_"))
}

#[test]
fn metrics_have_the_prometheus_text_format() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let (_, metrics) = get(address, "/metrics");
    let (mut helped, mut family, mut kind, mut series_count) = ("", "", "", 0);
    for line in metrics.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", name, ..] => helped = name,
            ["#", "TYPE", name, of] => {
                assert_eq!(name, helped);
                assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
                (family, kind) = (name, of);
            }
            _ => {
                let (series, number) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} below {family}"));
                let suffixes = if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
                assert!(suffixes.contains(&suffix), "{line}");
                assert!(number.parse::<f64>().unwrap() >= 0.0, "{line}");
                series_count += 1;
            }
        }
    }
    assert!(series_count > 50, "{series_count} series: {metrics}");
}

#[test]
fn a_serving_server_is_live_and_ready() {
    let table = Table::of_rows(1000);
    let (_server, address) = serve(&table);
    assert_eq!(get(address, "/healthz").1, "ok\n");
    let len_bytes = table.db().metadata().unwrap().len();
    let resident = format!(" of {len_bytes} bytes resident (100.0 %)\n");
    eventually("the file's residency is measured", || get(address, "/readyz").1.ends_with(&resident));
    let (head, body) = get(address, "/readyz");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(body.starts_with("serving: generation 1, 1000 rows, "), "{body}");
    let (head, body) = exchange(connect(address), b"HEAD /metrics HTTP/1.1\r\nHost: zero-kv\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && body.is_empty(), "{head}");
}

#[test]
fn unknown_paths_other_methods_and_long_heads_are_rejected() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let (head, body) = get(address, "/");
    assert!(head.starts_with("HTTP/1.1 404") && body.contains("/metrics"), "{head}");
    let (head, _) = exchange(connect(address), b"POST /metrics HTTP/1.1\r\nHost: zero-kv\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405") && head.contains("allow: GET, HEAD"), "{head}");
    // The head exceeds the limit. The response, if any, is an error.
    let mut stream = connect(address);
    let long = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(1 << 20));
    let _ = stream.write_all(long.as_bytes());
    let mut answered = Vec::new();
    let _ = stream.read_to_end(&mut answered);
    assert!(answered.is_empty() || answered.starts_with(b"HTTP/1.1 4"), "{}", answered.escape_ascii());
    assert_eq!(get(address, "/healthz").1, "ok\n");
}

#[test]
fn silent_clients_do_not_block_others() {
    let table = Table::of_rows(10);
    let (_server, address) = serve(&table);
    let silent: Vec<TcpStream> = (0..40)
        .map(|i| {
            let mut stream = connect(address);
            stream.write_all(&b"GET /metrics HTTP/1.1\r\n"[..i % 23]).unwrap();
            stream
        })
        .collect();
    assert_eq!(get(address, "/healthz").1, "ok\n");
    drop(silent);
}

#[test]
fn a_unix_socket_serves_the_same_metrics_and_is_removed_at_exit() {
    let table = Table::of_rows(10);
    let path = table.folder.path().join("metrics.sock");
    let mut command = table.command(&[]);
    command.arg("--metrics").arg(&path);
    let mut server = Server::of(command, &table.socket());
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (head, metrics) = exchange(stream, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains(" 200 OK"), "{head}");
    assert_eq!(value(&metrics, "zero_kv_rows"), 10.0);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    assert!(!path.exists());
}

#[test]
fn an_address_beyond_loopback_requires_an_option() {
    let table = Table::of_rows(10);
    let refused = |address: &str| {
        let output = table.command(&["--metrics", address]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, message) = refused("0.0.0.0:0");
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("--metrics-exposed"), "{message}");
    let (status, message) = refused("localhost");
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("127.0.0.1:9464"), "{message}");

    table.serve_with(&["--metrics", "0.0.0.0:0", "--metrics-exposed"]);
}

#[test]
fn the_log_is_json_if_requested() {
    let table = Table::of_rows(10);
    let mut server = Server::spawn(table.command(&["--log-format", "json"]), &table.socket());
    let line = server.wait_for_log("ready");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((event["level"].as_str(), event["rows"].as_u64()), (Some("INFO"), Some(10)));
    assert_eq!((event["generation"].as_u64(), event["digest"].as_str().map(str::len)), (Some(1), Some(32)));
    assert_eq!(event["message"], format!("ready on {}", table.socket().display()));
}

#[test]
fn a_log_filter_that_cannot_be_parsed_is_reported_and_the_level_is_info() {
    let table = Table::of_rows(10);
    let mut command = table.command(&[]);
    command.env("RUST_LOG", "zero_kv=loud");
    let mut server = Server::spawn(command, &table.socket());
    let line = server.wait_for_log("RUST_LOG");
    assert!(line.contains("RUST_LOG contains \"zero_kv=loud\", which is ignored"), "{line}");
    assert!(server.wait_for_log("ready").contains("INFO"));
}
