//! Tests of partial writes, of repeated passes, of connections that yield to other connections, of the generation that
//! a connection keeps from turn to turn, and of panics.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zerocopy::IntoBytes;

use super::*;
use crate::bake::{Options, bake_csv};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};
use crate::server::Config;
use crate::server::sockets::Descriptors;
use crate::server::state::tests::worker_over;
use crate::server::stats::Sums;

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the [`Connections`] of a server that serves a file with one worker.
pub(super) fn connections_over(db: &Path) -> Connections {
    Connections { worker: worker_over(db, &Config::default()), redis_clients: Arc::default() }
}

fn connections_over_csv(lines: impl Iterator<Item = String>) -> (tempfile::TempDir, Connections) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake_csv(lines.collect::<String>().as_bytes(), &db, &Options::default()).unwrap();
    let connections = connections_over(&db);
    (folder, connections)
}

/// With the smallest send buffer that the system allows, nearly every write is partial. Writes end within headers,
/// within values, and between them.
#[test]
fn responses_are_complete_even_if_the_socket_takes_few_bytes_at_a_time() {
    let value = |key: u64| "v".repeat([0, 1, 26, 56, 57, 300, 4088, 4089, 9000][key as usize % 9] + key as usize % 5);
    let (_folder, connections) = connections_over_csv((0..100).map(|key| format!("{key},{}\n", value(key))));
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

    let runtime = runtime();
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
    let (_folder, connections) = connections_over_csv((0..100_000).map(|key| format!("{key},v\n")));
    let runtime = runtime();
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
    let runtime = runtime();
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

const VALUE_LEN_BYTES: usize = 300;
const RESPONSE_LEN_BYTES: usize = RESPONSE_HEADER_LEN_BYTES + VALUE_LEN_BYTES;
/// The number of requests in a pipeline that is longer than the read buffer. The first read fills the buffer. The
/// connection reads the remaining requests while responses are pending.
const REQUESTS: usize = READ_LEN_BYTES / size_of::<Request>() + 10;

/// Bakes a table in which the value of key 7 consists of `byte`.
fn bake(db: &Path, byte: u8) {
    let csv = [b"7,", &[byte; VALUE_LEN_BYTES][..], b"\n"].concat();
    bake_csv(&csv[..], db, &Options::default()).unwrap();
}

/// Appends the bytes that have arrived.
fn receive(client: &mut StdUnixStream, received: &mut Vec<u8>) {
    match client.read_to_end(received) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        ended => panic!("the connection ended: {ended:?}"),
    }
}

/// Returns the number of bytes of requests that the worker has read.
fn read_len_bytes(connections: &Connections) -> u64 {
    let mut sums = Sums::default();
    sums.add(connections.worker.counters());
    sums.read_len_bytes
}

/// One thread runs the client and the connection, so they always run in the same order.
#[test]
fn a_request_that_is_sent_after_a_swap_is_answered_from_the_new_generation() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    bake(&db, b'a');
    let connections = connections_over(&db);
    let worker = &connections.worker;
    worker.counters().connection_opened();
    let (mut client, server) = StdUnixStream::pair().unwrap();
    [&client, &server].into_iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let get = Request::new(Op::Get, 7);
    let runtime = runtime();
    runtime.block_on(async {
        tokio::spawn(connections.open(UnixStream::from_std(server).unwrap(), Peer::default()));
        client.write_all(&get.as_bytes().repeat(REQUESTS)).unwrap();
        while read_len_bytes(&connections) < (REQUESTS * size_of::<Request>()) as u64 {
            yield_now().await;
        }
        bake(&db, b'b');
        worker.server.table.replace(&Arc::new(worker.server.settings.source.open().unwrap()));
        let mut received = Vec::new();
        receive(&mut client, &mut received);
        let left_bytes = REQUESTS * RESPONSE_LEN_BYTES - received.len();
        assert!((1..received.len()).contains(&left_bytes), "the rest must fit into the socket at once: {left_bytes}");
        // The next turn sends the rest, and then reads this request.
        client.write_all(get.as_bytes()).unwrap();
        while received.len() < (REQUESTS + 1) * RESPONSE_LEN_BYTES {
            yield_now().await;
            receive(&mut client, &mut received);
        }
        let values = received.chunks_exact(RESPONSE_LEN_BYTES).map(|response| response[RESPONSE_LEN_BYTES - 1]);
        let expected = [&[b'a'; REQUESTS][..], b"b"].concat();
        assert!(values.eq(expected), "the last value: {:?}", received.last());
    });
}

