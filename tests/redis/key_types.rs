//! Keys of every type and some composites: each command, compared with a naive model of the written forms.
//!
//! The model does not use the parser, the encodings, or the written forms of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::process::Command;

use zero_kv::KeyType;
use zero_kv::bake::{self, Column, Keys, Options, TypedColumns};
use zero_kv::client::ClientError;

use super::served::{ask, converse};
use crate::helpers::client_programs as programs;
use crate::helpers::key_types::KEY_TYPES;
use crate::helpers::random::{Random, seed};
use crate::helpers::redis_py::any_python;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::rows::{bake_text, quoted};
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::trials::Missing;

const ROWS: usize = 80;
const TRIALS: usize = 40;

/// What a part's type orders its values by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Number(i128),
    Bytes(Vec<u8>),
}

/// A value of a part.
#[derive(Clone, Debug)]
struct Part {
    order: Order,
    written: Vec<u8>,
    /// Another spelling, if the type has one.
    spelled: Vec<u8>,
}

/// A key: its parts, and their texts.
#[derive(Clone, Debug)]
struct Model {
    order: Vec<Order>,
    written: Vec<u8>,
    spelled: Vec<u8>,
    parts: Vec<Part>,
}

fn part(part_type: &str, random: &mut Random) -> Part {
    let small = random.below(40) as i64;
    let number = |order: i128, written: String, spelled: String| Part {
        order: Order::Number(order),
        written: written.into(),
        spelled: spelled.into(),
    };
    match part_type {
        "u64" => {
            let key = if small == 7 { u64::MAX } else { small as u64 };
            number(key.into(), key.to_string(), format!("00{key}"))
        }
        "i64" => {
            let key = [small - 20, i64::MIN, i64::MAX][(random.below(20)).saturating_sub(17)];
            let sign = if key < 0 { "-" } else { "" };
            number(key.into(), key.to_string(), format!("{sign}00{}", key.unsigned_abs()))
        }
        "ipv4" => {
            let address = Ipv4Addr::new(10, random.below(3) as u8, 0, small as u8);
            number(u32::from(address).into(), address.to_string(), address.to_string())
        }
        "ip" => {
            let address: IpAddr = match random.below(3) {
                0 => Ipv4Addr::new(10, 0, random.below(2) as u8, small as u8).into(),
                _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0xab, random.below(2) as u16, small as u16).into(),
            };
            let (octets, spelled) = match address {
                IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), format!("::FFFF:{address}")),
                IpAddr::V6(address) => {
                    let groups: Vec<String> = address.segments().iter().map(|group| format!("{group:04X}")).collect();
                    (address.octets(), groups.join(":"))
                }
            };
            let written = address.to_string().into_bytes();
            Part { order: Order::Bytes(octets.to_vec()), written, spelled: spelled.into() }
        }
        "uuid" => {
            let bytes: Vec<u8> = (0..16).map(|at| if at % 5 == 0 { random.below(4) as u8 } else { 0xab }).collect();
            let digits = hex(&bytes);
            let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
            let (written, spelled) = (groups.join("-").into_bytes(), digits.to_uppercase().into_bytes());
            Part { order: Order::Bytes(bytes), written, spelled }
        }
        "hex" => {
            let bytes: Vec<u8> = (0..1 + random.below(3)).map(|_| [0, 0x0a, 0xff][random.below(3)]).collect();
            let written = hex(&bytes);
            Part { order: Order::Bytes(bytes), spelled: written.to_uppercase().into(), written: written.into() }
        }
        "date" => {
            let (year, month, day) = (1965 + random.below(10) as i128, 1 + small as i128 % 12, 1 + random.below(28));
            let written = format!("{year}-{month:02}-{day:02}");
            number((year * 100 + month) * 100 + day as i128, written.clone(), written)
        }
        "timestamp" => {
            let (year, second, micros) = (1965 + random.below(10) as i128, small as i128, random.below(2) as i128);
            let order = (year * 100 + second) * 1_000_000 + micros * 500_000;
            let written = format!("{year}-02-03T04:05:{second:02}.{}00000Z", micros * 5);
            number(order, written, format!("{year}-02-03 04:05:{second:02}.{}", micros * 5))
        }
        "bytes" => {
            let bytes: Vec<u8> = (0..1 + random.below(4)).map(|_| b"ab,\\*[\0\xff"[random.below(8)]).collect();
            Part { order: Order::Bytes(bytes.clone()), written: bytes.clone(), spelled: bytes }
        }
        other => unreachable!("{other}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Joins the texts of the parts of a key. The texts of a composite are escaped.
fn join<'t>(texts: impl IntoIterator<Item = &'t [u8]>, is_composite: bool) -> Vec<u8> {
    let mut joined = Vec::new();
    for (i, text) in texts.into_iter().enumerate() {
        if i > 0 {
            joined.push(b',');
        }
        for byte in text {
            if is_composite && b",\\".contains(byte) {
                joined.push(b'\\');
            }
            joined.push(*byte);
        }
    }
    joined
}

