//! Sends requests to a server: `cargo run --example client -- /tmp/squares.sock`, while `serve` runs.
//!
//! Prints one value, the row at or below a key, and how many of a thousand keys the table has. The requests for the
//! thousand keys are sent in one pipeline.

use std::error::Error;

use zero_kv::client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let mut table = Client::connect(std::env::args_os().nth(1).ok_or("usage: client SOCKET")?)?;
    let value = table.get(12)?.unwrap_or_default();
    println!("value of 12: {}", String::from_utf8_lossy(&value));
    if let Some((key, value)) = table.floor(1_000_000)? {
        println!("at or below 1000000: {key} with value {}", String::from_utf8_lossy(&value));
    }
    let keys: Vec<u64> = (0..1000).map(|number| number * 200).collect();
    let values = table.get_many(&keys)?;
    println!("found {} of {} keys", values.iter().flatten().count(), keys.len());
    Ok(())
}
