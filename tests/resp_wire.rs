//! What docs/PROTOCOL.md promises of the Redis protocol, held against kv_store
//! by raw sockets.

#![cfg(feature = "cli")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use common::{PATIENCE, Server, Table, answers_to_gets, eventually, expect, expect_end, gets, kv_store, random};
use tempfile::TempDir;
use zero_kv::bake::{Keys, Options, bake_csv};
use zero_kv::protocol::resp::reply_len_bytes;

/// What is replied where the file is damaged.
const DAMAGED: &str = "-ERR the result depends on damaged bytes of the file";

/// Rows by the text of their keys.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table that is being served.
struct Served {
    rows: Rows,
    server: Server,
    folder: TempDir,
}

impl Served {
    fn new(keys: Keys, rows: Rows) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let mut csv = Vec::new();
        for (key, value) in &rows {
            csv.extend([key, &b","[..], value, b"\n"].concat());
        }
        let mut options = Options::default();
        options.replace = zero_kv::replace::ReplaceRules::any();
        options.keys = keys;
        let db = folder.path().join("storage.db");
        bake_csv(&csv[..], &db, &options, &mut |_| ()).unwrap();
        let server = Server::start(&db, &folder.path().join("s.sock"));
        Served { rows, server, folder }
    }

    /// Numbers in decimal, each with a value that names it.
    fn numbers(count: usize) -> Served {
        let row = |key: usize| (key.to_string().into_bytes(), format!("value of {key}").into_bytes());
        Served::new(Keys::U64, (0..count).map(row).collect())
    }

    /// Names of several kinds, with values of every length around the limits of the answer path.
    fn names() -> Served {
        let lengths = [0, 1, 9, 10, 44, 63, 64, 65, 99, 100, 999, 1000, 4095, 4096, 4097, 70_000];
        let mut rows = Rows::new();
        for number in 0..500_usize {
            let kind = ["user", "item", "page"][number % 3];
            let value = vec![b'a' + (number % 26) as u8; lengths[number % lengths.len()]];
            rows.insert(format!("{kind}:{number:04}").into_bytes(), value);
        }
        Served::new(Keys::Bytes, rows)
    }

    fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    fn connect(&self) -> UnixStream {
        self.server.connect()
    }

    /// What GET replies.
    fn get(&self, key: &[u8]) -> Vec<u8> {
        self.rows.get(key).map_or_else(|| b"$-1\r\n".to_vec(), |value| bulk(value))
    }
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn array<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.into_iter().map(bulk).collect();
    [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
}

/// A command, from words.
fn command(words: &str) -> Vec<u8> {
    array(words.split(' ').map(str::as_bytes))
}

/// Sends a command and reads its one reply.
fn ask(stream: &mut (impl Read + Write), words: &str) -> String {
    stream.write_all(&command(words)).unwrap();
    String::from_utf8(reply(stream)).unwrap()
}

/// One whole reply, and nothing behind it.
fn reply(stream: &mut impl Read) -> Vec<u8> {
    let (mut reply, mut replies_left) = (Vec::new(), 1);
    while replies_left > 0 {
        let line_at = reply.len();
        while !reply[line_at..].ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            reply.extend(byte);
        }
        let line = std::str::from_utf8(&reply[line_at..]).unwrap();
        let number: usize = line[1..].trim_end().parse().unwrap_or_default();
        replies_left -= 1;
        match line.as_bytes()[0] {
            b'$' | b'=' if !line[1..].starts_with('-') => {
                let value_at = reply.len();
                reply.resize(value_at + number + 2, 0);
                stream.read_exact(&mut reply[value_at..]).unwrap();
            }
            b'%' => replies_left += 2 * number,
            b'*' | b'~' => replies_left += number,
            _ => {}
        }
    }
    assert_eq!(reply_len_bytes(&reply), Ok(Some(reply.len())));
    reply
}

/// The bulk strings of a reply, flat.
fn strings(reply: &str) -> Vec<String> {
    let (mut strings, mut lines) = (Vec::new(), reply.split("\r\n"));
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            strings.push(lines.next().unwrap().to_owned());
        }
    }
    strings
}

