//! `redis-cli`, over both kinds of socket.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::served::*;
use crate::helpers::redis_server::line_of;
use crate::helpers::servers::Server;
use crate::helpers::trials::{Missing, require};

/// Runs `redis-cli` with these arguments.
fn run(served: &Server, over_tcp: bool, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("redis-cli");
    match over_tcp {
        true => command.args(["-h", &served.tcp().ip().to_string(), "-p", &served.tcp().port().to_string()]),
        false => command.arg("-s").arg(served.socket()),
    };
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn cli(served: &Server, args: &[&str]) -> String {
    let outputs = [false, true].map(|over_tcp| run(served, over_tcp, args, b""));
    for output in &outputs {
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let [unix, tcp] = outputs.map(|output| String::from_utf8(output.stdout).unwrap());
    assert_eq!(sorted(&unix), sorted(&tcp), "{args:?}");
    unix
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

pub(crate) fn redis_cli_prints_replies() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    assert_eq!(cli(&served, &["GET", "7"]), "value_content_at_key_7\n");
    assert_eq!(cli(&served, &["GET", "2000"]), "\n");
    assert_eq!(cli(&served, &["--no-raw", "GET", "2000"]), "(nil)\n");
    assert_eq!(cli(&served, &["--no-raw", "MGET", "1003", "2000"]), "1) \"12345\"\n2) (nil)\n");
    assert_eq!(cli(&served, &["--no-raw", "EXISTS", "1", "2", "2000"]), "(integer) 2\n");
    assert_eq!(cli(&served, &["DBSIZE"]), format!("{}\n", rows().len()));
    assert_eq!(cli(&served, &["-3", "--no-raw", "GET", "2000"]), "(nil)\n");
    assert_eq!(cli(&served, &["-3", "--json", "MGET", "1003", "2000"]), "[\"12345\",null]\n");
    assert_eq!(cli(&served, &["-n", "0", "GET", "1003"]), "12345\n");
    assert!(cli(&served, &["SET", "1", "x"]).starts_with("READONLY "));
    let failed = run(&served, false, &["-e", "SET", "1", "x"], b"");
    assert_eq!(failed.status.code(), Some(1));
    Ok(())
}

pub(crate) fn redis_cli_scans_all_keys() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    let keys: Vec<String> = rows().keys().map(u64::to_string).collect();
    let mut expected: Vec<&str> = keys.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(sorted(&cli(&served, &["--scan"])), expected);
    let nines = expected.iter().filter(|key| key.len() == 3 && key.starts_with("99")).count();
    assert_eq!(cli(&served, &["--scan", "--pattern", "99?"]).lines().count(), nines);
    assert!(cli(&served, &["--bigkeys"]).contains("Biggest string found"), "--bigkeys");
    assert!(cli(&served, &["--memkeys"]).contains("Biggest string found"), "--memkeys");
    Ok(())
}

pub(crate) fn redis_cli_reads_commands_from_standard_input() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    let output = run(&served, false, &[], b"GET 7\nSTRLEN 7\nHELLO 3\nGET 7\nQUIT\n");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("value_content_at_key_7\n").count(), 2, "{text}");
    let gets = (0..1000).flat_map(|key| line(&format!("GET {key}"))).collect::<Vec<u8>>();
    let output = run(&served, false, &["--pipe"], &gets);
    assert!(String::from_utf8_lossy(&output.stdout).contains("errors: 0, replies: 1000"), "{output:?}");
    Ok(())
}

pub(crate) fn info_has_the_fields_that_tools_read() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    // The numbers change with each call, so the outputs of two sockets would differ.
    let cli = |args: &[&str]| String::from_utf8(run(&served, false, args, b"").stdout).unwrap().replace("\r\n", "\n");
    cli(&["MGET", "1", "2", "2000"]);
    let info = cli(&["INFO"]);
    for section in ["# Server", "# Clients", "# Memory", "# Stats", "# Keyspace"] {
        assert!(info.lines().any(|line| line == section), "{section}: {info}");
    }
    let of = |name: &str| line_of(&info, name).unwrap_or_else(|| panic!("no {name} in {info}"));
    assert_eq!(of("db0"), format!("keys={},expires=0,avg_ttl=0", rows().len()));
    assert_eq!(of("redis_mode"), "standalone");
    assert_eq!(of("process_id"), served.id().to_string());
    assert!(of("redis_version").split('.').count() == 3, "{}", of("redis_version"));
    for number in ["uptime_in_seconds", "connected_clients", "used_memory", "total_commands_processed"] {
        assert!(of(number).parse::<u64>().is_ok(), "{number}: {}", of(number));
    }
    assert_eq!((of("keyspace_hits"), of("keyspace_misses")), ("2", "1"));
    assert_eq!(cli(&["INFO", "keyspace"]).trim().lines().count(), 2);
    assert_eq!(cli(&["INFO", "nothing"]).trim(), "");
    Ok(())
}
