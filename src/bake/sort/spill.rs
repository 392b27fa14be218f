//! Spills sorted runs to unnamed temporary files. The system removes such a file when the process ends, even if the
//! process is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use zerocopy::little_endian::U64;

use super::blocks::{BlockSums, Extent};
use super::{ExtentOwner, HeldRow};
use crate::folder::unnamed_file_in;
use crate::format::checksum::block_sum;
use crate::format::key::{Key, KeyKind};

/// The length of a block. Each block has one checksum.
const BLOCK_LEN_BYTES: usize = 64 << 10;
/// The length of a write, a multiple of the block length.
const WRITE_LEN_BYTES: usize = 16 * BLOCK_LEN_BYTES;
/// The number of decimal digits of the greatest key, 2⁶⁴ - 1.
const DIGITS_MAX: usize = 20;

/// A sorted run on disk.
pub(in crate::bake) struct SpilledRun {
    pub(in crate::bake) extent: Extent,
    pub(in crate::bake) kind: KeyKind,
    pub(in crate::bake) row_count: u64,
    /// The length of the longest row.
    pub(in crate::bake) row_len_max_bytes: usize,
    /// The origin (input and line) of the run's first line. Rows store their lines relative to this line.
    pub(in crate::bake) first_origin: u64,
    /// The greatest origin (input and line) of a row.
    pub(in crate::bake) last_origin: u64,
    /// The length of the prefix of `first_key` that all keys share.
    pub(in crate::bake) common_len_bytes: usize,
    pub(in crate::bake) first_key: Vec<u8>,
    /// For a run of numbers: `digits_at[n]` is the offset, in the run, of the first number with at least `n` digits.
    pub(in crate::bake) digits_at: [u64; DIGITS_MAX + 1],
}

impl SpilledRun {
    /// Splits the run into byte ranges in which the keys ascend in the order of `kind`. When numbers are read as text,
    /// there is one range per digit count, because numeric and text order agree only among numbers of equal length.
    pub(in crate::bake) fn ranges(&self, kind: KeyKind) -> impl Iterator<Item = (u64, u64)> {
        let begins = if self.kind == kind { &[0][..] } else { &self.digits_at[1..] };
        let ends = begins.iter().skip(1).chain([&self.extent.len_bytes]);
        begins.iter().copied().zip(ends.copied()).filter(|(from, to)| from < to)
    }
}

/// Appends runs to a file.
pub(in crate::bake) struct SpillFile {
    file: Arc<File>,
    owner: ExtentOwner,
    end_bytes: u64,
}

impl SpillFile {
    pub(in crate::bake) fn new(folder: &Path) -> io::Result<SpillFile> {
        let owner = ExtentOwner::Temporary(folder.into());
        Ok(SpillFile { file: Arc::new(unnamed_file_in(folder)?), owner, end_bytes: 0 })
    }

    /// Begins a run of rows whose origins (inputs and lines) are at least `first_origin`.
    pub(in crate::bake) fn begin(&mut self, kind: KeyKind, first_origin: u64) -> RunWriter<'_> {
        let extent = Extent {
            file: self.file.clone(),
            offset_bytes: self.end_bytes,
            len_bytes: 0,
            block_len_bytes: BLOCK_LEN_BYTES,
            sums: BlockSums::Memory(Arc::default()),
            owner: self.owner.clone(),
        };
        let run = SpilledRun {
            extent,
            kind,
            row_count: 0,
            row_len_max_bytes: 0,
            first_origin,
            last_origin: first_origin,
            common_len_bytes: 0,
            first_key: Vec::new(),
            digits_at: [0; DIGITS_MAX + 1],
        };
        let pending = Vec::with_capacity(WRITE_LEN_BYTES);
        RunWriter { spill: self, run, pending, sums: Vec::new(), last_key: Vec::new(), digits: 0 }
    }
}

/// Writes one run in key order.
pub(in crate::bake) struct RunWriter<'s> {
    spill: &'s mut SpillFile,
    /// Describes the rows added so far. [`RunWriter::finish`] adds the checksums of the run's blocks.
    run: SpilledRun,
    pending: Vec<u8>,
    sums: Vec<U64>,
    last_key: Vec<u8>,
    /// The number of decimal digits of the latest key, if keys are numbers.
    digits: usize,
}

impl RunWriter<'_> {
    /// Adds a row. `origin` (the row's input and line) minus the run's first origin must be less than
    /// [`LINES_MAX`](super::LINES_MAX).
    pub(in crate::bake) fn push(&mut self, row: &HeldRow<'_>, origin: u64) -> io::Result<()> {
        let run = &mut self.run;
        let at = run.extent.len_bytes + self.pending.len() as u64;
        match row.key {
            Key::U64(number) => {
                let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
                run.digits_at[self.digits + 1..=digits.max(self.digits)].fill(at);
                self.digits = digits;
            }
            Key::Bytes(key) => {
                if run.row_count == 0 {
                    run.first_key.extend_from_slice(key);
                }
                self.last_key.clear();
                self.last_key.extend_from_slice(key);
            }
        }
        let line =
            u32::try_from(origin - run.first_origin).expect("a line relative to the first line of a run has 31 bits");
        HeldRow { line, ..*row }.write_to(&mut self.pending);
        run.row_count += 1;
        run.row_len_max_bytes = run.row_len_max_bytes.max(row.len_bytes());
        run.last_origin = run.last_origin.max(origin);
        if self.pending.len() >= WRITE_LEN_BYTES {
            self.write(self.pending.len() - self.pending.len() % BLOCK_LEN_BYTES)?;
        }
        Ok(())
    }

    pub(in crate::bake) fn finish(mut self) -> io::Result<SpilledRun> {
        self.write(self.pending.len())?;
        let mut run = self.run;
        run.digits_at[self.digits + 1..].fill(run.extent.len_bytes);
        run.extent.sums = BlockSums::Memory(self.sums.into());
        run.common_len_bytes = Key::Bytes(&run.first_key).common_len_bytes(&Key::Bytes(&self.last_key));
        self.spill.end_bytes += run.extent.len_bytes;
        Ok(run)
    }

    fn write(&mut self, len_bytes: usize) -> io::Result<()> {
        let bytes = &self.pending[..len_bytes];
        self.sums.extend(bytes.chunks(BLOCK_LEN_BYTES).map(block_sum));
        let extent = &mut self.run.extent;
        extent.file.write_all_at(bytes, extent.offset_bytes + extent.len_bytes)?;
        extent.len_bytes += len_bytes as u64;
        self.pending.drain(..len_bytes);
        Ok(())
    }
}
