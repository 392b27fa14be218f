//! Clients of the metrics that send or read too little, too much, or too often, and health checks beside them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::helpers::repeating::StopOnDrop;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::{PATIENCE, eventually};

/// The maximum number of connections that the server keeps, with a limit on descriptors that allows many.
const KEPT_MAX: usize = 256;
/// More connections than the server could serve one after the other in [`PATIENCE`] if it waited for their requests.
const CONNECTIONS: usize = 1500;
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";

fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

fn serve(table: &Table, metrics: &str) -> (Server, String) {
    let mut server = Server::spawn(table.command(&["--metrics", metrics]), &table.socket());
    let line = server.wait_for_log("metrics on ");
    server.wait_for_log("ready");
    (server, line)
}

fn serve_tcp(table: &Table) -> (Server, SocketAddr) {
    let (server, line) = serve(table, "127.0.0.1:0");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    (server, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes, and returns everything that the server sends until it closes the connection. Fails if the server resets
/// the connection.
fn exchange(mut stream: impl Read + Write, sent: &[u8]) -> String {
    stream.write_all(sent).unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    received
}

fn expect_healthy(stream: impl Read + Write) {
    let response = exchange(stream, HEALTH);
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok\n"), "{response:?}");
}

/// Sends what an unhelpful client sends: nothing, an incomplete request, a long incomplete head, or a request whose
/// response it never reads.
fn send_little(mut stream: impl Write, kind: usize) -> io::Result<()> {
    match kind % 4 {
        0 => Ok(()),
        1 => stream.write_all(b"GET /metrics HTTP/1.1\r\nHo"),
        2 => stream.write_all(&[b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 8000]].concat()),
        _ => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    }
}

#[test]
fn health_checks_succeed_beside_thousands_of_silent_connections() {
    raise_descriptor_limit();
    let table = Table::of_rows(10);
    let (server, address) = serve_tcp(&table);
    let descriptors_before = server.descriptors();
    let mut silent = Vec::new();
    for number in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).unwrap();
        // The response does not fit, so the server cannot send all of it.
        set_socket_recv_buffer_size(&stream, 1).unwrap();
        // Fails if the server has closed the connection.
        let _ = send_little(&stream, number);
        silent.push(stream);
        if number % 100 == 0 {
            expect_healthy(connect(address));
        }
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let response = exchange(connect(address), format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
        assert!(response.starts_with("HTTP/1.0 200 "), "{path}: {response:?}");
    }
    assert!(server.descriptors() <= descriptors_before + KEPT_MAX);
    // A quarter of the clients send complete requests. The kernel may accept their whole responses, and a client may
    // have been disconnected because of the time limit.
    assert!(server.number("connections_cut_metrics") > 0);
    drop(silent);
}

/// A Unix socket, because a flood over TCP could use all ports of the machine.
#[test]
fn health_checks_succeed_during_floods_of_connections() {
    raise_descriptor_limit();
    let table = Table::of_rows(10);
    let path = table.folder.path().join("metrics.sock");
    let (server, _) = serve(&table, path.to_str().unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (is_over, path) = (&is_over, &path);
            scope.spawn(move || {
                let mut recent: Vec<Option<UnixStream>> = Vec::new();
                recent.resize_with(300, || None);
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let Ok(stream) = UnixStream::connect(path) else { continue };
                    let _ = send_little(&stream, number / 100 + thread);
                    recent[number % 300] = Some(stream);
                }
            });
        }
        let stop = StopOnDrop(&is_over);
        for _ in 0..20 {
            // The flood may replace a connection before this thread has sent its request.
            eventually("a health check succeeds", || {
                let Ok(mut stream) = UnixStream::connect(&path) else { return false };
                let mut response = String::new();
                let is_answered = stream.write_all(HEALTH).and_then(|()| stream.read_to_string(&mut response)).is_ok();
                is_answered && response.ends_with("\r\n\r\nok\n")
            });
        }
        // A busy machine may answer all of them before the flood exceeds the limit.
        eventually("connections of the flood are closed", || server.number("connections_cut_metrics") > 0);
        drop(stop);
    });
}

#[test]
fn health_checks_over_a_unix_socket_succeed_beside_silent_connections() {
    raise_descriptor_limit();
    let table = Table::of_rows(10);
    let path = table.folder.path().join("metrics.sock");
    let (server, _) = serve(&table, path.to_str().unwrap());
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let silent: Vec<UnixStream> = (0..CONNECTIONS)
        .map(|number| {
            let stream = connect();
            let _ = send_little(&stream, number);
            stream
        })
        .collect();
    expect_healthy(connect());
    assert!(server.number("connections_cut_metrics") > 0);
    drop(silent);
}

/// Every request gets exactly one response and the end of the stream, whatever follows the request.
#[test]
fn unusual_requests_get_one_response_each() {
    let table = Table::of_rows(10);
    let (server, address) = serve_tcp(&table);
    let long_body =
        [b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n".to_vec(), vec![b'x'; 50_000]];
    let cases: &[(&[u8], &str)] = &[
        (b"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 200 "),
        (b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.0 200 "),
        (b"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 "),
        (b"GET http://other.example/healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 "),
        (b"GET /healthz?a=b#c HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 "),
        (b"GET //healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 "),
        (b"GET /healthz/../metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 "),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 "),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 "),
        (b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 "),
        // HTTP/2 is not supported.
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        (b"GET /healthz HTTP/9.9\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /healthz\r\n\r\n", "HTTP/1.1 400 "),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", "HTTP/1.1 400 "),
        (b"GET /h\x00 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /healthz HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 "),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.1 405 "),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 "),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nabcdefghi", "HTTP/1.1 400 "),
        (b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "HTTP/1.1 200 "),
        (&b"GET /healthz HTTP/1.1\r\n\r\n".repeat(500), "HTTP/1.1 200 "),
        (&long_body.concat(), "HTTP/1.1 405 "),
        (&[b"GET / HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(100), b"\r\n".to_vec()].concat(), "HTTP/1.1 431 "),
        (&[b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 20_000], b"\r\n\r\n".to_vec()].concat(), "HTTP/1.1 431 "),
    ];
    for (sent, expected) in cases {
        let case = sent[..sent.len().min(90)].escape_ascii();
        let response = exchange(connect(address), sent);
        assert!(response.starts_with(expected), "{case}: {response:?}");
        assert_eq!(response.matches("HTTP/1.").count(), usize::from(!expected.is_empty()), "{case}: {response:?}");
    }
    // A client that closes its side after its request gets the response.
    for path in ["/healthz", "/metrics"] {
        let mut stream = connect(address);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with('\n'), "{path}: {response:?}");
    }
    assert_eq!(server.number("thread_panics"), 0);
}
