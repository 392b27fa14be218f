//! The tables that a run measures, and the number of requests.

use std::time::Duration;

use anyhow::Result;

use crate::machine::memory_total_bytes;
use crate::rows::{Amounts, Rows};
use crate::{Args, measure, server};

/// Length of values in the mixed load of gets and scans.
const MIXED_VALUE_LEN_BYTES: usize = 256;
/// Memory that a bake needs per row, in addition to the value.
const BAKE_ROW_BYTES: u64 = 60;
/// Maximum disk space per row of the mixed load, for all ordered engines together.
const MIXED_ROW_DISK_BYTES: u64 = 4 * 350;

/// The measurements of a run.
pub(crate) struct Plans {
    pub(crate) tables: Vec<measure::Plan>,
    pub(crate) servers: Vec<server::Plan>,
}

/// Parses a table size in the form `ROWSxBYTES`.
pub(crate) fn table(text: &str) -> Result<Rows, String> {
    let expected = || format!("{text:?} where rows and bytes of a value were expected, such as 100000x26");
    let (count, value_len_bytes) = text.split_once('x').ok_or_else(expected)?;
    let count = count.parse().ok().filter(|count| (1..=1 << 32).contains(count)).ok_or_else(expected)?;
    let value_len_bytes =
        value_len_bytes.parse().ok().filter(|len| (1..=1 << 20).contains(len)).ok_or_else(expected)?;
    Ok(Rows { count, value_len_bytes })
}

/// Returns how many rows of the mixed load this machine supports, in whole millions. The bake of these rows uses at
/// most 60 % of the memory, and the files of all engines use at most 80 % of the free disk space.
fn mixed_rows(memory_bytes: u64, free_disk_bytes: u64) -> u64 {
    let by_memory = memory_bytes / 10 * 6 / (BAKE_ROW_BYTES + MIXED_VALUE_LEN_BYTES as u64);
    let by_disk = free_disk_bytes / 10 * 8 / MIXED_ROW_DISK_BYTES;
    by_memory.min(by_disk) / 1_000_000 * 1_000_000
}

impl Plans {
    pub(crate) fn new(args: &Args, free_disk_bytes: u64) -> Result<Plans> {
        let rows = |count, value_len_bytes| Rows { count, value_len_bytes };
        let sizes = match (&*args.tables, args.quick) {
            ([], true) => vec![rows(20_000, 26), rows(200_000, 26)],
            ([], false) => vec![rows(100_000, 26), rows(1_000_000, 26), rows(10_000_000, 100)],
            (tables, _) => tables.to_vec(),
        };
        let rounds = usize::from(args.rounds);
        let amounts = match args.quick {
            true => Amounts { gets: 100_000, scans: 2_000 },
            false => Amounts { gets: 1_000_000, scans: 20_000 },
        };
        let plan = |rows, build_rounds, rounds, mixed| measure::Plan { rows, amounts, rounds, build_rounds, mixed };
        let mut tables: Vec<_> = sizes.iter().map(|rows| plan(*rows, rounds.min(3), rounds, false)).collect();
        let mixed_rows = match (args.mixed_rows, args.quick) {
            (Some(count), _) => count,
            (None, true) => 100_000,
            (None, false) => mixed_rows(memory_total_bytes()?, free_disk_bytes),
        };
        if mixed_rows > 0 {
            // This table is built only once, because a build takes minutes.
            tables.push(plan(rows(mixed_rows, MIXED_VALUE_LEN_BYTES), 1, rounds.min(3), true));
        }
        let timed = Duration::from_millis(if args.quick { 300 } else { 2000 });
        let served = sizes.iter().filter(|rows| rows.count <= 1_000_000);
        let servers = served.map(|rows| server::Plan { rows: *rows, rounds, timed }).collect();
        Ok(Plans { tables, servers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixed_table_fits_into_memory_and_disk() {
        assert_eq!(mixed_rows(24 << 30, 1 << 50), 48_000_000);
        assert_eq!(mixed_rows(1 << 50, 58 << 30), 35_000_000);
    }

    #[test]
    fn a_table_size_is_a_number_of_rows_and_of_bytes_per_value() {
        assert_eq!(table("100x26"), Ok(Rows { count: 100, value_len_bytes: 26 }));
        for wrong in ["", "100", "100x", "x26", "0x26", "100x0", "100x26x", "-1x26"] {
            assert!(table(wrong).is_err(), "{wrong}");
        }
    }
}
