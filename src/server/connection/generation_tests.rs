//! Tests of the generation that a connection keeps from turn to turn.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;

use tokio::net::UnixStream;
use zerocopy::IntoBytes;

use super::tests::connections_over;
use super::*;
use crate::bake::{Options, bake_csv};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request};
use crate::server::stats::Sums;

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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
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
