//! `docs/REDIS.md` matches the library and a server.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use zero_kv::bake::Keys;
use zero_kv::protocol::native::PAGE_LEN_MAX_BYTES;
use zero_kv::protocol::resp::commands::{ARGS_MAX_AT_ONCE, COMMANDS, Spec};
use zero_kv::protocol::resp::range::LIMIT_DEFAULT;
use zero_kv::protocol::resp::{ARGS_MAX, BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES, LINE_LEN_MAX_BYTES};

use super::served::*;
use crate::helpers::redis_replies::Reply;
use crate::helpers::scenes::Scene;
use crate::helpers::trials::{Missing, require};

const DOCUMENT: &str = include_str!("../../docs/REDIS.md");

/// Returns the rows of a section's tables, as cells.
fn rows(title: &str) -> Vec<Vec<String>> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {title}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    // A bar in a cell is escaped.
    let cells = |line: &str| line.replace(r"\|", "\0").split('|').map(|cell| cell.replace('\0', "|")).collect();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("|---");
    section.lines().filter(is_row).skip(1).map(cells).collect()
}

pub(crate) fn the_document_lists_exactly_the_supported_commands() {
    let rows = rows("Commands");
    let listed: Vec<&str> = rows.iter().flat_map(|cells| cells[1].split('`').skip(1).step_by(2)).collect();
    let written = |spec: &Spec| {
        let name = spec.name.to_ascii_uppercase().replace('|', " ");
        format!("{name} {}", spec.syntax).trim_end().to_owned()
    };
    // A container of subcommands is not itself a command, except COMMAND.
    let is_asked_for = |spec: &&Spec| spec.subcommands.is_empty() || spec.arity == -1;
    let all = COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let all: BTreeSet<String> = all.filter(is_asked_for).map(written).collect();
    assert_eq!(listed.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>(), all);
    assert_eq!(listed.len(), all.len());
}

/// Returns the limit with this name in the document.
fn limit(what: &str) -> usize {
    let rows = rows("Limits");
    let row = rows.iter().find(|cells| cells[1].trim() == what).unwrap_or_else(|| panic!("no {what:?}"));
    row[2].trim().replace(',', "").parse().unwrap()
}

pub(crate) fn the_documented_limits_match_the_library() {
    for (what, expected) in [
        ("arguments of a command, including its name", ARGS_MAX),
        (
            "arguments of any command except `MGET`, `EXISTS`, `TOUCH`, `COMMAND INFO`, `COMMAND DOCS`, and `COMMAND GETKEYS`",
            ARGS_MAX_AT_ONCE,
        ),
        ("bytes of an argument", BULK_LEN_MAX_BYTES),
        ("bytes of an inline command, or of a number in a header", LINE_LEN_MAX_BYTES),
        ("bytes of a command, including its framing", COMMAND_LEN_MAX_BYTES),
        ("rows of a page, without `LIMIT`", LIMIT_DEFAULT),
        ("bytes of a page's rows, as stored in the file", PAGE_LEN_MAX_BYTES),
    ] {
        assert_eq!(limit(what), expected, "{what}");
    }
}

pub(crate) fn the_documented_limits_match_the_server() {
    let (_table, served) = serve(&[]);
    let is_error = |command: &str| matches!(Reply::all(&ask(served.socket(), &[command]))[0], Reply::Error(_));
    let pattern_len = limit("bytes of a pattern, or of all patterns of a `CONFIG GET` together");
    for command in ["KEYS ", "SCAN 0 MATCH ", "COMMAND LIST FILTERBY PATTERN "] {
        assert!(!is_error(&format!("{command}{}", "x".repeat(pattern_len))), "{command}");
        assert!(is_error(&format!("{command}{}", "x".repeat(pattern_len + 1))), "{command}");
    }
    let name_len = limit("bytes of a client's name, library name, or library version");
    for command in ["CLIENT SETNAME ", "HELLO 2 SETNAME ", "CLIENT SETINFO LIB-NAME ", "CLIENT SETINFO LIB-VER "] {
        assert!(!is_error(&format!("{command}{}", "x".repeat(name_len))), "{command}");
        assert!(is_error(&format!("{command}{}", "x".repeat(name_len + 1))), "{command}");
    }
}

pub(crate) fn the_documents_examples_match_the_server() -> Result<(), Missing> {
    require("redis-cli", "--version")?;
    let blocks = DOCUMENT.split("```text\n").skip(1).map(|block| block.split("```").next().unwrap());
    let examples: Vec<&str> = blocks.filter(|block| block.starts_with("table of ")).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let (head, conversation) = example.split_once('\n').unwrap();
        let (kind, table) = head.split_once(": ").unwrap();
        let keys = match kind.strip_prefix("table of ").unwrap() {
            "numbers" => Keys::U64,
            key_type => Keys::Type(key_type.parse().unwrap()),
        };
        // The text after the last comma of a row is the value.
        let rows = table.split(' ').map(|row| row.rsplit_once(',').unwrap());
        let rows: Vec<String> = rows.map(|(key, value)| format!("\"{key}\",{value}\n")).collect();
        let scene = Scene::baked(keys, rows.concat());
        let server = scene.serve(&[]);
        for exchange in conversation.split("> ").skip(1) {
            let (command, reply) = exchange.split_once('\n').unwrap();
            let mut cli = Command::new("redis-cli");
            cli.arg("-s").arg(server.socket()).arg("--no-raw").stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = cli.spawn().unwrap();
            writeln!(child.stdin.take().unwrap(), "{command}").unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), reply.trim_end(), "{command}");
        }
    }
    Ok(())
}
