//! Two protocols on one socket, and one protocol on two sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use zero_kv::client::Client;

use super::served::*;
use crate::helpers::frames::{EXISTS, answer, expect, expect_end, gets, request};
use crate::helpers::tables::answer_to_get;

pub(crate) fn a_connection_speaks_the_protocol_of_its_first_byte() {
    let (_table, served) = serve(&[]);
    let model = rows();
    let (mut native, mut redis) = (served.connect(), served.connect());
    for key in 0..100 {
        native.write_all(&gets([key])).unwrap();
        redis.write_all(&line(&format!("GET {key}"))).unwrap();
        expect(&mut native, &answer_to_get(&model, key));
        let value = &model[&key];
        expect(&mut redis, &[format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat());
    }
    // Sends the first byte, which selects the protocol, and the rest much later.
    let (mut native, mut redis) = (served.connect(), served.connect());
    let (frame, ping) = (request(EXISTS, 5), line("PING"));
    for (of_native, of_redis) in frame.iter().zip(ping.iter().map(Some).chain(std::iter::repeat(None))) {
        native.write_all(&[*of_native]).unwrap();
        redis.write_all(of_redis.map_or(&[][..], std::slice::from_ref)).unwrap();
    }
    expect(&mut native, &answer(0, b""));
    expect(&mut redis, b"+PONG\r\n");
}

pub(crate) fn requests_may_be_split_at_any_byte() {
    let (_table, served) = serve(&[]);
    let requests = [line("GET 7"), line("MGET 1 2000"), b"GET 8\r\nECHO \"a b\"\r\n".to_vec(), line("QUIT")].concat();
    let expected = converse(served.connect(), &requests);
    for split in 1..requests.len() {
        let mut stream = served.connect();
        stream.write_all(&requests[..split]).unwrap();
        // The reply to a later command shows that the only worker has read the earlier bytes.
        assert_eq!(ask(served.socket(), &["PING"]), b"+PONG\r\n+OK\r\n");
        stream.write_all(&requests[split..]).unwrap();
        expect_end(&mut stream, &expected);
    }
    let mut stream = served.connect();
    requests.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
    expect_end(&mut stream, &expected);
}

pub(crate) fn tcp_has_equal_replies() {
    let (_table, served) = serve(&[]);
    assert!(served.tcp().ip().is_loopback());
    let requests = [line("GET 7"), line("GET 1002"), line("MGET 1 2000"), line("QUIT")].concat();
    let mut stream = TcpStream::connect(served.tcp()).unwrap();
    stream.write_all(&requests).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    assert!(replies == converse(served.connect(), &requests));
    // TCP also accepts native requests.
    let mut stream = TcpStream::connect(served.tcp()).unwrap();
    stream.write_all(&gets([7])).unwrap();
    expect(&mut stream, &answer_to_get(&rows(), 7));
}

pub(crate) fn a_client_that_reads_nothing_blocks_no_other_client() {
    let (_table, served) = serve(&["--workers", "1"]);
    assert_eq!(Client::connect(served.socket()).unwrap().info().unwrap().number::<u64>("workers"), Some(1));
    let mut stalled = served.connect();
    stalled.set_nonblocking(true).unwrap();
    // Writes until the socket accepts no more bytes.
    let (gets, mut written_bytes) = (line("GET 1002").repeat(100), 0);
    let error = loop {
        match stalled.write(&gets) {
            Ok(bytes) => written_bytes += bytes,
            Err(error) => break error,
        }
        assert!(written_bytes < 64 << 20, "requests are read although no reply is");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(ask(served.socket(), &["GET 1003"]), b"$5\r\n12345\r\n+OK\r\n");
}
