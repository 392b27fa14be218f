//! A connection of the native protocol.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;

use zero_kv::server::{Config, Server};

use super::counting_allocator::ALLOCATIONS;
use crate::helpers::frames::{expect, gets};
use crate::helpers::tables::{Table, answers_to_gets};
use crate::helpers::waiting::eventually;

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
    let batches: Vec<_> = [0..256, 256..512, 0..300, 511..520]
        .into_iter()
        .map(|keys| (gets(keys.clone()), answers_to_gets(&table.model, keys)))
        .collect();
    let mut found: Vec<_> = batches.iter().map(|(_, expected)| vec![0; expected.len()]).collect();
    let mut round = |stream: &mut UnixStream| {
        for ((requests, expected), found) in batches.iter().zip(&mut found) {
            crate::exchange(stream, requests, expected, found);
        }
    };
    crate::exchange(&mut stream, &gets([1]), &answers_to_gets(&table.model, [1]), &mut [0; 34]);
    // The responses do not fit into the socket, so the connection allocates its only buffer for the waiting requests.
    let (requests, answers) = (gets(256..512), answers_to_gets(&table.model, 256..512));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    stream.write_all(&requests).unwrap();
    eventually("the server has pending responses", || ALLOCATIONS.load(Ordering::Relaxed) > before);
    expect(&mut stream, &answers);
    // Background threads of the server allocate a few times per second, possibly in any round.
    let rounds_without = (0..100)
        .filter(|_| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            round(&mut stream);
            ALLOCATIONS.load(Ordering::Relaxed) == before
        })
        .count();
    assert!(rounds_without >= 25, "{rounds_without} of 100 rounds allocated nothing");

    // The counter counts this allocation.
    drop(std::hint::black_box(vec![0_u8; 100]));
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before);

    stop.send(()).unwrap();
    running.join().unwrap();
}
