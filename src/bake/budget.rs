//! What a bake may use of the machine, and how it is divided.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::place::folder_of;
use super::{BakeError, Options};
use crate::format::record::VALUE_LEN_MAX_BYTES;
use crate::machine_memory;

/// A bake with less would spend its time on its smallest buffers. Under cargo-fuzz it is as little as makes small inputs spill.
pub const MEMORY_MIN_BYTES: u64 = if cfg!(fuzzing) { 32 << 10 } else { 16 << 20 };
/// By default a bake takes one part in so many of the memory that the machine, or the control group, has.
pub const MEMORY_SHARE: u64 = 2;

/// Limits of one bake.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    pub(super) memory_bytes: u64,
    pub(super) threads: usize,
    pub(super) temp_dir: PathBuf,
}

impl Budget {
    /// What the options say, and the machine where they are silent. Temporary files are put beside the output by default:
    /// there is room for a table, and `/tmp` is often memory.
    pub(super) fn of(options: &Options, output: &Path) -> Result<Budget, BakeError> {
        let memory_bytes = options.memory_bytes.unwrap_or_else(|| machine_memory::total_bytes() / MEMORY_SHARE);
        if memory_bytes < MEMORY_MIN_BYTES {
            return Err(BakeError::Memory { given_bytes: memory_bytes });
        }
        if let Some(folder) = &options.temp_dir {
            // Perhaps no temporary file is needed, but that is only known when much was read.
            tempfile::tempfile_in(folder).map_err(|error| BakeError::temporary(folder, error))?;
        }
        Ok(Budget {
            memory_bytes,
            threads: options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get),
            temp_dir: options.temp_dir.clone().unwrap_or_else(|| folder_of(output).to_path_buf()),
        })
    }

    /// Threads for what is sorted at once.
    pub(super) fn thread_pool(&self) -> Result<ThreadPool, BakeError> {
        ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .build()
            .map_err(|error| BakeError::Threads { error: error.to_string() })
    }

    /// Text that one parser takes at a time. Its rows can take up ten times as much, if all are as short as a row can be,
    /// and a few pieces are under way for each thread.
    pub(super) fn piece_len_bytes(&self) -> usize {
        let pieces = 32 * self.pieces_under_way() as u64;
        (self.memory_bytes / pieces).clamp(16 << 10, 4 << 20) as usize
    }

    /// Pieces that are cut and not gathered.
    pub(super) fn pieces_under_way(&self) -> usize {
        3 * self.threads + 2
    }

    /// A row that cannot be held several times at once is refused.
    pub(super) fn row_len_max_bytes(&self) -> usize {
        (self.memory_bytes / 8).min(VALUE_LEN_MAX_BYTES as u64) as usize
    }

    /// Rows that become a run: one is gathered while the one before is written.
    pub(super) fn run_len_bytes(&self) -> u64 {
        self.memory_bytes * 3 / 8
    }

    /// Runs that are merged at once.
    pub(super) fn fan_in(&self) -> usize {
        (self.memory_bytes / 4 / MERGE_BUFFER_MIN_BYTES).clamp(2, 256) as usize
    }

    /// What the rows at hand may take up while runs are merged: each run has a whole one.
    pub(super) fn merge_rows_len_bytes(&self) -> u64 {
        self.memory_bytes / 2
    }

    /// The buffer of each of so many sources.
    pub(super) fn merge_buffer_len_bytes(&self, sources: usize) -> usize {
        let share = self.memory_bytes / 4 / sources.max(1) as u64;
        share.clamp(MERGE_BUFFER_MIN_BYTES / 2, 4 << 20) as usize
    }
}

/// Runs are read in pieces of at least this: long enough for a disk that seeks.
const MERGE_BUFFER_MIN_BYTES: u64 = 256 << 10;
