//! Shares a connection pool between tokio tasks: `cargo run --example async_client -- /tmp/squares.sock`.
//!
//! Prints how many keys eight tasks found. Each task borrows a connection for its requests. The pool does not reuse a
//! connection that failed.

use std::error::Error;

use zero_kv::client::AsyncPool;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("usage: async_client SOCKET")?;
    let pool = AsyncPool::connect(socket).await?;
    let tasks = (0..8).map(|task| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let keys: Vec<u64> = (task * 1000..(task + 1) * 1000).collect();
            let values = pool.get().await?.get_many(&keys).await?;
            Ok::<_, zero_kv::client::ClientError>(values.iter().flatten().count())
        })
    });
    let mut found = 0;
    for task in tasks.collect::<Vec<_>>() {
        found += task.await??;
    }
    println!("8 tasks found {found} keys");
    Ok(())
}
