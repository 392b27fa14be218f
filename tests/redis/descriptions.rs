//! Descriptions of commands, compared with a real Redis, and as `redis-cli` prints them.

use std::path::Path;
use std::process::Command;

use zero_kv::protocol::resp::commands::{COMMANDS, Spec};

use super::served::*;
use super::tools::ask_in_version_3;
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::{Missing, require};

fn all_commands() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// Returns the replies of both servers to a command, Redis's reply first.
fn both<T>(sockets: [&Path; 2], command: &str, ask: fn(&Path, &[&str]) -> T) -> [T; 2] {
    sockets.map(|socket| ask(socket, &[command]))
}

pub(crate) fn command_info_is_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let (sockets, mut compared) = ([redis.socket(), served.socket()], 0);
    for spec in all_commands() {
        let command = format!("COMMAND INFO {}", spec.name);
        for ask in [ask as fn(&Path, &[&str]) -> Vec<u8>, ask_in_version_3] {
            let [expected, found] = both(sockets, &command, ask);
            if Reply::all(&expected)[0].list()[0] == Reply::Null {
                // Redis 7.0 does not have the command.
                continue;
            }
            compared += 1;
            if spec.subcommands.is_empty() {
                assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
            } else {
                // The servers have different subcommands. Other iterations compare them.
                let [expected, found] = [expected, found].map(|bytes| Reply::all(&bytes)[0].list()[0].list().to_vec());
                assert_eq!(found[..9], expected[..9]);
            }
        }
    }
    assert!(compared > 100, "{compared}");
    Ok(())
}

pub(crate) fn command_docs_have_the_summaries_of_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let (sockets, mut compared) = ([redis.socket(), served.socket()], 0);
    for spec in all_commands() {
        let [expected, found] = both(sockets, &format!("COMMAND DOCS {}", spec.name), ask_in_version_3);
        let [expected, found] = [expected, found].map(|bytes| Reply::all(&bytes).remove(0).fields());
        // Redis 7.0 does not have all commands.
        let Some(expected) = expected.get(spec.name).map(Reply::fields) else { continue };
        let found = found[spec.name].fields();
        compared += 1;
        for field in ["summary", "since", "group"] {
            assert_eq!(found[field], expected[field], "{}: {field}", spec.name);
        }
    }
    assert!(compared > 50, "{compared}");
    Ok(())
}

/// Removes the escape sequences that set colors.
fn without_colors(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

pub(crate) fn redis_cli_prints_the_syntax_of_every_command() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let (_table, served) = serve(&[]);
    for (words, expected) in [
        ("ZKV.RANGE", "ZKV.RANGE min max | PREFIX prefix [REV] [LIMIT count] [FROM cursor]"),
        ("ZKV.COUNT", "ZKV.COUNT min max | PREFIX prefix"),
        ("ZKV.FLOOR", "ZKV.FLOOR key"),
        ("MGET", "MGET key [key ...]"),
        ("SCAN", "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]"),
        ("MEMORY USAGE", "MEMORY USAGE key [SAMPLES count]"),
    ] {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(served.socket()).arg("HELP").args(words.split(' '));
        let output = without_colors(&String::from_utf8(cli.output().unwrap().stdout).unwrap());
        assert!(output.contains(expected) && output.contains("summary: "), "{words}: {output}");
    }
    Ok(())
}
