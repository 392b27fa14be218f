//! Short requests: pipelines, values of all lengths, and clients that misbehave.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use crate::helpers::frames::{EXISTS, GET, answer, expect, expect_end, gets, request};
use crate::helpers::random::random;
use crate::helpers::tables::{Model, Table, answer_to_get, answers_to_gets};
use crate::helpers::waiting::eventually;

/// Returns a table with values just below and above every limit of the response path.
fn table_of_all_lengths() -> Table {
    let lengths = [0, 1, 7, 8, 9, 55, 56, 57, 119, 120, 121, 4087, 4088, 4089, 65_535, 65_536, 70_000, 1 << 20];
    Table::new((0..400_u64).map(|key| {
        let byte = u8::try_from(key % 251).unwrap();
        (key * 3, vec![byte; lengths[usize::try_from(key).unwrap() % lengths.len()]])
    }))
}

#[test]
fn requests_split_at_any_byte_are_answered() {
    let table = Table::of_rows(100);
    let server = table.serve();
    let mut stream = server.connect();
    let requests = gets([7, 0, 100]);
    for byte in &requests {
        stream.write_all(&[*byte]).unwrap();
    }
    expect(&mut stream, &answers_to_gets(&table.model, [7, 0, 100]));
    for split in 0..=requests.len() {
        stream.write_all(&requests[..split]).unwrap();
        // Complete requests are answered before the rest of the stream arrives.
        let whole = split / 16;
        expect(&mut stream, &answers_to_gets(&table.model, [7, 0, 100].into_iter().take(whole)));
        stream.write_all(&requests[split..]).unwrap();
        expect(&mut stream, &answers_to_gets(&table.model, [7, 0, 100].into_iter().skip(whole)));
    }
}

#[test]
fn a_batch_of_any_size_is_answered_in_order() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let mut stream = server.connect();
    for count in [1, 2, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025] {
        let keys: Vec<u64> = (0..count).map(|i| i * 7 % 1100).collect();
        stream.write_all(&gets(keys.iter().copied())).unwrap();
        expect(&mut stream, &answers_to_gets(&table.model, keys));
    }
}

#[test]
fn ten_thousand_requests_in_one_write_are_answered_in_order() {
    let table = Table::of_rows(10_000);
    let server = table.serve();
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    let sent = thread::spawn(move || writer.write_all(&gets((1..=10_000).rev())).unwrap());
    expect(&mut stream, &answers_to_gets(&table.model, (1..=10_000).rev()));
    sent.join().unwrap();
}

#[test]
fn an_unknown_op_gets_an_error_and_the_connection_remains_usable() {
    let table = Table::of_rows(10);
    let server = table.serve();
    let mut stream = server.connect();
    let mut padded = request(GET, 5);
    padded[4..8].copy_from_slice(&[0xff; 4]);
    let unknown = [4, 5, 0xffff, 0x0100_0000, u32::MAX];
    let requests: Vec<u8> = unknown.iter().flat_map(|op| [request(*op, 5), request(GET, 5), padded].concat()).collect();
    // The unknown ops are not first, because the first byte of a connection selects the protocol.
    stream.write_all(&requests).unwrap();
    let found = answer_to_get(&table.model, 5);
    expect(&mut stream, &[answer(2, b""), found.clone(), found].concat().repeat(unknown.len()));
}

#[test]
fn exists_responds_without_a_value() {
    let table = Table::of_rows(10);
    let server = table.serve();
    let mut stream = server.connect();
    let requests = [request(EXISTS, 10), request(EXISTS, 11), request(GET, 10), request(EXISTS, 1)].concat();
    stream.write_all(&requests).unwrap();
    let found = answer_to_get(&table.model, 10);
    expect(&mut stream, &[answer(0, b""), answer(1, b""), found, answer(0, b"")].concat());
}

#[test]
fn an_empty_table_finds_no_key() {
    let table = Table::new([]);
    let server = table.serve();
    let mut stream = server.connect();
    stream.write_all(&gets([0, 1, u64::MAX])).unwrap();
    expect(&mut stream, &answer(1, b"").repeat(3));
}

