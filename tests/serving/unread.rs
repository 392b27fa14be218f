//! Clients that do not read their responses, and the memory that the kernel holds for them.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::io::ioctl_fionread;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::helpers::frames::{expect, gets, read_until_closed};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get, answers_to_gets};
use crate::helpers::waiting::eventually;

/// The lowest limit on client memory that a server with default buffers accepts.
const MAX_BYTES: u64 = 16 << 20;
/// The clients of a test. The buffers of this many Unix sockets hold 160 MB.
const CLIENTS: usize = 750;
/// A key whose value fits into the buffer of a Unix socket, and a key whose value does not.
const SHORT: u64 = 1;
const LONG: u64 = 2;

fn table() -> Table {
    raise_descriptor_limit();
    Table::new([(SHORT, vec![b's'; 100_000]), (LONG, vec![b'l'; 3_000_000])])
}

/// Lets this process, and the servers that it starts, open as many descriptors as the system allows.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

fn serve(table: &Table, options: &[&str]) -> Server {
    // On a busy machine, clients may pause for longer than the default time-outs.
    let mut all =
        vec!["--workers", "2", "--client-memory-max", "16MiB", "--stall-timeout", "0", "--min-drain-rate", "0"];
    all.extend(options);
    table.serve_with(&all)
}

/// Returns the number of bytes that the kernel holds for clients that have not received them.
fn unread_bytes<S: AsFd>(clients: &[S]) -> u64 {
    clients.iter().map(|client| ioctl_fionread(client).unwrap()).sum()
}

/// Waits until the server has nothing more to do: two Info responses in a row report as many sent bytes, not counting the
/// responses to Info themselves.
fn wait_until_idle(server: &Server) {
    let mut before = None;
    eventually("the server sends nothing more", || {
        let now = (server.number("hits"), server.number("client_sockets_bytes"));
        before.replace(now) == Some(now)
    });
}

#[test]
fn responses_that_many_clients_do_not_read_stay_within_the_limit_on_client_memory() {
    let table = table();
    let server = serve(&table, &[]);
    let mut clients: Vec<UnixStream> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(&gets([LONG])).unwrap();
    }
    eventually("all requests are answered", || server.number("hits") >= CLIENTS as u64);
    wait_until_idle(&server);
    let unread_bytes = unread_bytes(&clients);
    assert!((MAX_BYTES / 4..MAX_BYTES).contains(&unread_bytes), "{unread_bytes} bytes are unread");
    let counted_bytes = server.number("client_sockets_bytes");
    assert!((unread_bytes..2 * MAX_BYTES).contains(&counted_bytes), "{counted_bytes} bytes are counted");
    // Clients that read are served meanwhile, and buffers grow again.
    let mut other = server.connect();
    for _ in 0..3 {
        other.write_all(&gets([LONG, SHORT])).unwrap();
        expect(&mut other, &answers_to_gets(&table.model, [LONG, SHORT]));
    }
    drop(clients);
    eventually("nothing is held", || server.number("client_sockets_bytes") < 10_000);
    other.write_all(&gets([LONG])).unwrap();
    expect(&mut other, &answer_to_get(&table.model, LONG));
}

/// A tiny response takes many times its length in the kernel.
#[test]
fn the_overhead_of_tiny_unread_responses_is_counted() {
    let table = table();
    let server = serve(&table, &[]);
    let mut clients: Vec<UnixStream> = (0..40).map(|_| server.connect()).collect();
    for round in 0..100 {
        for client in &mut clients {
            client.write_all(&gets([77])).unwrap();
        }
        eventually("all requests are answered", || server.number("misses") >= (round + 1) * 40);
    }
    assert_eq!(unread_bytes(&clients), 40 * 100 * 8);
    eventually("the memory is counted", || server.number("client_sockets_bytes") > 40 * 100 * 256);
}