#[test]
fn commands_split_at_any_byte_are_answered() {
    let served = Served::names();
    let mut stream = served.connect();
    let commands = [
        command("GET user:0000"),
        b"  get\titem:0001 \r\n".to_vec(),
        command("MGET user:0000 missing page:0002"),
        b"\r\n*0\r\n*-1\r\n".to_vec(),
        command("PING"),
        command("NOPE a"),
        b"GET 'user:0003'\n".to_vec(),
    ]
    .concat();
    let replies = [
        served.get(b"user:0000"),
        served.get(b"item:0001"),
        b"*3\r\n".to_vec(),
        served.get(b"user:0000"),
        served.get(b"missing"),
        served.get(b"page:0002"),
        b"+PONG\r\n-ERR unknown command 'NOPE', with args beginning with: 'a' \r\n".to_vec(),
        served.get(b"user:0003"),
    ]
    .concat();
    for split in 0..commands.len() {
        stream.write_all(&commands[..split]).unwrap();
        // The server has read the first part for sure once another connection was answered.
        assert_eq!(ask(&mut served.connect(), "PING"), "+PONG\r\n");
        stream.write_all(&commands[split..]).unwrap();
        expect(&mut stream, &replies);
    }
    for byte in &commands {
        stream.write_all(&[*byte]).unwrap();
    }
    expect(&mut stream, &replies);
}

#[test]
fn both_protocols_are_spoken_on_one_socket() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let (mut native, mut redis) = (server.connect(), server.connect());
    for round in 0..20_u64 {
        native.write_all(&gets([round, 1001])).unwrap();
        redis.write_all(&command(&format!("GET {}", round + 1))).unwrap();
        expect(&mut redis, &bulk(&table.model[&(round + 1)]));
        expect(&mut native, &answers_to_gets(&table.model, [round, 1001]));
    }
}

#[test]
fn pipelines_of_gets_of_any_size_are_answered_in_order() {
    for served in [Served::numbers(3000), Served::names()] {
        let mut keys: Vec<Vec<u8>> = served.rows.keys().cloned().collect();
        keys.extend([b"4000".to_vec(), b"18446744073709551615".to_vec()]);
        let mut stream = served.connect();
        let mut random = random(11);
        for count in [1, 2, 15, 16, 17, 255, 256, 257, 512, 513, 3000] {
            let asked: Vec<&Vec<u8>> = (0..count).map(|_| &keys[random() as usize % keys.len()]).collect();
            let commands: Vec<u8> = asked.iter().flat_map(|key| array([&b"GET"[..], key])).collect();
            let replies: Vec<u8> = asked.iter().flat_map(|key| served.get(key)).collect();
            let mut writer = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || writer.write_all(&commands).unwrap());
                expect(&mut stream, &replies);
            });
        }
    }
}

#[test]
fn a_pipeline_goes_on_behind_an_error() {
    let served = Served::numbers(10);
    let mut stream = served.connect();
    let commands = ["GET 1", "GET one", "GET 1 2", "NOPE", "MGET 1 x", "EXISTS 1 x", "SET 1 2", "GET 0002"];
    stream.write_all(&commands.map(command).concat()).unwrap();
    expect(&mut stream, b"$10\r\nvalue of 1\r\n");
    for expected in ["'one' is no key of this table: its keys are unsigned 64-bit numbers", "wrong number of arguments"]
    {
        assert!(String::from_utf8(reply(&mut stream)).unwrap().contains(expected));
    }
    expect(&mut stream, b"-ERR unknown command 'NOPE', with args beginning with: \r\n");
    for _ in ["MGET", "EXISTS"] {
        assert!(reply(&mut stream).starts_with(b"-ERR 'x' is no key of this table"));
    }
    expect(&mut stream, b"-READONLY You can't write against a read only replica.\r\n$10\r\nvalue of 2\r\n");
}

#[test]
fn nothing_behind_the_end_is_answered_and_all_before_it_is() {
    let served = Served::names();
    let before: Vec<u8> = (0..300).flat_map(|_| command("GET user:0015")).collect();
    let replies = served.get(b"user:0015").repeat(300);
    for (end, last) in [
        (command("QUIT"), "+OK\r\n"),
        (b"*x\r\n".to_vec(), "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\nPING\r\n".to_vec(), "-ERR Protocol error: expected '$', got 'P'\r\n"),
        (b"get \"user\r\n".to_vec(), "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$1048577\r\n".to_vec(), "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1048577\r\n".to_vec(), "-ERR Protocol error: invalid multibulk length\r\n"),
    ] {
        let mut stream = served.connect();
        let mut writer = stream.try_clone().unwrap();
        let sent = [&before[..], &end, &command("PING")].concat();
        std::thread::scope(|scope| {
            // The connection may end before all is sent.
            scope.spawn(move || writer.write_all(&sent));
            expect_end(&mut stream, &[&replies[..], last.as_bytes()].concat());
        });
    }
}

