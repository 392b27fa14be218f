//! A connection of the Redis protocol.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;

use zero_kv::server::{Config, Server};

use super::counting_allocator::ALLOCATIONS;
use crate::helpers::tables::Table;

pub(crate) fn gets_of_the_redis_protocol_allocate_nothing_after_warm_up() {
    let value_len_bytes = |key: u64| [0, 7, 26, 100, 4096, 5000][key as usize % 6];
    let table = Table::new((0..600_u64).map(|key| (key, vec![b'v'; value_len_bytes(key)])));
    let config = Config { socket: table.socket(), ..Config::default() };
    let server = Server::bind(table.db(), &config).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = thread::spawn(move || {
        server.run(async { stopped.await.unwrap_or_default() }).unwrap();
    });

    let mut stream = UnixStream::connect(table.socket()).unwrap();
    let reply = |key: u64| match table.model.get(&key) {
        Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
        None => b"$-1\r\n".to_vec(),
    };
    // The batches are small enough that the socket accepts all replies at once.
    let batches: Vec<(Vec<u8>, Vec<u8>)> = [1..2, 0..30, 590..620, 600..856]
        .map(|keys: std::ops::Range<u64>| {
            let get = |key: u64| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.to_string().len());
            (keys.clone().map(get).collect::<String>().into_bytes(), keys.flat_map(reply).collect())
        })
        .into();
    let mut found: Vec<_> = batches.iter().map(|(_, expected)| vec![0; expected.len()]).collect();
    let mut round = |stream: &mut UnixStream| {
        for ((requests, expected), found) in batches.iter().zip(&mut found) {
            crate::exchange(stream, requests, expected, found);
            // The batch ends within a request, whose first part waits in the connection's buffer.
            stream.write_all(&requests[..requests.len() - 5]).unwrap();
            crate::exchange(stream, &requests[requests.len() - 5..], expected, found);
        }
    };
    for _ in 0..50 {
        round(&mut stream);
    }
    // Other threads of the process, such as the one that waits for this test, may allocate in some of the windows.
    let window = |_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..100).for_each(|_| round(&mut stream));
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let allocations: Vec<u64> = (0..5).map(window).collect();
    assert!(allocations.contains(&0), "{allocations:?} in five times 800 batches");
    stop.send(()).unwrap();
    running.join().unwrap();
}
