//! A connection of the native protocol.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;

use zero_kv::client::Client;
use zero_kv::server::{Config, Server};

use super::counting_allocator::ALLOCATIONS;
use crate::helpers::frames::{expect, gets};
use crate::helpers::tables::{Table, answers_to_gets};
use crate::helpers::waiting::eventually;
use crate::{Batch, assert_exchanges_allocate_nothing};

pub(crate) fn a_warmed_up_connection_allocates_nothing() {
    // Values that the server copies, and values that it borrows and that fill the socket.
    let table = Table::new((0..512_u64).map(|key| (key, vec![b'v'; if key < 256 { 26 } else { 5000 }])));
    let config = Config { socket: table.socket(), ..Config::default() };
    let server = Server::bind(table.db(), &config).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = thread::spawn(move || {
        server.run(async { stopped.await.unwrap_or_default() }).unwrap();
    });

    let mut stream = UnixStream::connect(table.socket()).unwrap();
    let batch = |keys: std::ops::Range<u64>| {
        let requests = gets(keys.clone());
        Batch { split_at: requests.len(), requests, expected: answers_to_gets(&table.model, keys) }
    };
    // The responses do not fit into the socket, so the connection allocates its only buffer for the waiting requests.
    let waiting = batch(256..512);
    let mut observer = Client::connect(table.socket()).unwrap();
    let mut held_bytes = || {
        let info = observer.info().unwrap();
        let number = |name: &str| info.number::<u64>(name).unwrap();
        number("client_memory_bytes").saturating_sub(number("client_sockets_bytes"))
    };
    assert_eq!(held_bytes(), 0);
    stream.write_all(&waiting.requests).unwrap();
    eventually("the server has pending responses", || held_bytes() > 0);
    expect(&mut stream, &waiting.expected);
    drop(observer);
    assert_exchanges_allocate_nothing(&mut stream, &[batch(0..256), waiting, batch(0..300), batch(511..520)]);

    // The counter counts allocations.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..100_000).for_each(|_| drop(std::hint::black_box(vec![0_u8; 100])));
    assert!(ALLOCATIONS.load(Ordering::Relaxed) - before >= 100_000);

    stop.send(()).unwrap();
    running.join().unwrap();
}
