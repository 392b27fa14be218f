//! Writes the header, and the sections that follow the records: fences, pilots, places, and block sums.
//!
//! In: a file with its records, and facts about the records. Out: the complete file. The records are read back from
//! front to back, once for each hash seed that is tried. Each block is verified against its checksum, so that the index
//! matches what the file contains. The hashes of keys are grouped by parts of the index, in memory or in a temporary
//! file, and then the pilots of each part are chosen.

mod buckets;
mod slots;
mod walk;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::budget::Budget;
use super::section::{SectionWriter, WRITE_LEN_BYTES};
use super::table::WrittenRecords;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::{Dimensions, HEADER_LEN_BYTES, Layout};
use crate::format::index::{FENCE_ROWS, Fence, Hash, Parts};
use crate::format::key::Key;
use buckets::{Buckets, BucketsBuilder};
use slots::PilotChooser;
use walk::Walk;

/// The length of a read, a whole number of blocks.
const READ_LEN_BYTES: usize = WRITE_LEN_BYTES;
/// The maximum number of pieces of the records that are read ahead.
const AHEAD_COUNT: usize = 2;

/// The reason why the index cannot be written.
#[derive(Debug)]
pub(super) enum FinishError {
    /// The table exceeds a limit of the format.
    Format(FormatError),
    /// The records in the file differ from what was written.
    ReadBack(FormatError),
    /// The file cannot be read or written.
    Io(io::Error),
    /// The temporary file cannot be read or written.
    Temp {
        /// The folder of the temporary file.
        folder: PathBuf,
        error: io::Error,
    },
}

impl From<FormatError> for FinishError {
    fn from(error: FormatError) -> Self {
        FinishError::Format(error)
    }
}

impl From<io::Error> for FinishError {
    fn from(error: io::Error) -> Self {
        FinishError::Io(error)
    }
}

/// A function that receives the number of rows done, and the total. Each row counts twice: once when its record is read
/// back, and once when its slot is written.
pub(super) type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Writes the sections after the records, and the header. Returns the layout of the file.
///
/// At most half of the budget's memory holds rows (hash and place, 12 bytes per row). All other rows are spilled to a
/// temporary file. At most a quarter of the memory holds the rows that threads are working on.
pub(super) fn build(
    file: &File,
    records: &WrittenRecords,
    budget: &Budget,
    progress: &mut Progress<'_>,
) -> Result<Layout, FinishError> {
    for hash_seed in slots::seeds(records.first_seed) {
        let scanned = scan(file, records, hash_seed, budget, progress)?;
        let parts = slots::parts(records.row_count, scanned.buckets.part_rows_max());
        let mut layout = Layout::new(dimensions(records, hash_seed, parts))?;
        // Removes the pilots and places that were written for an earlier hash seed, which failed. Padding between
        // sections is never written, so it must be a hole, which reads as zeros.
        file.set_len(layout.pilots.offset_bytes)?;
        let Some((pilot_sums, place_sums)) = write_slots(file, &layout, &scanned.buckets, budget, progress)? else {
            continue;
        };
        layout.records.checksum = section_sum(&records.block_sums);
        layout.fences.checksum = section_sum(&scanned.fence_sums);
        layout.pilots.checksum = section_sum(&pilot_sums);
        layout.places.checksum = section_sum(&place_sums);
        layout.block_sums.checksum = section_sum_of(records.block_sums.as_bytes());
        file.write_all_at(records.block_sums.as_bytes(), layout.block_sums.offset_bytes)?;
        file.write_all_at(&layout.encode(), 0)?;
        // If the last section is empty, the file ends with padding. Padding is never written, so only this call gives
        // the file its full length.
        file.set_len(layout.file_len_bytes())?;
        return Ok(layout);
    }
    Err(FormatError::Unhashable.into())
}

fn dimensions(records: &WrittenRecords, hash_seed: u64, parts: Parts) -> Dimensions {
    Dimensions {
        key_kind: records.key_kind,
        row_count: records.row_count,
        hash_seed,
        record_align_bytes: records.record_align_bytes,
        records_len_bytes: records.records_len_bytes,
        part_pilots: parts.pilots,
        part_slots: parts.slots,
    }
}

/// The result of [`scan`]: all rows by bucket, and the checksums of the fences.
struct Scanned {
    buckets: Buckets,
    fence_sums: Vec<U64>,
}

