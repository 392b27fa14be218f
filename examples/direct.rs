//! Looks keys up in a server's table, in this process: `cargo run --example direct -- /tmp/squares.sock`.
//!
//! Prints one value, and the sum of all values. The server passes the descriptor of its file to this process, and
//! notifies the process of new generations. Lookups send no requests.

use std::error::Error;

use zero_kv::Lookup;
use zero_kv::client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let direct = Client::connect(std::env::args_os().nth(1).ok_or("usage: direct SOCKET")?)?.direct()?;
    let value = direct.get(12)?.unwrap_or_default();
    println!("value of 12: {}", String::from_utf8_lossy(&value));

    // A snapshot stays on one generation, even if the server switches to a new table.
    let table = direct.snapshot();
    let mut sum = 0;
    for row in table.iter() {
        sum += std::str::from_utf8(&row?.1)?.parse::<u128>()?;
    }
    println!("{} rows of generation {} add up to {sum}", table.len(), table.generation());
    Ok(())
}
