//! Writes the header, and the sections that follow the records: fences, fence tree, pilots, places,
//! schema, and block sums.
//!
//! In: a file with its records, and facts about the records. Out: the complete file. The index is computed from records
//! that are read back from the file, so it matches what the file contains. The records are read front to back, once for
//! each hash seed that is tried, and each block is verified against its checksum. The hashes of keys are grouped by
//! parts of the index, in memory or in a temporary file, and then the pilots of each part are chosen.

mod slots;
mod walk;

use std::fs::File;
use std::iter::once;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::{io, panic, thread};

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::budget::Budget;
use super::groups::WrittenGroups;
use super::section::SectionWriter;
use super::table::WrittenRecords;
use crate::folder::unnamed_file_in;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum};
use crate::format::fence::{FENCE_ROWS, Fence, NODE_HEADS};
use crate::format::form::RecordForm;
use crate::format::group::GROUP_ALIGN_BYTES;
use crate::format::header::{Dimensions, Layout, RECORDS_OFFSET_BYTES, TableLayout};
use crate::format::heads::Heads;
use crate::format::index::{Hash, PART_ROWS, Parts};
use crate::format::key::Key;
pub(super) use slots::parts;
use slots::{Entry, PilotChooser};
use walk::Walk;

/// The length of a read, a multiple of the block length.
const READ_LEN_BYTES: usize = 256 * BLOCK_LEN_BYTES;
/// The maximum number of pieces read ahead.
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
    if let Some(groups) = &records.groups {
        return build_compact(file, records, groups, schema, progress);
    }
    for hash_seed in slots::seeds(records.first_seed) {
        let (buckets, fence_sums, tree_sums) = scan(file, records, schema, hash_seed, budget, progress)?;
        let parts = slots::parts(records.row_count, buckets.part_rows_max());
        let layout = Layout::new(dimensions(records, schema, hash_seed, parts))?;
        // Removes the pilots and places that were written for an earlier hash seed that failed. Padding between
        // sections is never written, so it must be a hole, which reads as zeros.
        file.set_len(layout.pilots.offset_bytes)?;
        // A part whose keys collide gets no pilots under this seed. Nearly every seed works.
        let Some((pilot_sums, place_sums)) = write_slots(file, &layout, &buckets, budget, progress)? else {
            continue;
        };
        return complete(file, layout, records, schema, [fence_sums, tree_sums, pilot_sums, place_sums]);
    }
    Err(FormatError::Unhashable.into())
}

/// Writes the header and the sections that follow the values of a table with the compact layout. Returns the layout of
/// the file.
fn build_compact(
    file: &File,
    records: &WrittenRecords,
    groups: &WrittenGroups,
    schema: &[u8],
    progress: &mut Progress<'_>,
) -> Result<Layout, FinishError> {
    let parts = Parts { count: 0, pilots: 0, slots: 0 };
    let layout = Layout::new(dimensions(records, schema, 0, parts))?;
    // The previous stage left no bytes here. Padding between sections must be a hole, which reads as zeros.
    file.set_len(layout.fences.offset_bytes)?;
    let mut section = SectionWriter::new(file, layout.fences.offset_bytes, 1)?;
    let mut places = SectionWriter::new(file, layout.places.offset_bytes, 1)?;
    let mut tree = TreeWriter::new(file, &layout)?;
    let copied = groups.each(records.row_count, |bytes, head| {
        let place = (section.len_bytes() / GROUP_ALIGN_BYTES as u64) as u32;
        places.push(&place.to_le_bytes()).map_err(CopyError::Output)?;
        section.push(bytes).map_err(CopyError::Output)?;
        tree.push(head).map_err(CopyError::Output)?;
        Ok::<_, CopyError>(())
    });
    match copied {
        Ok(()) => {}
        Err(CopyError::Output(error)) => return Err(FinishError::Io(error)),
        Err(CopyError::Temp(error)) => return Err(FinishError::Temp { folder: groups.folder.clone(), error }),
    }
    progress(2 * records.row_count, 2 * records.row_count);
    let sums = [section.finish()?, tree.finish()?, Vec::new(), places.finish()?];
    complete(file, layout, records, schema, sums)
}

/// The reason why groups cannot be copied from their temporary file.
enum CopyError {
    Output(io::Error),
    Temp(io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        CopyError::Temp(error)
    }
}

