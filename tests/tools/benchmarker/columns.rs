//! Columns of typed tables: GetColumns with `kv_store` as the server, and Redis hashes with a server inside the test.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Output;
use std::sync::Arc;
use std::thread;

use zero_kv::typed::{TypedRow, Value, write_text};

use super::test_server::*;
use crate::helpers::encoder::Keyed;
use crate::helpers::typed_tables::{MIXED, TypedTable};

fn run<K: Keyed + Ord + Clone>(drawn: &TypedTable<K>, served: &TypedTable<K>, args: &[&str]) -> Output {
    let unused = TestServer::new(Rows::new(), correct_response);
    let (db, socket) = (drawn.db(), served.socket());
    let place = ["--db", db.to_str().unwrap(), "--socket", socket.to_str().unwrap(), "--json"];
    unused.run(&[&place[..], args].concat())
}

fn text_keys(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|key| format!("key {key}").into_bytes())
}

#[track_caller]
fn assert_columns_are_verified<K: Keyed + Ord + Clone>(table: &TypedTable<K>, other: &TypedTable<K>) {
    let _server = table.serve();
    let every_key = ["--distribution=sequential", "--pipeline=500", "--op=get_columns"];
    for columns in ["b", "name,a,long", "vector,flag,c,at,data"] {
        for (verify, ratio) in [(&["--verify"][..], "0"), (&[], "0.5")] {
            let columns = ["--columns", columns, "--miss-ratio", ratio];
            let output = run(table, table, &[&every_key[..], verify, &columns].concat());
            assert_good(&output);
            let json = stdout(&output);
            let (requests, hits, misses) = (number(&json, "requests"), number(&json, "hits"), number(&json, "misses"));
            assert!(hits > 0.0 && hits + misses == requests && (misses > 0.0) == (ratio != "0"), "{json}");
        }
    }
    let differs = run(other, table, &[&every_key[..], &["--verify", "--columns=b"]].concat());
    assert!(!differs.status.success());
    let error = String::from_utf8_lossy(&differs.stderr).into_owned();
    assert!(error.contains("the value differs from the file's"), "{error}");
}

#[test]
fn projected_rows_are_verified() {
    let numbers = |version| TypedTable::new(MIXED, 0..300_u64, version);
    assert_columns_are_verified(&numbers(1), &numbers(2));
    let bytes = |version| TypedTable::new(MIXED, text_keys(300), version);
    assert_columns_are_verified(&bytes(1), &bytes(2));
}

#[test]
fn columns_and_tables_that_do_not_exist_are_reported() {
    let table = TypedTable::new("a:u32 b:text", 0..10_u64, 1);
    let other = TypedTable::new("a:u32 c:text", 0..10_u64, 1);
    let _server = table.serve();
    let error = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let unknown = error(run(&table, &table, &["--op=get_columns", "--columns=a,c"]));
    assert!(unknown.contains("--columns: the table has no column \"c\": its columns are a, b"), "{unknown}");
    let other = error(run(&other, &table, &["--op=get_columns", "--columns=a"]));
    assert!(other.contains("cannot select columns: the server serves another table than --db"), "{other}");
    let untyped = TestServer::new(small_rows(), correct_response);
    let untyped = error(untyped.run(&["--op=get_columns", "--columns=a"]));
    assert!(untyped.contains("the table has no schema"), "{untyped}");
    for (args, expected) in [
        (&["--op=get_columns"][..], "needs '--columns <NAMES>'"),
        (&["--op=hmget", "--protocol=resp"], "needs '--columns <NAMES>'"),
        (&["--columns=a"], "'--columns <NAMES>' needs"),
        (&["--op=hgetall"], "needs '--protocol resp'"),
        (&["--op=hgetall", "--protocol=resp", "--columns=a"], "'--columns <NAMES>' needs"),
        (&["--op=get_columns", "--columns=a", "--protocol=resp"], "pass '--op hmget'"),
        (&["--op=hmget", "--columns=a", "--protocol=resp", "--miss-ratio=0.1"], "looks like a row of nulls"),
        (&["--op=get_columns", "--columns=a", "--ceiling"], "does not select columns"),
    ] {
        let output = run(&table, &table, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(error(output).contains(expected), "{args:?}");
    }
}

/// How a server of hashes replies.
#[derive(Clone, Copy, PartialEq)]
enum Replies {
    Correct,
    /// The last byte of the last field differs.
    WrongByte,
    Error,
}

/// Serves the rows of a table as Redis hashes.
fn serve_hashes(table: &Arc<TypedTable<u64>>, replies: Replies) {
    let _ = std::fs::remove_file(table.socket());
    let listener = UnixListener::bind(table.socket()).unwrap();
    let table = Arc::clone(table);
    // The thread runs until the test process exits.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, table) = (stream.unwrap(), Arc::clone(&table));
            thread::spawn(move || serve_client(&stream, &table, replies));
        }
    });
}

