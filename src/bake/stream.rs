//! Rows that come sorted, on their way into the file without being held.
//!
//! If a row comes later that should have been before them, what was written so
//! far is a sorted run like any other, and is merged with the rest into another file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::ThreadPool;

use super::place::NewFile;
use super::sort::batch::Batch;
use super::sort::blocks::Home;
use super::sort::merge::{Duplicate, Tally};
use super::sort::run::Run;
use super::sort::source::{RowOrigins, Table};
use super::table::{RecordsWriter, WrittenRecords};
use super::{BakeError, Duplicates};
use crate::format::key::{Key, KeyKind};
use crate::format::record::ALIGN_BYTES;

/// Places where lines do not follow each other that are kept in memory, at most.
const JUMPS_MAX: usize = 1 << 18;
/// What records take up at most where each is aligned to [`ALIGN_BYTES`].
const RECORDS_LEN_MAX_BYTES: u64 = (ALIGN_BYTES as u64) << 32;

/// Which origin each row of a stream has. Most follow the one before, so only the others are noted.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    rows: u64,
    /// A row, counted from 0, and its origin; those after it follow one by one.
    jumps: Vec<(u64, u64)>,
}

impl Jumps {
    fn push(&mut self, origin: u64) {
        if self.jumps.last().is_none_or(|(row, first)| first + (self.rows - row) != origin) {
            self.jumps.push((self.rows, origin));
        }
        self.rows += 1;
    }

    /// The origin of a row.
    pub(super) fn origin(&self, row: u64) -> u64 {
        let jump = self.jumps.partition_point(|(first, _)| *first <= row) - 1;
        let (first, origin) = self.jumps[jump];
        origin + (row - first)
    }
}

/// Writes sorted rows into a file.
pub(super) struct Stream<'b> {
    pool: &'b ThreadPool,
    path: PathBuf,
    file: NewFile,
    writer: RecordsWriter,
    kind: KeyKind,
    duplicates: Duplicates,
    jumps: Jumps,
    /// Rows that are not written yet: the last of them may have to give way to the next.
    pending: Option<Run>,
    first_key: Vec<u8>,
}

/// What became of a batch.
pub(super) enum Taken {
    /// The stream has it, and gives batches that it is done with.
    Yes(Vec<Batch>),
    /// Its rows do not follow those before: they must be sorted.
    No(Batch),
}

impl<'b> Stream<'b> {
    /// Begins a file for rows with keys of one kind.
    pub(super) fn new(
        path: &Path,
        file: NewFile,
        kind: KeyKind,
        duplicates: Duplicates,
        pool: &'b ThreadPool,
        threads: usize,
    ) -> Result<Self, BakeError> {
        let writer = RecordsWriter::new(file.file(), kind, ALIGN_BYTES, threads);
        let writer = writer.map_err(|error| BakeError::output(path, error))?;
        let (path, jumps) = (path.to_path_buf(), Jumps::default());
        Ok(Stream { pool, path, file, writer, kind, duplicates, jumps, pending: None, first_key: Vec::new() })
    }

    /// Takes a batch if its rows are in order and follow those before.
    pub(super) fn take(&mut self, batch: Batch, tally: &mut Tally) -> Result<Taken, BakeError> {
        if batch.len() == 0 {
            return Ok(Taken::Yes(vec![batch]));
        }
        let follows = |last: Key<'_>| batch.first_key().is_some_and(|first| last <= first);
        let follows = self.pending.as_ref().and_then(Run::ends).is_none_or(|(_, last)| follows(last));
        let pending_len_bytes = self.pending.as_ref().map_or(0, Run::len_bytes) as u64;
        let len_bytes = self.writer.len_bytes() + pending_len_bytes + batch.len_bytes() as u64;
        let fits = len_bytes <= RECORDS_LEN_MAX_BYTES && self.jumps.jumps.len() < JUMPS_MAX;
        // A row that removes its key must meet all other rows with that key.
        if !batch.is_ascending || batch.has_deleted || !follows || !fits {
            return Ok(Taken::No(batch));
        }
        let mut run = Run::sorted(vec![batch], self.kind, self.pool);
        run.settle(self.duplicates, tally);
        self.part(&mut run, tally);
        if run.len() == 0 {
            // Its only key is the last that is pending, which the next batch must follow as well.
            return Ok(Taken::Yes(run.into_batches()));
        }
        let done = self.flush()?;
        self.pending = Some(run);
        Ok(Taken::Yes(done))
    }

    /// Keeps one of two rows if the last that is pending and the first of a run have the same key.
    fn part(&mut self, run: &mut Run, tally: &mut Tally) {
        let Some(pending) = &mut self.pending else { return };
        let (Some((_, last)), Some((first, _))) = (pending.ends(), run.ends()) else { return };
        if last != first {
            return;
        }
        let (first_origin, later_origin) = (pending.row(pending.len() - 1).1, run.row(0).1);
        if self.duplicates == Duplicates::Error {
            tally.note(|| Duplicate::new(first, first_origin, later_origin), later_origin);
        }
        tally.duplicates_dropped += 1;
        match self.duplicates {
            Duplicates::Last => pending.drop_last(),
            Duplicates::Error | Duplicates::First => run.drop_first(),
        }
    }

    /// Writes what is pending. Gives the batches that had it.
    pub(super) fn flush(&mut self) -> Result<Vec<Batch>, BakeError> {
        let Some(run) = self.pending.take() else { return Ok(Vec::new()) };
        if self.first_key.is_empty()
            && let Some((Key::Bytes(first), _)) = run.ends()
        {
            self.first_key = first.to_vec();
        }
        for index in 0..run.len() {
            let (row, origin) = run.row(index);
            self.writer.push(row.key, row.value).map_err(|error| BakeError::output(&self.path, error))?;
            self.jumps.push(origin);
        }
        Ok(run.into_batches())
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.writer.row_count() == 0
    }

    /// Waits until all is in the file.
    pub(super) fn finish(self) -> Result<Streamed, BakeError> {
        let path = self.path;
        let records = self.writer.finish().map_err(|error| BakeError::output(&path, error))?;
        Ok(Streamed { file: self.file, path, records, jumps: self.jumps, first_key: self.first_key })
    }
}

/// A stream that has ended.
pub(super) struct Streamed {
    pub(super) file: NewFile,
    path: PathBuf,
    pub(super) records: WrittenRecords,
    jumps: Jumps,
    first_key: Vec<u8>,
}

impl Streamed {
    /// The rows as a sorted run, to be merged with others.
    pub(super) fn into_table(self) -> io::Result<Table> {
        let origins = RowOrigins::Jumps(Arc::new(self.jumps));
        let home = Home::Output(self.path.into());
        Table::written(self.file.file(), &self.records, origins, self.first_key, home)
    }
}