/// Writes the schema, the block sums, and the header of a file whose other sections are written. `index_sums` has the
/// checksums of the blocks of the sections between the records and the schema. Returns the layout with all checksums.
fn complete(
    file: &File,
    mut layout: Layout,
    records: &WrittenRecords,
    schema: &[u8],
    index_sums: [Vec<U64>; 4],
) -> Result<Layout, FinishError> {
    let [fence_sums, tree_sums, pilot_sums, place_sums] = &index_sums;
    let mut section = SectionWriter::new(file, layout.schema.offset_bytes, 1)?;
    section.push(schema)?;
    let schema_sums = section.finish()?;
    layout.records.checksum = section_sum(&records.block_sums);
    layout.fences.checksum = section_sum(fence_sums);
    layout.fence_tree.checksum = section_sum(tree_sums);
    layout.pilots.checksum = section_sum(pilot_sums);
    layout.places.checksum = section_sum(place_sums);
    layout.schema.checksum = section_sum(&schema_sums);
    layout.block_sums.checksum = write_block_sums(
        file,
        layout.block_sums.offset_bytes,
        [&records.block_sums, fence_sums, tree_sums, pilot_sums, place_sums, &schema_sums],
    )?;
    file.write_all_at(&layout.encode(), 0)?;
    // If the last section is empty, the file ends with padding. Padding is never written, so only this call gives
    // the file its full length.
    file.set_len(layout.file_len_bytes())?;
    Ok(layout)
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
        table_layout: if records.groups.is_some() { TableLayout::Compact } else { TableLayout::Fast },
        key_type: records.key_type,
        has_ranges: records.has_ranges,
        row_count: records.row_count,
        hash_seed,
        record_align_bytes: records.record_align_bytes,
        records_len_bytes: records.records_len_bytes,
        groups_len_bytes: records.groups.as_ref().map_or(0, |groups| groups.len_bytes),
        part_pilots: parts.pilots,
        part_slots: parts.slots,
        schema_len_bytes: schema.len() as u64,
    }
}

