//! Sends equal bytes to `kv_store` and to a real Redis, and compares the replies, wherever `kv_store` follows Redis.

use std::collections::BTreeSet;
use std::path::Path;

use super::served::*;
use crate::helpers::frames::connect;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::trials::Missing;

/// Sends the same bytes to both servers, and compares the replies.
#[track_caller]
fn assert_same(redis: &Path, ours: &Path, bytes: &[u8]) {
    let bytes = [bytes, &line("QUIT")].concat();
    let expected = converse(connect(redis), &bytes);
    let found = converse(connect(ours), &bytes);
    let shown = |bytes: &[u8]| bytes[..bytes.len().min(2000)].escape_ascii().to_string();
    assert!(
        found == expected,
        "to   \"{}\"\nours  \"{}\"\nRedis \"{}\"",
        shown(&bytes),
        shown(&found),
        shown(&expected)
    );
}

/// Compares the replies to conversations. Each has its own connection, and its commands are separated by `; `.
#[track_caller]
fn assert_all_same(conversations: &[&str]) -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for conversation in conversations {
        let bytes: Vec<u8> = conversation.split("; ").flat_map(line).collect();
        assert_same(redis.socket(), served.socket(), &bytes);
    }
    Ok(())
}

pub(crate) fn replies_with_values_are_equal() -> Result<(), Missing> {
    assert_all_same(&[
        "GET 0",
        "GET 999",
        "get 999; Get 5; gEt 18446744073709551615",
        "GET 1000; GET 1001; GET 1002; GET 1003; GET 1004",
        "GET 2000; GET 18446744073709551614",
        "MGET 1",
        "MGET 1 2000 1 1000 1004 18446744073709551615",
        "EXISTS 1; EXISTS 2000; EXISTS 1 2000 1 1 1000",
        "STRLEN 1; STRLEN 1000; STRLEN 1002; STRLEN 2000",
        "TYPE 1; TYPE 1000; TYPE 2000",
        "TTL 1; TTL 2000; PTTL 1; PTTL 2000",
        "DBSIZE",
        "OBJECT ENCODING 2000; OBJECT ENCODING 1002",
        "MEMORY USAGE 2000",
    ])?;
    Ok(())
}

pub(crate) fn replies_to_long_pipelines_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let gets: Vec<u8> = (0..20_000).flat_map(|key| line(&format!("GET {}", key % 1100))).collect();
    assert_same(redis.socket(), served.socket(), &gets);
    let mget = format!("MGET {}", (0..5_000).map(|key| key.to_string()).collect::<Vec<_>>().join(" "));
    assert_same(redis.socket(), served.socket(), &line(&mget).repeat(20));
    assert_same(redis.socket(), served.socket(), &line("GET 1002").repeat(100));
    Ok(())
}

pub(crate) fn replies_with_ranges_are_equal_for_indexes_of_every_sign() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let indexes = ["0", "1", "5", "21", "22", "100", "-1", "-2", "-21", "-22", "-100", "9223372036854775807"];
    let least = "-9223372036854775808";
    let mut commands = Vec::new();
    for key in ["7", "1000", "1003", "2000"] {
        for from in indexes.iter().chain([&least]) {
            for to in indexes.iter().chain([&least]) {
                commands.extend(line(&format!("GETRANGE {key} {from} {to}")));
            }
        }
    }
    for wrong in ["GETRANGE 7 a 1", "GETRANGE 7 0 b", "GETRANGE 7 0 9223372036854775808", "GETRANGE 7 1.5 2"] {
        commands.extend(line(wrong));
    }
    assert_same(redis.socket(), served.socket(), &commands);
    assert_same(redis.socket(), served.socket(), &command(&[b"GETRANGE", b"7", b" 1", b""]));
    Ok(())
}

pub(crate) fn replies_about_the_connection_are_equal() -> Result<(), Missing> {
    assert_all_same(&[
        "PING",
        "PING hello",
        "ECHO hello",
        "SELECT 0; GET 1",
        "SELECT 1; SELECT 16; SELECT -1; SELECT x",
        "AUTH secret",
        "AUTH nobody secret",
        "CLIENT GETNAME; CLIENT SETNAME me; CLIENT GETNAME; RESET; CLIENT GETNAME",
        "CLIENT SETNAME a\nb",
        "CLIENT NO-EVICT on; CLIENT NO-EVICT off; CLIENT NO-EVICT maybe",
        "RESET",
        "QUIT; GET 1",
        "CONFIG GET save",
        "CONFIG GET appendonly",
    ])?;
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let empty_words: [&[&[u8]]; 4] =
        [&[b"CLIENT", b"SETNAME", b""], &[b"ECHO", b""], &[b"PING", b""], &[b"CLIENT", b"SETNAME", b"a b"]];
    for words in empty_words {
        assert_same(redis.socket(), served.socket(), &command(words));
    }
    Ok(())
}

