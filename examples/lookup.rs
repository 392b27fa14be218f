//! Looks up in a file, without a server: `cargo run --example lookup -- squares.db`, behind `bake`.
//!
//! It says the square of 12, what stands at or below 1,000,000, and the rows from 3 to 5.
//! The file is mapped, and values are copied out of it. `Store::open` copies the whole file instead and lends values.

use std::error::Error;

use zero_kv::MappedStore;

fn main() -> Result<(), Box<dyn Error>> {
    let table = MappedStore::open(std::env::args_os().nth(1).ok_or("usage: lookup FILE")?)?;
    match table.get(12)? {
        Some(value) => println!("12 has {}", String::from_utf8_lossy(&value)),
        None => println!("12 is not there"),
    }
    if let Some((key, value)) = table.floor(1_000_000)? {
        println!("at or below 1000000 is {key} with {}", String::from_utf8_lossy(&value));
    }
    for row in table.range(3..=5)? {
        let (key, value) = row?;
        println!("{key} {}", String::from_utf8_lossy(&value));
    }
    Ok(())
}
