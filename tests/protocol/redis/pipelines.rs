//! Pipelines and commands that are split anywhere.

use std::io::Write;
use std::net::Shutdown;

use super::{ServedRows, array, ask, bulk, command, reply};
use crate::helpers::frames::{expect, expect_end, gets};
use crate::helpers::random::random;
use crate::helpers::tables::{Table, answers_to_gets};

#[test]
fn commands_split_at_any_byte_are_answered() {
    let served = ServedRows::names();
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
        // Once another connection is answered, the server has read the first part.
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
    for served in [ServedRows::numbers(3000), ServedRows::names()] {
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
fn a_pipeline_continues_after_an_error() {
    let served = ServedRows::numbers(10);
    let mut stream = served.connect();
    let commands = ["GET 1", "GET one", "GET 1 2", "NOPE", "MGET 1 x", "EXISTS 1 x", "SET 1 2", "GET 0002"];
    stream.write_all(&commands.map(command).concat()).unwrap();
    expect(&mut stream, b"$10\r\nvalue of 1\r\n");
    for expected in
        ["'one' is not a key of this table: its keys are unsigned 64-bit numbers", "wrong number of arguments"]
    {
        assert!(String::from_utf8(reply(&mut stream)).unwrap().contains(expected));
    }
    expect(&mut stream, b"-ERR unknown command 'NOPE', with args beginning with: \r\n");
    for _ in ["MGET", "EXISTS"] {
        assert!(reply(&mut stream).starts_with(b"-ERR 'x' is not a key of this table"));
    }
    expect(&mut stream, b"-READONLY You can't write against a read only replica.\r\n$10\r\nvalue of 2\r\n");
}

#[test]
fn all_commands_before_the_end_get_replies_and_none_after_it() {
    let served = ServedRows::names();
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
            // The server may close the connection before everything is sent.
            scope.spawn(move || writer.write_all(&sent));
            expect_end(&mut stream, &[&replies[..], last.as_bytes()].concat());
        });
    }
}

#[test]
fn an_incomplete_command_at_the_end_is_not_answered() {
    let served = ServedRows::names();
    let cut = command("MGET user:0000 user:0003");
    for len_bytes in [1, 4, 10, cut.len() - 1] {
        let mut stream = served.connect();
        stream.write_all(&[&command("GET user:0003"), &cut[..len_bytes]].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        expect_end(&mut stream, &served.get(b"user:0003"));
    }
}

#[test]
fn mget_of_100_000_keys_is_answered_completely() {
    let served = ServedRows::numbers(1000);
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
