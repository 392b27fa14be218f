//! Divides the memory and threads of a bake among its stages, and holds what they share.
//!
//! Reasons and evidence: `docs/decisions/bake-pipeline.md`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::{self, Scope, ScopedJoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::error::{BakeError, MEMORY_MIN_BYTES};
use super::options::Options;
use super::section::WRITE_LEN_BYTES;
use super::typed::TypedPlan;
use crate::folder::{folder_of, unnamed_file_in};
use crate::format::record::VALUE_LEN_MAX_BYTES;
use crate::machine_memory;

/// The divisor in the default memory limit of a bake, which is the memory of the machine or control group, divided by
/// this number.
pub const MEMORY_SHARE: u64 = 2;

/// The length that the read buffer of each source of a merge (a run or a table) should have. The maximum number of
/// sources that are merged at once follows from this length. With much shorter reads, a spinning disk would spend most
/// of its time on seeks.
const MERGE_BUFFER_BYTES: u64 = 256 << 10;

/// The memory, threads, and temporary folder of one bake.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pub(super) memory_bytes: u64,
    pub(super) threads: usize,
    pub(super) temp_dir: PathBuf,
}

impl Budget {
    /// Returns a budget whose temporary files are in the system's temporary folder.
    #[cfg(test)]
    pub(super) fn test(memory_bytes: u64, threads: usize) -> Budget {
        Budget { memory_bytes, threads, temp_dir: std::env::temp_dir() }
    }

    /// Returns the budget that the options set, with defaults that depend on the machine. By default, temporary files
    /// are in the output's folder, because this folder has room for a table, whereas `/tmp` is often in memory.
    pub(super) fn new(options: &Options, output: &Path) -> Result<Budget, BakeError> {
        let memory_bytes = options.memory_bytes.unwrap_or_else(|| machine_memory::total_bytes() / MEMORY_SHARE);
        if memory_bytes < MEMORY_MIN_BYTES {
            return Err(BakeError::Memory { given_bytes: memory_bytes });
        }
        if let Some(folder) = &options.temp_dir {
            // Tests the folder now by creating a file, because a bake may not need the folder until it has read much of
            // the input.
            unnamed_file_in(folder).map_err(|error| BakeError::temporary(folder, error))?;
        }
        Ok(Budget {
            memory_bytes,
            threads: options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get),
            temp_dir: options.temp_dir.clone().unwrap_or_else(|| folder_of(output).to_path_buf()),
        })
    }

    pub(super) fn thread_pool(&self) -> Result<ThreadPool, BakeError> {
        ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .build()
            .map_err(|error| BakeError::Threads { error: error.to_string() })
    }

    /// Returns the approximate length of each piece that is cut from an input. Pieces are short, because the shortest
    /// rows, once parsed, take ten times as much memory as their text, and several pieces per thread are in memory at
    /// once.
    pub(super) fn piece_len_bytes(&self) -> usize {
        let pieces = 32 * self.pieces_in_flight() as u64;
        (self.memory_bytes / pieces).clamp(16 << 10, 4 << 20) as usize
    }

    /// Returns the maximum number of pieces in flight. A piece is in flight from the time when it is sent to the
    /// parsers until its parsed rows are collected. A long piece counts as several pieces.
    pub(super) fn pieces_in_flight(&self) -> usize {
        3 * self.threads + 2
    }

    /// Returns the maximum length of a row's text: an eighth of the memory limit, because several copies of a row are
    /// in memory at once. Regardless of the memory limit, the length is at most [`VALUE_LEN_MAX_BYTES`].
    pub(super) fn row_len_max_bytes(&self) -> usize {
        (self.memory_bytes / 8).min(VALUE_LEN_MAX_BYTES as u64) as usize
    }

    /// Returns the maximum memory of a sorted run. Two runs are in memory at once: one run is collected while the
    /// previous run is sorted and written to disk.
    pub(super) fn run_len_bytes(&self) -> u64 {
        self.memory_bytes * 3 / 8
    }

    /// Returns the maximum number of sources (runs and tables) that are merged at once.
    pub(super) fn fan_in(&self) -> usize {
        (self.memory_bytes / 4 / MERGE_BUFFER_BYTES).clamp(2, 256) as usize
    }

    /// Returns the maximum total length of the rows that a merge holds in memory at once. A merge holds one whole row
    /// of each run.
    pub(super) fn merge_rows_len_bytes(&self) -> u64 {
        self.memory_bytes / 2
    }

    /// Returns the maximum memory of ranges that contain one key. They are in memory at once. Budgets of tests have
    /// less memory than a few ranges take.
    pub(super) fn nested_ranges_len_max_bytes(&self) -> usize {
        (self.memory_bytes / 4).max(1 << 20) as usize
    }

    /// Returns the maximum number of files that a merge writes at once. Each has one write buffer.
    pub(super) fn files_at_once(&self) -> usize {
        (self.memory_bytes / 4 / WRITE_LEN_BYTES as u64).clamp(1, 256) as usize
    }

    /// Returns the length of each source's read buffer in a merge of `sources` sources.
    pub(super) fn merge_buffer_len_bytes(&self, sources: usize) -> usize {
        let share = self.memory_bytes / 4 / sources.max(1) as u64;
        share.clamp(MERGE_BUFFER_BYTES / 2, 4 << 20) as usize
    }
}

pub(super) fn spawn<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    run: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>, BakeError> {
    let started = thread::Builder::new().spawn_scoped(scope, run);
    started.map_err(|error| BakeError::Threads { error: error.to_string() })
}

/// The options, the typed columns, the budget, and the threads of a bake.
pub(super) struct Context<'o> {
    pub(super) options: &'o Options,
    /// The columns of a typed table.
    pub(super) typed: Option<TypedPlan>,
    pub(super) budget: &'o Budget,
    pub(super) pool: &'o ThreadPool,
}

impl Context<'_> {
    pub(super) fn check_canceled(&self) -> Result<(), BakeError> {
        if self.options.cancel.is_set() { Err(BakeError::Canceled) } else { Ok(()) }
    }
}
