//! Tests of partial writes, of repeated passes, and of connections that yield to other connections.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use zerocopy::IntoBytes;

use super::*;
use crate::bake::{Options, bake_csv};
use crate::protocol::native::{Op, Request, ResponseHeader};
use crate::server::Config;
use crate::server::state::tests::worker_over;

/// Returns the [`Connections`] of a server that serves a file with one worker.
pub(super) fn connections_over(db: &Path) -> Connections {
    Connections { worker: worker_over(db, &Config::default()), redis_clients: Arc::default() }
}

/// With the smallest send buffer that the system allows, nearly every write is partial. Writes end within headers,
/// within values, and between them.
#[test]
fn responses_are_complete_even_if_the_socket_takes_few_bytes_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let value = |key: u64| "v".repeat([0, 1, 26, 56, 57, 300, 4088, 4089, 9000][key as usize % 9] + key as usize % 5);
    let csv: String = (0..100).map(|key| format!("{key},{}\n", value(key))).collect();
    let db = folder.path().join("storage.db");
    bake_csv(csv.as_bytes(), &db, &Options::default()).unwrap();
    let connections = connections_over(&db);
    connections.worker.counters().connection_opened();

    let (mut client, server) = StdUnixStream::pair().unwrap();
    set_socket_send_buffer_size(&server, 1).unwrap();
    let keys = || (0..1500_u64).map(|i| i * 37 % 103);
    let requests: Vec<u8> = keys().flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect();
    let answers: Vec<u8> = keys()
        .flat_map(|key| match key {
            0..100 => [ResponseHeader::of_value(value(key).len()).unwrap().as_bytes(), value(key).as_bytes()].concat(),
            _ => vec![0, 0, 0, 1, 0, 0, 0, 0],
        })
        .collect();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::scope(|scope| {
        let mut writer = client.try_clone().unwrap();
        scope.spawn(move || {
            writer.write_all(&requests).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        scope.spawn(move || {
            let (mut at, mut buffer) = (0, [0; 7001]);
            loop {
                let len_bytes = client.read(&mut buffer[..1 + at * 7919 % 7001]).unwrap();
                assert!(buffer[..len_bytes] == answers[at..at + len_bytes], "bytes from {at} on");
                at += len_bytes;
                if len_bytes == 0 {
                    break;
                }
            }
            assert_eq!(at, answers.len());
        });
        runtime.block_on(async {
            server.set_nonblocking(true).unwrap();
            connections.open(UnixStream::from_std(server).unwrap(), Peer::default()).await;
        });
    });
}

/// One thread runs both connections and their clients, so they always run in the same order.
#[test]
fn a_connection_that_yields_lets_the_runtime_poll_other_connections() {
    let folder = tempfile::tempdir().unwrap();
    let csv: String = (0..100_000).map(|key| format!("{key},v\n")).collect();
    let db = folder.path().join("storage.db");
    bake_csv(csv.as_bytes(), &db, &Options::default()).unwrap();
    let connections = connections_over(&db);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connect = || {
            let (client, server) = UnixStream::pair().unwrap();
            connections.worker.counters().connection_opened();
            tokio::spawn(connections.open(server, Peer::default()));
            client
        };
        let (mut busy, mut quick) = (connect(), connect());
        // This command takes several passes, because it visits all keys.
        busy.write_all(b"KEYS *x*\r\n").await.unwrap();
        quick.write_all(b"PING\r\n").await.unwrap();
        let mut reply = [0; 16];
        assert_eq!(quick.read(&mut reply).await.unwrap(), b"+PONG\r\n".len());
        assert!(busy.try_read(&mut reply).is_err(), "the other connection waited until all rows were visited");
        assert_eq!(busy.read(&mut reply).await.unwrap(), b"*0\r\n".len());
    });
}

/// Returns the [`Connections`] of a server whose file was overwritten in place after the server opened it.
fn connections_over_an_overwritten_file() -> (tempfile::TempDir, Connections) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake_csv(&b"7,seven\n"[..], &db, &Options::default()).unwrap();
    let file = File::options().write(true).open(&db).unwrap();
    // Sets an old modification time. Otherwise, a change within the resolution of the file system's clock would leave
    // the modification time as it is, and would not be detected.
    file.set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
    drop(file);
    let connections = connections_over(&db);
    let bytes = std::fs::read(&db).unwrap();
    let at = bytes.windows(5).position(|bytes| bytes == b"seven").unwrap() as u64;
    File::options().write(true).open(&db).unwrap().write_all_at(b"eight", at).unwrap();
    (folder, connections)
}

/// Sends requests on a new connection, and returns all responses.
fn exchange(connections: &Connections, requests: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let peer = Peer::from_stream(&server);
        connections.worker.counters().connection_opened();
        let served = tokio::spawn(connections.open(server, peer));
        client.write_all(requests).await.unwrap();
        client.shutdown().await.unwrap();
        let mut responses = Vec::new();
        client.read_to_end(&mut responses).await.unwrap();
        served.await.unwrap();
        responses
    })
}

/// The first pass finds the value, but then finds that the file has changed. The second pass answers with an error.
#[test]
fn a_request_whose_pass_is_repeated_is_counted_once() {
    let get = Request::new(Op::Get, 7);
    for (request, error) in [(get.as_bytes(), &[0, 0, 0, 2, 0, 0, 0, 0][..]), (b"GET 7\r\n", b"-ERR ")] {
        let (_folder, connections) = connections_over_an_overwritten_file();
        let response = exchange(&connections, request);
        assert!(response.starts_with(error), "{}", response.escape_ascii());
        let sums = connections.worker.server.statistics.sums();
        assert_eq!((sums.requests.as_flattened().iter().sum::<u64>(), sums.batches), (1, 1));
    }
}

/// The first pass that reads the file detects that the file has changed, and is repeated.
#[test]
fn a_reload_or_rollback_is_carried_out_once_even_if_the_file_changes_during_its_pass() {
    let error = vec![0, 0, 0, 2, 0, 0, 0, 0];
    let cases: [&[Op]; 5] = [
        &[Op::Reload],
        &[Op::Rollback],
        &[Op::Get, Op::Reload],
        &[Op::Reload, Op::Get],
        &[Op::Get, Op::Rollback, Op::Reload, Op::Get, Op::Reload],
    ];
    for ops in cases {
        let (_folder, connections) = connections_over_an_overwritten_file();
        let requests: Vec<u8> = ops.iter().flat_map(|op| Request::new(*op, 7).as_bytes().to_vec()).collect();
        let mut attempts = 0_u64;
        let expected: Vec<u8> = ops
            .iter()
            .flat_map(|op| match op {
                Op::Get => error.clone(),
                _ => {
                    attempts += 1;
                    [ResponseHeader::of_page(8).as_bytes(), &attempts.to_be_bytes()].concat()
                }
            })
            .collect();
        // The client is this process, so it may change the served generation.
        assert_eq!(exchange(&connections, &requests), expected, "{ops:?}");
        let requested = &connections.worker.server.statistics.totals.reload_requested;
        assert_eq!(requested.load(Ordering::Relaxed), attempts, "{ops:?}");
    }
}
