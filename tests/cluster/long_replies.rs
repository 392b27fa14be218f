//! Long replies about the topology and the schema, which clients do not read: they are shared, not copied for each client.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::helpers::frames::{expect, request};
use crate::helpers::waiting::eventually;

use super::nodes::Cluster;

/// The clients that send each request.
const CLIENTS: usize = 30;
const NODES: usize = 3000;
const TOPOLOGY: u32 = 15;

/// Returns a topology of more than 700 KB.
fn long_topology() -> String {
    let mut json = r#"{"format": 1, "number": 1, "nodes": [
        {"id": "a", "host": "127.0.0.1", "port": 1, "role": "primary", "slots": ["0-16383"]}"#
        .to_owned();
    for node in 0..NODES {
        let host = format!("{}.{node}.example.org", "h".repeat(60));
        write!(
            json,
            r#", {{"id": "node-{node:0>40}", "host": "{host}", "port": 6379, "role": "replica", "primary": "a"}}"#
        )
        .unwrap();
    }
    json + "]}"
}

pub(crate) fn long_replies_that_many_clients_do_not_read_are_held_once() {
    let cluster = Cluster::of_numbers();
    cluster.write_topology(&long_topology());
    // On a busy machine, clients may pause for longer than the default time-outs.
    let options = ["--workers", "1", "--client-memory-max", "16MiB", "--stall-timeout", "0", "--min-drain-rate", "0"];
    let server = cluster.local("a", &cluster.path("whole.db"), &options);
    let requests: [Vec<u8>; 6] = [
        request(TOPOLOGY, 0).to_vec(),
        b"CLUSTER SLOTS\r\n".to_vec(),
        b"CLUSTER SHARDS\r\n".to_vec(),
        b"CLUSTER NODES\r\n".to_vec(),
        b"CLUSTER REPLICAS a\r\n".to_vec(),
        b"ROLE\r\n".to_vec(),
    ];
    let mut clients: Vec<Vec<UnixStream>> =
        requests.iter().map(|_| (0..CLIENTS).map(|_| server.connect()).collect()).collect();
    for (clients, request) in clients.iter_mut().zip(&requests) {
        for client in clients {
            // The rest of the pipeline is answered after the first reply is received.
            client.write_all(&request.repeat(2)).unwrap();
        }
    }
    let mut first_bytes = vec![0; 1];
    for client in clients.iter_mut().flatten() {
        client.read_exact(&mut first_bytes).unwrap();
    }
    let info = server.info();
    let number = |name: &str| info.number::<u64>(name).unwrap();
    let own_bytes = number("client_memory_bytes").saturating_sub(number("client_sockets_bytes"));
    let expected_bytes = (requests.len() * CLIENTS) as u64 * (16 << 10);
    assert!(own_bytes < expected_bytes, "{own_bytes} bytes are held, where at most {expected_bytes} were expected");
    assert_eq!(number("connections_cut_memory"), 0);
    // Every client gets the whole reply, as often as it has requested it.
    for (clients, request) in clients.iter_mut().zip(&requests) {
        let expected = two_replies(server.connect(), request);
        assert!(expected.len() > 2 * NODES * 100, "{}", expected.len());
        for client in clients {
            expect(client, &expected[1..]);
        }
    }
    eventually("no reply is held", || server.number("client_sockets_bytes") < 10_000);
}

/// Returns the replies to a request that is sent twice.
fn two_replies(mut stream: UnixStream, request: &[u8]) -> Vec<u8> {
    stream.write_all(&request.repeat(2)).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    replies
}
