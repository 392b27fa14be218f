//! Long requests.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use crate::helpers::frames::{answer, expect, read_until_closed, request};
use crate::helpers::reference_server::{
    BACKWARD, BODY_MAX_BYTES, CEILING, COUNT, END, END_EXCLUDED, EXISTS, FLOOR, GET, LONG, NUMBERS, RANGE, Reference,
    START, START_EXCLUDED, long, range_body,
};

pub(super) fn animals() -> Reference {
    Reference::of_bytes([("ant", "1"), ("bee", "22"), ("bumblebee", ""), ("cow", "333")].map(row))
}

fn row((key, value): (&str, &str)) -> (Vec<u8>, Vec<u8>) {
    (key.into(), value.into())
}

pub(super) fn numbers() -> Reference {
    Reference::of_numbers((1..=20).map(|key| (key * 10, format!("value of {key}").into_bytes())))
}

/// Sends a stream of requests, and returns all responses until the connection ends or is reset.
pub(super) fn exchange(stream: &mut UnixStream, requests: &[u8]) -> Vec<u8> {
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            // A server that has closed the connection accepts no more bytes.
            let _ = writer.write_all(requests).and_then(|()| writer.shutdown(Shutdown::Write));
        });
        read_until_closed(stream)
    })
}

#[track_caller]
pub(super) fn assert_same_bytes(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!((differs, found.len()), (None, expected.len()), "the first byte that differs, and the length");
}

/// Returns short and long requests of all kinds, with known and unknown ops, in no particular order.
fn mixed() -> Vec<Vec<u8>> {
    let ten = 10_u64.to_be_bytes();
    vec![
        request(GET, 10).to_vec(),
        long(GET, b"bee"),
        long(RANGE, &range_body(0, 2, b"", b"")),
        request(FLOOR, 55).to_vec(),
        long(EXISTS, b"bumblebee"),
        long(COUNT, &range_body(NUMBERS | START, 0, &ten, b"")),
        long(999, b""),
        request(EXISTS, 20).to_vec(),
        long(FLOOR, b"bear"),
        long(RANGE, &range_body(START | BACKWARD, 2, b"b", b"")),
        request(CEILING, 55).to_vec(),
        request(77, 0).to_vec(),
        long(CEILING, b"a long key that is more than sixteen bytes long"),
        long(COUNT, b""),
        request(GET, 200).to_vec(),
    ]
}

#[test]
fn a_mixed_stream_split_at_any_byte_is_answered() {
    for table in [numbers(), animals()] {
        let (requests, server) = (mixed(), table.serve());
        let stream = requests.concat();
        let expected = table.answers(&stream).0;
        let mut connection = server.connect();
        for split in 0..=stream.len() {
            connection.write_all(&stream[..split]).unwrap();
            // Complete requests are answered before the rest of the stream arrives.
            let whole = table.answers(&stream[..split]).0;
            expect(&mut connection, &whole);
            connection.write_all(&stream[split..]).unwrap();
            expect(&mut connection, &expected[whole.len()..]);
        }
        let mut connection = server.connect();
        for byte in &stream {
            connection.write_all(&[*byte]).unwrap();
        }
        expect(&mut connection, &expected);
        assert_same_bytes(&exchange(&mut connection, &stream.repeat(500)), &expected.repeat(500));
    }
}

#[test]
fn requests_after_a_body_of_any_length_are_answered() {
    for table in [numbers(), animals()] {
        let server = table.serve();
        let mut connection = server.connect();
        for op in [GET, EXISTS, FLOOR, CEILING, RANGE, COUNT, 6, 0xffff, 0xfe_ffff] {
            for body_len in 0..=100 {
                let stream = [long(op, &vec![b'b'; body_len]), mixed().concat()].concat();
                connection.write_all(&stream).unwrap();
                expect(&mut connection, &table.answers(&stream).0);
            }
        }
    }
}

