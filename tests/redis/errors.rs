//! Malformed bytes, and arguments that are not keys.

use std::io::Write;

use zero_kv::client::Client;

use super::served::*;
use crate::helpers::frames::connect;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::line_of;
use crate::helpers::trials::Missing;

pub(crate) fn malformed_bytes_are_answered_as_by_redis() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    let quoted_get = b"GET \"7\"\r\nGET '7'\r\nECHO \"a\\x41\\n\\t\\\"b\\q\"\r\nECHO 'it\\'s'\r\nECHO \"\"\r\nQUIT\r\n";
    let too_long = [b'x'; 70_000];
    for bytes in [
        &b"*x\r\n"[..],
        b"*\r\n",
        b"*2147483648\r\n",
        b"*1 \r\n",
        b"*+1\r\n$4\r\nPING\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\nPING\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$536870913\r\n",
        b"*2\r\n$3\r\nGET\r\n$9223372036854775808\r\n",
        b"PING\r\n*x\r\nPING\r\n",
        b"GET \"7\r\n",
        b"GET \"7\"8\r\n",
        b"GET '7'8\r\n",
        &too_long,
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n",
        b"*2\r\n$5\r\nhOsT:\r\n$1\r\nx\r\nPING\r\n",
        b"ECHO POST\r\nECHO host:\r\nPOSTS x\r\nHost:x\r\nQUIT\r\n",
        // These bytes are valid.
        b"*0\r\n*-1\r\n\r\n\n   \r\nPING\r\nQUIT\r\n",
        b"PING\nget 7\nGET  7 \r\n\tGET\t7\r\nquit\n",
        quoted_get,
    ] {
        let [expected, found] = [redis.socket(), served.socket()].map(|socket| converse(connect(socket), bytes));
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(200)].escape_ascii().to_string();
        assert_eq!(shown(&found), shown(&expected), "to \"{}\"", shown(bytes));
    }
    Ok(())
}

pub(crate) fn a_key_that_is_not_a_number_is_an_error_on_a_table_of_numbers() {
    let (_table, served) = serve(&[]);
    for key in ["x", "-1", "1.0", "18446744073709551616", "key:000000000001", "0x10"] {
        for command in ["GET", "EXISTS", "STRLEN", "TYPE", "TTL", "MGET 1", "HGETALL", "OBJECT ENCODING", "TOUCH 1"] {
            let replies = Reply::all(&ask(served.socket(), &[&format!("{command} {key}"), "PING"]));
            let Reply::Error(text) = &replies[0] else { panic!("{command} {key}: {replies:?}") };
            assert!(text.ends_with("(see --foreign-keys)"), "{text}");
            assert_eq!(replies[1], Reply::Text("PONG".to_owned()), "{command} {key}");
        }
    }
}

pub(crate) fn a_key_that_is_not_a_number_can_count_as_missing() {
    let (_table, served) = serve(&["--foreign-keys", "missing"]);
    let long = "x".repeat(100_000);
    for key in ["x", "-1", "1.0", "18446744073709551616", "key:000000000001", "0x10", &long] {
        let replies = |commands: &[&str]| {
            let lines: Vec<String> = commands.iter().map(|command| command.replace('?', key)).collect();
            let bytes = ask(served.socket(), &lines.iter().map(String::as_str).collect::<Vec<_>>());
            String::from_utf8(bytes).unwrap().replace("\r\n", "|")
        };
        let value = "$22|value_content_at_key_7|";
        let with_values =
            replies(&["GET ?", "GET 7", "GET ?", "GET ?", "MGET ? 7 ? ? 7", "MGET 7 7 ?", "EXISTS 7 ? 7"]);
        let nil = "$-1|";
        assert_eq!(
            with_values,
            format!("{nil}{value}{nil}{nil}*5|{nil}{value}{nil}{nil}{value}*3|{value}{value}{nil}:2|+OK|"),
        );
        for (commands, expected) in [
            (&["STRLEN ?", "TYPE ?", "TTL ?", "TOUCH ? 7"][..], ":0|+none|:-2|:1|"),
            (&["GETRANGE ? 0 1", "GETBIT ? 1"], "$0||:0|"),
            (&["OBJECT ENCODING ?", "MEMORY USAGE ?", "HGETALL ?"], "$-1|$-1|*0|"),
            (&["MULTI", "GET ?", "MGET 7 ?", "EXEC"], &format!("+OK|+QUEUED|+QUEUED|*2|$-1|*2|{value}$-1|")),
        ] {
            assert_eq!(replies(commands), format!("{expected}+OK|"), "{commands:?}");
        }
        for command in ["ZKV.FLOOR ?", "ZKV.CEILING ?", "ZKV.COUNT [? +", "ZKV.RANGE [? +"] {
            assert!(replies(&[command]).contains("is not a key of this table"), "{command}");
        }
    }
    let mget = format!("MGET{}", " 7 x".repeat(100_000));
    let expected = ["*200000\r\n", &"$22\r\nvalue_content_at_key_7\r\n$-1\r\n".repeat(100_000), "+OK\r\n"].concat();
    assert!(ask(served.socket(), &[&mget]) == expected.as_bytes());
    let info = Reply::all(&ask(served.socket(), &["INFO stats"]))[0].text();
    assert_eq!(line_of(&info, "total_error_replies"), Some("28"));
}

pub(crate) fn leading_zeros_of_a_key_are_ignored() {
    let (_table, served) = serve(&[]);
    let replies = ask(served.socket(), &["GET 000000000007", "EXISTS 007 7", "GET 00000000000000000000000000007"]);
    let value = "$22\r\nvalue_content_at_key_7\r\n";
    assert_eq!(String::from_utf8(replies).unwrap(), format!("{value}:2\r\n{value}+OK\r\n"));
}

pub(crate) fn an_announced_length_allocates_nothing() {
    let (_table, served) = serve(&["--workers", "1"]);
    assert_eq!(Client::connect(served.socket()).unwrap().info().unwrap().number::<u64>("workers"), Some(1));
    let data_bytes = || served.status_bytes("VmData");
    ask(served.socket(), &["PING"]);
    let before = data_bytes();
    let mut waiting = Vec::new();
    for announced in [&b"*1\r\n$500000000\r\n"[..], b"*1000000\r\n", b"*1000000\r\n$500000000\r\nGET"] {
        for _ in 0..20 {
            let mut stream = served.connect();
            // A server with a lower limit may close the connection.
            let _ = stream.write_all(announced);
            waiting.push(stream);
        }
    }
    // The only worker reads the earlier bytes before these commands.
    (0..10).for_each(|_| assert_eq!(ask(served.socket(), &["PING"]), b"+PONG\r\n+OK\r\n"));
    let grown = data_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more after lengths were announced");
}