#[test]
fn a_command_that_is_cut_short_by_the_end_is_not_answered() {
    let served = Served::names();
    let cut = command("MGET user:0000 user:0003");
    for len_bytes in [1, 4, 10, cut.len() - 1] {
        let mut stream = served.connect();
        stream.write_all(&[&command("GET user:0003"), &cut[..len_bytes]].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        expect_end(&mut stream, &served.get(b"user:0003"));
    }
}

#[test]
fn mget_of_100_000_keys_is_answered_whole() {
    let served = Served::numbers(1000);
    let keys: Vec<String> = (0..100_000).map(|number| (number * 7 % 1100).to_string()).collect();
    let mut stream = served.connect();
    let mut writer = stream.try_clone().unwrap();
    let commands =
        [array(std::iter::once("MGET").chain(keys.iter().map(String::as_str)).map(str::as_bytes)), command("PING")];
    let values: Vec<u8> = keys.iter().flat_map(|key| served.get(key.as_bytes())).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&commands.concat()).unwrap());
        expect(&mut stream, &[&b"*100000\r\n"[..], &values, b"+PONG\r\n"].concat());
    });
    let exists = [&["EXISTS"], &keys.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
    stream.write_all(&array(exists.into_iter().map(str::as_bytes))).unwrap();
    let there = keys.iter().filter(|key| served.rows.contains_key(key.as_bytes())).count();
    expect(&mut stream, format!(":{there}\r\n").as_bytes());
}

#[test]
fn clients_that_do_not_read_cost_little_and_others_are_answered() {
    let served = Served::numbers(200_000);
    let mut other = served.connect();
    assert_eq!(ask(&mut other, "PING"), "+PONG\r\n");
    let before = served.server.anonymous_bytes();
    let all = array(std::iter::once(&b"MGET"[..]).chain(served.rows.keys().take(20_000).map(Vec::as_slice)));
    let mut deaf: Vec<UnixStream> = (0..40).map(|_| served.connect()).collect();
    for stream in &mut deaf {
        // Replies of 3.3 MB and 0.5 MB.
        stream.write_all(&[command("KEYS *"), command("KEYS *1*")].concat()).unwrap();
        stream.write_all(&all[..10_000]).unwrap();
    }
    for round in 0..1000 {
        assert_eq!(
            ask(&mut other, &format!("GET {round}")),
            format!("${}\r\nvalue of {round}\r\n", 9 + round.to_string().len())
        );
    }
    let grown = served.server.anonymous_bytes().saturating_sub(before);
    assert!(grown < 40 * (160 << 10) + (4 << 20), "{grown} bytes more");
    // What waited comes whole once it is read.
    let mut sorted: Vec<&Vec<u8>> = served.rows.keys().collect();
    sorted.sort_by_key(|key| (key.len(), *key));
    expect(&mut deaf[0], &array(sorted.iter().map(|key| key.as_slice())));
    let with_1: Vec<&[u8]> = sorted.iter().map(|key| key.as_slice()).filter(|key| key.contains(&b'1')).collect();
    expect(&mut deaf[0], &array(with_1));
    deaf[0].write_all(&all[10_000..]).unwrap();
    let values: Vec<u8> = served.rows.iter().take(20_000).flat_map(|(_, value)| bulk(value)).collect();
    expect(&mut deaf[0], &[&b"*20000\r\n"[..], &values].concat());
}