#[test]
fn the_longest_keys_are_found() {
    let key = |last: u8| [vec![b'k'; 65_534], vec![last]].concat();
    let table = Reference::of_bytes([(key(1), b"one".to_vec()), (key(3), vec![b'v'; 9000]), (vec![b'k'], vec![])]);
    let server = table.serve();
    let mut stream = Vec::new();
    for last in 0..5 {
        for op in [GET, EXISTS, FLOOR, CEILING] {
            stream.extend(long(op, &key(last)));
        }
        stream.extend(long(GET, &[key(last), vec![0]].concat()));
        stream.extend(long(FLOOR, &[key(last), vec![0]].concat()));
        for flags in [START | END, START | END | BACKWARD, START | START_EXCLUDED | END | END_EXCLUDED] {
            let body = range_body(flags, 0, &key(1), &key(last));
            assert_eq!(body.len(), BODY_MAX_BYTES);
            stream.extend(long(RANGE, &body));
            stream.extend(long(COUNT, &body));
        }
    }
    let mut connection = server.connect();
    assert_same_bytes(&exchange(&mut connection, &stream), &table.answers(&stream).0);
}

#[test]
fn a_body_above_the_maximum_length_is_an_error_and_closes_the_connection() {
    let table = animals();
    let server = table.serve();
    for op in [GET, RANGE, 999] {
        for length in [BODY_MAX_BYTES + 1, BODY_MAX_BYTES + 16, 1 << 24, u32::MAX as usize] {
            let announced = [(LONG | op).to_be_bytes(), u32::try_from(length).unwrap().to_be_bytes()].concat();
            // The server sends the response before it has the body, once it has a frame of 16 bytes.
            let stream = [mixed().concat(), announced.clone(), vec![0; 8]].concat();
            let (expected, closes) = table.answers(&stream);
            assert!(closes);
            let mut connection = server.connect();
            connection.write_all(&stream).unwrap();
            expect(&mut connection, &expected);
            assert_eq!(connection.read(&mut [0]).unwrap(), 0, "{length}: the connection is closed");
            // The bytes after it are not parsed as requests.
            let mut connection = server.connect();
            let stream = [announced, vec![0; 200_000]].concat();
            assert_same_bytes(&exchange(&mut connection, &stream), &answer(2, b""));
        }
    }
    expect_answers(&table, &mut server.connect(), &mixed().concat());
}

fn expect_answers(table: &Reference, connection: &mut UnixStream, stream: &[u8]) {
    connection.write_all(stream).unwrap();
    expect(connection, &table.answers(stream).0);
}

#[test]
fn an_announced_length_allocates_no_memory_before_its_bytes_arrive() {
    let table = animals();
    let server = table.serve();
    expect_answers(&table, &mut server.connect(), &mixed().concat());
    let before = server.anonymous_bytes();
    let mut waiting: Vec<_> = (0..200).map(|_| server.connect()).collect();
    let whole = long(GET, &vec![b'k'; BODY_MAX_BYTES]);
    for connection in &mut waiting {
        expect_answers(&table, connection, &long(GET, b"bee"));
        connection.write_all(&whole[..16]).unwrap();
    }
    // Once each worker has answered a later request, it has read all earlier ones.
    for _ in 0..64 {
        expect_answers(&table, &mut server.connect(), &mixed().concat());
    }
    let grown = server.anonymous_bytes().saturating_sub(before);
    assert!(grown < 200 * (16 << 10), "{grown} bytes for 200 clients that announce {BODY_MAX_BYTES}");
    // The clients can still send the announced bytes.
    for connection in &mut waiting {
        connection.write_all(&whole[16..]).unwrap();
        expect(connection, &answer(1, b""));
    }
}

#[test]
fn a_key_of_the_other_kind_is_an_error() {
    for (table, key, kind) in [(numbers(), &10_u64.to_be_bytes()[..], 0), (animals(), b"eight ch", NUMBERS)] {
        let server = table.serve();
        let mut connection = server.connect();
        let mut stream = Vec::new();
        for op in [GET, EXISTS, FLOOR, CEILING] {
            stream.extend(match table.numbers {
                true => long(op, key),
                false => request(op, 10).to_vec(),
            });
        }
        for flags in [START, END, START | END, START | START_EXCLUDED, BACKWARD | END] {
            let [start, end] = [START, END].map(|given| if flags & given != 0 { key } else { b"" });
            stream.extend(long(RANGE, &range_body(flags | kind, 0, start, end)));
            stream.extend(long(COUNT, &range_body(flags | kind, 0, start, end)));
        }
        connection.write_all(&stream).unwrap();
        expect(&mut connection, &answer(2, b"").repeat(14));
        // Without a key, the kind in the flags does not matter.
        for kind in [0, NUMBERS] {
            let stream = [RANGE, COUNT].map(|op| long(op, &range_body(kind, 0, b"", b""))).concat();
            let expected = table.answers(&stream).0;
            assert_eq!(expected[..4], [0; 4]);
            expect_answers(&table, &mut connection, &stream);
        }
    }
}