/// Reads the records, writes the fences, and groups the rows by bucket.
fn scan(
    file: &File,
    records: &WrittenRecords,
    hash_seed: u64,
    budget: &Budget,
    progress: &mut Progress<'_>,
) -> Result<Scanned, FinishError> {
    let row_count = records.row_count;
    // The position of the fences does not depend on the numbers of pilots and slots per part, which are still unknown.
    let layout = Layout::new(dimensions(records, hash_seed, slots::parts(row_count, 1)))?;
    let parts = layout.dimensions.parts();
    let mut builder = BucketsBuilder::new(row_count, budget)?;
    let mut fences = SectionWriter::new(file, layout.fences.offset_bytes, 1)?;
    let mut walk = Walk::new(records.key_kind, records.record_align_bytes, row_count, records.records_len_bytes);
    let align_bits = records.record_align_bytes.trailing_zeros();
    read_records(file, records, budget.threads, |bytes| {
        walk.pass(bytes, |passed| {
            if passed.row.is_multiple_of(FENCE_ROWS as u64) {
                let head = passed.key.head(records.common_len_bytes);
                let fence = Fence { head: head.into(), offset_bytes: passed.offset_bytes.into() };
                fences.push(fence.as_bytes())?;
            }
            let hash = match passed.key {
                Key::U64(key) => Hash::from_u64(key, hash_seed),
                Key::Bytes(key) => Hash::from_bytes(key, hash_seed),
            };
            let place = (passed.offset_bytes >> align_bits) as u32;
            builder.push(hash.part(&parts), hash, place)
        })?;
        progress(walk.row(), 2 * row_count);
        Ok(())
    })?;
    walk.finish()?;
    Ok(Scanned { buckets: builder.finish(), fence_sums: fences.finish()? })
}

/// Reads the records piece by piece, verifies each block against its checksum, and passes the pieces to `pass`. With
/// more than one thread, another thread reads ahead.
fn read_records(
    file: &File,
    records: &WrittenRecords,
    threads: usize,
    mut pass: impl FnMut(&[u8]) -> Result<(), FinishError>,
) -> Result<(), FinishError> {
    let pieces = || (0..records.records_len_bytes).step_by(READ_LEN_BYTES);
    thread::scope(|scope| {
        let (full, to_pass) = sync_channel::<Result<Vec<u8>, FinishError>>(AHEAD_COUNT);
        let (passed, empty) = sync_channel::<Vec<u8>>(AHEAD_COUNT + 1);
        let read_ahead = move || {
            for at_bytes in pieces() {
                let mut piece = empty.try_recv().unwrap_or_default();
                let read = read_piece(file, records, at_bytes, &mut piece).map(|()| piece);
                let is_last = read.is_err();
                if full.send(read).is_err() || is_last {
                    return;
                }
            }
        };
        let reader = match threads > 1 {
            true => thread::Builder::new().name("read".to_owned()).spawn_scoped(scope, read_ahead).ok(),
            false => None,
        };
        let Some(reader) = reader else {
            let mut piece = Vec::new();
            return pieces().try_for_each(|at_bytes| {
                read_piece(file, records, at_bytes, &mut piece)?;
                pass(&piece)
            });
        };
        let mut done = Ok(());
        for piece in to_pass {
            done = piece.and_then(|piece| {
                pass(&piece)?;
                // Sending fails if the reader has ended, but then the reader needs no more buffers.
                let _ = passed.send(piece);
                Ok(())
            });
            if done.is_err() {
                break;
            }
        }
        reader.join().unwrap_or_else(|payload| panic::resume_unwind(payload));
        done
    })
}

/// Reads a piece of the records, and verifies its blocks against their checksums.
fn read_piece(file: &File, records: &WrittenRecords, at_bytes: u64, piece: &mut Vec<u8>) -> Result<(), FinishError> {
    let len_bytes = (records.records_len_bytes - at_bytes).min(READ_LEN_BYTES as u64);
    piece.resize(len_bytes as usize, 0);
    let offset_bytes = HEADER_LEN_BYTES as u64 + at_bytes;
    file.read_exact_at(piece, offset_bytes)?;
    let first_block = at_bytes as usize / BLOCK_LEN_BYTES;
    for (block, bytes) in (first_block..).zip(piece.chunks(BLOCK_LEN_BYTES)) {
        let (expected, found) = (records.block_sums[block].get(), block_sum(bytes).get());
        if expected != found {
            let offset_bytes = HEADER_LEN_BYTES as u64 + (block * BLOCK_LEN_BYTES) as u64;
            return Err(FinishError::ReadBack(FormatError::BlockChecksum { block, offset_bytes, expected, found }));
        }
    }
    Ok(())
}

/// The pilots and places sections, written in the order of the buckets.
struct SlotSections {
    pilots: SectionWriter,
    places: SectionWriter,
    /// The bucket whose pilots and places are written next.
    next_bucket: usize,
    /// Whether a thread has failed. If so, all other threads stop.
    has_failed: bool,
}

/// The state that threads share while they choose pilots.
struct SharedWork<'a> {
    buckets: &'a Buckets,
    parts: Parts,
    /// The next bucket that a thread takes.
    next_bucket: AtomicUsize,
    rows_done: AtomicU64,
    sections: Mutex<SlotSections>,
    turn: Condvar,
}