#[test]
fn announced_lengths_take_no_memory() {
    let served = Served::numbers(10);
    let mut other = served.connect();
    assert_eq!(ask(&mut other, "PING"), "+PONG\r\n");
    let before = served.server.anonymous_bytes();
    let mut connections = Vec::new();
    for announced in ["*600000\r\n", "*2\r\n$3\r\nGET\r\n$1048576\r\n", "*3\r\n$1048576\r\n", "$1048576\r\nGE"] {
        for _ in 0..100 {
            let mut stream = served.connect();
            stream.write_all(announced.as_bytes()).unwrap();
            connections.push(stream);
        }
    }
    for _ in 0..100 {
        assert_eq!(ask(&mut other, "PING"), "+PONG\r\n");
    }
    let grown = served.server.anonymous_bytes().saturating_sub(before);
    assert!(grown < 400 * (4 << 10) + (1 << 20), "{grown} bytes more");
}

/// All keys that a whole SCAN tells, and how many calls it took.
fn scan(stream: &mut UnixStream, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut keys, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let mut found = strings(&ask(stream, &format!("SCAN {cursor}{options}")));
        cursor = found.remove(0);
        keys.append(&mut found);
        calls += 1;
        if cursor == "0" {
            return (keys, calls);
        }
    }
}

#[test]
fn a_scan_tells_each_key_once_whatever_its_count_and_pattern() {
    for served in [Served::numbers(700), Served::names()] {
        let mut stream = served.connect();
        for (options, wanted) in [
            ("", &(|_: &str| true) as &dyn Fn(&str) -> bool),
            (" MATCH user:*", &|key| key.starts_with("user:")),
            (" MATCH *9", &|key| key.ends_with('9')),
            (" MATCH 1?3", &|key| key.len() == 3 && key.starts_with('1') && key.ends_with('3')),
            (" MATCH nothing", &|_| false),
            (" TYPE hash", &|_| false),
            (" TYPE string MATCH item:00*", &|key| key.starts_with("item:00")),
        ] {
            let expected = served.rows.keys().map(|key| String::from_utf8(key.clone()).unwrap());
            let mut expected: Vec<String> = expected.filter(|key| wanted(key)).collect();
            expected.sort();
            for count in [1, 2, 3, 7, 10, 100, 699, 700, 701, 100_000] {
                let (mut keys, calls) = scan(&mut stream, &format!("{options} COUNT {count}"));
                keys.sort();
                assert_eq!(keys, expected, "{options} {count}");
                assert!(calls <= served.rows.len().div_ceil(count).max(1), "{options} {count}: {calls} calls");
            }
        }
    }
}

#[test]
fn a_prefix_is_scanned_without_looking_at_the_rest() {
    let served = Served::names();
    let (keys, calls) = scan(&mut served.connect(), " MATCH user:* COUNT 10");
    assert_eq!(calls, keys.len().div_ceil(10));
}

#[test]
fn a_cursor_of_another_generation_is_refused() {
    let (served, other) = (Served::numbers(100), Served::numbers(101));
    let (mut stream, mut another) = (served.connect(), other.connect());
    let cursor = strings(&ask(&mut stream, "SCAN 0")).remove(0);
    assert!(cursor.parse::<i64>().unwrap() > 0);
    assert!(ask(&mut stream, &format!("SCAN {cursor}")).starts_with("*2\r\n"));
    let refused = ask(&mut another, &format!("SCAN {cursor}"));
    assert!(refused.starts_with("-ERR") && refused.contains("begin again with 0"), "{refused}");
    // A server that is started anew on the same file takes it.
    let again = Server::start(&served.db(), &served.folder.path().join("again.sock"));
    assert!(ask(&mut again.connect(), &format!("SCAN {cursor}")).starts_with("*2\r\n"));
}

