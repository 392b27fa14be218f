//! Many connections: memory and descriptors.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get};

/// The maximum anonymous memory of the server per idle connection.
const IDLE_CONNECTION_MAX_BYTES: u64 = 1280;
/// The largest step in which the allocator gets memory from the kernel: a huge page.
const HEAP_STEPS_BYTES: u64 = 2 << 20;

#[test]
fn idle_connections_use_at_most_the_documented_memory() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    // The test process already uses some descriptors.
    let connections = maximum.map_or(10_000, |maximum| maximum.saturating_sub(256).min(10_000));
    assert!(connections >= 500, "a hard limit of {maximum:?} descriptors is too low for this test");

    let table = Table::of_rows(10);
    let server = table.serve();
    let ask = |key| {
        let mut stream = server.connect();
        stream.write_all(&gets([key])).unwrap();
        expect(&mut stream, &answer_to_get(&table.model, key));
        stream
    };
    // Every worker allocates its buffers.
    let first: Vec<_> = (1..=10).map(ask).collect();
    let before_bytes = server.anonymous_bytes();
    let mut idle: Vec<_> = (0..connections - 10).map(|i| ask(i % 10)).collect();
    let grown_bytes = server.anonymous_bytes().saturating_sub(before_bytes);
    let allowed_bytes = idle.len() as u64 * IDLE_CONNECTION_MAX_BYTES + HEAP_STEPS_BYTES;
    assert!(grown_bytes <= allowed_bytes, "{grown_bytes} bytes for {} connections", idle.len());

    // The connections remain usable.
    for stream in idle.iter_mut().step_by(97) {
        stream.write_all(&gets([7])).unwrap();
        expect(stream, &answer_to_get(&table.model, 7));
    }
    drop(first);
}

#[test]
fn a_server_raises_its_descriptor_limit_to_the_maximum() {
    let table = Table::of_rows(10);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 40; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kv_store"), "--db"]);
    command.arg(table.db()).arg("--socket").arg(table.socket());
    let mut server = Server::spawn(command, &table.socket());
    server.wait_for_log("limit of descriptors raised from 40 to ");
    server.wait_for_log("ready");
    let mut streams: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&gets([3])).unwrap();
    }
    for stream in &mut streams {
        expect(stream, &answer_to_get(&table.model, 3));
    }
}

/// When many clients reconnect at the same time, the kernel drops packets of those that may not wait to be accepted, and
/// these clients are delayed by seconds.
#[test]
fn as_many_tcp_connections_wait_to_be_accepted_as_the_system_allows() {
    let table = Table::of_rows(10);
    let server = table.serve_with(&["--tcp", "127.0.0.1:0"]);
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<usize>().unwrap();
    let address = server.tcp();
    server.signal(Signal::STOP);
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
    let mut waiting: Vec<TcpStream> = (0..allowed.min(400)).map(connect).collect();
    server.signal(Signal::CONT);
    for stream in &mut waiting {
        stream.write_all(b"PING\r\n").unwrap();
        expect(stream, b"+PONG\r\n");
    }
}
