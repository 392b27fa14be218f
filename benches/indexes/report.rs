//! Formats the results as Markdown tables.

use std::fmt;

use zero_kv::protocol::native::RESPONSE_HEADER_LEN_BYTES;

use crate::support::{VALUE_LEN_MIN_BYTES, is_test};

/// Number of consecutive samples of one index in a round. Before the first of these samples, the caches hold data of
/// other indexes.
pub(crate) const ROUND_SAMPLES: usize = 3;
/// Tables with at least this many rows have long values.
const LONG_FROM_ROWS: usize = 10_000_000;
pub(crate) const LONG_VALUE_LEN_BYTES: usize = 100;

/// The size of the table, and the number of rounds.
pub(crate) struct Load {
    pub(crate) rows: usize,
    pub(crate) value_len_bytes: usize,
    pub(crate) rounds: usize,
    /// Number of distributions whose indexes are in memory at the same time.
    pub(crate) spreads_at_once: usize,
}

impl Load {
    pub(crate) fn for_rows(rows: usize) -> Load {
        match rows {
            _ if is_test() => Load { rows, value_len_bytes: VALUE_LEN_MIN_BYTES, rounds: 1, spreads_at_once: 1 },
            ..LONG_FROM_ROWS => {
                Load { rows, value_len_bytes: VALUE_LEN_MIN_BYTES, rounds: 6, spreads_at_once: usize::MAX }
            }
            _ => Load { rows, value_len_bytes: LONG_VALUE_LEN_BYTES, rounds: 3, spreads_at_once: 1 },
        }
    }
}

/// The results of one index for one distribution.
pub(crate) struct Figures {
    pub(crate) index: &'static str,
    /// Bytes per row, not counting values and response headers.
    pub(crate) overhead_bytes_per_row: f64,
    pub(crate) batch_ns: f64,
    pub(crate) floor_batch_ns: f64,
    pub(crate) single_ns: f64,
}

impl Figures {
    pub(crate) fn new(index: &'static str, len_bytes: usize, load: &Load) -> Figures {
        let responses_len_bytes = load.rows * (load.value_len_bytes + RESPONSE_HEADER_LEN_BYTES);
        let overhead_bytes_per_row = (len_bytes - responses_len_bytes) as f64 / load.rows as f64;
        Figures {
            index,
            overhead_bytes_per_row,
            batch_ns: f64::INFINITY,
            floor_batch_ns: f64::INFINITY,
            single_ns: f64::INFINITY,
        }
    }
}

/// The results for one distribution.
pub(crate) struct SpreadResults {
    pub(crate) spread: &'static str,
    pub(crate) indexes: Vec<Figures>,
}

/// The results for one number of rows.
pub(crate) struct Report {
    pub(crate) load: Load,
    pub(crate) lines_len_bytes: usize,
    pub(crate) overlapped_line_ns: f64,
    pub(crate) dependent_line_ns: f64,
    pub(crate) spreads: Vec<SpreadResults>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Load { rows, value_len_bytes, rounds, .. } = self.load;
        writeln!(f, "## {rows} rows, values of {value_len_bytes} bytes\n")?;
        writeln!(
            f,
            "One random cache line of {} MiB: {:.1} ns if waits overlap, {:.1} ns if each read waits for the previous one.",
            self.lines_len_bytes >> 20,
            self.overlapped_line_ns,
            self.dependent_line_ns
        )?;
        writeln!(
            f,
            "Time per lookup on one thread, fastest of {} samples, in ns and in overlapped line reads.\n",
            rounds * ROUND_SAMPLES
        )?;
        self.table(f, "batches of 256, values copied", |figures| figures.batch_ns)?;
        self.table(f, "floors in batches of 256, values copied", |figures| figures.floor_batch_ns)?;
        self.table(f, "one key at a time", |figures| figures.single_ns)
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter, title: &str, ns: fn(&Figures) -> f64) -> fmt::Result {
        let Some(first) = self.spreads.first() else { return Ok(()) };
        let columns = |column: &dyn Fn(&SpreadResults) -> String| self.spreads.iter().map(column).collect::<String>();
        let names = columns(&|it| format!(" {} |", it.spread));
        writeln!(f, "| {title} | bytes per row |{names} slowest / {} |", first.spread)?;
        writeln!(f, "|---|---|{}---|", columns(&|_| "---|".to_owned()))?;
        for (i, Figures { index, overhead_bytes_per_row, .. }) in first.indexes.iter().enumerate() {
            let ns = |measured: &SpreadResults| ns(&measured.indexes[i]);
            let slowest_ns = self.spreads.iter().map(ns).fold(0.0, f64::max);
            let cells = columns(&|it| format!(" {:.1} ({:.1}) |", ns(it), ns(it) / self.overlapped_line_ns));
            writeln!(f, "| {index} | {overhead_bytes_per_row:.1} |{cells} {:.2} |", slowest_ns / ns(first))?;
        }
        writeln!(f)
    }
}