#[test]
fn pages_of_a_range_are_all_of_it_in_order() {
    let served = Served::names();
    let mut stream = served.connect();
    let page = |stream: &mut UnixStream, words: &str| {
        stream.write_all(&command(words)).unwrap();
        let reply = String::from_utf8(reply(stream)).unwrap();
        (reply.starts_with("*2\r\n$-1\r\n"), strings(&reply))
    };
    for (span, lower, upper) in
        [("- +", "", "~"), ("[item:0100 (page:0300", "item:0100", "page:0300"), ("PREFIX user:", "user:", "user;")]
    {
        let inside = |key: &&Vec<u8>| key.as_slice() >= lower.as_bytes() && key.as_slice() < upper.as_bytes();
        let mut expected: Vec<&Vec<u8>> = served.rows.keys().filter(inside).collect();
        assert_eq!(ask(&mut stream, &format!("ZKV.COUNT {span}")), format!(":{}\r\n", expected.len()));
        for order in ["", " REV"] {
            for limit in [1, 7, 100, 1_000_000] {
                let (mut found, mut from) = (Vec::new(), String::new());
                loop {
                    let (is_last, mut strings) =
                        page(&mut stream, &format!("ZKV.RANGE {span}{order} LIMIT {limit}{from}"));
                    if !is_last {
                        from = format!(" FROM {}", strings.remove(0));
                    }
                    assert!(strings.len() <= 2 * limit);
                    for row in strings.chunks(2) {
                        assert_eq!(served.rows[row[0].as_bytes()], row[1].as_bytes(), "{}", row[0]);
                        found.push(row[0].clone().into_bytes());
                    }
                    if is_last {
                        break;
                    }
                }
                assert!(found.iter().eq(expected.iter().copied()), "{span}{order} LIMIT {limit}");
            }
            expected.reverse();
        }
    }
    let row = |key: &str| String::from_utf8(array([key.as_bytes(), &served.rows[key.as_bytes()]])).unwrap();
    assert_eq!(ask(&mut stream, "ZKV.FLOOR item:0002"), row("item:0001"));
    assert_eq!(ask(&mut stream, "ZKV.CEILING item:0002"), row("item:0004"));
    assert_eq!(ask(&mut stream, "ZKV.FLOOR a"), "*-1\r\n");
    assert_eq!(ask(&mut stream, "ZKV.CEILING z"), "*-1\r\n");
    assert_eq!(ask(&mut stream, "ZKV.RANGE - + LIMIT 0"), "-ERR value is out of range, must be positive\r\n");
    assert_eq!(ask(&mut stream, "ZKV.COUNT - + x"), "-ERR wrong number of arguments for 'zkv.count' command\r\n");
    assert_eq!(ask(&mut stream, "ZKV.RANGE - + x"), "-ERR syntax error\r\n");
    assert!(ask(&mut stream, "ZKV.COUNT -x +").starts_with("-ERR min or max not valid string range item"));
}

#[test]
fn a_damaged_block_is_an_error_in_the_place_of_each_of_its_keys() {
    // Four blocks, of 512 rows each but for the last.
    let served = Served::numbers(2000);
    let mut stream = served.connect();
    let mut bytes = fs::read(served.db()).unwrap();
    let value_at = bytes.windows(13).position(|window| window == b"value of 1000").unwrap();
    bytes[value_at] ^= 1;
    OpenOptions::new().write(true).open(served.db()).unwrap().write_all(&bytes).unwrap();
    eventually("the file was looked at again", || ask(&mut stream, "GET 43") == "$11\r\nvalue of 43\r\n");

    assert!(ask(&mut stream, "GET 1000").starts_with(DAMAGED));
    let mget = ask(&mut stream, "MGET 41 1000 1043");
    assert!(mget.starts_with(&format!("*3\r\n$11\r\nvalue of 41\r\n{DAMAGED}")), "{mget}");
    assert!(ask(&mut stream, "MGET 41 1000 1500").ends_with("\r\n$13\r\nvalue of 1500\r\n"));
    let by_order =
        ["ZKV.FLOOR 1000", "ZKV.FLOOR 1001", "ZKV.CEILING 1000", "ZKV.COUNT 1000 1500", "ZKV.RANGE 950 1044"];
    for words in ["STRLEN 900", "EXISTS 1000", "SCAN 0 COUNT 2000", "KEYS *4*"].into_iter().chain(by_order) {
        assert!(ask(&mut stream, words).starts_with("-ERR"), "{words}");
    }
    // So many keys were announced; those that cannot be reached any more are errors.
    let keys = ask(&mut stream, "KEYS *");
    assert!(keys.starts_with("*2000\r\n$1\r\n0\r\n") && keys.contains(&format!("\r\n{DAMAGED}")), "{keys}");
    assert_eq!(ask(&mut stream, "GET 1500"), "$13\r\nvalue of 1500\r\n");
}

