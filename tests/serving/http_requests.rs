//! An HTTP request ends its connection before anything in its body is executed.

use std::io::Write;

use zero_kv::client::Client;

use crate::helpers::frames::{expect, read_until_closed};
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

/// HTTP requests, and the same words as a RESP array. Each ends with a command that must not be executed.
const HTTP: [(&str, usize); 6] = [
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\nCLIENT SETNAME executed\r\n", 1),
    ("post /\r\nCLIENT SETNAME executed\r\n", 1),
    ("Host: localhost\r\nCLIENT SETNAME executed\r\n", 1),
    // As in Redis, GET with two arguments is only an error; the second line ends the connection.
    ("GET / HTTP/1.1\r\nhOST: localhost\r\n\r\nCLIENT SETNAME executed\r\n", 2),
    ("*1\r\n$4\r\nPoSt\r\n*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$8\r\nexecuted\r\n", 1),
    ("*2\r\n$5\r\nHOST:\r\n$1\r\nx\r\nCLIENT SETNAME executed\r\n", 1),
];

fn number(server_socket: &std::path::Path, name: &str) -> u64 {
    let info = Client::connect(server_socket).unwrap().info().unwrap();
    info.number(name).unwrap_or_else(|| panic!("no {name} in {info:?}"))
}

fn serve() -> (Table, Server) {
    let table = Table::of_rows(10);
    let server = table.serve();
    (table, server)
}

#[test]
fn no_part_of_an_http_body_is_executed_wherever_the_request_is_split() {
    let (table, mut server) = serve();
    let mut disconnected = 0;
    for (http, commands) in HTTP {
        for split in 0..http.len() {
            let executed_before = number(&table.socket(), "requests_redis");
            let mut stream = server.connect();
            let (first, second) = http.as_bytes().split_at(split);
            stream.write_all(&[PING, first].concat()).unwrap();
            // The PONG shows that the server has read the first part, which was sent with the PING.
            expect(&mut stream, PONG);
            // The server may have closed the connection after the first part.
            let _ = stream.write_all(second);
            let replies = String::from_utf8(read_until_closed(&mut stream)).unwrap();
            let errors = replies.matches("-ERR wrong number of arguments for 'get' command\r\n").count();
            assert_eq!(errors, commands - 1, "{http:?} split at {split}: {replies:?}");
            assert_eq!(replies.lines().count(), commands - 1, "{http:?} split at {split}: {replies:?}");
            let executed = number(&table.socket(), "requests_redis") - executed_before;
            assert_eq!(executed, 1 + commands as u64, "{http:?} split at {split}");
            disconnected += 1;
            assert_eq!(number(&table.socket(), "connections_cut_http"), disconnected);
        }
    }
    let line = server.wait_for_log("disconnected: sent POST or Host:");
    assert!(line.contains(&format!("pid {}", std::process::id())), "{line}");
}

#[test]
fn http_words_in_other_positions_are_ordinary_arguments() {
    let (table, server) = serve();
    let mut stream = server.connect();
    stream
        .write_all(b"ECHO POST\r\nPING host:\r\nCLIENT SETNAME post\r\nPOSTS x\r\nHost:localhost\r\nhost\r\n")
        .unwrap();
    expect(&mut stream, b"$4\r\nPOST\r\n$5\r\nhost:\r\n+OK\r\n");
    for (name, args) in [("POSTS", "'x' "), ("Host:localhost", ""), ("host", "")] {
        let error = format!("-ERR unknown command '{name}', with args beginning with: {args}\r\n");
        expect(&mut stream, error.as_bytes());
    }
    stream.write_all(PING).unwrap();
    expect(&mut stream, PONG);
    assert_eq!(number(&table.socket(), "connections_cut_http"), 0);
}
