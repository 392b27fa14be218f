//! Looks keys up in a file, without a server: `cargo run --example lookup -- squares.db`, after `bake`.
//!
//! Prints the square of 12, the row at or below 1,000,000, and the rows from 3 to 5. `MappedStore` maps the file and
//! returns copies of values. `Store::open` copies the whole file into memory and returns references to values.

use std::error::Error;

use zero_kv::Lookup;
use zero_kv::MappedStore;

fn main() -> Result<(), Box<dyn Error>> {
    let table = MappedStore::open(std::env::args_os().nth(1).ok_or("usage: lookup FILE")?)?;
    match table.get(12)? {
        Some(value) => println!("value of 12: {}", String::from_utf8_lossy(&value)),
        None => println!("12 is missing"),
    }
    if let Some((key, value)) = table.floor(1_000_000)? {
        println!("at or below 1000000: {key} with value {}", String::from_utf8_lossy(&value));
    }
    for row in table.range(3..=5)? {
        let (key, value) = row?;
        println!("{key} {}", String::from_utf8_lossy(&value));
    }
    Ok(())
}
