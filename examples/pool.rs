//! Asks a server from threads that share a pool: `cargo run --example pool -- /tmp/squares.sock`.
//!
//! It says how many keys eight threads have found over at most two connections, which they
//! are handed in the order in which they ask.

use std::error::Error;
use std::num::NonZeroUsize;

use zero_kv::client::{ClientError, Pool, PoolOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("usage: pool SOCKET")?;
    let two = const { NonZeroUsize::new(2).unwrap() };
    let options = PoolOptions { connections_max: two, ..PoolOptions::default() };
    let pool = Pool::connect_with(socket, &options)?;
    let found = std::thread::scope(|scope| {
        let pool = &pool;
        let ask = |thread: u64| {
            let keys: Vec<u64> = (thread * 1000..(thread + 1) * 1000).collect();
            Ok::<_, ClientError>(pool.get()?.get_many(&keys)?.iter().flatten().count())
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || ask(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<usize, _>>()
    })?;
    println!("8 threads found {found} keys");
    Ok(())
}