/// Returns bodies with one wrong field each.
fn malformed(kind: u32, key: &[u8]) -> Vec<Vec<u8>> {
    let whole = range_body(START | END | kind, 5, key, key);
    let with = |field: usize, value: u32| {
        let mut body = whole.clone();
        body[4 * field..4 * field + 4].copy_from_slice(&value.to_be_bytes());
        body
    };
    let len = u32::try_from(key.len()).unwrap();
    let mut bodies: Vec<_> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    bodies.extend((6..32).map(|bit| with(0, START | END | kind | 1 << bit)));
    bodies.extend([
        with(0, START | kind),
        with(0, END | kind),
        with(0, kind),
        with(0, START | END | (kind ^ NUMBERS)),
        with(2, 0),
        with(2, len - 1),
        with(2, len + 1),
        with(2, 2 * len),
        with(2, u32::MAX),
        with(3, len - 1),
        with(3, len + 1),
        with(3, u32::MAX),
        [whole.clone(), vec![0]].concat(),
        range_body(START_EXCLUDED | kind, 0, b"", b""),
        range_body(END_EXCLUDED | kind, 0, b"", b""),
        range_body(START | END_EXCLUDED | kind, 0, key, b""),
        range_body(START_EXCLUDED | END | kind, 0, b"", key),
    ]);
    bodies
}

#[test]
fn a_malformed_range_is_an_error_and_the_connection_remains_usable() {
    for (table, kind, key) in [(numbers(), NUMBERS, &70_u64.to_be_bytes()[..]), (animals(), 0, b"bee")] {
        let server = table.serve();
        let mut connection = server.connect();
        for body in malformed(kind, key) {
            for op in [RANGE, COUNT] {
                connection.write_all(&long(op, &body)).unwrap();
                expect(&mut connection, &answer(2, b""));
            }
        }
        if table.numbers {
            for len in (0..=16).filter(|len| *len != 8) {
                connection.write_all(&long(RANGE, &range_body(START | NUMBERS, 0, &vec![0; len], b""))).unwrap();
                expect(&mut connection, &answer(2, b""));
            }
        }
        expect_answers(&table, &mut connection, &mixed().concat());
    }
}

#[test]
fn a_client_that_does_not_read_pages_delays_only_itself_in_bounded_memory() {
    let table = Reference::of_bytes((0..300).map(|i| (format!("key {i:04}").into_bytes(), vec![b'v'; 700])));
    let server = table.serve();
    let before = server.anonymous_bytes();
    let mut non_reading: Vec<_> = (0..20).map(|_| server.connect()).collect();
    let all = long(RANGE, &range_body(0, 0, b"", b""));
    let bee = long(GET, b"key 0123");
    let requests = [&all[..], &bee].concat().repeat(200);
    non_reading.iter_mut().for_each(|stream| stream.write_all(&requests).unwrap());
    expect_answers(&table, &mut server.connect(), &[&all[..], &bee].concat());
    let grown = server.anonymous_bytes().saturating_sub(before);
    assert!(grown < 20 * ((64 << 10) + 2 * requests.len() as u64), "{grown} bytes for 20 clients that do not read");

    // The client can still read all its responses.
    let mut one = non_reading.swap_remove(0);
    drop(non_reading);
    one.shutdown(Shutdown::Write).unwrap();
    let mut answers = Vec::new();
    one.read_to_end(&mut answers).unwrap();
    assert_same_bytes(&answers, &table.answers(&requests).0);
}
