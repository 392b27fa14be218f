//! The index of a file compared with other indexes, for several key distributions.
//!
//! Canonical load: 100,000 and 1,000,000 rows with values of 26 bytes; from 10,000,000 rows on (`-- --rows 10000000`)
//! values of 100 bytes. The key distributions are defined in `spreads`, with seed 1. Lookups are for random keys of the
//! table, seed 2, on one thread:
//!
//! - in batches of 256, with each value copied into one buffer;
//! - one key at a time, with the value borrowed. Lookups do not depend on each other, so the processor may begin the
//!   next lookup before the previous one is done.
//!
//! A sample is 131,072 lookups, and consecutive samples use different keys. In each round, every index takes three
//! samples of each kind of lookup on each distribution, one index after the other. From 10,000,000 rows on, to save
//! memory, all rounds of a distribution end before the next distribution begins. Each round also measures the memory:
//! it reads random cache lines of a buffer as long as the records, either independently, so that waits overlap, or each
//! line after the previous one. Every result is the fastest sample.
//!
//! Bytes per row include the keys, the padding for alignment, and the index, but not the values and the response
//! headers.
//!
//! Before the measurement, each index looks up 100,000 keys, half a percent of which are absent, in batches and one by
//! one. Every result is compared with binary search over the sorted keys.
//!
//! `cargo bench --bench index -- ipv4 dense` measures only the distributions whose names contain one of these words.

mod indexes;
mod support;

use std::process::ExitCode;

use indexes::measure::measure;
use indexes::spreads::SPREADS;
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

/// Returns the row counts to measure, and the words that select distributions by name.
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
                    _ => return Err(format!("--rows {value:?}: expected a number from 1000 to {}", 1 << 28)),
                };
            }
            _ if arg.starts_with('-') => {
                return Err(format!("{arg}: unknown option: use --rows N, or words in the names of distributions"));
            }
            _ => words.push(arg),
        }
    }
    Ok((rows, words))
}
