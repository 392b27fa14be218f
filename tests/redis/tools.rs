//! Commands that dashboards, frameworks, and administrators send, compared with a real Redis.

use std::path::Path;

use zero_kv::protocol::resp::reply_len_bytes;

use super::served::*;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::{Redis, line_of};
use crate::helpers::trials::Missing;

/// Returns the replies to commands after HELLO 3, without the reply to HELLO, which names the server.
pub(crate) fn ask_in_version_3(socket: &Path, commands: &[&str]) -> Vec<u8> {
    let replies = ask(socket, &[&["HELLO 3"], commands].concat());
    let hello_len = reply_len_bytes(&replies).unwrap().expect("a reply to HELLO");
    replies[hello_len..].to_vec()
}

/// Compares the replies of two servers in both versions of the protocol, outside and inside a transaction. The commands
/// of a conversation are separated by `; `.
#[track_caller]
pub(crate) fn assert_same_everywhere(expected: &Path, ours: &Path, conversations: &[&str]) {
    for conversation in conversations {
        let plain: Vec<&str> = conversation.split("; ").collect();
        let transaction = [&["MULTI"], &plain[..], &["EXEC"]].concat();
        for commands in [plain, transaction] {
            for ask in [ask as fn(&Path, &[&str]) -> Vec<u8>, ask_in_version_3] {
                let [expected, found] = [expected, ours].map(|socket| ask(socket, &commands));
                assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{commands:?}");
            }
        }
    }
}

pub(crate) fn replies_without_events_modules_and_channels_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    assert_same_everywhere(
        redis.socket(),
        served.socket(),
        &[
            "SLOWLOG GET; SLOWLOG GET 5; SLOWLOG GET -1; SLOWLOG GET -2; SLOWLOG GET x; SLOWLOG GET 1 2",
            "SLOWLOG LEN; SLOWLOG RESET; SLOWLOG LEN 1; SLOWLOG; SLOWLOG NOPE",
            "LATENCY LATEST; LATENCY; LATENCY NOPE; LATENCY LATEST x",
            "LATENCY HISTOGRAM nothing",
            "MODULE LIST; MODULE LIST x; MODULE; MODULE NOPE",
            "MEMORY; MEMORY NOPE; MEMORY STATS x",
            "LASTSAVE x",
            "UNSUBSCRIBE; UNSUBSCRIBE a; PUNSUBSCRIBE; PUNSUBSCRIBE a*; SUNSUBSCRIBE; SUNSUBSCRIBE a",
            "UNSUBSCRIBE a b; PUNSUBSCRIBE a b; SUNSUBSCRIBE a b; GET 1",
        ],
    );
    Ok(())
}

pub(crate) fn replies_without_scripts_and_functions_are_equal() -> Result<(), Missing> {
    const DIGEST: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let [evalsha, evalsha_ro] = ["EVALSHA", "EVALSHA_RO"].map(|name| format!("{name} {DIGEST} 1 1"));
    let commands = [&evalsha, &evalsha_ro, "FCALL f 0", "FCALL_RO f 1 1", "GET 1"];
    for ask in [ask as fn(&Path, &[&str]) -> Vec<u8>, ask_in_version_3] {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| ask(socket, &commands));
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }
    Ok(())
}

/// Returns the names and the arities of all commands and subcommands that Redis flags as `write`.
fn writes(redis: &Redis) -> Vec<(String, i64)> {
    fn collect(reply: &Reply, writes: &mut Vec<(String, i64)>) {
        let [name, arity, flags, _, _, _, _, _, _, subcommands] = reply.list() else { panic!("{reply:?}") };
        if flags.list().iter().any(|flag| flag.text() == "write") {
            writes.push((name.text(), arity.integer()));
        }
        subcommands.list().iter().for_each(|subcommand| collect(subcommand, writes));
    }
    let mut writes = Vec::new();
    Reply::all(&ask(redis.socket(), &["COMMAND"]))[0].list().iter().for_each(|reply| collect(reply, &mut writes));
    writes
}

pub(crate) fn every_write_of_redis_is_rejected_as_by_a_replica() -> Result<(), Missing> {
    let redis = redis()?;
    let writes = writes(&redis);
    assert!(writes.len() > 100, "{writes:?}");
    redis.become_replica();
    let (_table, served) = serve(&[]);
    let mut conversations = vec!["XGROUP; XGROUP NOPE; xGroup Create a".to_owned()];
    for (name, arity) in writes {
        let words = name.replace('|', " ");
        let least = arity.unsigned_abs() as usize;
        // With one argument too few, the fewest arguments, one more, and 20 more.
        let arg_counts = [least - 1, least, least + 1, least + 20];
        let args = arg_counts.map(|count| count.saturating_sub(words.split(' ').count()));
        let commands = args.map(|count| format!("{words}{}", " 1".repeat(count)));
        conversations.push(commands.join("; "));
    }
    let conversations: Vec<&str> = conversations.iter().map(String::as_str).collect();
    assert_same_everywhere(redis.socket(), served.socket(), &conversations);
    Ok(())
}

