//! All commands, with valid arguments and with keys as all their arguments.

use std::collections::BTreeSet;

use zero_kv::protocol::resp::commands::{COMMANDS, Id, Spec};
use zero_kv::slots::slot_of;

use super::{Kind, Pair, RESTRICTED};
use crate::helpers::redis_server::command;

pub(super) fn all_specs() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// Returns commands whose arguments are valid, with `K` for a key, `P` for the prefix, and `S` for the slot of the key.
/// Commands that are not listed accept the key as each of their arguments.
#[rustfmt::skip]
fn examples(id: Id) -> &'static [&'static str] {
    match id {
        Id::Scan => &["SCAN 0", "SCAN 0 MATCH P* COUNT 100", "SCAN 0 MATCH K", "SCAN 0 TYPE string"],
        Id::Keys => &["KEYS *", "KEYS P*", "KEYS K"],
        Id::ZkvRange => &["ZKV.RANGE - +", "ZKV.RANGE PREFIX P", "ZKV.RANGE PREFIX P LIMIT 2", "ZKV.RANGE PREFIX P REV",
            "ZKV.RANGE PREFIX P LIMIT 1000 FROM K", "ZKV.RANGE PREFIX P REV LIMIT 3 FROM K", "ZKV.RANGE PREFIX P FROM +",
            "ZKV.RANGE PREFIX P REV FROM +", "ZKV.RANGE PREFIX P FROM (K", "ZKV.RANGE PREFIX K", "ZKV.RANGE K +",
            "ZKV.RANGE prefix P LIMIT 38", "ZKV.RANGE PREFIX P LIMIT 40", "ZKV.RANGE [K (K", "ZKV.RANGE PREFIX P1"],
        Id::ZkvCount => &["ZKV.COUNT - +", "ZKV.COUNT PREFIX P", "ZKV.COUNT PREFIX K", "ZKV.COUNT PREFIX P1",
            "ZKV.COUNT K +", "ZKV.COUNT [K [K"],
        Id::GetRange => &["GETRANGE K 0 -1", "GETRANGE K 0 3"],
        Id::GetBit => &["GETBIT K 7"],
        Id::MGet => &["MGET K", "MGET P1 P10 P19", "MGET P1 K"],
        Id::Exists => &["EXISTS K", "EXISTS P1 P10 P19 P1", "EXISTS P1 K"],
        Id::Touch => &["TOUCH P1 P10 P19", "TOUCH P1 K"],
        Id::Watch => &["WATCH P1 P10", "WATCH P1 K"],
        Id::MemoryUsage => &["MEMORY USAGE K", "MEMORY USAGE K SAMPLES 0", "MEMORY USAGE K SAMPLES 5"],
        Id::HScan => &["HSCAN K 0", "HSCAN K 0 COUNT 1", "HSCAN K 0 MATCH a COUNT 1", "HSCAN K 1", "HSCAN K 0 COUNT 2"],
        // Other arguments lead to random fields.
        Id::HRandField => &["HRANDFIELD K 100", "HRANDFIELD K 100 WITHVALUES"],
        Id::HGet => &["HGET K a", "HGET K none"],
        Id::HMGet => &["HMGET K a b none"],
        Id::HExists => &["HEXISTS K a"],
        Id::HStrLen => &["HSTRLEN K b"],
        Id::ClusterCountKeysInSlot => &["CLUSTER COUNTKEYSINSLOT S"],
        Id::ClusterGetKeysInSlot => &["CLUSTER GETKEYSINSLOT S 100", "CLUSTER GETKEYSINSLOT S 0"],
        Id::ClusterReplicas => &["CLUSTER REPLICAS a"],
        Id::CommandGetKeys => &["COMMAND GETKEYS GET K", "COMMAND GETKEYS MGET K P1"],
        Id::CommandList => &["COMMAND LIST", "COMMAND LIST FILTERBY PATTERN K*"],
        Id::CommandInfo => &["COMMAND INFO get K"],
        Id::CommandDocs => &["COMMAND DOCS scan K"],
        Id::Command => &["COMMAND"],
        Id::AclDryRun => &["ACL DRYRUN prefix GET K", "ACL DRYRUN none SCAN 0", "ACL DRYRUN admin DBSIZE",
            "ACL DRYRUN prefix ZKV.RANGE PREFIX K", "ACL DRYRUN prefix CLUSTER GETKEYSINSLOT S 1"],
        Id::AclGetUser => &["ACL GETUSER prefix"],
        Id::AclCat => &["ACL CAT", "ACL CAT read"],
        Id::ConfigGet => &["CONFIG GET *"],
        Id::Select => &["SELECT 0"],
        Id::Wait => &["WAIT 0 0"],
        Id::Ping => &["PING", "PING K"],
        Id::ClientKill => &["CLIENT KILL ADDR 192.0.2.1:1"],
        Id::ClientNoEvict => &["CLIENT NO-EVICT on"],
        Id::ClientNoTouch => &["CLIENT NO-TOUCH on"],
        Id::ClientSetInfo => &["CLIENT SETINFO LIB-NAME K"],
        Id::ClientSetName => &["CLIENT SETNAME n"],
        Id::SlowLogGet => &["SLOWLOG GET", "SLOWLOG GET 1"],
        Id::Monitor => &["MONITOR"],
        Id::ClientTracking => &["CLIENT TRACKING on", "CLIENT TRACKING on BCAST PREFIX K"],
        Id::ClientCaching => &["CLIENT CACHING yes"],
        _ => &[],
    }
}

