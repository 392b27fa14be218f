//! The index of a file against its rivals, for each way that keys are spread.
//!
//! Canonical load: 100,000 and 1,000,000 rows with values of 26 bytes; from
//! 10,000,000 rows on (`-- --rows 10000000`) values of 100 bytes. Keys are
//! spread as in `spreads`, seed 1. Lookups ask for keys of the table drawn at
//! random, seed 2, on one thread:
//!
//! - in batches of 256, each value copied into one buffer;
//! - one key at a time, the value borrowed. No lookup needs the answer of the
//!   one before, so the processor may begin a second before the first is done.
//!
//! A sample is 131,072 lookups, each sample of other keys than the one before.
//! All indexes on all spreads take turns of three samples (from 10,000,000 rows
//! on one spread after the other, for memory's sake), and with them two
//! measurements of the memory itself: random cache lines of a buffer as long as
//! the records, read independently (their waits overlap) and each after the one
//! before. Of all samples the fastest counts.
//!
//! Bytes a row are those of records and index without value and response header:
//! the key, zeros up to the alignment, and what finds it.
//!
//! Before anything is timed, each index answers 100,000 keys, half a percent of
//! them not in the table, in batches and one by one, and every answer is held
//! against binary search over the sorted keys.
//!
//! `cargo bench --bench index -- ipv4 dense` measures the spreads whose names
//! contain one of the words.

mod file;
mod measure;
mod memory;
mod report;
mod rivals;
mod spreads;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::process::ExitCode;

use measure::measure;
use spreads::SPREADS;
use support::{is_test, warn_if_slow};

const ROWS: [usize; 2] = [100_000, 1_000_000];
const TEST_ROWS: [usize; 1] = [2_000];

fn main() -> ExitCode {
    warn_if_slow();
    let (rows, words) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("index: {error}");
            return ExitCode::from(2);
        }
    };
    let spreads =
        SPREADS.iter().filter(|spread| words.is_empty() || words.iter().any(|word| spread.name.contains(word)));
    let spreads: Vec<_> = spreads.collect();
    if spreads.is_empty() {
        return ExitCode::SUCCESS;
    }
    for rows in rows {
        let report = measure(&spreads, rows);
        if !is_test() {
            println!("{report}");
        }
    }
    ExitCode::SUCCESS
}

/// The row counts to measure, and words that names of spreads contain.
fn arguments() -> Result<(Vec<usize>, Vec<String>), String> {
    let mut rows = if is_test() { TEST_ROWS.to_vec() } else { ROWS.to_vec() };
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" | "--test" => {}
            "--rows" => {
                let value = args.next().unwrap_or_default();
                rows = match value.parse() {
                    Ok(rows) if (1_000..=1 << 28).contains(&rows) => vec![rows],
                    _ => return Err(format!("--rows {value:?}, where a number from 1000 to {} was expected", 1 << 28)),
                };
            }
            _ if arg.starts_with('-') => {
                return Err(format!("{arg}: no such option; there are --rows N and words of spreads' names"));
            }
            _ => words.push(arg),
        }
    }
    Ok((rows, words))
}
