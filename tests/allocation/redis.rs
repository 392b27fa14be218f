//! A connection of the Redis protocol.

use std::os::unix::net::UnixStream;
use std::thread;

use zero_kv::server::{Config, Server};

use crate::helpers::tables::Table;
use crate::{Batch, assert_exchanges_allocate_nothing};

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
    // Each batch has so few replies that the socket accepts all of them at once.
    let batches: Vec<Batch> = [1..2, 0..30, 590..620, 600..856]
        .into_iter()
        .flat_map(|keys: std::ops::Range<u64>| {
            let get = |key: u64| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.to_string().len());
            let requests = keys.clone().map(get).collect::<String>().into_bytes();
            let expected: Vec<u8> = keys.flat_map(reply).collect();
            // As a whole, and with the last command in two parts.
            [requests.len(), requests.len() - 5].map(|split_at| Batch {
                requests: requests.clone(),
                split_at,
                expected: expected.clone(),
            })
        })
        .collect();
    assert_exchanges_allocate_nothing(&mut stream, &batches);
    stop.send(()).unwrap();
    running.join().unwrap();
}
