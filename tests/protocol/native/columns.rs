//! Typed tables: the schema, the selection of columns, and projected rows.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use zero_kv::typed::{ElementType, List, RowEncoder, Value};

use crate::helpers::frames::{GET, answer, expect, request};
use crate::helpers::random::Random;
use crate::helpers::reference_server::long;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;
use crate::helpers::typed_tables::{
    GET_COLUMNS, MIXED, SCHEMA, SCHEMA_CHANGED, SELECT, TypedTable, schema, selection, some_columns,
};
use crate::helpers::waiting::eventually;

fn send(stream: &mut UnixStream, requests: &[u8], expected: &[u8]) {
    stream.write_all(requests).unwrap();
    expect(stream, expected);
}

/// Sends requests while it reads the responses, so that the pipeline may be of any length.
fn exchange(stream: &mut UnixStream, requests: Vec<u8>, expected: &[u8]) {
    let mut writer = stream.try_clone().unwrap();
    let sent = thread::spawn(move || writer.write_all(&requests).unwrap());
    expect(stream, expected);
    sent.join().unwrap();
}

#[test]
fn a_schema_is_the_schema_section_of_the_file() {
    let typed = TypedTable::new(MIXED, 0..10_u64, 1);
    let server = typed.serve();
    send(&mut server.connect(), &request(SCHEMA, 7), &answer(0, &typed.schema.encode()));
    let untyped = Table::of_rows(3);
    let server = untyped.serve();
    send(&mut server.connect(), &request(SCHEMA, 0), &answer(1, b""));
}

#[test]
fn pipelines_of_any_columns_get_the_rows_that_the_projected_schema_would_encode() {
    let seed = 0xc01;
    println!("seed {seed}");
    let mut random = Random(seed);
    let table = TypedTable::new(MIXED, (0..600_u64).map(|key| key * 3), 1);
    let server = table.serve();
    let mut stream = server.connect();
    for _ in 0..40 {
        let columns = some_columns(&table.schema, &mut random);
        let mut requests = long(SELECT, &selection(table.schema.id(), &columns));
        let mut expected = answer(0, b"");
        for _ in 0..random.below(1500) {
            let key = random.next() % 2000;
            // Gets, and requests for the whole row, interrupt the runs of GetColumns requests.
            let (op, found) = match random.below(16) {
                0 => (GET, table.rows.get(&key).map_or_else(|| answer(1, b""), |row| answer(0, row))),
                _ => (GET_COLUMNS, table.answer(&key, &columns)),
            };
            requests.extend(request(op, key));
            expected.extend(found);
        }
        exchange(&mut stream, requests, &expected);
    }
    assert!(server.number("requests_get_columns") > 10_000);
    assert_eq!(server.number("requests_select"), 40);
}

#[test]
fn rows_with_byte_keys_are_projected() {
    let seed = 0xb17e5;
    println!("seed {seed}");
    let mut random = Random(seed);
    let key = |number: usize| format!("key {number}").into_bytes();
    let table = TypedTable::new(MIXED, (0..300).map(|number| key(number * 2)), 2);
    let server = table.serve();
    let mut stream = server.connect();
    for _ in 0..20 {
        let columns = some_columns(&table.schema, &mut random);
        let mut requests = long(SELECT, &selection(table.schema.id(), &columns));
        let mut expected = answer(0, b"");
        for _ in 0..random.below(800) {
            let key = key(random.below(700));
            requests.extend(long(GET_COLUMNS, &key));
            expected.extend(table.answer(&key, &columns));
        }
        // A short request has a numeric key.
        requests.extend(request(GET_COLUMNS, 1));
        expected.extend(answer(2, b""));
        exchange(&mut stream, requests, &expected);
    }
}

#[test]
fn an_invalid_selection_is_an_error_and_leaves_no_columns_selected() {
    let table = TypedTable::new(MIXED, 0..10_u64, 1);
    let (server, id, count) = (table.serve(), table.schema.id(), table.schema.columns().len());
    let mut stream = server.connect();
    let get = request(GET_COLUMNS, 5);
    send(&mut stream, &get, &answer(2, b""));
    let too_many: Vec<usize> = (0..count).chain([0]).collect();
    for (body, status) in [
        (selection(id, &[count]), 2),
        (selection(id, &[0, 65_535]), 2),
        (selection(id, &[1, 2, 1]), 2),
        (selection(id, &too_many), 2),
        (selection(id, &[0; 40_000]), 2),
        (selection(id, &[]), 2),
        (selection(id, &[0, 1])[..11].to_vec(), 2),
        (selection(id, &[])[..7].to_vec(), 2),
        (vec![], 2),
        (selection(id ^ 1, &[0]), SCHEMA_CHANGED),
    ] {
        let valid = long(SELECT, &selection(id, &[1, 0]));
        let requests = [&valid[..], &get, &long(SELECT, &body), &get, &request(GET, 5)].concat();
        let row = table.answer(&5, &[1, 0]);
        let whole = answer(0, &table.rows[&5]);
        send(&mut stream, &requests, &[answer(0, b""), row, answer(status, b""), answer(2, b""), whole].concat());
    }
    // A selection belongs to its connection, and the last one counts.
    let requests = [long(SELECT, &selection(id, &[0])), long(SELECT, &selection(id, &[2, 3])), get.to_vec()].concat();
    send(&mut stream, &requests, &[answer(0, b"").repeat(2), table.answer(&5, &[2, 3])].concat());
    send(&mut server.connect(), &get, &answer(2, b""));
    // In a table of numbers, byte keys are of the wrong kind.
    send(
        &mut stream,
        &[long(GET_COLUMNS, b"5"), get.to_vec()].concat(),
        &[answer(2, b""), table.answer(&5, &[2, 3])].concat(),
    );
}