pub(crate) fn replies_in_version_3_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for conversation in [
        "GET 1; GET 2000; MGET 1 2000; EXISTS 1; TYPE 2000; STRLEN 1; TTL 2000",
        "GETRANGE 2000 0 1; GET 1002; DBSIZE; PING; ECHO x; CLIENT GETNAME",
        "CONFIG GET save",
        "OBJECT ENCODING 2000; MEMORY USAGE 2000",
        "RESET; GET 2000",
        "HELLO 2; GET 2000",
        "FOO; GET; SELECT 1",
        "MULTI; GET 2000; MGET 1 2000; EXEC; WATCH 1; MULTI; EXEC; EXEC",
    ] {
        // The reply to HELLO names the server. Another test compares it.
        let commands: Vec<&str> = ["HELLO 3"].into_iter().chain(conversation.split("; ")).collect();
        let mut replies = [redis.socket(), served.socket()].map(|socket| Reply::all(&ask(socket, &commands)));
        for replies in &mut replies {
            let hello = commands.iter().zip(&mut *replies).filter(|(command, _)| command.starts_with("HELLO"));
            hello.for_each(|(_, reply)| assert_ne!(std::mem::replace(reply, Reply::Null), Reply::Null));
        }
        assert_eq!(replies[1], replies[0], "{commands:?}");
        let tail = |socket: &Path| {
            let bytes = ask(socket, &["HELLO 3", "GET 2000", "MGET 2000 1", "KEYS 99?"]);
            bytes[bytes.windows(3).position(|three| three == b"_\r\n").unwrap()..].len()
        };
        assert_eq!(tail(served.socket()), tail(redis.socket()));
    }
    Ok(())
}

pub(crate) fn replies_in_transactions_are_equal() -> Result<(), Missing> {
    assert_all_same(&[
        "MULTI; EXEC; EXEC",
        "MULTI; GET 1; GET 2000; EXEC; GET 1",
        "EXEC; DISCARD; UNWATCH",
        "MULTI; MULTI; GET 1; EXEC",
        "MULTI; WATCH 1; GET 1; EXEC; GET 2",
        "MULTI; NOPE; GET 1; EXEC; GET 1",
        "MULTI; GET; GET 1; EXEC; MULTI; GET 1; EXEC",
        "MULTI; CONFIG NOPE; EXEC",
        "MULTI; GET 1; DISCARD; GET 1; EXEC; DISCARD",
        "WATCH; WATCH 1 2; UNWATCH; MULTI; GET 1; EXEC",
        "WATCH 1; MULTI; GET 1; EXEC; MULTI; GET 1; EXEC",
        "MULTI 1; EXEC 1; DISCARD 1; UNWATCH 1",
        "MULTI; UNWATCH; PING; ECHO hi; SELECT 0; SELECT 7; EXEC",
        "MULTI; GET 1; RESET; EXEC; GET 1",
        "MULTI; MGET 1 2000 3; EXISTS 1 2; GETRANGE 1002 0 5000; STRLEN 1002; GET 1002; EXEC",
        "MULTI; GET 1; QUIT",
        "multi; get 1; exec",
    ])?;
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let long = |count: usize| {
        let gets = (0..count).flat_map(|key| line(&format!("GET {}", key % 1100)));
        [line("MULTI"), gets.collect(), line("MGET 1 2 3"), line("EXEC"), line("GET 5")].concat()
    };
    for count in [100, 5_000, 100_000] {
        assert_same(redis.socket(), served.socket(), &long(count));
    }
    Ok(())
}

pub(crate) fn replies_to_hello_describe_the_connection_equally() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for commands in [
        &["HELLO"][..],
        &["HELLO 2"],
        &["HELLO 3"],
        &["HELLO 3", "HELLO"],
        &["HELLO 3", "HELLO 2"],
        &["HELLO 3 SETNAME me"],
    ] {
        let [redis, ours] = [redis.socket(), served.socket()].map(|socket| {
            let bytes = ask(socket, commands);
            let replies = Reply::all(&bytes);
            let fields = replies[commands.len() - 1].fields();
            let compared = ["proto", "mode", "role", "modules"].map(|name| fields[name].clone());
            (bytes[0], fields.keys().cloned().collect::<Vec<_>>(), compared)
        });
        assert_eq!(ours, redis, "{commands:?}");
    }
    assert_all_same(&["HELLO 1", "HELLO 4", "HELLO x", "HELLO 3 FOO", "HELLO 3 SETNAME", "HELLO 3 AUTH nobody x"])?;
    Ok(())
}