/// The kernel keeps the responses of a closed Unix socket until the client reads them.
#[test]
fn responses_of_ended_connections_count_until_they_are_read() {
    let table = table();
    let server = serve(&table, &[]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = server.connect();
        client.write_all(&gets([SHORT])).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        clients.push(client);
        assert!(unread_bytes(&clients) < MAX_BYTES);
    }
    eventually("all requests are answered", || server.number("hits") >= CLIENTS as u64);
    wait_until_idle(&server);
    let (unread_bytes, counted_bytes) = (unread_bytes(&clients), server.number("client_sockets_bytes"));
    assert!((MAX_BYTES / 4..MAX_BYTES).contains(&unread_bytes), "{unread_bytes} bytes are unread");
    assert!(counted_bytes >= unread_bytes, "{counted_bytes} bytes are counted of {unread_bytes}");
    // Every client that is not evicted gets its response and the end of the stream.
    let evicted = server.number("connections_cut_memory");
    let expected = answer_to_get(&table.model, SHORT);
    let received: Vec<Vec<u8>> = clients.iter_mut().map(|client| read_until_closed(client)).collect();
    assert!(received.iter().all(|bytes| expected.starts_with(bytes)));
    let incomplete = received.iter().filter(|bytes| bytes.len() < expected.len()).count() as u64;
    assert!(incomplete <= evicted, "{incomplete} responses are incomplete, {evicted} connections were evicted");
    eventually("nothing is held", || server.number("client_sockets_bytes") < 10_000);
}

/// Clients that request a value, end their side of the connection, and receive nothing yet.
fn ended(server: &Server, count: usize) -> Vec<UnixStream> {
    let client = |_| {
        let mut client = server.connect();
        client.write_all(&gets([SHORT])).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client
    };
    (0..count).map(client).collect()
}

#[test]
fn ended_connections_whose_responses_are_not_read_do_not_keep_others_from_connecting() {
    const CONNECTIONS_MAX: usize = 5;
    let table = table();
    let server = serve(&table, &["--max-connections", "5"]);
    let mut observer = server.client();
    let mut number = |name: &str| observer.info().unwrap().number::<u64>(name).unwrap();
    eventually("no other client is connected", || number("connections") == 1);
    let descriptors = server.descriptors();
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.extend(ended(&server, CONNECTIONS_MAX - 1));
        eventually("all requests are answered", || number("hits") == unread.len() as u64);
        eventually("the connections have ended", || number("connections") == 1);
    }
    assert_eq!(number("connections_refused"), 0);
    // All of these sockets linger.
    assert!(number("client_sockets_bytes") >= 100_000 * unread.len() as u64);
    let mut accepted: Vec<UnixStream> = (1..CONNECTIONS_MAX).map(|_| server.connect()).collect();
    for client in &mut accepted {
        client.write_all(&gets([SHORT])).unwrap();
        expect(client, &answer_to_get(&table.model, SHORT));
    }
    for client in &mut unread {
        assert_eq!(read_until_closed(client), answer_to_get(&table.model, SHORT));
    }
    eventually("nothing is held", || number("client_sockets_bytes") < 10_000);
    eventually("all sockets are closed", || server.descriptors() < descriptors + CONNECTIONS_MAX);
}

#[test]
fn stalled_clients_that_never_read_do_not_keep_others_from_connecting() {
    let table = table();
    let server = table.serve_with(&["--workers", "2", "--max-connections", "4", "--stall-timeout", "1"]);
    let mut observer = server.client();
    let mut number = |name: &str| observer.info().unwrap().number::<u64>(name).unwrap();
    eventually("no other client is connected", || number("connections") == 1);
    let mut stalled = Vec::new();
    for round in 1..=2 {
        for _ in 0..3 {
            let mut client = server.connect();
            client.write_all(&gets([LONG])).unwrap();
            stalled.push(client);
        }
        eventually("the clients are disconnected", || number("connections_cut_stalled") == 3 * round);
        eventually("their connections have ended", || number("connections") == 1);
    }
    assert_eq!(number("connections_refused"), 0);
    let mut other = server.connect();
    other.write_all(&gets([SHORT])).unwrap();
    expect(&mut other, &answer_to_get(&table.model, SHORT));
}