#[test]
fn values_of_all_lengths_arrive_complete_in_any_mixture() {
    let table = table_of_all_lengths();
    let server = table.serve();
    let seed = 0x5eed;
    println!("seed {seed}");
    let mut random = random(seed);
    let keys: Vec<u64> = (0..3000).map(|_| random() % 1300).collect();
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    let requests = gets(keys.iter().copied());
    let sent = thread::spawn(move || writer.write_all(&requests).unwrap());
    for key in keys {
        expect(&mut stream, &answer_to_get(&table.model, key));
    }
    sent.join().unwrap();
}

#[test]
fn a_client_that_stops_sending_gets_every_response() {
    let table = table_of_all_lengths();
    let server = table.serve();
    let keys: Vec<u64> = (0..400).map(|i| i * 3).collect();
    let mut stream = server.connect();
    stream.write_all(&gets(keys.iter().copied())).unwrap();
    // An incomplete request at the end gets no response.
    stream.write_all(&request(GET, 3)[..9]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    expect_end(&mut stream, &answers_to_gets(&table.model, keys));
}

#[test]
fn a_client_that_reads_byte_by_byte_gets_every_response() {
    let table = Table::new((0..64).map(|key| (key, vec![b'a' + u8::try_from(key % 26).unwrap(); 9000])));
    let server = table.serve();
    let keys = || (0..300).map(|i| i % 70);
    let mut stream = server.connect();
    stream.write_all(&gets(keys())).unwrap();
    let expected = answers_to_gets(&table.model, keys());
    let (mut at, mut random) = (0, random(7));
    while at < expected.len() {
        let len = 1 + usize::try_from(random() % 3000).unwrap();
        let len = if at < 2000 { 1 } else { len.min(expected.len() - at) };
        expect(&mut stream, &expected[at..at + len]);
        at += len;
    }
}

#[test]
fn a_client_that_does_not_read_delays_only_itself_in_bounded_memory() {
    let table = Table::new((0..64).map(|key| (key, vec![b'v'; 6000])));
    let server = table.serve();
    let before = server.anonymous_bytes();
    let mut non_reading: Vec<_> = (0..20).map(|_| server.connect()).collect();
    let requests = gets((0..8192).map(|i| i % 64));
    non_reading.iter_mut().for_each(|stream| stream.write_all(&requests).unwrap());

    let mut stream = server.connect();
    for key in [1, 63, 64] {
        stream.write_all(&gets([key])).unwrap();
        expect(&mut stream, &answer_to_get(&table.model, key));
    }
    let grown = server.anonymous_bytes().saturating_sub(before);
    // The requested responses have 49 MB each. The server holds only their requests.
    assert!(grown < 20 * ((64 << 10) + 2 * requests.len() as u64), "{grown} bytes for 20 clients that do not read");

    // The client can still read all its responses.
    let mut one = non_reading.swap_remove(0);
    drop(non_reading);
    one.shutdown(Shutdown::Write).unwrap();
    for i in 0..8192 {
        expect(&mut one, &answer_to_get(&table.model, i % 64));
    }
    assert_eq!(one.read(&mut [0]).unwrap(), 0);
}

#[test]
fn clients_that_disconnect_leak_no_descriptors() {
    let table = Table::new((0..64).map(|key| (key, vec![b'v'; 6000])));
    let mut server = table.serve();
    let before = server.descriptors();
    for i in 0..200 {
        let mut stream = server.connect();
        match i % 4 {
            0 => {}
            1 => stream.write_all(&request(GET, 1)[..7]).unwrap(),
            2 => stream.write_all(&gets(0..64)).unwrap(),
            _ => {
                stream.write_all(&gets(0..64)).unwrap();
                stream.read_exact(&mut [0; 100]).unwrap();
            }
        }
    }
    eventually("all connections are closed", || server.descriptors() == before);
    assert!(server.is_alive());
    let mut stream = server.connect();
    stream.write_all(&gets([7])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 7));
}

#[test]
fn many_clients_each_get_their_own_responses() {
    let table = Table::of_rows(5000);
    let server = table.serve();
    let model: &Model = &table.model;
    thread::scope(|scope| {
        for client in 0..64 {
            let mut stream = server.connect();
            scope.spawn(move || {
                let mut random = random(client);
                for _ in 0..20 {
                    let keys: Vec<u64> = (0..256).map(|_| random() % 6000).collect();
                    stream.write_all(&gets(keys.iter().copied())).unwrap();
                    expect(&mut stream, &answers_to_gets(model, keys));
                }
            });
        }
    });
}