pub(crate) fn errors_for_wrong_numbers_of_arguments_have_equal_text() -> Result<(), Missing> {
    assert_all_same(&[
        "GET; GET 1 2; get; GeT",
        "MGET; EXISTS; STRLEN; STRLEN 1 2; TYPE; TYPE 1 2",
        "GETRANGE; GETRANGE 1; GETRANGE 1 2; GETRANGE 1 2 3 4",
        "TTL; TTL 1 2; PTTL; PTTL 1 2",
        "DBSIZE 1; RANDOMKEY 1; TIME 1",
        "ECHO; ECHO a b; PING a b",
        "SELECT; SELECT 0 1; AUTH; AUTH a b c",
        "SCAN; KEYS; KEYS a b",
        "CLIENT; CLIENT SETNAME; CLIENT SETNAME a b; CLIENT GETNAME a; CLIENT ID a; CLIENT INFO a; CLIENT NO-EVICT",
        "CONFIG; CONFIG GET",
        "OBJECT; OBJECT ENCODING; OBJECT ENCODING 1 2",
        "MEMORY; MEMORY USAGE",
        "COMMAND COUNT 1",
        "RESET 1",
    ])?;
    Ok(())
}

pub(crate) fn errors_for_unknown_commands_have_equal_text() -> Result<(), Missing> {
    assert_all_same(&[
        "FOO",
        "foo bar baz",
        "GETT 1",
        &format!("FOO {}", "x".repeat(300)),
        &format!("FOO {}", "some words ".repeat(30).trim_end()),
        &"F".repeat(300),
        "CLIENT FOO; CONFIG FOO; OBJECT FOO 1; MEMORY FOO; COMMAND FOO",
        "client foo",
        "FOO a\r\nb c\nd",
    ])?;
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let odd_words: [&[&[u8]]; 3] = [&[b""], &[b"\0", b"\xff\xfe"], &[b"FOO", b"", b" "]];
    for words in odd_words {
        assert_same(redis.socket(), served.socket(), &command(words));
    }
    Ok(())
}

pub(crate) fn errors_for_scan_options_have_equal_text() -> Result<(), Missing> {
    assert_all_same(&[
        "SCAN x; SCAN 18446744073709551616",
        "SCAN 0 COUNT 0; SCAN 0 COUNT -1; SCAN 0 COUNT x; SCAN 0 COUNT",
        "SCAN 0 MATCH; SCAN 0 FOO; SCAN 0 FOO bar",
    ])?;
    Ok(())
}

const PATTERNS: [&str; 14] =
    ["*", "", "1*", "?", "[12]*", "[^1]??", "*5", "\\1", "nothing", "1?3", "[1-3]0", "**9**", "[3-1]0", "1[0"];

fn keys_of(replies: &[Reply]) -> BTreeSet<String> {
    replies.iter().map(Reply::text).collect()
}

pub(crate) fn replies_to_keys_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for pattern in PATTERNS {
        let [redis, ours] = [redis.socket(), served.socket()].map(|socket| {
            let replies = Reply::all(&converse(
                connect(socket),
                &[command(&[b"KEYS", pattern.as_bytes()]), line("QUIT")].concat(),
            ));
            (replies[0].list().len(), keys_of(replies[0].list()))
        });
        assert_eq!(ours, redis, "{pattern:?}");
    }
    Ok(())
}

pub(crate) fn scan_returns_all_keys_once() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    for (pattern, count) in PATTERNS.into_iter().zip([10, 1, 3, 7, 100, 1000, 100_000].into_iter().cycle()) {
        let [(_, redis), (ours_found, ours)] = [redis.socket(), served.socket()].map(|socket| {
            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
            loop {
                let scan: [&[u8]; 6] = [
                    b"SCAN",
                    cursor.as_bytes(),
                    b"MATCH",
                    pattern.as_bytes(),
                    b"count",
                    &count.to_string().into_bytes(),
                ];
                let reply = &Reply::all(&converse(connect(socket), &[command(&scan), line("QUIT")].concat()))[0];
                let [next, keys] = reply.list() else { panic!("{reply:?}") };
                found.extend(keys.list().iter().cloned());
                cursor = next.text();
                if cursor == "0" {
                    break (found.len(), keys_of(&found));
                }
            }
        });
        assert_eq!(ours, redis, "{pattern:?}");
        // Redis may return a key twice. `kv_store` must not, because its table does not change.
        assert_eq!(ours_found, ours.len(), "{pattern:?}");
    }
    Ok(())
}

pub(crate) fn replies_to_command_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let [redis, ours] = [redis.socket(), served.socket()].map(|socket| {
        let replies = Reply::all(&ask(socket, &["COMMAND", "COMMAND COUNT"]));
        assert_eq!(replies[0].list().len() as i64, replies[1].integer());
        let described = |reply: &Reply| {
            let [name, arity, _flags, first, last, step, ..] = reply.list() else { panic!("{reply:?}") };
            (name.text(), [arity, first, last, step].map(Reply::integer))
        };
        replies[0].list().iter().map(described).collect::<std::collections::BTreeMap<_, _>>()
    });
    for (name, numbers) in ours.iter().filter(|(name, _)| !name.starts_with("zkv.")) {
        assert_eq!(redis.get(name), Some(numbers), "{name}");
    }
    for name in ["get", "mget", "exists", "scan", "getrange", "hello", "zkv.floor", "zkv.range"] {
        assert!(ours.contains_key(name), "{name}");
    }
    assert_all_same(&["COMMAND INFO nothing", "COMMAND DOCS nothing"])?;
    Ok(())
}
