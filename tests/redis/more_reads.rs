//! Sends the commands that read other types than strings, or that read strings in other ways than GET, to `kv_store`
//! and to a real Redis: in both versions of the protocol, inside and outside transactions.

use std::collections::BTreeSet;
use std::path::Path;

use zero_kv::protocol::resp::commands::COMMANDS;
use zero_kv::protocol::resp::reply_len_bytes;

use super::served::*;
use crate::helpers::frames::connect;
use crate::helpers::random::Random;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::{Redis, command, line_of};
use crate::helpers::scenes::Scene;
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

/// Commands for other types than strings. `K` stands for an existing key in some comparisons and for a missing key in
/// others, and `M` stands for a missing key.
#[rustfmt::skip]
const OTHER_TYPES: &[&str] = &[
    "GEODIST K a b", "GEODIST K a b km", "GEOHASH K", "GEOHASH K a b", "GEOPOS K", "GEOPOS K a b",
    "GEORADIUS_RO K 1 2 3 km", "GEORADIUSBYMEMBER_RO K m 3 km", "GEOSEARCH K FROMLONLAT 1 2 BYRADIUS 3 km",
    "GEOSEARCH K FROMMEMBER m BYRADIUS 3 km ASC", "HEXISTS K f", "HGET K f", "HGETALL K", "HKEYS K", "HLEN K",
    "HMGET K f g", "HRANDFIELD K", "HRANDFIELD K 2", "HRANDFIELD K 2 WITHVALUES", "HRANDFIELD K -2", "HSCAN K 0",
    "HSCAN K 5", "HSCAN K 0 MATCH x COUNT 3", "HSTRLEN K f", "HVALS K", "LINDEX K 0", "LLEN K", "LPOS K e",
    "LPOS K e COUNT 0", "LPOS K e RANK 1", "LPOS K e COUNT 2 MAXLEN 3", "LPOS K e MAXLEN 3 COUNT 1", "LRANGE K 0 -1",
    "PFCOUNT K", "PFCOUNT M K", "SCARD K", "SDIFF K", "SDIFF M K", "SINTER K", "SINTER M K", "SINTERCARD 1 K",
    "SINTERCARD 2 M K", "SINTERCARD 2 M K LIMIT 3", "SISMEMBER K a", "SMEMBERS K", "SMISMEMBER K a b", "SORT_RO K",
    "SORT_RO K BY nosort GET #", "SRANDMEMBER K", "SRANDMEMBER K 2", "SRANDMEMBER K -2", "SSCAN K 0", "SUNION K",
    "SUNION M K", "XINFO STREAM K", "XINFO STREAM K FULL", "XINFO GROUPS K", "XINFO CONSUMERS K g", "XLEN K",
    "XPENDING K g", "XPENDING K g - + 10", "XRANGE K - +", "XREVRANGE K + -", "XRANGE K - + COUNT 1", "ZCARD K",
    "ZCOUNT K 0 1", "ZDIFF 1 K", "ZDIFF 2 M K WITHSCORES", "ZINTER 1 K", "ZINTER 2 M K WITHSCORES",
    "ZINTERCARD 2 M K", "ZLEXCOUNT K - +", "ZMSCORE K a b", "ZRANDMEMBER K", "ZRANDMEMBER K 2",
    "ZRANDMEMBER K 2 WITHSCORES", "ZRANGE K 0 1", "ZRANGE K 0 1 WITHSCORES", "ZRANGEBYLEX K - +",
    "ZRANGEBYSCORE K 0 1", "ZRANGEBYSCORE K 0 1 WITHSCORES", "ZRANK K a", "ZREVRANGE K 0 1", "ZREVRANGEBYLEX K + -",
    "ZREVRANGEBYSCORE K 1 0", "ZREVRANK K a", "ZSCAN K 0", "ZSCORE K a", "ZUNION 1 K", "ZUNION 2 M K",
];

pub(crate) fn replies_to_commands_for_other_types_are_equal() -> Result<(), Missing> {
    let name = |text: &str| text.split(' ').next().unwrap().to_ascii_lowercase();
    let sent: BTreeSet<String> = OTHER_TYPES.iter().map(|text| name(text)).collect();
    let all = COMMANDS.iter().filter(|spec| spec.missing.is_some() || spec.name == "xinfo");
    assert_eq!(sent, all.map(|spec| spec.name.to_owned()).collect());
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for text in OTHER_TYPES {
        for key in ["7", "1000", "2000"] {
            let words: Vec<&str> = text
                .split(' ')
                .map(|word| match word {
                    "K" => key,
                    "M" => "2001",
                    word => word,
                })
                .collect();
            assert_equal_everywhere(redis.socket(), served.socket(), &line(&words.join(" ")));
        }
        assert_equal_everywhere(redis.socket(), served.socket(), &line(&name(text)));
        assert_equal_everywhere(redis.socket(), served.socket(), &line(&format!("{} 7", name(text))));
    }
    Ok(())
}