#[test]
fn a_table_with_another_schema_answers_that_the_schema_has_changed() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let same_schema = TypedTable::new("a:f32 b:text", 0..50_u64, 2);
    let other_schema = TypedTable::new("b:text c:u8 a:f32", 0..50_u64, 3);
    let server = table.serve();
    let mut stream = server.connect();
    let gets = |keys: std::ops::Range<u64>| keys.flat_map(|key| request(GET_COLUMNS, key)).collect::<Vec<u8>>();
    let select = |table: &TypedTable<u64>, columns: &[usize]| long(SELECT, &selection(table.schema.id(), columns));
    send(&mut stream, &[select(&table, &[1]), gets(7..8)].concat(), &[answer(0, b""), table.answer(&7, &[1])].concat());
    // A selection remains valid in a table with the same schema.
    same_schema.replace(&table);
    server.wait_for("generation", 2);
    send(&mut stream, &gets(7..8), &same_schema.answer(&7, &[1]));
    other_schema.replace(&table);
    server.wait_for("generation", 3);
    send(&mut stream, &gets(0..1100), &answer(SCHEMA_CHANGED, b"").repeat(1100));
    send(&mut stream, &select(&table, &[1]), &answer(SCHEMA_CHANGED, b""));
    send(&mut stream, &request(SCHEMA, 0), &answer(0, &other_schema.schema.encode()));
    let requests = [select(&other_schema, &[0, 2]), gets(7..9)].concat();
    let rows = [7, 8].map(|key| other_schema.answer(&key, &[0, 2])).concat();
    send(&mut stream, &requests, &[answer(0, b""), rows].concat());
    // A table without a schema has no columns.
    let untyped = Table::of_rows(3);
    std::fs::rename(untyped.db(), table.db()).unwrap();
    server.wait_for("generation", 4);
    send(&mut stream, &gets(7..8), &answer(SCHEMA_CHANGED, b""));
    send(&mut stream, &select(&other_schema, &[0]), &answer(2, b""));
}

#[test]
fn a_table_with_keys_of_the_other_kind_answers_that_the_schema_has_changed() {
    let table = TypedTable::new("a:f32 b:text", 0..50_u64, 1);
    let byte_keys = TypedTable::new("a:f32", [b"7".to_vec()], 2);
    let mut command = kv_store(&table.db(), &table.socket());
    command.arg("--allow-key-type-change");
    let server = Server::of(command, &table.socket());
    let mut stream = server.connect();
    let gets = [request(GET_COLUMNS, 7).to_vec(), long(GET_COLUMNS, b"7")].concat();
    let select = |id: u64| long(SELECT, &selection(id, &[0]));
    let row = table.answer(&7, &[0]);
    send(
        &mut stream,
        &[select(table.schema.id()), gets.clone()].concat(),
        &[answer(0, b""), row, answer(2, b"")].concat(),
    );
    byte_keys.replace(&table);
    server.wait_for("generation", 2);
    send(&mut stream, &gets, &answer(SCHEMA_CHANGED, b"").repeat(2));
    let row = byte_keys.answer(&b"7".to_vec(), &[0]);
    send(&mut stream, &[select(byte_keys.schema.id()), gets].concat(), &[answer(0, b""), answer(2, b""), row].concat());
}