fn model(key_type: &str, random: &mut Random) -> Model {
    let parts: Vec<Part> = key_type.split(',').map(|part_type| part(part_type, random)).collect();
    let is_composite = parts.len() > 1;
    Model {
        order: parts.iter().map(|part| part.order.clone()).collect(),
        written: join(parts.iter().map(|part| &part.written[..]), is_composite),
        spelled: join(parts.iter().map(|part| &part.spelled[..]), is_composite),
        parts,
    }
}

/// A table, its rows in key order, and its server.
struct Served {
    key_type: &'static str,
    rows: BTreeMap<Vec<Order>, (Model, Vec<u8>)>,
    random: Random,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Served {
    /// Serves a table with random keys. The rows of a typed table have one column, whose name is `v`.
    fn start(key_type: &'static str, is_typed: bool, seed: u64, options: &[&str]) -> Served {
        let mut random = Random(seed);
        let mut rows = BTreeMap::new();
        for number in 0..ROWS {
            let key = model(key_type, &mut random);
            rows.insert(key.order.clone(), (key, format!("value {number}").into_bytes()));
        }
        let mut text = if is_typed { b"k,v\n".to_vec() } else { Vec::new() };
        for (key, value) in rows.values() {
            text.extend([quoted(&key.written), quoted(value)].join(&b','));
            text.push(b'\n');
        }
        let folder = tempfile::tempdir().unwrap();
        let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
        let mut bake_options = Options::default();
        bake_options.keys = Keys::Type(key_type.parse().unwrap());
        bake_options.header = is_typed;
        bake_options.typed = is_typed.then(TypedColumns::default);
        bake_options.key = is_typed.then(|| Column::Name("k".to_owned()));
        bake::bake_csv(&text[..], &db, &bake_options).unwrap();
        let mut command = kv_store(&db, &socket);
        command.args(options);
        let server = Server::of(command, &socket);
        Served { key_type, rows, random, server, _folder: folder }
    }

    fn is_composite(&self) -> bool {
        self.key_type.contains(',')
    }

    fn is_number(&self) -> bool {
        ["u64", "i64", "ipv4", "date", "timestamp"].contains(&self.key_type)
    }

    /// Returns a key that the table may lack.
    fn key(&mut self) -> Model {
        match self.random.below(3) {
            0 => model(self.key_type, &mut self.random),
            _ => self.rows.values().nth(self.random.below(self.rows.len())).unwrap().0.clone(),
        }
    }

    /// Returns the text of a key in one of its spellings.
    fn spelling(&mut self, key: &Model) -> Vec<u8> {
        if self.random.below(2) == 0 { key.written.clone() } else { key.spelled.clone() }
    }

    fn value(&self, key: &Model) -> Option<&Vec<u8>> {
        self.rows.get(&key.order).map(|(_, value)| value)
    }

    /// Returns the rows with keys that a command requests as an array of keys and values.
    fn replied<'r>(rows: impl IntoIterator<Item = &'r (Model, Vec<u8>)>) -> Vec<Reply> {
        let row = |(key, value): &(Model, Vec<u8>)| [Reply::Bytes(key.written.clone()), Reply::Bytes(value.clone())];
        rows.into_iter().flat_map(row).collect()
    }