/// Chooses the pilots of all parts, and writes pilots and places. Returns the checksums of both sections, or `None` if
/// no pilots are found for a part under this hash seed.
#[expect(clippy::type_complexity, reason = "two lists of checksums, or none if the hash seed fails")]
fn write_slots(
    file: &File,
    layout: &Layout,
    buckets: &Buckets,
    budget: &Budget,
    progress: &mut Progress<'_>,
) -> Result<Option<(Vec<U64>, Vec<U64>)>, FinishError> {
    let sections = SlotSections {
        pilots: SectionWriter::new(file, layout.pilots.offset_bytes, 1)?,
        places: SectionWriter::new(file, layout.places.offset_bytes, 1)?,
        next_bucket: 0,
        has_failed: false,
    };
    let shared = SharedWork {
        buckets,
        parts: layout.dimensions.parts(),
        next_bucket: AtomicUsize::new(0),
        rows_done: AtomicU64::new(0),
        sections: Mutex::new(sections),
        turn: Condvar::new(),
    };
    let row_count = layout.dimensions.row_count;
    let solved = thread::scope(|scope| {
        // If the system cannot start all threads, this thread also does the work of the missing threads.
        let helpers: Vec<_> = (1..budget.threads.min(buckets.count()))
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, || shared.work(&mut |_| ())).ok())
            .collect();
        let mut solved = shared.work(&mut |rows| progress(row_count + rows, 2 * row_count));
        for helper in helpers {
            let helper_solved = helper.join().unwrap_or_else(|payload| panic::resume_unwind(payload));
            solved = solved.and_then(|solved| Ok(solved && helper_solved?));
        }
        solved
    })?;
    if !solved {
        return Ok(None);
    }
    let sections = shared.sections.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Some((sections.pilots.finish()?, sections.places.finish()?)))
}