#[test]
fn hello_changes_the_version_and_reset_takes_it_back() {
    let served = Served::numbers(10);
    let mut stream = served.connect();
    assert_eq!(ask(&mut stream, "GET 99"), "$-1\r\n");
    assert!(ask(&mut stream, "HELLO 3 SETNAME me").starts_with("%7\r\n$6\r\nserver\r\n$7\r\nzero-kv\r\n"));
    assert_eq!(ask(&mut stream, "GET 99"), "_\r\n");
    assert_eq!(ask(&mut stream, "MGET 99 1"), "*2\r\n_\r\n$10\r\nvalue of 1\r\n");
    assert_eq!(ask(&mut stream, "CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(ask(&mut stream, "RESET"), "+RESET\r\n");
    assert_eq!(ask(&mut stream, "CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(ask(&mut stream, "CONFIG GET save"), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
}

#[test]
fn a_list_of_many_clients_is_whole() {
    let served = Served::numbers(10);
    let mut clients: Vec<UnixStream> = (0..400).map(|_| served.connect()).collect();
    for (number, stream) in clients.iter_mut().enumerate() {
        assert_eq!(ask(stream, &format!("CLIENT SETNAME client-{number}")), "+OK\r\n");
    }
    let listed = |list: &str| list.lines().filter(|line| line.starts_with("id=")).count();
    let list = ask(&mut clients[0], "CLIENT LIST");
    assert!(list.len() > 65_536 && (0..400).all(|number| list.contains(&format!(" name=client-{number} "))));
    assert_eq!(listed(&list), 400);
    let id = list.lines().find(|line| line.contains(" name=client-7 ")).unwrap();
    let id = id.strip_prefix("id=").unwrap().split(' ').next().unwrap();
    let one = ask(&mut clients[1], &format!("CLIENT LIST ID {id} {id}"));
    assert!(listed(&one) == 1 && one.contains(" name=client-7 ") && one.contains(" cmd=client|setname "), "{one}");
    clients.truncate(2);
    common::eventually("the others are gone", || listed(&ask(&mut clients[0], "CLIENT LIST")) == 2);
}

#[test]
fn info_counts_what_was_asked() {
    let served = Served::numbers(10);
    let mut stream = served.connect();
    let commands: Vec<u8> = (0..20).flat_map(|key| command(&format!("GET {key}"))).collect();
    stream.write_all(&commands).unwrap();
    (0..20).for_each(|_| drop(reply(&mut stream)));
    ask(&mut stream, "MGET 1 2 99");
    let info = ask(&mut stream, "INFO");
    for line in
        ["keyspace_hits:12", "keyspace_misses:11", "total_commands_processed:21", "db0:keys=10,", "key_kind:u64"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(!ask(&mut stream, "INFO stats").contains("db0:"));
    assert_eq!(ask(&mut stream, "INFO nothing"), "$0\r\n\r\n");
}

#[test]
fn tcp_is_answered_as_the_socket_is() {
    let table = Table::of_rows(1000);
    let mut command = kv_store(&table.db(), &table.socket());
    command.args(["--tcp", "127.0.0.1:0"]);
    let mut server = Server::spawn(command, &table.socket());
    let line = server.wait_for_log("ready");
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let mut redis = TcpStream::connect(address).unwrap();
    redis.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut redis, "GET 7").as_bytes(), bulk(&table.model[&7]));
    let info = ask(&mut redis, "CLIENT INFO");
    assert!(info.contains(&format!(" addr={} laddr={address} ", redis.local_addr().unwrap())), "{info}");
    let mut native = TcpStream::connect(address).unwrap();
    native.set_read_timeout(Some(PATIENCE)).unwrap();
    native.write_all(&gets(0..300)).unwrap();
    expect(&mut native, &answers_to_gets(&table.model, 0..300));
}

#[test]
fn an_address_that_others_reach_must_be_asked_for() {
    let table = Table::of_rows(10);
    for address in ["0.0.0.0:0", "[::]:0"] {
        let mut refused = kv_store(&table.db(), &table.socket());
        let output = refused.args(["--tcp", address]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("--tcp-exposed") && message.lines().count() == 1, "{message}");
        assert!(!table.socket().exists());
    }
    let mut exposed = kv_store(&table.db(), &table.socket());
    exposed.args(["--tcp", "0.0.0.0:0", "--tcp-exposed"]);
    assert_eq!(ask(&mut Server::of(exposed, &table.socket()).connect(), "PING"), "+PONG\r\n");
}
