//! Looks up in the file that a server serves, in this process: `cargo run --example direct -- /tmp/squares.sock`.
//!
//! It says one value, and the sum of all of them, read without asking the server. The server only hands the file over, and says when it serves a newer one.

use std::error::Error;

use zero_kv::client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let direct = Client::connect(std::env::args_os().nth(1).ok_or("usage: direct SOCKET")?)?.direct()?;
    let value = direct.get(12)?.unwrap_or_default();
    println!("12 has {}", String::from_utf8_lossy(&value));

    // One generation, however many lookups follow, and whatever is baked meanwhile.
    let table = direct.snapshot();
    let mut sum = 0;
    for row in table.iter() {
        sum += std::str::from_utf8(&row?.1)?.parse::<u128>()?;
    }
    println!("{} rows of generation {} add up to {sum}", table.len(), table.generation());
    Ok(())
}
