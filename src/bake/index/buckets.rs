//! Groups rows by the part of the index that their keys belong to.
//!
//! In: each row's hash and place, in any order. Out: the rows of each bucket, part by part. A part has the pilots and
//! slots of about 32,768 keys, and a bucket has the rows of a few adjacent parts. Rows that do not fit into memory are
//! spilled to an unnamed temporary file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use zerocopy::IntoBytes;

use super::FinishError;
use super::slots::Entry;
use crate::bake::budget::Budget;
use crate::folder::unnamed_file_in;
use crate::format::index::{Hash, PART_ROWS, Parts};

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
pub(super) struct Buckets {
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
    pub(super) fn new(row_count: u64, budget: &Budget) -> io::Result<Buckets> {
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
    pub(super) fn push(&mut self, part: u64, hash: Hash, place: u32) -> Result<(), FinishError> {
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

    pub(super) fn count(&self) -> usize {
        self.shape.bucket_count
    }

    /// Returns the number of rows in the largest part.
    pub(super) fn part_rows_max(&self) -> u64 {
        self.part_rows.iter().copied().max().unwrap_or(0).into()
    }

    pub(super) fn part_rows(&self, part: u64) -> usize {
        self.part_rows[part as usize] as usize
    }

    /// Returns the numbers of the parts in a bucket.
    pub(super) fn parts(&self, bucket: usize) -> Range<u64> {
        let (bucket, bits) = (bucket as u64, self.shape.bucket_parts_bits);
        bucket << bits..((bucket + 1) << bits).min(self.part_rows.len() as u64)
    }

    /// Replaces the contents of `rows` with the rows of a bucket, part by part.
    pub(super) fn rows(&self, bucket: usize, rows: &mut Vec<Entry>) -> Result<(), FinishError> {
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
    use super::*;

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
