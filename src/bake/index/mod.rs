//! Writes the header, and the sections that follow the records: fences, fence tree, pilots, places,
//! schema, and block sums.
//!
//! In: a file with its records, and facts about the records. Out: the complete file. The index is computed from records
//! that are read back from the file, so it matches what the file contains. The records are read front to back, once for
//! each hash seed that is tried, and each block is verified against its checksum. The hashes of keys are grouped by
//! parts of the index, in memory or in a temporary file, and then the pilots of each part are chosen.

mod buckets;
mod fences;
mod slots;
mod walk;

use std::fs::File;
use std::io;
use std::iter::once;
use std::os::unix::fs::FileExt;
use std::panic;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::budget::Budget;
use super::section::SectionWriter;
use super::table::WrittenRecords;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum};
use crate::format::header::{Dimensions, Layout, RECORDS_OFFSET_BYTES};
use crate::format::index::{Hash, Parts};
use crate::format::key::Key;
use buckets::Buckets;
use fences::FenceWriter;
use slots::{Entry, PilotChooser};
use walk::Walk;

/// The length of a read, a multiple of the block length.
const READ_LEN_BYTES: usize = 256 * BLOCK_LEN_BYTES;
/// The maximum number of pieces that are read ahead.
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

/// A function that receives the number of processed rows, and twice the number of all rows. Each row counts as
/// processed twice: once when its record is read back, and once when its slot is written.
pub(super) type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Writes the header and the sections that follow the records. Returns the layout of the file. `schema` is the encoded
/// schema of a typed table, or empty.
///
/// At most half of the budget's memory holds rows (hash and place, 12 bytes per row). All other rows are spilled to a
/// temporary file. At most a quarter of the memory holds the rows that threads are working on.
pub(super) fn build(
    file: &File,
    records: &WrittenRecords,
    schema: &[u8],
    budget: &Budget,
    progress: &mut Progress<'_>,
) -> Result<Layout, FinishError> {
    for hash_seed in slots::seeds(records.first_seed) {
        let (buckets, fence_sums, tree_sums) = scan(file, records, schema, hash_seed, budget, progress)?;
        let parts = slots::parts(records.row_count, buckets.part_rows_max());
        let mut layout = Layout::new(dimensions(records, schema, hash_seed, parts))?;
        // Removes the pilots and places that were written for an earlier hash seed that failed. Padding between
        // sections is never written, so it must be a hole, which reads as zeros.
        file.set_len(layout.pilots.offset_bytes)?;
        let Some((pilot_sums, place_sums)) = write_slots(file, &layout, &buckets, budget, progress)? else {
            continue;
        };
        let mut section = SectionWriter::new(file, layout.schema.offset_bytes, 1)?;
        section.push(schema)?;
        let schema_sums = section.finish()?;
        layout.records.checksum = section_sum(&records.block_sums);
        layout.fences.checksum = section_sum(&fence_sums);
        layout.fence_tree.checksum = section_sum(&tree_sums);
        layout.pilots.checksum = section_sum(&pilot_sums);
        layout.places.checksum = section_sum(&place_sums);
        layout.schema.checksum = section_sum(&schema_sums);
        layout.block_sums.checksum = write_block_sums(
            file,
            layout.block_sums.offset_bytes,
            [&records.block_sums, &fence_sums, &tree_sums, &pilot_sums, &place_sums, &schema_sums],
        )?;
        file.write_all_at(&layout.encode(), 0)?;
        // If the last section is empty, the file ends with padding. Padding is never written, so only this call gives
        // the file its full length.
        file.set_len(layout.file_len_bytes())?;
        return Ok(layout);
    }
    Err(FormatError::Unhashable.into())
}

/// Writes the section of block sums, given the checksums of the blocks of each section. Returns the section's checksum.
fn write_block_sums(file: &File, offset_bytes: u64, sums: [&[U64]; 6]) -> io::Result<u64> {
    let mut section = SectionWriter::new(file, offset_bytes, 1)?;
    sums.iter().try_for_each(|sums| section.push(sums.as_bytes()))?;
    let root_at_bytes = offset_bytes + section.len_bytes();
    let root = section.finish()?;
    file.write_all_at(root.as_bytes(), root_at_bytes)?;
    Ok(section_sum(&root))
}

fn dimensions(records: &WrittenRecords, schema: &[u8], hash_seed: u64, parts: Parts) -> Dimensions {
    Dimensions {
        key_kind: records.key_kind,
        row_count: records.row_count,
        hash_seed,
        record_align_bytes: records.record_align_bytes,
        records_len_bytes: records.records_len_bytes,
        part_pilots: parts.pilots,
        part_slots: parts.slots,
        schema_len_bytes: schema.len() as u64,
    }
}