#[test]
fn damaged_and_malformed_rows_are_errors() {
    let mut table = TypedTable::new("a:u32 b:text long:text", 0..2000_u64, 5);
    // The end of the text is outside the row.
    table.rows.insert(3, [[9, 0, 0, 0, 200, 0, 0, 0, 12, 0, 0, 0]].concat());
    // The row is shorter than the columns of fixed width.
    table.rows.insert(4, vec![1]);
    let mut bytes = table.bytes();
    let damaged = table.rows[&1001].clone();
    let at = bytes.windows(damaged.len()).position(|window| window == damaged).unwrap();
    bytes[at + damaged.len() - 1] ^= 1;
    std::fs::write(table.db(), bytes).unwrap();
    let server = table.serve();
    let mut stream = server.connect();
    let id = schema("a:u32 b:text long:text").id();
    send(&mut stream, &long(SELECT, &selection(id, &[0, 1])), &answer(0, b""));
    for key in [3, 4, 1001] {
        send(&mut stream, &request(GET_COLUMNS, key), &answer(2, b""));
    }
    // The first column of the malformed row can be read, and rows in other blocks are intact.
    send(&mut stream, &long(SELECT, &selection(id, &[0])), &answer(0, b""));
    let requests = [3, 1900].map(|key| request(GET_COLUMNS, key)).concat();
    send(&mut stream, &requests, &[answer(0, &[9, 0, 0, 0]), table.answer(&1900, &[0])].concat());
}

#[test]
fn rows_of_all_lengths_are_projected_with_their_long_values() {
    let schema = schema("a:bytes b:list(f32,16000) c:text d:bytes e:u8");
    let lens = [0, 1, 4095, 4096, 4097, 65_535, 65_536, 300_000];
    let columns = "a:bytes b:list(f32,16000) c:text d:bytes e:u8";
    let mut table = TypedTable::new(columns, std::iter::empty::<u64>(), 0);
    let text = "x".repeat(300_000);
    for (key, len) in (0_u64..).zip(lens) {
        let floats = vec![key as u8; 64_000];
        let cells = [
            Value::Bytes(&text.as_bytes()[..len]),
            Value::List(List::new(ElementType::F32, &floats).unwrap()),
            Value::Text(&text[..lens[(key as usize + 3) % lens.len()]]),
            Value::Bytes(&text.as_bytes()[..key as usize]),
            Value::Uint(key),
        ];
        table.rows.insert(key, RowEncoder::new(&schema).encode(&cells).unwrap().to_vec());
    }
    table.write(&table.db());
    let server = table.serve();
    let mut stream = server.connect();
    let mut random = Random(9);
    for _ in 0..30 {
        let columns = some_columns(&schema, &mut random);
        let keys: Vec<u64> = (0..60).map(|_| random.next() % 9).collect();
        let gets: Vec<u8> = keys.iter().flat_map(|key| request(GET_COLUMNS, *key)).collect();
        let requests = [long(SELECT, &selection(schema.id(), &columns)), gets].concat();
        let rows: Vec<u8> = keys.iter().flat_map(|key| table.answer(key, &columns)).collect();
        exchange(&mut stream, requests, &[answer(0, b""), rows].concat());
    }
}

#[test]
fn pipelined_requests_are_answered_from_tables_with_the_selected_schema_only() {
    let tables = [("a:u32 b:u32", 1), ("b:u32 a:u32", 2)].map(|(columns, version)| {
        let columns = format!("{columns} long:text");
        TypedTable::new(&columns, 0..200_u64, version)
    });
    let server = tables[0].serve();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (tables, mut stream) = (&tables, server.connect());
                scope.spawn(move || {
                    let mut random = Random(client);
                    let (mut changes, mut found_count) = (0, 0);
                    for _ in 0..300 {
                        let selected = random.below(2);
                        let columns = some_columns(&tables[selected].schema, &mut random);
                        let keys: Vec<u64> = (0..200).map(|_| random.next() % 220).collect();
                        let mut requests = long(SELECT, &selection(tables[selected].schema.id(), &columns));
                        keys.iter().for_each(|key| requests.extend(request(GET_COLUMNS, *key)));
                        stream.write_all(&requests).unwrap();
                        let is_selected = status_of(&mut stream) == (0, vec![]);
                        for key in keys {
                            let (status, value) = status_of(&mut stream);
                            match (status, is_selected) {
                                (2, false) => {}
                                (SCHEMA_CHANGED, true) => changes += 1,
                                _ => {
                                    assert_eq!(answer(status, &value), tables[selected].answer(&key, &columns));
                                    found_count += usize::from(is_selected);
                                }
                            }
                        }
                    }
                    (changes, found_count)
                })
            })
            .collect();
        let mut version = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            version += 1;
            tables[version % 2].replace(&tables[0]);
            server.wait_for("generation", version as u64 + 1);
        }
        for client in clients {
            let (_, found_count) = client.join().unwrap();
            assert!(found_count > 0);
        }
        assert!(version > 1, "{version} swaps");
    });
    eventually("the server serves", || server.number("requests_get_columns") > 0);
}

/// Reads a response. Returns its status and its value.
fn status_of(stream: &mut UnixStream) -> (u32, Vec<u8>) {
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    let number = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
    let mut value = vec![0; number(4) as usize];
    stream.read_exact(&mut value).unwrap();
    (number(0), value)
}