impl SharedWork<'_> {
    /// Processes buckets until all buckets are taken or another thread has failed. Returns false if this thread finds
    /// no pilots for a bucket under the hash seed. Otherwise returns true, even if another thread has failed.
    fn work(&self, progress: &mut dyn FnMut(u64)) -> Result<bool, FinishError> {
        let mut guard = FailureGuard { shared: self, succeeded: false };
        let mut choice = PilotChooser::new(self.parts);
        let (mut rows, mut pilots, mut places) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let bucket = self.next_bucket.fetch_add(1, Ordering::Relaxed);
            if bucket >= self.buckets.count() {
                guard.succeeded = true;
                return Ok(true);
            }
            self.buckets.rows(bucket, &mut rows)?;
            let bucket_parts = self.buckets.parts(bucket);
            let part_count = (bucket_parts.end - bucket_parts.start) as usize;
            pilots.clear();
            pilots.resize(part_count * self.parts.pilots as usize, 0);
            places.clear();
            places.resize(part_count * self.parts.slots as usize, U32::ZERO);
            let of_parts = pilots
                .chunks_exact_mut(self.parts.pilots as usize)
                .zip(places.chunks_exact_mut(self.parts.slots as usize));
            let mut rest = &rows[..];
            for (part, (pilots, places)) in bucket_parts.zip(of_parts) {
                let (part_rows, others) = rest.split_at(self.buckets.part_rows(part));
                rest = others;
                if choice.choose(part, part_rows, pilots, places).is_none() {
                    return Ok(false);
                }
            }
            let mut sections = self.lock();
            while sections.next_bucket != bucket && !sections.has_failed {
                sections = self.turn.wait(sections).unwrap_or_else(PoisonError::into_inner);
            }
            if sections.has_failed {
                return Ok(true);
            }
            sections.pilots.push(&pilots)?;
            sections.places.push(places.as_bytes())?;
            sections.next_bucket += 1;
            drop(sections);
            self.turn.notify_all();
            let rows = rows.len() as u64;
            progress(self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows);
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotSections> {
        self.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the work as failed if a thread ends early, even by a panic. Wakes the threads that wait to write their
/// buckets.
struct FailureGuard<'a> {
    shared: &'a SharedWork<'a>,
    succeeded: bool,
}

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            self.shared.lock().has_failed = true;
            self.shared.turn.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bake::table::RecordsWriter;
    use crate::format::key::KeyKind;
    use crate::store::{Memory, OpenOptions, Store};

    fn budget(memory_bytes: u64, threads: usize) -> Budget {
        Budget { memory_bytes, threads, temp_dir: std::env::temp_dir() }
    }

    /// Returns a file that contains only the records of these rows.
    fn written<'k>(rows: impl Iterator<Item = (Key<'k>, usize)>, align_bytes: usize) -> (File, WrittenRecords) {
        let file = tempfile::tempfile().unwrap();
        let mut rows = rows.peekable();
        let kind = rows.peek().map_or(KeyKind::U64, |(key, _)| key.kind());
        let mut records = RecordsWriter::new(&file, kind, align_bytes, 1).unwrap();
        rows.for_each(|(key, value_len)| records.push(key, &vec![b'v'; value_len]).unwrap());
        (file, records.finish().unwrap())
    }

    fn bytes_of(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn numbers(count: u64) -> impl Iterator<Item = (Key<'static>, usize)> {
        (0..count).map(|key| (Key::U64(key * 7), key as usize % 30))
    }

    #[test]
    fn any_budget_and_any_number_of_threads_give_the_same_bytes() {
        let texts: Vec<String> = (0..40_000).map(|key| format!("common {:06}", key * 3)).collect();
        let texts: Vec<_> = texts.iter().map(|text| (Key::from(text), text.len() % 5)).collect();
        for (file, records) in [written(numbers(100_000), 8), written(texts.into_iter(), 8), written(numbers(9), 8)] {
            build(&file, &records, &budget(1 << 30, 1), &mut |_, _| ()).unwrap();
            let expected = bytes_of(&file);
            // These budgets keep none, some, or all of the rows in memory. The smallest budgets give each part its own
            // bucket.
            for (memory_bytes, threads) in [(0, 1), (0, 2), (300_000, 3), (1 << 22, 2), (1 << 30, 2)] {
                let mut calls = Vec::new();
                build(&file, &records, &budget(memory_bytes, threads), &mut |done, all| calls.push((done, all)))
                    .unwrap();
                assert!(bytes_of(&file) == expected, "{memory_bytes} bytes of memory, {threads} threads");
                assert!(calls.is_sorted() && calls.iter().all(|(_, all)| *all == 2 * records.row_count));
            }
        }
    }

    /// Files with more than 32 GiB of records need greater alignments than 8, but no test writes such files.
    #[test]
    fn a_file_with_any_record_alignment_is_read() {
        for align_bytes in [8, 16, 64, 4096] {
            let (file, records) = written(numbers(1000), align_bytes);
            build(&file, &records, &budget(1 << 20, 1), &mut |_, _| ()).unwrap();
            let store =
                Store::from_file(&file, Path::new("test"), Memory::Map, &OpenOptions::default(), &mut |_| ()).unwrap();
            for (key, value_len) in numbers(1000) {
                assert_eq!(store.get(key).unwrap(), Some(&vec![b'v'; value_len][..]));
            }
            assert!(store.file_len_bytes() > records.records_len_bytes);
        }
    }

    #[test]
    fn a_block_that_differs_from_what_was_written_is_an_error() {
        let (file, records) = written(numbers(100_000), 8);
        for threads in [1, 2] {
            for block in [0, 1, 100, records.block_sums.len() - 1] {
                let at = HEADER_LEN_BYTES as u64 + (block * BLOCK_LEN_BYTES) as u64 + 77;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 4], at).unwrap();
                match build(&file, &records, &budget(1 << 30, threads), &mut |_, _| ()) {
                    Err(FinishError::ReadBack(FormatError::BlockChecksum { block: found, offset_bytes, .. })) => {
                        assert_eq!((found, offset_bytes + 77), (block, at));
                    }
                    other => panic!("block {block}, {threads} threads: {other:?}"),
                }
                file.write_all_at(&byte, at).unwrap();
            }
            build(&file, &records, &budget(1 << 30, threads), &mut |_, _| ()).unwrap();
        }
        file.set_len(records.records_len_bytes / 2).unwrap();
        let cut = build(&file, &records, &budget(1 << 30, 2), &mut |_, _| ());
        assert!(matches!(cut, Err(FinishError::Io(_))), "{cut:?}");
    }

    #[test]
    fn rows_that_were_not_written_in_order_are_an_error() {
        for keys in [[1, 3, 2], [1, 2, 2]] {
            let (file, records) = written(keys.into_iter().map(|key| (Key::U64(key), 1)), 8);
            match build(&file, &records, &budget(1 << 30, 1), &mut |_, _| ()) {
                Err(FinishError::ReadBack(FormatError::Row {
                    row: 2,
                    what: "the key is not greater than the preceding key",
                })) => {}
                other => panic!("{keys:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_error_names_the_folder_that_rejects_temporary_files() {
        let (file, records) = written(numbers(1000), 8);
        let temp_dir = PathBuf::from("no/such/folder");
        let budget = Budget { memory_bytes: 0, threads: 1, temp_dir: temp_dir.clone() };
        match build(&file, &records, &budget, &mut |_, _| ()) {
            Err(FinishError::Temp { folder, error }) => {
                assert_eq!((folder, error.kind()), (temp_dir, io::ErrorKind::NotFound));
            }
            other => panic!("{other:?}"),
        }
    }
}
