//! Descriptions of commands, compared with a real Redis, and as `redis-cli` prints them.

use std::path::Path;
use std::process::Command;

use zero_kv::protocol::resp::commands::{COMMANDS, Spec};

use super::served::*;
use super::tools::ask_in_version_3;
use crate::helpers::redis_replies::Reply;
use crate::helpers::trials::{Missing, require};

/// Commands whose arguments Redis describes with other names, types, or groups. `docs/REDIS.md` states the difference.
#[rustfmt::skip]
const DIFFERENT_ARGUMENTS: &[&str] = &[
    "acl|log", "bitcount", "bitpos", "client|caching", "client|kill", "client|list", "client|no-evict", "client|tracking",
    "cluster|failover", "cluster|keyslot", "cluster|setslot",
    "command|getkeys", "command|list", "config|get", "geodist", "georadius_ro", "georadiusbymember_ro", "geosearch",
    "getex", "hello", "hrandfield", "hscan", "sort_ro", "xinfo|stream", "xpending", "xrange", "xrevrange", "zcount", "zinter",
    "zrandmember", "zrange", "zrangebyscore", "zrevrangebyscore", "zunion",
];

/// Fields of Redis's documentation that this server omits.
const OMITTED: &[&str] = &["history", "doc_flags", "deprecated_since", "replaced_by"];

fn all_commands() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// Returns a documentation without the omitted fields, and its arguments without the versions that introduced them.
fn without_versions(reply: &Reply, is_argument: bool) -> Reply {
    match reply {
        Reply::Map(pairs) => {
            let is_omitted = |name: &str| OMITTED.contains(&name) || is_argument && name == "since";
            let kept = pairs.iter().filter(|(name, _)| !is_omitted(&name.text()));
            let cleaned = kept.map(|(name, value)| {
                let is_argument = is_argument || name.text() == "arguments";
                (name.clone(), without_versions(value, is_argument))
            });
            Reply::Map(cleaned.collect())
        }
        Reply::List(replies) => Reply::List(replies.iter().map(|reply| without_versions(reply, is_argument)).collect()),
        other => other.clone(),
    }
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

pub(crate) fn command_docs_differ_from_redis_only_as_documented() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let (sockets, mut compared, mut different) = ([redis.socket(), served.socket()], 0, Vec::new());
    for spec in all_commands().filter(|spec| spec.subcommands.is_empty()) {
        let command = format!("COMMAND DOCS {}", spec.name);
        let [expected, found] = both(sockets, &command, ask_in_version_3);
        let expected_reply = Reply::all(&expected).remove(0);
        if expected_reply == Reply::Map(Vec::new()) {
            // Redis 7.0 does not have the command.
            continue;
        }
        compared += 1;
        let cleaned = without_versions(&expected_reply, false);
        if Reply::all(&found)[0] != cleaned {
            different.push(spec.name);
            if !DIFFERENT_ARGUMENTS.contains(&spec.name) {
                eprintln!("{}\nours  {}\nRedis {}", spec.name, found.escape_ascii(), expected.escape_ascii());
            }
        } else if cleaned == expected_reply {
            assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
            let [expected, found] = both(sockets, &command, ask);
            assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
    assert!(compared > 50, "{compared}");
    different.sort_unstable();
    assert_eq!(different, DIFFERENT_ARGUMENTS);
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
        ("ZKV.RANGE", "ZKV.RANGE min max|PREFIX prefix [REV] [LIMIT count] [FROM cursor]"),
        ("ZKV.COUNT", "ZKV.COUNT min max|PREFIX prefix"),
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