    /// Sends the commands of `asked` as a pipeline, then in a transaction, and compares the replies.
    #[track_caller]
    fn assert_replies(&self, asked: &[(Vec<Vec<u8>>, Reply)]) {
        let quit = command(&[b"QUIT"]);
        let bytes: Vec<u8> = asked.iter().flat_map(|(words, _)| command_of(words)).collect();
        let replies = Reply::all(&converse(self.server.connect(), &[&bytes[..], &quit].concat()));
        self.compare(asked, &replies);
        let transaction = [&command(&[b"MULTI"]), &bytes[..], &command(&[b"EXEC"]), &quit].concat();
        let replies = Reply::all(&converse(self.server.connect(), &transaction));
        self.compare(asked, replies[asked.len() + 1].list());
    }

    #[track_caller]
    fn compare(&self, asked: &[(Vec<Vec<u8>>, Reply)], replies: &[Reply]) {
        for ((words, expected), found) in asked.iter().zip(replies) {
            let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert_eq!(found, expected, "{}: {}", self.key_type, shown.join(" "));
        }
        assert!(replies.len() >= asked.len());
    }

    /// Returns all keys of a complete SCAN.
    fn scan(&self, pattern: &[u8], count: usize) -> Vec<Vec<u8>> {
        let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
        loop {
            let count = count.to_string();
            let scan = command(&[b"SCAN", &cursor, b"MATCH", pattern, b"COUNT", count.as_bytes()]);
            let replies = converse(self.server.connect(), &[scan, command(&[b"QUIT"])].concat());
            let replies = Reply::all(&replies);
            let [Reply::Bytes(next), Reply::List(found)] = replies[0].list() else { panic!("{replies:?}") };
            keys.extend(found.iter().map(|key| match key {
                Reply::Bytes(key) => key.clone(),
                other => panic!("{other:?}"),
            }));
            if next == b"0" {
                return keys;
            }
            cursor.clone_from(next);
        }
    }
}

fn command_of(words: &[Vec<u8>]) -> Vec<u8> {
    command(&words.iter().map(|word| &word[..]).collect::<Vec<_>>())
}

fn words<const N: usize>(words: [&[u8]; N]) -> Vec<Vec<u8>> {
    words.into_iter().map(<[u8]>::to_vec).collect()
}

fn bytes(value: Option<&Vec<u8>>) -> Reply {
    value.map_or(Reply::Null, |value| Reply::Bytes(value.clone()))
}

pub(crate) fn lookups_take_every_spelling_of_a_key() {
    let seed = seed("lookups of keys of every type");
    for key_type in KEY_TYPES {
        let mut served = Served::start(key_type, false, seed, &[]);
        let mut asked = Vec::new();
        for command in [&b"GET"[..], b"STRLEN", b"TYPE", b"TTL", b"OBJECT", b"MEMORY"] {
            for _ in 0..TRIALS {
                let key = served.key();
                let (text, value) = (served.spelling(&key), served.value(&key));
                let there = value.is_some();
                asked.push(match command {
                    b"GET" => (words([command, &text]), bytes(value)),
                    b"STRLEN" => (words([command, &text]), Reply::Integer(value.map_or(0, Vec::len) as i64)),
                    b"TYPE" => (words([command, &text]), Reply::Text(if there { "string" } else { "none" }.to_owned())),
                    b"TTL" => (words([command, &text]), Reply::Integer(if there { -1 } else { -2 })),
                    b"OBJECT" => {
                        let encoding = value.map(|_| b"embstr".to_vec());
                        (words([command, b"ENCODING", &text]), bytes(encoding.as_ref()))
                    }
                    // The length of the record is not a part of the model.
                    _ if there => continue,
                    _ => (words([command, b"USAGE", &text]), Reply::Null),
                });
            }
        }
        for _ in 0..TRIALS {
            let key = served.key();
            let part = served.value(&key).map_or_else(Vec::new, |value| value[2..5].to_vec());
            asked.push((words([b"GETRANGE", &served.spelling(&key), b"2", b"4"]), Reply::Bytes(part)));
            let keys: Vec<Model> = (0..served.random.below(20) + 1).map(|_| served.key()).collect();
            let texts: Vec<Vec<u8>> = keys.iter().map(|key| served.spelling(key)).collect();
            let values: Vec<Reply> = keys.iter().map(|key| bytes(served.value(key))).collect();
            let count = values.iter().filter(|value| **value != Reply::Null).count() as i64;
            asked.push(([vec![b"MGET".to_vec()], texts.clone()].concat(), Reply::List(values)));
            asked.push(([vec![b"EXISTS".to_vec()], texts].concat(), Reply::Integer(count)));
        }
        served.assert_replies(&asked);
        // Two runs of MGET, each longer than a run of keys.
        let keys: Vec<Model> = (0..700).map(|_| served.key()).collect();
        let texts = keys.iter().map(|key| served.spelling(key)).collect();
        let values = keys.iter().map(|key| bytes(served.value(key))).collect();
        served.assert_replies(&[([vec![b"MGET".to_vec()], texts].concat(), Reply::List(values))]);
    }
}

