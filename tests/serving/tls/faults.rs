//! Clients that begin a handshake and do not finish it, and clients that use the wrong port.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::helpers::frames::{answer, expect, gets, read_until_closed};
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles, connect_tcp, connect_tls};

/// The beginning of a TLS handshake: a record that announces 512 bytes.
const HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

struct Scene {
    _table: Table,
    authority: Authority,
    server: Server,
}

fn serve(options: &[&str]) -> Scene {
    let (table, authority) = (Table::of_rows(100), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&[&files.options()[..], options].concat());
    Scene { _table: table, authority, server }
}

#[test]
fn thousands_of_unfinished_handshakes_block_no_other_client() {
    let scene = serve(&["--max-connections", "100"]);
    let (server, config) = (&scene.server, scene.authority.clients(None, None));
    let mut established = connect_tls(server, &config);
    let memory_before = server.anonymous_bytes();
    let address = server.tls();
    let mut unfinished: Vec<TcpStream> = Vec::new();
    for number in 0..2000 {
        let mut stream = TcpStream::connect(address).unwrap();
        if number % 2 == 0 {
            stream.write_all(HELLO).unwrap();
        }
        unfinished.push(stream);
        if number % 100 == 0 {
            established.write_all(&gets([7])).unwrap();
            expect(&mut established, &answer(0, b"value_content_at_key_7"));
            let mut new = connect_tls(server, &config);
            new.write_all(b"PING\r\n").unwrap();
            expect(&mut new, b"+PONG\r\n");
        }
    }
    // A quarter of the connections may be in a handshake. The oldest handshakes end.
    server.wait_for("connections_cut_handshake", 1900);
    assert!(server.anonymous_bytes() < memory_before + (8 << 20));
    for mut ended in unfinished.drain(..1000) {
        ended.set_nonblocking(false).unwrap();
        assert_eq!(ended.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    established.write_all(&gets([7])).unwrap();
    expect(&mut established, &answer(0, b"value_content_at_key_7"));
}

#[test]
fn a_handshake_that_takes_too_long_ends() {
    let mut scene = serve(&["--tls-handshake-timeout", "1"]);
    let mut silent = connect_tcp(scene.server.tls());
    let mut partial = connect_tcp(scene.server.tls());
    partial.write_all(HELLO).unwrap();
    for stream in [&mut silent, &mut partial] {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    scene.server.wait_for_log(
        "the TLS handshake was not complete after 1 s (--tls-handshake-timeout [TlsConfig::handshake_timeout])",
    );
    scene.server.wait_for("connections_cut_handshake", 2);
}

#[test]
fn plaintext_on_the_tls_port_is_answered_logged_and_counted() {
    let mut scene = serve(&[]);
    let requests: [(&[u8], &[u8]); 4] = [
        (b"PING\r\n", b"-ERR this port requires TLS\r\n"),
        (b"*1\r\n$4\r\nPING\r\n", b"-ERR this port requires TLS\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"-ERR this port requires TLS\r\n"),
        (&gets([7]), &answer(2, b"")),
    ];
    for (count, (request, response)) in (1..).zip(requests) {
        let mut stream = connect_tcp(scene.server.tls());
        stream.write_all(request).unwrap();
        assert_eq!(read_until_closed(&mut stream), response);
        assert_eq!(scene.server.number("connections_cut_plaintext"), count);
    }
    let line = scene.server.wait_for_log("sent plaintext");
    assert!(line.contains("to the TLS port (--tls [Server::serve_tls])") && line.contains("127.0.0.1:"), "{line}");
}

#[test]
fn tls_on_a_socket_without_tls_is_logged_and_counted() {
    let mut scene = serve(&["--tcp", "127.0.0.1:0"]);
    let tcp = scene.server.info().get("tcp").unwrap().parse().unwrap();
    let mut stream = connect_tcp(tcp);
    stream.write_all(HELLO).unwrap();
    assert_eq!(read_until_closed(&mut stream), b"");
    let mut stream: UnixStream = scene.server.connect();
    stream.write_all(&HELLO[..1]).unwrap();
    assert_eq!(read_until_closed(&mut stream), b"");
    assert_eq!(scene.server.number("connections_cut_tls"), 2);
    scene.server.wait_for_log("the client began a TLS handshake on a socket without TLS");
}

#[test]
fn malformed_records_end_only_their_connection() {
    let scene = serve(&[]);
    let config = scene.authority.clients(None, None);
    let mut other = connect_tls(&scene.server, &config);
    // A record of an unknown type, a record that is too long, and a handshake message of an unknown type.
    for malformed in [&[0x99, 3, 3, 0, 1, 0][..], &[0x16, 3, 3, 0xff, 0xff, 0], &[0x16, 3, 3, 0, 4, 0xee, 0, 0, 0]] {
        let mut stream = connect_tcp(scene.server.tls());
        stream.write_all(malformed).unwrap();
        read_until_closed(&mut stream);
        let mut stream = connect_tls(&scene.server, &config);
        stream.write_all(b"PING\r\n").unwrap();
        expect(&mut stream, b"+PONG\r\n");
        stream.sock.write_all(malformed).unwrap();
        let mut rest = Vec::new();
        assert!(stream.read_to_end(&mut rest).is_err(), "{malformed:?} was not answered with an alert");
        other.write_all(b"PING\r\n").unwrap();
        expect(&mut other, b"+PONG\r\n");
    }
    assert_eq!(scene.server.number("tls_handshakes_failed"), 3);
    assert_eq!(scene.server.number("panics") + scene.server.number("thread_panics"), 0);
}