/// Returns whether a command changes the state of its connection. It is sent on its own.
fn is_about_session(id: Id) -> bool {
    matches!(
        id,
        Id::Quit | Id::Reset | Id::Auth | Id::Hello | Id::Multi | Id::Exec | Id::Discard | Id::Watch | Id::Monitor
    )
}

/// Returns whether the reply has times, the numbers of connections, or the memory of connections.
pub(super) fn is_volatile(id: Id) -> bool {
    matches!(id, Id::Time | Id::Info | Id::ClientId | Id::ClientInfo | Id::ClientList)
}

/// Returns the lines of a command: its examples, and commands with each of the keys as all arguments.
pub(super) fn lines(kind: Kind, spec: &Spec) -> BTreeSet<String> {
    let least = spec.arity.unsigned_abs() as usize;
    let counts = if spec.arity < 0 { vec![least, least + 1, least + 2] } else { vec![least] };
    let names = spec.name.to_ascii_uppercase().replace('|', " ");
    let mut lines = BTreeSet::new();
    for key in kind.keys() {
        let slot = slot_of(key.as_bytes().into()).to_string();
        let filled = |word: &str| match word.chars().next() {
            Some('K') if word == "K" => key.to_owned(),
            Some('[' | '(') if word.ends_with('K') => word.replace('K', key),
            Some('P') if word.bytes().skip(1).all(|byte| byte.is_ascii_digit() || byte == b'*') => {
                word.replacen('P', kind.prefix(), 1)
            }
            Some('S') if word == "S" => slot.clone(),
            _ => word.to_owned(),
        };
        lines.extend(examples(spec.id).iter().map(|line| line.split(' ').map(filled).collect::<Vec<_>>().join(" ")));
        if matches!(spec.id, Id::HRandField | Id::Monitor) {
            continue;
        }
        for count in &counts {
            let keys = format!(" {key}").repeat(count.saturating_sub(names.split(' ').count()));
            lines.insert(format!("{names}{keys}"));
        }
    }
    lines
}