/// A stream that panics after `calls_left` calls, and sends at most 5000 bytes per call.
struct PanickingStream {
    stream: UnixStream,
    calls_left: usize,
}

impl PanickingStream {
    fn call(&mut self) -> Pin<&mut UnixStream> {
        self.calls_left = self.calls_left.checked_sub(1).expect("no more calls");
        Pin::new(&mut self.stream)
    }
}

impl AsyncRead for PanickingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.call().poll_read(cx, buffer)
    }
}

impl AsyncWrite for PanickingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.call().poll_write(cx, &bytes[..bytes.len().min(5000)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.call().poll_write(cx, pieces.iter().find(|piece| !piece.is_empty()).expect("something to send"))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call().poll_shutdown(cx)
    }
}

impl ClientStream for PanickingStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.socket()
    }

    fn poll_send_with(&self, _: &mut Context<'_>, _: &[u8], _: &Descriptors) -> Poll<io::Result<usize>> {
        unreachable!("no descriptors are passed in this test")
    }
}

/// Returns one pipeline for each protocol, with requests for short and long values.
fn pipelines() -> [Vec<u8>; 2] {
    let keys = || (0..200_u64).map(|i| i % 12);
    let native = keys().flat_map(|key| Request::new(Op::Get, key).as_bytes().to_vec()).collect();
    let redis = keys().flat_map(|key| format!("GET {key}\r\n").into_bytes()).collect();
    [native, redis]
}

async fn get_and_check(client: &mut UnixStream, key: u64, value: &str) {
    client.write_all(Request::new(Op::Get, key).as_bytes()).await.unwrap();
    let mut answer = vec![0; 8 + value.len()];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer[8..], value.as_bytes());
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let value = |key: u64| format!("{key}").repeat(1 + key as usize * key as usize * 500);
    let (_folder, connections) = connections_over_csv((0..10).map(|key| format!("{key},{}\n", value(key))));
    let runtime = runtime();
    panics::install_hook();
    runtime.block_on(async {
        let connect = |calls_left: usize| {
            let (client, stream) = UnixStream::pair().unwrap();
            connections.worker.counters().connection_opened();
            connections.open(PanickingStream { stream, calls_left }, Peer::default()).spawn();
            client
        };
        let mut other = connect(usize::MAX);
        let pinned = || connections.worker.pin().count();
        let mut panics = 0;
        // The panic happens in the first read, or in a later write. About half of the writes send pending responses.
        for (calls_left, requests) in (0..40).flat_map(|calls_left| pipelines().map(|requests| (calls_left, requests)))
        {
            let client = connect(calls_left);
            let (mut reader, mut writer) = client.into_split();
            let mut answers = Vec::new();
            // The connection may end before all requests are sent. Reading the responses then ends in an error.
            let _ = writer.write_all(&requests).await;
            let _ = timeout(PATIENCE, reader.read_to_end(&mut answers)).await.unwrap();
            panics += 1;
            assert_eq!(
                connections.worker.server.statistics.totals.panics.load(Ordering::Relaxed),
                panics,
                "{calls_left}"
            );
            get_and_check(&mut other, 9, &value(9)).await;
            get_and_check(&mut other, 3, &value(3)).await;
            assert_eq!(
                (connections.worker.counters().connections(), connections.redis_clients.count(), pinned()),
                (1, 0, 2),
                "{calls_left}"
            );
        }
        timeout(PATIENCE, connections.worker.stop()).await.expect("no responses are pending");
    });
}