pub(crate) fn errors_for_numbers_of_keys_have_equal_text() -> Result<(), Missing> {
    let mut lines = Vec::new();
    for name in ["ZINTER", "ZUNION", "ZDIFF", "ZINTERCARD", "SINTERCARD"] {
        for count in ["0", "-1", "x", "2", "1.5", "99999999999999999999"] {
            lines.push(format!("{name} {count} 7"));
        }
        lines.push(format!("COMMAND GETKEYS {name} 2 a b"));
        lines.push(format!("COMMAND GETKEYS {name} 3 a b"));
    }
    assert_lines_equal_everywhere(&lines.iter().map(String::as_str).collect::<Vec<_>>())
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
    assert_eq!(cluster.subcommands.len(), 27);
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
    let indexes = ["0", "1", "7", "8", "21", "22", "175", "176", "5000", "-1", "-2", "-22", "-177", "-5000", "x"];
    let mut commands = Vec::new();
    for key in ["7", "1000", "1001", "1002", "1003", "2000"] {
        let ones =
            ["BITCOUNT", "BITPOS 0", "BITPOS 1", "BITPOS 2", "BITPOS x"].map(|text| match text.split_once(' ') {
                None => format!("{text} {key}"),
                Some((name, bit)) => format!("{name} {key} {bit}"),
            });
        for start in &ones {
            commands.extend(line(start));
            for from in indexes {
                commands.extend(line(&format!("{start} {from}")));
                for to in indexes {
                    for unit in ["", " BIT", " byte", " x", " BIT x"] {
                        commands.extend(line(&format!("{start} {from} {to}{unit}")));
                    }
                }
            }
        }
        for at in ["0", "1", "7", "8", "63", "800000", "4294967295", "4294967296", "-1", "x", "#1"] {
            commands.extend(line(&format!("GETBIT {key} {at}")));
            for kind in ["u1", "u8", "i8", "i5", "u63", "i64", "u64", "i65", "u0", "x", "i", "I8"] {
                commands.extend(line(&format!("BITFIELD_RO {key} GET {kind} {at}")));
                commands.extend(line(&format!("BITFIELD_RO {key} get {kind} #{at} GET u4 3")));
            }
        }
    }
    for text in [
        "BITFIELD_RO 7",
        "BITFIELD_RO 7 GET",
        "BITFIELD_RO 7 GET u8",
        "BITFIELD_RO 7 FOO u8 0",
        "BITFIELD_RO 7 SET u8 0 1",
        "BITFIELD_RO 7 SET u8 0 x",
        "BITFIELD_RO 7 SET u8 0",
        "BITFIELD_RO 7 INCRBY u8 0 1",
        "BITFIELD_RO 7 OVERFLOW sat",
        "BITFIELD_RO 7 OVERFLOW",
        "BITFIELD_RO 7 OVERFLOW x",
        "BITFIELD_RO 7 OVERFLOW WRAP GET u8 0",
        "BITFIELD_RO 7 GET u63 #9223372036854775807",
        "BITCOUNT",
        "BITPOS 7",
        "GETBIT 7",
        "BITFIELD_RO",
    ] {
        commands.extend(line(text));
    }
    assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    Ok(())
}

pub(crate) fn replies_with_other_properties_of_strings_are_equal() -> Result<(), Missing> {
    assert_lines_equal_everywhere(&[
        "SUBSTR 7 0 4",
        "SUBSTR 7 -3 -1",
        "SUBSTR 2000 0 1",
        "SUBSTR 7 x 1",
        "SUBSTR 7 0",
        "TOUCH 1",
        "TOUCH 1 2000 1 2",
        "TOUCH",
        "EXPIRETIME 1",
        "EXPIRETIME 2000",
        "PEXPIRETIME 1",
        "PEXPIRETIME 2000",
        "EXPIRETIME",
        "PEXPIRETIME 1 2",
        "OBJECT IDLETIME 2000",
        "OBJECT FREQ 1",
        "OBJECT FREQ 2000",
        "OBJECT REFCOUNT 1",
        "OBJECT REFCOUNT 1003",
        "OBJECT REFCOUNT 2000",
        "OBJECT FREQ",
        "OBJECT IDLETIME 1 2",
        "GETEX 1",
        "GETEX 1002",
        "GETEX 2000",
        "GETEX",
        "DUMP 2000",
        "DUMP",
        "DUMP 1 2",
        "COMMAND GETKEYS TOUCH a b",
        "COMMAND GETKEYS LCS a b LEN",
        "COMMAND GETKEYS OBJECT FREQ a",
    ])?;
    let (_table, served) = serve(&[]);
    assert_eq!(ask(served.socket(), &["OBJECT IDLETIME 1"]), b":0\r\n+OK\r\n");
    for option in ["EX 10", "PERSIST", "FOO"] {
        let replies = Reply::all(&ask(served.socket(), &[&format!("GETEX 1 {option}")]));
        assert!(matches!(&replies[0], Reply::Error(text) if text.starts_with("READONLY ")), "{replies:?}");
    }
    Ok(())
}

