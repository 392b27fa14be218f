//! `promtool` checks the metrics and the alerts.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::trials::{Missing, require};

pub(crate) fn promtool_accepts_the_metrics() -> Result<(), Missing> {
    require("promtool", "--version")?;
    let table = Table::of_rows(10);
    let endpoint = table.folder.path().join("metrics.sock");
    let mut command = table.command(&[]);
    command.arg("--metrics").arg(&endpoint);
    let _server = Server::of(command, &table.socket());
    let mut stream = UnixStream::connect(endpoint).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: zero-kv\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (_, metrics) = response.split_once("\r\n\r\n").unwrap();
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub(crate) fn promtool_accepts_the_alerts() -> Result<(), Missing> {
    require("promtool", "--version")?;
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prometheus/zero-kv.rules.yml");
    let output = Command::new("promtool").args(["check", "rules", rules]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub(crate) fn the_alerts_pass_their_tests() -> Result<(), Missing> {
    require("promtool", "--version")?;
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prometheus/zero-kv.test.yml");
    let output = Command::new("promtool").args(["test", "rules", tests]).output().unwrap();
    // promtool describes failed tests on both streams.
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{out}{err}");
    Ok(())
}