pub(crate) fn ordered_lookups_have_the_order_of_the_values() {
    let seed = seed("ordered lookups of keys of every type");
    for key_type in KEY_TYPES {
        let mut served = Served::start(key_type, false, seed, &[]);
        let mut asked = Vec::new();
        for _ in 0..TRIALS {
            let key = served.key();
            let text = served.spelling(&key);
            let floor = served.rows.range(..=key.order.clone()).next_back().map(|(_, row)| row);
            let ceiling = served.rows.range(key.order.clone()..).next().map(|(_, row)| row);
            for (name, row) in [(&b"ZKV.FLOOR"[..], floor), (b"ZKV.CEILING", ceiling)] {
                let expected = row.map_or(Reply::Null, |row| Reply::List(Served::replied([row])));
                asked.push((words([name, &text]), expected));
            }
        }
        for trial in 0..TRIALS {
            let [min, max, from] = [served.key(), served.key(), served.key()];
            let [least, greatest, begin] = [&min, &max, &from].map(|key| served.spelling(key));
            let (low, high) = (trial % 2 == 0, trial % 3 == 0);
            let edge = |is_included: bool, text: &[u8]| [if is_included { b"[" } else { b"(" }, text].concat();
            let (low_text, high_text, from_text) = (edge(low, &least), edge(high, &greatest), edge(false, &begin));
            let has = |order: &[Order]| {
                (order > &min.order[..] || low && order == min.order)
                    && (order < &max.order[..] || high && order == max.order)
            };
            let rows: Vec<_> = served.rows.iter().filter(|(order, _)| has(order)).map(|(_, row)| row).collect();
            asked.push((words([b"ZKV.COUNT", &low_text, &high_text]), Reply::Integer(rows.len() as i64)));
            let page = |rows: Vec<&(Model, Vec<u8>)>| {
                let shown = &rows[..rows.len().min(5)];
                let cursor = match shown.last() {
                    Some((last, _)) if rows.len() > 5 => Reply::Bytes([b"(", &last.written[..]].concat()),
                    _ => Reply::Null,
                };
                Reply::List(vec![cursor, Reply::List(Served::replied(shown.iter().copied()))])
            };
            let range = [&b"ZKV.RANGE"[..], &low_text, &high_text, b"LIMIT", b"5"];
            asked.push((words(range), page(rows.clone())));
            let mut backward = rows.clone();
            backward.reverse();
            asked.push(([words(range), words([b"REV"])].concat(), page(backward)));
            let after = rows.into_iter().filter(|(key, _)| key.order > from.order).collect();
            asked.push(([words(range), words([b"FROM", &from_text])].concat(), page(after)));
        }
        served.assert_replies(&asked);
    }
}