/// Reads the records, writes the fences and the tree above them, and groups the rows by bucket. Returns the buckets, and
/// the checksums of the fences and of the tree.
fn scan(
    file: &File,
    records: &WrittenRecords,
    schema: &[u8],
    hash_seed: u64,
    budget: &Budget,
    progress: &mut Progress<'_>,
) -> Result<(Buckets, Vec<U64>, Vec<U64>), FinishError> {
    let row_count = records.row_count;
    // The position of the fences does not depend on the numbers of pilots and slots per part, which are still unknown.
    let layout = Layout::new(dimensions(records, schema, hash_seed, slots::parts(row_count, 1)))?;
    let parts = layout.dimensions.parts();
    let mut buckets = Buckets::new(row_count, budget)?;
    let mut fences = FenceWriter::new(file, &layout)?;
    let mut walk = Walk::new(records.key_kind, records.record_align_bytes, row_count, records.records_len_bytes);
    let align_bits = records.record_align_bytes.trailing_zeros();
    read_records(file, records, budget.threads, |bytes| {
        walk.pass(bytes, |passed| {
            let place = (passed.offset_bytes >> align_bits) as u32;
            fences.push(passed.key.head(records.common_len_bytes), place)?;
            let hash = match passed.key {
                Key::U64(key) => Hash::from_u64(key, hash_seed),
                Key::Bytes(key) => Hash::from_bytes(key, hash_seed),
            };
            buckets.push(hash.part(&parts), hash, place)
        })?;
        progress(walk.row(), 2 * row_count);
        Ok(())
    })?;
    walk.finish()?;
    let (fence_sums, tree_sums) = fences.finish()?;
    Ok((buckets, fence_sums, tree_sums))
}

/// Reads the records piece by piece, verifies each block against its checksum, and calls `pass` with each piece. If
/// `threads` is greater than 1, another thread reads ahead.
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
    let offset_bytes = RECORDS_OFFSET_BYTES + at_bytes;
    file.read_exact_at(piece, offset_bytes)?;
    let first_block = at_bytes as usize / BLOCK_LEN_BYTES;
    for (block, bytes) in (first_block..).zip(piece.chunks(BLOCK_LEN_BYTES)) {
        let (expected, found) = (records.block_sums[block].get(), block_sum(bytes).get());
        if expected != found {
            let offset_bytes = RECORDS_OFFSET_BYTES + (block * BLOCK_LEN_BYTES) as u64;
            return Err(FinishError::ReadBack(FormatError::BlockChecksum { block, offset_bytes, expected, found }));
        }
    }
    Ok(())
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
    let mut pilots = SectionWriter::new(file, layout.pilots.offset_bytes, 1)?;
    let mut places = SectionWriter::new(file, layout.places.offset_bytes, 1)?;
    let (parts, row_count) = (layout.dimensions.parts(), layout.dimensions.row_count);
    let threads = budget.threads.clamp(1, buckets.count().max(1));
    let mut rows_done = 0;
    thread::scope(|scope| {
        // Thread `n` chooses the pilots of every bucket whose number is `n` modulo `threads`. This thread is thread 0,
        // and also does the work of all threads that the system cannot start.
        let others = (1..threads).map(|number| {
            let (chosen, receiver) = sync_channel(0);
            let work = move || {
                let mut chooser = BucketChooser::new(buckets, parts);
                let mut own_buckets = (number..buckets.count()).step_by(threads);
                // Sending fails if this bake has failed.
                own_buckets.all(|bucket| chosen.send(chooser.choose(bucket)).is_ok())
            };
            thread::Builder::new().spawn_scoped(scope, work).ok().map(|_| receiver)
        });
        let others: Vec<_> = once(None).chain(others).collect();
        let mut chooser = BucketChooser::new(buckets, parts);
        for bucket in 0..buckets.count() {
            let chosen = match &others[bucket % threads] {
                Some(other) => other.recv().expect("a thread sends the slots of each of its buckets"),
                None => chooser.choose(bucket),
            };
            let Some(slots) = chosen? else { return Ok(None) };
            pilots.push(&slots.pilots)?;
            places.push(slots.places.as_bytes())?;
            rows_done += slots.row_count;
            progress(row_count + rows_done, 2 * row_count);
        }
        Ok(Some((pilots.finish()?, places.finish()?)))
    })
}

/// Chooses the pilots of one bucket at a time.
struct BucketChooser<'a> {
    buckets: &'a Buckets,
    parts: Parts,
    chooser: PilotChooser,
    rows: Vec<Entry>,
}

