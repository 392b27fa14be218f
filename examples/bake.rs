//! Bakes rows that a program has in memory: `cargo run --example bake -- squares.db`.
//!
//! Prints the number of rows. A bake replaces an existing file of this name atomically, so other processes can read the
//! old file during the bake.

use std::error::Error;
use std::path::PathBuf;

use zero_kv::bake::{self, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: bake FILE")?;
    let rows = (0..100_000_u64).map(|number| (number, (number * number).to_string()));
    let report = bake::bake_rows(rows, &file, &Options::default())?;
    println!("{}: {} rows, {} bytes", file.display(), report.rows, report.file_len_bytes);
    Ok(())
}
