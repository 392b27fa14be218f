//! Sends the commands that read strings in other ways than GET, or that report roles, to `kv_store` and to a real Redis:
//! in both versions of the protocol, inside and outside transactions.

use std::path::Path;

use zero_kv::protocol::resp::commands::COMMANDS;
use zero_kv::protocol::resp::reply_len_bytes;

use super::served::*;
use crate::helpers::frames::connect;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::line_of;
use crate::helpers::trials::Missing;

/// Returns the replies to commands in a version of the protocol, without the reply to HELLO.
fn replies(socket: &Path, version: &str, commands: &[u8]) -> Vec<u8> {
    let bytes = [line(&format!("HELLO {version}")), commands.to_vec(), line("QUIT")].concat();
    let mut replies = converse(connect(socket), &bytes);
    let hello_len_bytes = reply_len_bytes(&replies).unwrap().unwrap();
    replies.split_off(hello_len_bytes)
}

/// Compares the replies to commands in both versions, inside and outside a transaction.
#[track_caller]
pub(crate) fn assert_equal_everywhere(redis: &Path, ours: &Path, commands: &[u8]) {
    let transaction = [line("MULTI"), commands.to_vec(), line("EXEC")].concat();
    for version in ["2", "3"] {
        for commands in [commands, &transaction] {
            let [expected, found] = [redis, ours].map(|socket| replies(socket, version, commands));
            let shown = |bytes: &[u8]| bytes[..bytes.len().min(2000)].escape_ascii().to_string();
            assert!(
                found == expected,
                "version {version} to \"{}\"\nours  \"{}\"\nRedis \"{}\"",
                shown(commands),
                shown(&found),
                shown(&expected)
            );
        }
    }
}

#[track_caller]
fn assert_lines_equal_everywhere(lines: &[&str]) -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for text in lines {
        assert_equal_everywhere(redis.socket(), served.socket(), &line(text));
    }
    Ok(())
}

pub(crate) fn replies_about_roles_and_clusters_are_equal() -> Result<(), Missing> {
    assert_lines_equal_everywhere(&[
        "ROLE",
        "ROLE 1",
        "READONLY",
        "READONLY 1",
        "READWRITE",
        "ASKING",
        "WAIT 0 0",
        "WAIT -1 0",
        "WAIT x 0",
        "WAIT 0 x",
        "WAIT 0 -1",
        "WAIT",
        "CLUSTER",
        "CLUSTER FOO",
        "CLUSTER HELP",
        "CLUSTER KEYSLOT",
        "INFO modules",
        "INFO cluster",
        "SENTINEL MASTERS",
        "CLIENT MAINT_NOTIFICATIONS ON",
    ])?;
    let cluster = COMMANDS.iter().find(|spec| spec.name == "cluster").unwrap();
    assert_eq!(cluster.subcommands.len(), 10);
    let lines: Vec<String> = cluster
        .subcommands
        .iter()
        .flat_map(|spec| {
            let args = " 1".repeat(spec.arity.unsigned_abs() as usize - 2);
            ["", " 1 1 1 1 1", &args].map(|args| format!("{}{args}", spec.name.replace('|', " ")))
        })
        .collect();
    assert_lines_equal_everywhere(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn info_reports_true_fields_with_the_values_of_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for (section, min_fields) in [("replication", 6), ("persistence", 6)] {
        let [expected, found] = [redis.socket(), served.socket()]
            .map(|socket| Reply::all(&ask(socket, &[&format!("INFO {section}")]))[0].text());
        let fields: Vec<_> = found.lines().filter_map(|line| line.split_once(':')).collect();
        assert!(fields.len() >= min_fields, "{found}");
        for (name, value) in fields {
            // Redis counts the rows that the test has written.
            if name != "rdb_changes_since_last_save" {
                assert_eq!(line_of(&expected, name), Some(value), "{name}");
            }
        }
        assert_eq!(found.lines().next(), expected.lines().next());
    }
    let info = Reply::all(&ask(served.socket(), &["INFO cpu"]))[0].text();
    for name in ["used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"] {
        assert!(line_of(&info, name).unwrap().parse::<f64>().unwrap() >= 0.0, "{info}");
    }
    Ok(())
}

/// The exact replies from which lettuce's MasterReplica derives the role and the replicas of a server.
pub(crate) fn a_client_that_looks_for_a_master_finds_one() {
    let (_table, served) = serve(&[]);
    assert_eq!(ask(served.socket(), &["ROLE"]), b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n+OK\r\n");
    let fields = "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\nmaster_repl_offset:0\r\n\
        second_repl_offset:-1\r\nrepl_backlog_active:0\r\n";
    let text = format!("# Replication\r\n{fields}");
    let expected = format!("${}\r\n{text}\r\n+OK\r\n", text.len());
    assert_eq!(String::from_utf8(ask(served.socket(), &["INFO replication"])).unwrap(), expected);
}

pub(crate) fn replies_with_bits_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let mut commands = line("GETBIT 7");
    for key in ["7", "1000", "1001", "1002", "1003", "2000"] {
        for at in ["0", "1", "7", "8", "63", "800000", "4294967295", "4294967296", "-1", "x", "#1"] {
            commands.extend(line(&format!("GETBIT {key} {at}")));
        }
    }
    assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    Ok(())
}

pub(crate) fn replies_with_other_properties_of_strings_are_equal() -> Result<(), Missing> {
    assert_lines_equal_everywhere(&[
        "TOUCH 1",
        "TOUCH 1 2000 1 2",
        "TOUCH",
        "EXPIRETIME 1",
        "EXPIRETIME 2000",
        "PEXPIRETIME 1",
        "PEXPIRETIME 2000",
        "EXPIRETIME",
        "PEXPIRETIME 1 2",
        "COMMAND GETKEYS TOUCH a b",
        "COMMAND GETKEYS OBJECT ENCODING a",
    ])
}