fn serve_client(stream: &UnixStream, table: &TypedTable<u64>, replies: Replies) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(words) = read_command(&mut reader) {
        if writer.write_all(&reply(table, &words, replies)).is_err() {
            return;
        }
    }
}

fn read_command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let mut line = String::new();
    let mut number = |reader: &mut dyn BufRead| {
        line.clear();
        reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
        line.trim_end()[1..].parse::<usize>().ok()
    };
    let count = number(reader)?;
    let words = (0..count).map(|_| {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    });
    words.collect()
}

fn reply(table: &TypedTable<u64>, words: &[Vec<u8>], replies: Replies) -> Vec<u8> {
    if replies == Replies::Error {
        return b"-WRONGTYPE not a hash\r\n".to_vec();
    }
    let bulk = |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
    let key: u64 = String::from_utf8(words[1].clone()).unwrap().parse().unwrap();
    let Some(row) = table.rows.get(&key) else { return b"*0\r\n".to_vec() };
    let row = TypedRow::new(&table.schema, row).unwrap();
    let mut elements = Vec::new();
    for (column, value) in table.schema.columns().iter().zip(row.values()) {
        let mut text = Vec::new();
        write_text(&value.unwrap(), &mut text);
        let is_asked = words[0] == b"HGETALL" || words[2..].contains(&column.name.clone().into_bytes());
        match (value_of(&row, &column.name) == Value::Null, &words[0][..]) {
            _ if !is_asked => {}
            (true, b"HGETALL") => {}
            (true, _) => elements.push(b"$-1\r\n".to_vec()),
            (false, b"HGETALL") => elements.extend([bulk(column.name.as_bytes()), bulk(&text)]),
            (false, _) => elements.push(bulk(&text)),
        }
    }
    let mut reply = [format!("*{}\r\n", elements.len()).into_bytes(), elements.concat()].concat();
    if replies == Replies::WrongByte {
        let at = reply.len() - 3;
        reply[at] ^= 1;
    }
    reply
}

fn value_of<'a>(row: &TypedRow<'a>, name: &str) -> Value<'a> {
    row.get(name).unwrap()
}

#[test]
fn replies_with_hashes_are_checked() {
    let table = Arc::new(TypedTable::new("name:text a:f32? price:decimal(9,2) at:timestamp(ms)", 0..200_u64, 7));
    let hgetall = &["--protocol=resp", "--op=hgetall"][..];
    let hmget = &["--protocol=resp", "--op=hmget", "--columns=name,a,price"][..];
    for replies in [Replies::Correct, Replies::WrongByte, Replies::Error] {
        serve_hashes(&table, replies);
        for args in [hgetall, hmget] {
            for more in [&[][..], &["--verify"], &["--distribution=zipf"]] {
                let output = run(&table, &table, &[args, more].concat());
                let is_wrong = match replies {
                    Replies::Correct => false,
                    Replies::WrongByte => more == ["--verify"],
                    Replies::Error => true,
                };
                assert_eq!(output.status.success(), !is_wrong, "{args:?} {more:?}: {output:?}");
            }
        }
        if replies == Replies::Correct {
            let output = run(&table, &table, &[hgetall, &["--miss-ratio=0.5", "--verify"]].concat());
            assert_good(&output);
            assert!(number(&stdout(&output), "misses") > 0.0);
        }
    }
}