pub(super) fn encoded(line: &str) -> Vec<u8> {
    command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Returns the commands of a connection of a user.
fn conversation(user: &str, resp: u8, lines: &[String]) -> Vec<u8> {
    let begin = [format!("AUTH {user} any"), format!("HELLO {resp}")];
    let begin = if resp == 2 { &begin[..1] } else { &begin[..] };
    begin.iter().chain(lines).flat_map(|line| encoded(line)).collect()
}

/// Removes the number of the connection from a reply to HELLO.
pub(super) fn without_id(replies: &[u8]) -> String {
    let text = replies.escape_ascii().to_string();
    let mut parts = text.split("$2\\r\\nid\\r\\n:");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    rest.fold(first, |text, part| text + "ID" + part)
}

/// Asserts that both servers send the same replies to the lines. If not, names the first line whose replies differ.
#[track_caller]
fn assert_equal_replies(pair: &Pair, user: &str, resp: u8, lines: &[String]) {
    let [first, second] = [0, 1].map(|at| without_id(&pair.responses(at, &conversation(user, resp, lines))));
    if first == second {
        return;
    }
    for line in lines {
        let alone = conversation(user, resp, std::slice::from_ref(line));
        let [first, second] = [0, 1].map(|at| without_id(&pair.responses(at, &alone)));
        assert_eq!(first, second, "{:?}: {user}: RESP{resp}: {line}", pair.kind);
    }
    panic!("{:?}: {user}: RESP{resp}: only the replies to all lines together differ", pair.kind);
}

fn replies_do_not_depend_on_forbidden_rows(kind: Kind) {
    let pair = Pair::new(kind);
    let specs: Vec<&Spec> = all_specs().filter(|spec| !is_volatile(spec.id)).collect();
    let plain: Vec<String> =
        specs.iter().filter(|spec| !is_about_session(spec.id)).flat_map(|spec| lines(kind, spec)).collect();
    let queued: Vec<String> =
        plain.iter().flat_map(|line| ["MULTI".to_owned(), line.clone(), "EXEC".to_owned()]).collect();
    for user in RESTRICTED {
        assert_equal_replies(&pair, user, 2, &plain);
        assert_equal_replies(&pair, user, 3, &plain);
        assert_equal_replies(&pair, user, 2, &queued);
        for spec in specs.iter().filter(|spec| is_about_session(spec.id) && !matches!(spec.id, Id::Auth | Id::Hello)) {
            for line in lines(kind, spec) {
                // Commands after QUIT could reset the connection, and its replies would be lost.
                let after = if spec.id == Id::Quit { &[][..] } else { &["GET pub:1", "GET 1"] };
                let lines: Vec<String> =
                    [line].into_iter().chain(after.iter().map(|line| (*line).to_owned())).collect();
                assert_equal_replies(&pair, user, 2, &lines);
            }
        }
        for key in kind.keys() {
            let watched = ["WATCH", "MULTI", "GET", "EXISTS", "EXEC"].map(|name| match name {
                "MULTI" | "EXEC" => name.to_owned(),
                name => format!("{name} {key}"),
            });
            assert_equal_replies(&pair, user, 2, &watched);
            assert_equal_replies(
                &pair,
                user,
                3,
                &[format!("HELLO 3 AUTH {user} any SETNAME {key}"), format!("GET {key}")],
            );
        }
        for section in ["", " everything", " keyspace", " memory", " stats cpu", " server clients", " zero_kv"] {
            let [first, second] = [0, 1].map(|at| {
                let bytes = conversation(user, 2, &[format!("INFO{section}")]);
                stable_facts(&String::from_utf8(pair.responses(at, &bytes)).unwrap())
            });
            assert_eq!(first, second, "{kind:?}: {user}: INFO{section}");
        }
    }
    // The tables differ, and the commands find it: otherwise, this test would find no leak either.
    for line in ["DBSIZE", "SCAN 0 COUNT 10000", "MEMORY STATS", "INFO keyspace", "ZKV.COUNT - +", "KEYS *"] {
        let [first, second] = [0, 1].map(|at| pair.responses(at, &conversation("admin", 2, &[line.to_owned()])));
        assert_ne!(first, second, "{line}");
    }
}

/// Returns the facts of INFO, without those that differ from one moment or server to the next.
fn stable_facts(info: &str) -> String {
    const VOLATILE: [&str; 8] = [
        "process_id:",
        "tcp_port:",
        "uptime_in_",
        "connected_clients:",
        "redis_protocol_clients:",
        "total_",
        "rejected_connections:",
        "$",
    ];
    info.lines().filter(|line| !VOLATILE.iter().any(|name| line.starts_with(name))).collect::<Vec<_>>().join("\n")
}

#[test]
fn replies_about_byte_keys_do_not_depend_on_forbidden_rows() {
    replies_do_not_depend_on_forbidden_rows(Kind::Bytes);
}

#[test]
fn replies_about_numbers_do_not_depend_on_forbidden_rows() {
    replies_do_not_depend_on_forbidden_rows(Kind::Numbers);
}

#[test]
fn replies_about_typed_rows_do_not_depend_on_forbidden_rows() {
    replies_do_not_depend_on_forbidden_rows(Kind::Typed);
}

#[test]
fn replies_of_a_node_do_not_depend_on_forbidden_rows() {
    replies_do_not_depend_on_forbidden_rows(Kind::Cluster);
}

#[test]
fn the_arguments_of_the_tests_are_valid() {
    let pairs = [Kind::Bytes, Kind::Typed, Kind::Cluster].map(|kind| (kind, Pair::new(kind)));
    for spec in all_specs().filter(|spec| spec.subcommands.is_empty() && !is_about_session(spec.id)) {
        let is_answered = pairs.iter().any(|(kind, pair)| {
            lines(*kind, spec).into_iter().any(|line| {
                let replies = pair.responses(0, &conversation("admin", 2, &[line]));
                let reply = String::from_utf8_lossy(&replies[b"+OK\r\n".len()..]).into_owned();
                let complaints = ["syntax", "wrong number", "not an integer", "out of range", "not a valid", "Invalid"];
                !(reply.starts_with('-') && complaints.iter().any(|complaint| reply.contains(complaint)))
            })
        });
        assert!(is_answered, "{}: add valid arguments to the examples", spec.name);
    }
}