/// Reads the records, writes the fences and the tree above them, and groups the rows by bucket. Returns the buckets,
/// and the checksums of the fences and of the tree.
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
    let form = RecordForm::new(records.key_type, records.has_ranges);
    let mut walk = Walk::new(form, records.record_align_bytes, row_count, records.records_len_bytes);
    let align_bits = records.record_align_bytes.trailing_zeros();
    let heads = Heads::new(records.key_type, records.common_len_bytes);
    read_records(file, records, budget.threads, |bytes| {
        walk.pass(bytes, |passed| {
            let place = (passed.offset_bytes >> align_bits) as u32;
            fences.push(heads.of(passed.key), place)?;
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
    // The slots of a part fit into the processor's cache, so each thread works on one part at a time.
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

/// Writes the fences, and the tree above them.
struct FenceWriter {
    fences: SectionWriter,
    tree: TreeWriter,
    /// The heads of the rows after the last complete fence. A head is 8 bytes of a key.
    heads: [u64; FENCE_ROWS],
    /// The places of the records of these rows.
    places: [u32; FENCE_ROWS],
    /// The number of these rows.
    row_count: usize,
}

impl FenceWriter {
    fn new(file: &File, layout: &Layout) -> io::Result<FenceWriter> {
        Ok(FenceWriter {
            fences: SectionWriter::new(file, layout.fences.offset_bytes, 1)?,
            tree: TreeWriter::new(file, layout)?,
            heads: [0; FENCE_ROWS],
            places: [0; FENCE_ROWS],
            row_count: 0,
        })
    }

    #[inline(always)]
    fn push(&mut self, head: u64, place: u32) -> io::Result<()> {
        (self.heads[self.row_count], self.places[self.row_count]) = (head, place);
        self.row_count += 1;
        if self.row_count == FENCE_ROWS { self.push_fence() } else { Ok(()) }
    }

    #[inline(never)]
    fn push_fence(&mut self) -> io::Result<()> {
        let fence = Fence::of_rows(&self.heads[..self.row_count], &self.places[..self.row_count]);
        self.row_count = 0;
        self.fences.push(fence.as_bytes())?;
        self.tree.push(fence.head.get())
    }

    /// Writes the last fence and the upper levels of the tree. Returns the checksums of both sections.
    fn finish(mut self) -> io::Result<(Vec<U64>, Vec<U64>)> {
        if self.row_count > 0 {
            self.push_fence()?;
        }
        Ok((self.fences.finish()?, self.tree.finish()?))
    }
}

/// Writes the tree above fences or groups.
struct TreeWriter {
    section: SectionWriter,
    head_count: usize,
    /// The second-lowest level: every sixteenth head.
    level: Vec<u64>,
}

impl TreeWriter {
    fn new(file: &File, layout: &Layout) -> io::Result<TreeWriter> {
        let section = SectionWriter::new(file, layout.fence_tree.offset_bytes, 1)?;
        Ok(TreeWriter { section, head_count: 0, level: Vec::new() })
    }

    /// Adds the head of a fence or group to the lowest level.
    fn push(&mut self, head: u64) -> io::Result<()> {
        if self.head_count.is_multiple_of(NODE_HEADS) {
            self.level.push(head);
        }
        self.head_count += 1;
        self.section.push(&head.to_le_bytes())
    }

    /// Writes the upper levels. Returns the checksums of the section.
    fn finish(self) -> io::Result<Vec<U64>> {
        let TreeWriter { mut section, mut head_count, mut level } = self;
        loop {
            for _ in head_count..head_count.next_multiple_of(NODE_HEADS) {
                section.push(&[u8::MAX; size_of::<U64>()])?;
            }
            if head_count <= NODE_HEADS {
                break;
            }
            for head in &level {
                section.push(&head.to_le_bytes())?;
            }
            head_count = level.len();
            level = level.into_iter().step_by(NODE_HEADS).collect();
        }
        section.finish()
    }
}

/// The usual maximum number of buckets. A bucket has the rows of a few adjacent parts. One cache line per bucket is
/// being written at any time, and this number of cache lines fits into the processor's first-level cache. If the memory
/// limit requires smaller buckets, there are more of them.
const BUCKET_COUNT: u64 = 512;
/// The maximum number of rows in a chunk. A bucket's rows are stored in chunks. At this size, one incomplete chunk per
/// bucket needs little memory, and a chunk is still long enough to be read back fast.
const CHUNK_ROWS_MAX: u64 = 4096;
const CHUNK_ROWS_MIN: u64 = 16;

/// The sizes and numbers of buckets and chunks.
#[derive(Clone, Debug)]
struct Shape {
    /// The binary logarithm of the number of parts per bucket.
    bucket_parts_bits: u32,
    bucket_count: usize,
    chunk_rows: usize,
    /// The maximum number of chunks in memory. Later chunks are in the temporary file.
    memory_chunks: usize,
}

impl Shape {
    fn new(row_count: u64, budget: &Budget) -> Shape {
        let entry_len_bytes = size_of::<Entry>() as u64;
        let part_count = Parts::count(row_count);
        let mut bits = part_count.div_ceil(BUCKET_COUNT).next_power_of_two().trailing_zeros();
        // Each thread holds the rows of one bucket in memory.
        let working_bytes = |bits: u32| ((budget.threads as u64) << bits) * PART_ROWS * entry_len_bytes;
        while bits > 0 && working_bytes(bits) > budget.memory_bytes / 4 {
            bits -= 1;
        }
        let bucket_count = part_count.div_ceil(1 << bits);
        let share_rows = budget.memory_bytes / 2 / entry_len_bytes;
        let chunk_rows = (share_rows / 2 / bucket_count.max(1)).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX);
        let memory_chunks = share_rows.saturating_sub(bucket_count * chunk_rows) / chunk_rows;
        Shape {
            bucket_parts_bits: bits,
            bucket_count: bucket_count as usize,
            chunk_rows: chunk_rows as usize,
            // There are at most `row_count / chunk_rows` full chunks.
            memory_chunks: memory_chunks.min(row_count / chunk_rows) as usize,
        }
    }
}

/// Rows, grouped by bucket. A bucket has the rows of a few adjacent parts.
struct Buckets {
    shape: Shape,
    /// The number of rows in each part.
    part_rows: Vec<u32>,
    /// The incomplete last chunk of each bucket, in the order of the buckets.
    open: Vec<Entry>,
    open_rows: Vec<u32>,
    /// The numbers of the full chunks of each bucket. Chunks are numbered in the order in which they became full.
    full: Vec<Vec<u32>>,
    full_count: usize,
    memory: Vec<Entry>,
    temp: Option<File>,
    temp_dir: PathBuf,
}

impl Buckets {
    /// Returns empty buckets for a table with `row_count` rows.
    fn new(row_count: u64, budget: &Budget) -> io::Result<Buckets> {
        let shape = Shape::new(row_count, budget);
        let mut memory = Vec::new();
        reserve(&mut memory, shape.memory_chunks * shape.chunk_rows)?;
        let mut open = Vec::new();
        reserve(&mut open, shape.bucket_count * shape.chunk_rows)?;
        open.resize(shape.bucket_count * shape.chunk_rows, Entry::ZERO);
        let mut part_rows = Vec::new();
        reserve(&mut part_rows, Parts::count(row_count) as usize)?;
        part_rows.resize(Parts::count(row_count) as usize, 0);
        Ok(Buckets {
            part_rows,
            open,
            open_rows: vec![0; shape.bucket_count],
            full: vec![Vec::new(); shape.bucket_count],
            full_count: 0,
            memory,
            temp: None,
            temp_dir: budget.temp_dir.clone(),
            shape,
        })
    }

    #[inline(always)]
    fn push(&mut self, part: u64, hash: Hash, place: u32) -> Result<(), FinishError> {
        let bucket = (part >> self.shape.bucket_parts_bits) as usize;
        self.part_rows[part as usize] += 1;
        let open_rows = &mut self.open_rows[bucket];
        self.open[bucket * self.shape.chunk_rows + *open_rows as usize] = Entry::new(hash, place);
        *open_rows += 1;
        if *open_rows as usize == self.shape.chunk_rows { self.store_full_chunk(bucket) } else { Ok(()) }
    }

    /// Copies a bucket's full chunk into `memory`, or into the temporary file if `memory` is full.
    #[cold]
    fn store_full_chunk(&mut self, bucket: usize) -> Result<(), FinishError> {
        let chunk_rows = self.shape.chunk_rows;
        let chunk = &self.open[bucket * chunk_rows..][..chunk_rows];
        if self.full_count < self.shape.memory_chunks {
            self.memory.extend_from_slice(chunk);
        } else {
            let fault = |error| FinishError::Temp { folder: self.temp_dir.clone(), error };
            let temp = match &mut self.temp {
                Some(temp) => temp,
                temp @ None => temp.insert(unnamed_file_in(&self.temp_dir).map_err(fault)?),
            };
            let at_rows = (self.full_count - self.shape.memory_chunks) * chunk_rows;
            temp.write_all_at(chunk.as_bytes(), (at_rows * size_of::<Entry>()) as u64).map_err(fault)?;
        }
        self.full[bucket].push(self.full_count as u32);
        self.full_count += 1;
        self.open_rows[bucket] = 0;
        Ok(())
    }

    fn count(&self) -> usize {
        self.shape.bucket_count
    }

    fn part_rows_max(&self) -> u64 {
        self.part_rows.iter().copied().max().unwrap_or(0).into()
    }

    fn part_rows(&self, part: u64) -> usize {
        self.part_rows[part as usize] as usize
    }

    fn parts(&self, bucket: usize) -> Range<u64> {
        let (bucket, bits) = (bucket as u64, self.shape.bucket_parts_bits);
        bucket << bits..((bucket + 1) << bits).min(self.part_rows.len() as u64)
    }

    /// Replaces the contents of `rows` with the rows of a bucket, part by part.
    fn rows(&self, bucket: usize, rows: &mut Vec<Entry>) -> Result<(), FinishError> {
        let parts = self.parts(bucket);
        let mut nexts: Vec<usize> = Vec::with_capacity((parts.end - parts.start) as usize);
        let mut count = 0;
        for part in parts.clone() {
            nexts.push(count);
            count += self.part_rows(part);
        }
        rows.clear();
        reserve(rows, count)?;
        rows.resize(count, Entry::ZERO);
        let divided = Parts { count: self.part_rows.len() as u64, pilots: 1, slots: 1 };
        let mut distribute = |chunk: &[Entry]| {
            for entry in chunk {
                let next = &mut nexts[(entry.hash().part(&divided) - parts.start) as usize];
                rows[*next] = *entry;
                *next += 1;
            }
        };
        let chunk_rows = self.shape.chunk_rows;
        let mut from_temp = Vec::new();
        for chunk in &self.full[bucket] {
            let chunk = *chunk as usize;
            match (chunk.checked_sub(self.shape.memory_chunks), &self.temp) {
                (Some(chunk), Some(temp)) => {
                    from_temp.resize(chunk_rows, Entry::ZERO);
                    let at_bytes = (chunk * chunk_rows * size_of::<Entry>()) as u64;
                    let fault = |error| FinishError::Temp { folder: self.temp_dir.clone(), error };
                    temp.read_exact_at(from_temp.as_mut_bytes(), at_bytes).map_err(fault)?;
                    distribute(&from_temp);
                }
                _ => distribute(&self.memory[chunk * chunk_rows..][..chunk_rows]),
            }
        }
        distribute(&self.open[bucket * chunk_rows..][..self.open_rows[bucket] as usize]);
        Ok(())
    }
}

/// Reserves room for `count` items. Returns an error if there is not enough memory.
fn reserve<T>(items: &mut Vec<T>, count: usize) -> io::Result<()> {
    items.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Lookup;
    use crate::bake::table::RecordsWriter;
    use crate::format::key::KeyKind;
    use crate::store::{Memory, OpenOptions, Store};

    /// Returns a file that contains only the records of these rows.
    fn written<'k>(rows: impl Iterator<Item = (Key<'k>, usize)>, align_bytes: usize) -> (File, WrittenRecords) {
        let file = tempfile::tempfile().unwrap();
        let mut rows = rows.peekable();
        let kind = rows.peek().map_or(KeyKind::U64, |(key, _)| key.kind());
        let mut records = RecordsWriter::new(&file, kind.into(), false, align_bytes, 1).unwrap();
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

    #[test]
    fn buckets_have_the_rows_of_their_parts_in_memory_and_on_disk() {
        let row_count = 5 * PART_ROWS;
        let divided = Parts { count: 5, pilots: 1, slots: 1 };
        let rows = || (0..row_count).map(|key| (Hash::from_u64(key, 1), key as u32));
        let mut used_temp = Vec::new();
        for memory_bytes in [0, 1 << 20, 1 << 30] {
            let mut buckets = Buckets::new(row_count, &Budget::test(memory_bytes, 2)).unwrap();
            rows().for_each(|(hash, place)| buckets.push(hash.part(&divided), hash, place).unwrap());
            used_temp.push(buckets.temp.is_some());
            let (mut found, mut all) = (Vec::new(), Vec::new());
            for bucket in 0..buckets.count() {
                buckets.rows(bucket, &mut found).unwrap();
                assert!(found.is_sorted_by_key(|entry| entry.hash().part(&divided)));
                for part in buckets.parts(bucket) {
                    let of_part = found.iter().filter(|entry| entry.hash().part(&divided) == part);
                    assert_eq!(of_part.count(), buckets.part_rows(part));
                }
                all.extend(found.iter().map(|entry| entry.hash()));
            }
            let mut expected: Vec<Hash> = rows().map(|(hash, _)| hash).collect();
            all.sort_unstable();
            expected.sort_unstable();
            assert!(all == expected, "{memory_bytes} bytes of memory");
        }
        assert_eq!(used_temp, [true, true, false]);
    }

    /// This test covers several memory sizes, and tables of up to 2^32 rows.
    #[test]
    fn chunks_in_memory_take_at_most_half_of_the_memory() {
        for row_count in [0, 1, PART_ROWS, PART_ROWS + 1, 10_000_000, 100_000_000, 1 << 32] {
            for memory_bytes in [64 << 20, 256 << 20, 1 << 30, 1 << 36] {
                for threads in [1, 2, 16] {
                    let shape = Shape::new(row_count, &Budget::test(memory_bytes, threads));
                    let chunks = shape.memory_chunks + shape.bucket_count;
                    let share = memory_bytes / 2;
                    let held_bytes = (chunks * shape.chunk_rows * size_of::<Entry>()) as u64;
                    assert!(held_bytes <= share, "{shape:?} for {row_count} rows, {memory_bytes} bytes");
                    let parts = (shape.bucket_count as u64) << shape.bucket_parts_bits;
                    assert!(parts >= Parts::count(row_count), "{shape:?} for {row_count} rows");
                    let working_parts = (threads as u64) << shape.bucket_parts_bits;
                    assert!(shape.bucket_parts_bits == 0 || working_parts * PART_ROWS * 12 <= memory_bytes / 4);
                }
            }
        }
    }
}
