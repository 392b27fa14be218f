//! Asks a server: `cargo run --example client -- /tmp/squares.sock`, while `serve` runs.
//!
//! It says one value, the row at or below a key, and how many of a thousand keys are
//! there, which it asks for in one pipeline.

use std::error::Error;

use zero_kv::client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let mut table = Client::connect(std::env::args_os().nth(1).ok_or("usage: client SOCKET")?)?;
    let value = table.get(12)?.unwrap_or_default();
    println!("12 has {}", String::from_utf8_lossy(&value));
    if let Some((key, value)) = table.floor(1_000_000)? {
        println!("at or below 1000000 is {key} with {}", String::from_utf8_lossy(&value));
    }
    let keys: Vec<u64> = (0..1000).map(|number| number * 200).collect();
    let values = table.get_many(&keys)?;
    println!("{} of {} keys are there", values.iter().flatten().count(), keys.len());
    Ok(())
}