pub(crate) fn unsupported_commands_are_rejected_with_the_reason() {
    let (_table, served) = serve(&[]);
    for (command, reason, remedy) in [
        ("PUBSUB CHANNELS", "nothing is ever published", "ZKV.GENERATION"),
        ("PUBLISH news text", "the table is read-only", "another server"),
        ("EVAL return 1 0", "no interpreter", "pipeline"),
        ("EVAL_RO return 1 0", "no interpreter", "MULTI"),
        ("SCRIPT LOAD x", "no interpreter", "pipeline"),
        ("FUNCTION LIST", "no interpreter", "pipeline"),
        ("CONFIG SET save x", "settings cannot be changed", "restart"),
        ("CONFIG RESETSTAT", "counters cannot be reset", "subtract"),
        ("CONFIG REWRITE", "no configuration file", "options"),
        ("CLIENT PAUSE 100", "the table is read-only", "no writes to stop"),
        ("CLIENT REPLY OFF", "the table is read-only", "discard"),
        ("CLIENT REPLY SKIP", "the table is read-only", "discard"),
        ("LCS 1 2", "not supported", "GET"),
        ("CLUSTER MEET a 1", "document", "change the document"),
    ] {
        let replies = Reply::all(&ask(served.socket(), &[command, "GET 1"]));
        let Reply::Error(text) = &replies[0] else { panic!("{command}: {replies:?}") };
        assert!(text.starts_with("ERR ") && text.contains(reason) && text.contains(remedy), "{command}: {text}");
        assert_eq!(replies[1], Reply::Bytes(b"value_content_at_key_1".to_vec()), "{command}");
    }
    for command in ["LRANGE 1 0 -1", "SMEMBERS none", "XINFO STREAM 1"] {
        let replies = Reply::all(&ask(served.socket(), &[command]));
        assert!(matches!(&replies[0], Reply::Error(text) if text.starts_with("WRONGTYPE a table has")), "{replies:?}");
    }
}

/// Parsers of INFO expect one word of letters and digits in a header, and a name without a colon in front of the first
/// colon of a field.
pub(crate) fn every_section_of_info_is_one_word_and_every_field_a_name_and_a_value() {
    let (_table, served) = serve(&[]);
    let ask = |command: &str| Reply::all(&ask(served.socket(), &[command])).remove(0).text();
    let text = ask("INFO everything");
    let mut sections = Vec::new();
    for line in text.strip_suffix("\r\n").unwrap().split("\r\n") {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match (line.strip_prefix("# "), line.split_once(':')) {
            _ if line.is_empty() => {}
            (Some(section), _) => {
                assert!(is_word(section), "{line}");
                sections.push(section.to_owned());
            }
            (None, Some((name, _))) => {
                assert!(!name.is_empty() && name.split(['_', '.', '|']).all(is_word), "{line}");
            }
            (None, None) => panic!("{line}"),
        }
    }
    assert_eq!(sections.last().map(String::as_str), Some("ZeroKV"));
    for section in ["zero_kv", "ZERO_KV", "zerokv"] {
        assert!(ask(&format!("INFO {section}")).starts_with("# ZeroKV\r\nversion:"), "{section}");
    }
    for section in &sections {
        assert!(ask(&format!("INFO {section}")).starts_with(&format!("# {section}\r\n")), "{section}");
    }
    let on_request = ["Commandstats", "Latencystats"];
    for command in ["INFO", "INFO default"] {
        let text = ask(command);
        assert!(on_request.iter().all(|section| !text.contains(&format!("# {section}\r\n"))), "{text}");
        assert!(text.contains("# Errorstats\r\n") && text.contains("# ZeroKV\r\n"), "{text}");
    }
}

/// The fields that exporters of metrics read.
pub(crate) fn info_counts_commands_errors_and_percentiles() {
    let (_table, served) = serve(&["--workers", "1"]);
    for _ in 0..200 {
        ask(served.socket(), &["GET 1", "GET 2", "NOPE"]);
    }
    served.client().get(1_u64).unwrap();
    let text = Reply::all(&ask(served.socket(), &["INFO all"])).remove(0).text();
    let field = |name: &str| -> std::collections::BTreeMap<String, f64> {
        let line = line_of(&text, name).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.split(',')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(k, v)| (k.to_owned(), v.parse().unwrap()))
            .collect()
    };
    // Each conversation ends with QUIT.
    let redis = field("cmdstat_redis");
    assert_eq!((redis["calls"], redis["failed_calls"]), (800.0, 200.0), "{text}");
    assert!(redis["usec"] > 0.0 && redis["usec_per_call"] > 0.0, "{text}");
    assert_eq!(field("cmdstat_native|get")["calls"], 1.0);
    assert_eq!(field("errorstat_ERR")["count"], 200.0);
    let percentiles = field("latency_percentiles_usec_batch");
    assert!(0.0 < percentiles["p50"] && percentiles["p50"] <= percentiles["p99.9"], "{text}");
}

pub(crate) fn replies_about_memory_and_the_served_file_are_true() {
    let (_table, served) = serve(&[]);
    let ask = |command: &str| Reply::all(&ask(served.socket(), &[command])).remove(0);
    let (stats, rows) = (ask("MEMORY STATS").fields(), ask("DBSIZE").integer());
    assert_eq!(stats["keys.count"].integer(), rows);
    let info = ask("INFO zero_kv").text();
    let file_len = line_of(&info, "file_len_bytes").unwrap().parse::<i64>().unwrap();
    assert_eq!(stats["dataset.bytes"].integer(), file_len);
    assert_eq!(stats["keys.bytes-per-key"].integer(), file_len / rows);
    assert!(stats["total.allocated"].integer() > 0);
    let file = line_of(&info, "file").unwrap();
    let modified = std::fs::metadata(file).unwrap().modified().unwrap();
    let modified_s = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(ask("LASTSAVE").integer(), modified_s as i64);
}
