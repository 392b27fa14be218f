//! Shares a connection pool between threads: `cargo run --example pool -- /tmp/squares.sock`.
//!
//! Prints how many keys eight threads found over at most two connections. The pool lends connections to threads in the
//! order of their requests.

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
        let look_up = |thread: u64| {
            let keys: Vec<u64> = (thread * 1000..(thread + 1) * 1000).collect();
            Ok::<_, ClientError>(pool.get()?.get_many(&keys)?.iter().flatten().count())
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || look_up(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<usize, _>>()
    })?;
    println!("8 threads found {found} keys");
    Ok(())
}