/// A short response takes some KiB in the kernel, whatever the size of the socket's buffer.
#[test]
fn a_user_whose_ended_connections_hold_the_limit_cannot_open_others() {
    const SOCKETS_MAX: usize = 16_000;
    raise_descriptor_limit();
    let table = Table::new([(SHORT, vec![b's'; 3000])]);
    let server = serve(&table, &[]);
    let mut observer = server.client();
    let mut number = |name: &str| observer.info().unwrap().number::<u64>(name).unwrap();
    let mut unread = Vec::new();
    while number("connections_refused") == 0 {
        assert!(unread.len() < SOCKETS_MAX, "{} bytes are counted", number("client_sockets_bytes"));
        for _ in 0..100 {
            let mut client = server.connect();
            // The server may have refused the connection.
            let _ = client.write_all(&gets([SHORT])).and_then(|()| client.shutdown(Shutdown::Write));
            unread.push(client);
        }
        eventually("all connections have ended", || number("connections") == 1);
    }
    let counted_bytes = number("client_sockets_bytes");
    assert!((MAX_BYTES..2 * MAX_BYTES).contains(&counted_bytes), "{counted_bytes} bytes are counted");
    assert_eq!(server.logged("refused: ended connections of this user hold"), 1);
    // As soon as the user receives some responses, it can connect again.
    drop(unread);
    eventually("nothing is held", || number("client_sockets_bytes") < 10_000);
    let mut other = server.connect();
    other.write_all(&gets([SHORT])).unwrap();
    expect(&mut other, &answer_to_get(&table.model, SHORT));
}

/// A limit on descriptors that leaves none for lingering sockets beside the connections.
#[test]
fn a_new_connection_replaces_a_lingering_socket_if_descriptors_are_scarce() {
    let table = table();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kv_store"), "--workers", "1"]);
    command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket());
    let server = Server::of(command, &table.socket());
    let mut observer = server.client();
    let mut number = |name: &str| observer.info().unwrap().number::<u64>(name).unwrap();
    // docs/operations/limits.md specifies the reserved descriptors: 64, and 4 for each worker.
    const CONNECTIONS_MAX: usize = 32;
    eventually("no other client is connected", || number("connections") == 1);
    let unread = ended(&server, CONNECTIONS_MAX - 1);
    eventually("all requests are answered", || number("hits") == unread.len() as u64);
    eventually("the connections have ended", || number("connections") == 1);
    let mut accepted: Vec<UnixStream> = (1..CONNECTIONS_MAX).map(|_| server.connect()).collect();
    for client in &mut accepted {
        client.write_all(&gets([SHORT])).unwrap();
        expect(client, &answer_to_get(&table.model, SHORT));
    }
    assert_eq!(number("connections_refused"), 0);
    for mut client in unread {
        assert_eq!(read_until_closed(&mut client), answer_to_get(&table.model, SHORT));
    }
}

#[test]
fn responses_that_tcp_clients_do_not_read_stay_within_the_limit_on_client_memory() {
    let table = table();
    let server = serve(&table, &["--tcp", "127.0.0.1:0"]);
    let mut clients: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(server.tcp()).unwrap()).collect();
    for client in &mut clients {
        // Only the server may end the connection.
        let _ = client.write_all(&gets([LONG; 4]));
        assert!(server.number("client_memory_bytes") <= MAX_BYTES + MAX_BYTES / 4);
    }
    eventually("all requests are answered, or their clients are evicted", || {
        server.number("hits") + 4 * server.number("connections_cut_memory") >= 100
    });
    wait_until_idle(&server);
    let counted_bytes = server.number("client_sockets_bytes");
    assert!((1 << 20..MAX_BYTES).contains(&counted_bytes), "{counted_bytes}");
    let mut other = TcpStream::connect(server.tcp()).unwrap();
    other.write_all(&gets([LONG, SHORT])).unwrap();
    expect(&mut other, &answers_to_gets(&table.model, [LONG, SHORT]));
    drop(clients);
    eventually("nothing is held", || server.number("client_sockets_bytes") < 10_000);
}
