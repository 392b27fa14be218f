//! Memory that clients can make a server use.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::{ServedRows, array, ask, bulk, command};
use crate::helpers::frames::expect;

#[test]
fn clients_that_do_not_read_use_little_memory_and_others_are_answered() {
    let served = ServedRows::numbers(200_000);
    let mut other = served.connect();
    assert_eq!(ask(&mut other, "PING"), "+PONG\r\n");
    let before = served.server.anonymous_bytes();
    let all = array(std::iter::once(&b"MGET"[..]).chain(served.rows.keys().take(20_000).map(Vec::as_slice)));
    let mut non_reading: Vec<UnixStream> = (0..40).map(|_| served.connect()).collect();
    for stream in &mut non_reading {
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
    // The pending replies are complete once they are read.
    let mut sorted: Vec<&Vec<u8>> = served.rows.keys().collect();
    sorted.sort_by_key(|key| (key.len(), *key));
    expect(&mut non_reading[0], &array(sorted.iter().map(|key| key.as_slice())));
    let with_1: Vec<&[u8]> = sorted.iter().map(|key| key.as_slice()).filter(|key| key.contains(&b'1')).collect();
    expect(&mut non_reading[0], &array(with_1));
    non_reading[0].write_all(&all[10_000..]).unwrap();
    let values: Vec<u8> = served.rows.iter().take(20_000).flat_map(|(_, value)| bulk(value)).collect();
    expect(&mut non_reading[0], &[&b"*20000\r\n"[..], &values].concat());
}

#[test]
fn announced_lengths_allocate_no_memory() {
    let served = ServedRows::numbers(10);
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