/// The pilots and places of all parts in a bucket.
struct BucketSlots {
    row_count: u64,
    pilots: Vec<u8>,
    places: Vec<U32>,
}

impl<'a> BucketChooser<'a> {
    fn new(buckets: &'a Buckets, parts: Parts) -> Self {
        BucketChooser { buckets, parts, chooser: PilotChooser::new(parts), rows: Vec::new() }
    }

    /// Chooses the pilots of all parts in a bucket. Returns `None` if no pilots are found for a part under the hash
    /// seed.
    fn choose(&mut self, bucket: usize) -> Result<Option<BucketSlots>, FinishError> {
        self.buckets.rows(bucket, &mut self.rows)?;
        let parts = self.buckets.parts(bucket);
        let (part_pilots, part_slots) = (self.parts.pilots as usize, self.parts.slots as usize);
        let part_count = (parts.end - parts.start) as usize;
        let (mut pilots, mut places) = (vec![0; part_count * part_pilots], vec![U32::ZERO; part_count * part_slots]);
        let mut rest = &self.rows[..];
        let of_parts = pilots.chunks_exact_mut(part_pilots).zip(places.chunks_exact_mut(part_slots));
        for (part, (pilots, places)) in parts.zip(of_parts) {
            let (part_rows, others) = rest.split_at(self.buckets.part_rows(part));
            rest = others;
            if self.chooser.choose(part, part_rows, pilots, places).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(BucketSlots { row_count: self.rows.len() as u64, pilots, places }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bake::table::RecordsWriter;
    use crate::format::key::KeyKind;
    use crate::store::{Memory, OpenOptions, Store};

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
            build(&file, &records, &[], &Budget::test(1 << 30, 1), &mut |_, _| ()).unwrap();
            let expected = bytes_of(&file);
            // These budgets keep none, some, or all of the rows in memory. The smallest budgets give each part its own
            // bucket.
            for (memory_bytes, threads) in [(0, 1), (0, 2), (300_000, 3), (1 << 22, 2), (1 << 30, 2)] {
                let mut calls = Vec::new();
                build(&file, &records, &[], &Budget::test(memory_bytes, threads), &mut |done, all| {
                    calls.push((done, all));
                })
                .unwrap();
                assert!(bytes_of(&file) == expected, "{memory_bytes} bytes of memory, {threads} threads");
                assert!(calls.is_sorted() && calls.iter().all(|(_, all)| *all == 2 * records.row_count));
            }
        }
    }

    /// Only files with more than 32 GiB of records need an alignment greater than 8 bytes. These files are too long for
    /// a test, so this test uses such alignments in small files.
    #[test]
    fn a_file_with_any_record_alignment_is_read() {
        for align_bytes in [8, 16, 64, 4096] {
            let (file, records) = written(numbers(1000), align_bytes);
            build(&file, &records, &[], &Budget::test(1 << 20, 1), &mut |_, _| ()).unwrap();
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
                let at = RECORDS_OFFSET_BYTES + (block * BLOCK_LEN_BYTES) as u64 + 77;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 4], at).unwrap();
                match build(&file, &records, &[], &Budget::test(1 << 30, threads), &mut |_, _| ()) {
                    Err(FinishError::ReadBack(FormatError::BlockChecksum { block: found, offset_bytes, .. })) => {
                        assert_eq!((found, offset_bytes + 77), (block, at));
                    }
                    other => panic!("block {block}, {threads} threads: {other:?}"),
                }
                file.write_all_at(&byte, at).unwrap();
            }
            build(&file, &records, &[], &Budget::test(1 << 30, threads), &mut |_, _| ()).unwrap();
        }
        file.set_len(records.records_len_bytes / 2).unwrap();
        let cut = build(&file, &records, &[], &Budget::test(1 << 30, 2), &mut |_, _| ());
        assert!(matches!(cut, Err(FinishError::Io(_))), "{cut:?}");
    }

    #[test]
    fn rows_that_were_not_written_in_order_are_an_error() {
        for keys in [[1, 3, 2], [1, 2, 2]] {
            let (file, records) = written(keys.into_iter().map(|key| (Key::U64(key), 1)), 8);
            match build(&file, &records, &[], &Budget::test(1 << 30, 1), &mut |_, _| ()) {
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
        let budget = Budget { temp_dir: temp_dir.clone(), ..Budget::test(0, 1) };
        match build(&file, &records, &[], &budget, &mut |_, _| ()) {
            Err(FinishError::Temp { folder, error }) => {
                assert_eq!((folder, error.kind()), (temp_dir, io::ErrorKind::NotFound));
            }
            other => panic!("{other:?}"),
        }
    }
}
