//! Writes rows to the new file as long as they arrive in key order, without first collecting all rows in memory.
//!
//! If a later row belongs before a row that has already been written, the written rows become a sorted run. This run
//! and all other runs are then merged into another file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::budget::Context;
use super::error::BakeError;
use super::options::Duplicates;
use super::place::NewFile;
use super::sort::parsed_piece::ParsedPiece;
use super::sort::run::SortedRun;
use super::sort::sorted_rows::{RowOrigins, TableRecords};
use super::sort::{Duplicate, ExtentOwner, OriginJumps, Tally};
use super::table::{RecordsWriter, WrittenRecords};
use crate::format::key::{Key, KeyKind};
use crate::format::record::{ALIGN_BYTES, PLACE_BITS, records_len_max_bytes};

/// If [`OriginJumps`] has at least this many entries, a stream accepts no more rows. The limit bounds the memory of the
/// entries.
const JUMPS_MAX: usize = 1 << 18;
/// The maximum total length of the records at the alignment [`ALIGN_BYTES`].
const RECORDS_LEN_MAX_BYTES: u64 = records_len_max_bytes(ALIGN_BYTES, PLACE_BITS);

/// Writes sorted rows into a file.
pub(super) struct SortedStream<'b> {
    context: &'b Context<'b>,
    path: PathBuf,
    file: NewFile,
    writer: RecordsWriter,
    kind: KeyKind,
    jumps: OriginJumps,
    /// Rows that have been accepted, but not written yet. They wait because the next row can have the same key as the
    /// last of them; one of these two rows is then dropped.
    pending: Option<SortedRun>,
    first_key: Vec<u8>,
}

/// The result of [`SortedStream::offer`].
pub(super) enum Offered {
    /// The stream has accepted the rows. The returned pieces are no longer needed, so their memory can be reused.
    Accepted(Vec<ParsedPiece>),
    /// The stream cannot accept the rows, so they must become part of a run.
    Rejected(ParsedPiece),
}

impl<'b> SortedStream<'b> {
    /// Begins a stream into `file`. `context.options.keys` must be `U64` or `Bytes`, not `Auto`.
    pub(super) fn new(path: &Path, file: NewFile, context: &'b Context<'b>) -> Result<Self, BakeError> {
        let kind = context.options.keys.kind();
        let key_type = context.options.keys.key_type(kind);
        let writer = RecordsWriter::new(file.file(), key_type, false, ALIGN_BYTES, context.budget.threads);
        let writer = writer.map_err(|error| BakeError::output(path, error))?;
        let (path, jumps) = (path.to_path_buf(), OriginJumps::default());
        Ok(SortedStream { context, path, file, writer, kind, jumps, pending: None, first_key: Vec::new() })
    }

    /// Offers the rows of a piece to the stream. The stream accepts them if three conditions hold: the rows are sorted
    /// and follow all earlier rows, no row removes its key, and the records and the stored origins stay within their
    /// limits.
    pub(super) fn offer(&mut self, piece: ParsedPiece, tally: &mut Tally) -> Result<Offered, BakeError> {
        if piece.len() == 0 {
            return Ok(Offered::Accepted(vec![piece]));
        }
        let follows = |last: Key<'_>| piece.first_key().is_some_and(|first| last <= first);
        let follows =
            self.pending.as_ref().and_then(SortedRun::first_and_last_key).is_none_or(|(_, last)| follows(last));
        let pending_len_bytes = self.pending.as_ref().map_or(0, SortedRun::len_bytes) as u64;
        let len_bytes = self.writer.len_bytes() + pending_len_bytes + piece.len_bytes() as u64;
        let fits = len_bytes <= RECORDS_LEN_MAX_BYTES && self.jumps.len() < JUMPS_MAX;
        // A row that removes its key must be merged with all other rows that have the key.
        if !piece.is_ascending || piece.has_deleted || !follows || !fits {
            return Ok(Offered::Rejected(piece));
        }
        // The piece is in order already; as a run, it can drop duplicates.
        let mut run = SortedRun::sorted(vec![piece], self.kind, self.context.pool);
        run.drop_duplicates(self.context.options.duplicates, tally);
        self.drop_boundary_duplicate(&mut run, tally);
        if run.len() == 0 {
            // All rows of the piece had the key of the last pending row, so that row remains the end of the stream.
            return Ok(Offered::Accepted(run.into_pieces()));
        }
        let done = self.flush()?;
        self.pending = Some(run);
        Ok(Offered::Accepted(done))
    }

    /// If the last pending row and the first row of `run` have the same key, drops one of these two rows.
    fn drop_boundary_duplicate(&mut self, run: &mut SortedRun, tally: &mut Tally) {
        let Some(pending) = &mut self.pending else { return };
        let (Some((_, last)), Some((first, _))) = (pending.first_and_last_key(), run.first_and_last_key()) else {
            return;
        };
        if last != first {
            return;
        }
        let (first_origin, later_origin) = (pending.row(pending.len() - 1).1, run.row(0).1);
        let duplicates = self.context.options.duplicates;
        if duplicates == Duplicates::Error {
            tally.note(|| Duplicate::new(first, first_origin, later_origin), later_origin);
        }
        tally.duplicates_dropped += 1;
        match duplicates {
            Duplicates::Last => pending.drop_last(),
            // With `Error`, the bake fails later, because only then the first duplicate of the whole input is known.
            Duplicates::Error | Duplicates::First => run.drop_first(),
        }
    }

    /// Writes the pending rows. Returns their memory for reuse.
    pub(super) fn flush(&mut self) -> Result<Vec<ParsedPiece>, BakeError> {
        let Some(run) = self.pending.take() else { return Ok(Vec::new()) };
        if self.first_key.is_empty()
            && let Some((Key::Bytes(first), _)) = run.first_and_last_key()
        {
            self.first_key = first.to_vec();
        }
        for index in 0..run.len() {
            let (row, origin) = run.row(index);
            self.writer.push(row.key, row.value).map_err(|error| BakeError::output(&self.path, error))?;
            self.jumps.push(origin);
        }
        Ok(run.into_pieces())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writer.row_count() == 0
    }

    /// Ends the stream, and waits until all rows are in the file. The caller must have called [`SortedStream::flush`]
    /// before.
    pub(super) fn finish(self) -> Result<Streamed, BakeError> {
        let path = self.path;
        let records = self.writer.finish().map_err(|error| BakeError::output(&path, error))?;
        Ok(Streamed { file: self.file, path, records, jumps: self.jumps, first_key: self.first_key })
    }
}

/// The rows of a finished stream, and their file.
pub(super) struct Streamed {
    pub(super) file: NewFile,
    path: PathBuf,
    pub(super) records: WrittenRecords,
    jumps: OriginJumps,
    first_key: Vec<u8>,
}

impl Streamed {
    /// Returns the rows as sorted records that can be merged with runs.
    pub(super) fn into_table(self) -> io::Result<TableRecords> {
        let origins = RowOrigins::Jumps(Arc::new(self.jumps));
        let owner = ExtentOwner::Output(self.path.into());
        TableRecords::written(self.file.file(), &self.records, origins, self.first_key, owner)
    }
}