pub(crate) fn prefixes_are_leading_parts() {
    let seed = seed("prefixes of keys of every type");
    for key_type in KEY_TYPES {
        let mut served = Served::start(key_type, false, seed, &[]);
        if served.is_number() {
            let replies = ask(served.server.socket(), &["ZKV.COUNT PREFIX 1"]);
            let expected = format!("-ERR keys of the type {key_type} have no prefixes: pass min and max\r\n");
            assert!(replies.starts_with(expected.as_bytes()), "{}", replies.escape_ascii());
            continue;
        }
        let is_composite = served.is_composite();
        let last_is_bytes = key_type.ends_with("bytes") || key_type.ends_with("hex");
        let mut asked = Vec::new();
        for _ in 0..TRIALS {
            let key = served.key();
            let count = 1 + served.random.below(key.parts.len());
            let is_whole = count == key.parts.len();
            let is_spelled = served.random.below(2) == 0;
            let mut texts: Vec<Vec<u8>> = key.parts[..count]
                .iter()
                .map(|part| if is_spelled { part.spelled.clone() } else { part.written.clone() })
                .collect();
            let mut parts: Vec<Order> = key.order[..count].to_vec();
            // The beginning of the last part.
            if is_whole && last_is_bytes {
                let Some(Order::Bytes(last)) = parts.last_mut() else { unreachable!() };
                last.truncate(1 + served.random.below(last.len()));
                let len = if key_type.ends_with("hex") { 2 * last.len() } else { last.len() };
                texts[count - 1].truncate(len);
            }
            let has = |order: &[Order]| {
                let (leading, last) = (&parts[..count - 1], &parts[count - 1]);
                order[..count - 1] == *leading
                    && match (&order[count - 1], last) {
                        (Order::Bytes(bytes), Order::Bytes(start)) if is_whole => bytes.starts_with(start),
                        (part, last) => part == last,
                    }
            };
            let rows: Vec<_> = served.rows.iter().filter(|(order, _)| has(order)).map(|(_, row)| row).collect();
            let text = join(texts.iter().map(|text| &text[..]), is_composite);
            asked.push((words([b"ZKV.COUNT", b"PREFIX", &text]), Reply::Integer(rows.len() as i64)));
            let page = Reply::List(vec![Reply::Null, Reply::List(Served::replied(rows))]);
            asked.push((words([b"ZKV.RANGE", b"PREFIX", &text]), page));
        }
        asked.push((words([b"ZKV.COUNT", b"PREFIX", b""]), Reply::Integer(served.rows.len() as i64)));
        served.assert_replies(&asked);
    }
}