/// Compares with a Redis that does not compress values, and restores the dumps of `kv_store` in Redis.
pub(crate) fn redis_restores_dumps() -> Result<(), Missing> {
    let redis = Redis::start()?;
    let lens = [0, 1, 10, 11, 12, 63, 64, 65, 16_383, 16_384, 100_000, 3_000_000];
    let numbers = [-128, -129, 127, 128, -32_768, -32_769, 32_767, 32_768, i64::from(i32::MIN), i64::from(i32::MAX)];
    let numbers = numbers.into_iter().flat_map(|number| [number - 1, number, number + 1]).chain([0, 7, -1, i64::MAX]);
    let texts = ["007", "-0", "+1", "1 ", "12345678901"].map(str::to_owned);
    let values: Vec<String> =
        lens.map(|len| "z".repeat(len)).into_iter().chain(numbers.map(|n| n.to_string())).chain(texts).collect();
    let csv: String = values.iter().enumerate().map(|(key, value)| format!("{key},{value}\n")).collect();
    let scene = Scene::baked(zero_kv::bake::Keys::U64, csv);
    let served = scene.serve(&[]);
    let keys: Vec<String> = (0..values.len()).map(|key| key.to_string()).collect();
    redis.fill(keys.iter().zip(&values).map(|(key, value)| (key.as_bytes(), value.as_bytes())));
    assert_eq!(ask(redis.socket(), &["CONFIG SET rdbcompression no"]), b"+OK\r\n+OK\r\n");
    for (key, value) in keys.iter().zip(&values) {
        assert_equal_everywhere(redis.socket(), served.socket(), &line(&format!("DUMP {key}")));
        let dump = Reply::all(&ask(served.socket(), &[&format!("DUMP {key}")]));
        let Reply::Bytes(dump) = &dump[0] else { panic!("{dump:?}") };
        let restore = command(&[b"RESTORE", b"copy", b"0", dump, b"REPLACE"]);
        let replies = converse(redis.connect(), &[restore, line("GET copy"), line("QUIT")].concat());
        let expected = format!("+OK\r\n${}\r\n{value}\r\n+OK\r\n", value.len());
        assert_eq!(String::from_utf8(replies).unwrap(), expected);
    }
    Ok(())
}

pub(crate) fn common_subsequences_are_those_of_redis() -> Result<(), Missing> {
    let mut random = Random(0x1C5);
    let redis = Redis::start()?;
    let mut text = |len_max: usize| -> String {
        let len = random.below(len_max);
        (0..len).map(|_| ['a', 'b', 'c'][random.below(3)]).collect()
    };
    let values: Vec<String> = (0..40).map(|at| text(if at < 20 { 12 } else { 200 })).collect();
    let csv: String = values.iter().enumerate().map(|(key, value)| format!("{key},{value}\n")).collect();
    let scene = Scene::baked(zero_kv::bake::Keys::U64, csv);
    let served = scene.serve(&[]);
    let keys: Vec<String> = (0..values.len()).map(|key| key.to_string()).collect();
    redis.fill(keys.iter().zip(&values).map(|(key, value)| (key.as_bytes(), value.as_bytes())));
    let mut commands = Vec::new();
    for pair in 0..200 {
        let (a, b) = (pair % 40, pair * 7 % 41);
        for options in
            ["", " LEN", " IDX", " IDX WITHMATCHLEN", " IDX MINMATCHLEN 3", " IDX MINMATCHLEN 2 WITHMATCHLEN"]
        {
            commands.extend(line(&format!("LCS {a} {b}{options}")));
        }
    }
    for text in [
        "LCS 1",
        "LCS 1 2 FOO",
        "LCS 1 2 LEN IDX",
        "LCS 1 2 MINMATCHLEN",
        "LCS 1 2 IDX MINMATCHLEN x",
        "LCS 100 101",
        "LCS 1 2 IDX MINMATCHLEN -5",
        "lcs 1 2 len",
    ] {
        commands.extend(line(text));
    }
    assert_equal_everywhere(redis.socket(), served.socket(), &commands);
    Ok(())
}