pub(crate) fn patterns_match_the_written_form() {
    let seed = seed("patterns for keys of every type");
    for key_type in KEY_TYPES {
        let mut served = Served::start(key_type, false, seed, &[]);
        let written: BTreeSet<Vec<u8>> = served.rows.values().map(|(key, _)| key.written.clone()).collect();
        let escaped = |text: &[u8]| -> Vec<u8> {
            text.iter()
                .flat_map(|byte| if b"*?[\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] })
                .collect()
        };
        for trial in 0..12 {
            let text = served.key().written;
            let at = served.random.below(text.len());
            let (start, end) = text.split_at(at);
            let has: &dyn Fn(&[u8]) -> bool = match trial % 3 {
                0 => &|key| key.starts_with(start),
                1 => &|key| key.ends_with(end),
                _ => &|key| key.len() == text.len() && key[..at] == *start && key[at + 1..] == end[1..],
            };
            let pattern = match trial % 3 {
                0 => [&escaped(start), &b"*"[..]].concat(),
                1 => [b"*", &escaped(end)[..]].concat(),
                _ => [&escaped(start), &b"?"[..], &escaped(&end[1..])].concat(),
            };
            let expected: Vec<Vec<u8>> = written.iter().filter(|key| has(key)).cloned().collect();
            let mut found = served.scan(&pattern, [1, 10, 30, 1000][trial % 4]);
            found.sort();
            assert_eq!(found, expected, "{key_type}: SCAN MATCH {}", pattern.escape_ascii());
            // The keys in the reply to KEYS are in key order.
            let in_order = served.rows.values().map(|(key, _)| &key.written).filter(|key| has(key));
            let keys = in_order.map(|key| Reply::Bytes(key.clone())).collect();
            served.assert_replies(&[(words([b"KEYS", &pattern]), Reply::List(keys))]);
        }
        let found: BTreeSet<Vec<u8>> = served.scan(b"*", 7).into_iter().collect();
        assert_eq!(found, written, "{key_type}");
        let random = Reply::all(&ask(served.server.socket(), &["RANDOMKEY"])).swap_remove(0);
        assert!(matches!(&random, Reply::Bytes(key) if written.contains(key)), "{key_type}: {random:?}");
    }
}

pub(crate) fn hashes_are_read_by_keys_of_every_type() {
    let seed = seed("hashes with keys of every type");
    for key_type in KEY_TYPES {
        let mut served = Served::start(key_type, true, seed, &[]);
        let mut asked = Vec::new();
        for name in [&b"HGET"[..], b"HGETALL", b"HMGET", b"HLEN", b"HEXISTS", b"TYPE"] {
            for _ in 0..TRIALS {
                let key = served.key();
                let (text, value) = (served.spelling(&key), bytes(served.value(&key)));
                let there = value != Reply::Null;
                asked.push(match name {
                    b"HGET" => (words([name, &text, b"v"]), value),
                    b"HGETALL" if there => {
                        (words([name, &text]), Reply::List(vec![Reply::Bytes(b"v".to_vec()), value]))
                    }
                    b"HGETALL" => (words([name, &text]), Reply::List(Vec::new())),
                    b"HMGET" => (words([name, &text, b"v", b"x"]), Reply::List(vec![value, Reply::Null])),
                    b"HLEN" => (words([name, &text]), Reply::Integer(there.into())),
                    b"HEXISTS" => (words([name, &text, b"v"]), Reply::Integer(there.into())),
                    _ => (words([name, &text]), Reply::Text(if there { "hash" } else { "none" }.to_owned())),
                });
            }
        }
        served.assert_replies(&asked);
    }
}

pub(crate) fn text_of_another_type_is_an_error_or_missing() {
    for (key_type, foreign, form) in [
        ("i64", "1.5", "a number from -9223372036854775808 to 9223372036854775807 in decimal digits"),
        ("ipv4", "10.0.0", "an IPv4 address, such as 192.0.2.1"),
        ("ip", "localhost", "an IP address, such as 192.0.2.1 or 2001:db8::1"),
        ("uuid", "7", "a UUID, such as 0190163d-8694-739b-aea5-966c26f8ad91"),
        ("hex", "abc", "an even number of hexadecimal digits, such as 0a1f"),
        ("date", "2026-02-30", "a date, such as 2026-11-21"),
        ("timestamp", "now", "a time with at most 6 decimal places, such as 2026-11-21T19:09:38Z"),
        ("bytes,ip", "a,b", "an IP address, such as 192.0.2.1 or 2001:db8::1"),
        ("bytes,bytes", "a", "has 1 part, where a key has 2: bytes,bytes"),
    ] {
        let served = Served::start(key_type, false, 7, &[]);
        let missing = Served::start(key_type, false, 7, &["--foreign-keys", "missing"]);
        let known = String::from_utf8_lossy(&served.rows.values().next().unwrap().0.written).into_owned();
        let commands = [
            format!("GET {foreign}"),
            format!("MGET {known} {foreign}"),
            format!("EXISTS {foreign} {known}"),
            format!("ZKV.FLOOR {foreign}"),
            format!("ZKV.COUNT - [{foreign}"),
        ];
        let texts: Vec<&str> = commands.iter().map(String::as_str).collect();
        let mut replies = Reply::all(&ask(served.server.socket(), &texts));
        assert_eq!(replies.pop(), Some(Reply::Text("OK".to_owned())));
        for (text, reply) in commands.iter().zip(&replies) {
            let Reply::Error(error) = reply else { panic!("{text}: {reply:?}") };
            assert!(error.starts_with(&format!("ERR '{foreign}' is not a key of this table: ")), "{text}: {error}");
            assert!(error.contains(form), "{text}: {error}");
            assert_eq!(error.ends_with("(see --foreign-keys)"), !text.starts_with("ZKV"), "{text}: {error}");
        }
        let replies = Reply::all(&ask(missing.server.socket(), &texts));
        let value = missing.rows.values().next().unwrap().1.clone();
        let expected = [Reply::Null, Reply::List(vec![Reply::Bytes(value), Reply::Null]), Reply::Integer(1)];
        assert_eq!(replies[..3], expected, "{key_type}");
        assert!(replies[3..5].iter().all(|reply| matches!(reply, Reply::Error(_))), "{replies:?}");
    }
}

pub(crate) fn users_reach_no_key_by_another_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    let rules = "user default off\nuser a on nopass ~10.* +@all\nuser b on nopass ~2001:db8:* +@all\n";
    std::fs::write(&file, rules).unwrap();
    let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
    bake_text(&db, Keys::Type("ip".parse().unwrap()), "10.0.0.1,ten\n11.0.0.1,eleven\n2001:db8::1,six\n");
    let mut command = kv_store(&db, &socket);
    command.args(["--tcp", "127.0.0.1:0", "--users"]).arg(&file);
    let server = Server::of(command, &socket);
    let replies = |lines: &[&str]| {
        let mut stream = TcpStream::connect(server.tcp()).unwrap();
        stream.write_all((lines.join("\r\n") + "\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies).unwrap();
        let replies = Reply::all(&replies);
        replies[1..replies.len() - 1]
            .iter()
            .map(|reply| match reply {
                Reply::Error(text) if text.starts_with("NOPERM") => "NOPERM".to_owned(),
                Reply::List(values) => values.iter().map(Reply::text).collect::<Vec<_>>().join(" "),
                other => other.text(),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        replies(&[
            "AUTH a x",
            "GET 10.0.0.1",
            "GET ::ffff:10.0.0.1",
            "GET ::FFFF:0a00:1",
            "GET 11.0.0.1",
            "GET ::ffff:11.0.0.1",
            "MGET 10.0.0.1 ::ffff:10.0.0.1",
            "MGET 10.0.0.1 2001:DB8::1",
            "SCAN 0",
        ]),
        ["ten", "ten", "ten", "NOPERM", "NOPERM", "ten ten", "NOPERM", "NOPERM"]
    );
    assert_eq!(
        replies(&["AUTH b x", "GET 2001:DB8::1", "GET 2001:0db8:0::1", "GET ::ffff:10.0.0.1", "GET 10.0.0.1"]),
        ["six", "six", "NOPERM", "NOPERM"]
    );
    // The native protocol has stored keys, which have no other spelling.
    let ip: KeyType = "ip".parse().unwrap();
    let mut client = server.client();
    client.authenticate("a", "x").unwrap();
    let mut get = |text: &str| client.get(ip.parse(text.as_bytes()).unwrap().as_key());
    assert_eq!(get("10.0.0.1").unwrap(), Some(b"ten".to_vec()));
    for text in ["11.0.0.1", "2001:db8::1"] {
        assert!(matches!(get(text), Err(ClientError::NotPermitted { .. })), "{text}");
    }
}

/// Serves texts by address, with which `key_types.py` and the Go client are checked.
fn serve_addresses() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
    bake_text(&db, Keys::Type("ip".parse().unwrap()), "10.0.0.1,ten\n192.0.2.1,documentation\n2001:db8::1,six\n");
    let mut command = kv_store(&db, &socket);
    command.args(["--tcp", "127.0.0.1:0"]);
    (folder, Server::of(command, &socket))
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

pub(crate) fn redis_py_reads_addresses() -> Result<(), Missing> {
    let python = any_python()?;
    let (_folder, server) = serve_addresses();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/key_types.py");
    for protocol in ["2", "3"] {
        succeeds(Command::new(&python).arg("-B").arg(script).arg(server.socket()).arg(protocol));
    }
    Ok(())
}

pub(crate) fn go_redis_reads_addresses() -> Result<(), Missing> {
    let program = programs::go()?;
    let (_folder, server) = serve_addresses();
    succeeds(Command::new(&program[0]).args(&program[1..]).arg("addresses").arg(server.tcp().port().to_string()));
    Ok(())
}
