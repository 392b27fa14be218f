//! Reads ranges of files block by block, and verifies each block against its checksum.
//!
//! For data that this bake has written, the checksums are in memory. For the records of an older table, they stay in
//! the table's file, because a damaged or forged header can declare any number of blocks, whose checksums might not fit
//! into memory. These checksums are read in pages: a page is one block of the block sums section. Memory holds one
//! checksum per page (8 bytes per 2 MiB of records), and one page for each reader.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::ExtentOwner;
use crate::bake::error::BakeError;
use crate::bake::place::Cancel;
use crate::format::FormatError;
use crate::format::checksum::{SUMS_PER_BLOCK, SectionSum, block_sum, section_sum};
use crate::format::header::{Layout, SectionKind};

/// A range of a file that is divided into blocks, with a checksum for each block.
#[derive(Clone)]
pub(in crate::bake) struct Extent {
    pub(in crate::bake) file: Arc<File>,
    pub(in crate::bake) offset_bytes: u64,
    pub(in crate::bake) len_bytes: u64,
    pub(in crate::bake) block_len_bytes: usize,
    /// The checksum of each block. The last block may be shorter than `block_len_bytes`.
    pub(in crate::bake) sums: BlockSums,
    pub(in crate::bake) owner: ExtentOwner,
}

/// Reads an extent (a range of a file) front to back, and verifies its blocks.
pub(in crate::bake) struct BlockReader {
    extent: Extent,
    sums: BlockSumsReader,
    /// The number of blocks per read.
    step_blocks: usize,
    next_block: usize,
    buffer: Vec<u8>,
    at: usize,
}

impl BlockReader {
    /// Returns a reader of `extent` (a range of a file) that starts at the offset `from_bytes` in the extent. The
    /// reader's buffer has about `buffer_len_bytes` bytes.
    pub(in crate::bake) fn new(extent: Extent, from_bytes: u64, buffer_len_bytes: usize) -> Result<Self, BakeError> {
        let block_len_bytes = extent.block_len_bytes;
        let next_block = (from_bytes / block_len_bytes as u64) as usize;
        let step_blocks = (buffer_len_bytes / block_len_bytes).max(1);
        let sums = BlockSumsReader::new(extent.sums.clone());
        let mut reader = BlockReader { extent, sums, step_blocks, next_block, buffer: Vec::new(), at: 0 };
        let skip = (from_bytes % block_len_bytes as u64) as usize;
        if skip > 0 {
            reader.fill()?;
            reader.consume(skip);
        }
        Ok(reader)
    }

    /// Returns the bytes that have been read and verified, but not consumed yet.
    #[inline]
    pub(in crate::bake) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    #[inline]
    pub(in crate::bake) fn consume(&mut self, len_bytes: usize) {
        self.at += len_bytes;
    }

    /// Reads and verifies the next blocks, and appends them to the bytes that have not been consumed yet. Returns false
    /// if there are no more blocks.
    pub(in crate::bake) fn fill(&mut self) -> Result<bool, BakeError> {
        let blocks = self.step_blocks.min(self.extent.sums.len().saturating_sub(self.next_block));
        if blocks == 0 {
            return Ok(false);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let block_len_bytes = self.extent.block_len_bytes as u64;
        let from = self.next_block as u64 * block_len_bytes;
        let to = (from + blocks as u64 * block_len_bytes).min(self.extent.len_bytes);
        let start = self.buffer.len();
        self.buffer.resize(start + (to - from) as usize, 0);
        let offset_bytes = self.extent.offset_bytes + from;
        self.extent
            .file
            .read_exact_at(&mut self.buffer[start..], offset_bytes)
            .map_err(|error| self.extent.owner.failed(error))?;
        self.advise_next_blocks(to);
        let blocks_read = self.buffer[start..].chunks(block_len_bytes as usize);
        // Every read is verified, because the disk or another process may have changed the block since the last one.
        for (block, bytes) in (self.next_block..).zip(blocks_read) {
            let (expected, found) = (self.sums.get(block)?, block_sum(bytes).get());
            if expected != found {
                let offset_bytes = self.extent.offset_bytes + block as u64 * block_len_bytes;
                let error = FormatError::BlockChecksum { block, offset_bytes, expected, found };
                return Err(self.extent.owner.damaged(error));
            }
        }
        self.next_block += blocks;
        Ok(true)
    }

    pub(in crate::bake) fn owner(&self) -> &ExtentOwner {
        &self.extent.owner
    }

    fn advise_next_blocks(&self, from_bytes: u64) {
        let len_bytes =
            (self.extent.len_bytes - from_bytes).min((self.step_blocks * self.extent.block_len_bytes) as u64);
        if let Some(len_bytes) = NonZeroU64::new(len_bytes) {
            // The advice is only a hint, so its errors are ignored.
            let _ =
                fadvise(&*self.extent.file, self.extent.offset_bytes + from_bytes, Some(len_bytes), Advice::WillNeed);
        }
    }
}

/// The number of checksums in a page (one block of the block sums section).
const PAGE_SUMS: usize = SUMS_PER_BLOCK;

/// The checksums of all blocks of an extent (a range of a file).
#[derive(Clone)]
pub(in crate::bake) enum BlockSums {
    /// The checksums are in memory.
    Memory(Arc<[U64]>),
    /// The checksums are in the file of the table that contains the blocks.
    Table(Arc<TableSums>),
}

/// The block sums section of a table.
pub(in crate::bake) struct TableSums {
    file: Arc<File>,
    owner: ExtentOwner,
    section_offset_bytes: u64,
    /// The number of checksums in the section, without its root.
    count: usize,
    /// The number of blocks of the records, whose checksums come first.
    record_count: usize,
    /// The checksums of the section's pages (a page is one block), computed when the whole section was verified.
    page_sums: Vec<U64>,
}

impl BlockSums {
    /// Returns the number of blocks.
    pub(in crate::bake) fn len(&self) -> usize {
        match self {
            BlockSums::Memory(sums) => sums.len(),
            BlockSums::Table(table) => table.record_count,
        }
    }
}

impl TableSums {
    /// Verifies the block sums of a table, and their root, against two checksums in the table's header: the checksum of
    /// the block sums section, and the checksum of the records section, which depends only on the block sums.
    pub(in crate::bake) fn open(
        file: Arc<File>,
        layout: &Layout,
        owner: ExtentOwner,
        cancel: &Cancel,
    ) -> Result<TableSums, BakeError> {
        let mut table = TableSums {
            file,
            owner,
            section_offset_bytes: layout.block_sums.offset_bytes,
            count: layout.blocks(SectionKind::BlockSums).start,
            record_count: layout.blocks(SectionKind::Records).len(),
            page_sums: Vec::new(),
        };
        let mut records_sum = SectionSum::new();
        let mut page = Vec::new();
        for number in 0..table.count.div_ceil(PAGE_SUMS) {
            if cancel.is_set() {
                return Err(BakeError::Canceled);
            }
            table.read(number, &mut page)?;
            table.page_sums.push(block_sum(page.as_bytes()));
            let record_sums = table.record_count.saturating_sub(number * PAGE_SUMS).min(page.len());
            records_sum.add_block_sums(&page[..record_sums]);
        }
        let mut root = vec![U64::new_zeroed(); table.page_sums.len()];
        let root_at_bytes = table.section_offset_bytes + (table.count * size_of::<U64>()) as u64;
        table.file.read_exact_at(root.as_mut_bytes(), root_at_bytes).map_err(|error| table.owner.failed(error))?;
        for sums in [&table.page_sums, &root] {
            table.check(SectionKind::BlockSums, layout.block_sums.checksum, section_sum(sums))?;
        }
        table.check(SectionKind::Records, layout.records.checksum, records_sum.finish())?;
        Ok(table)
    }

    /// Reads one page (one block of the block sums section) without verifying it.
    fn read(&self, number: usize, page: &mut Vec<U64>) -> Result<(), BakeError> {
        let start = number * PAGE_SUMS;
        page.resize(PAGE_SUMS.min(self.count - start), U64::new_zeroed());
        let offset_bytes = self.section_offset_bytes + (start * size_of::<U64>()) as u64;
        self.file.read_exact_at(page.as_mut_bytes(), offset_bytes).map_err(|error| self.owner.failed(error))
    }

    fn check(&self, section: SectionKind, expected: u64, found: u64) -> Result<(), BakeError> {
        if expected == found {
            return Ok(());
        }
        Err(self.owner.damaged(FormatError::SectionChecksum { section, expected, found }))
    }
}

/// Reads checksums of blocks. The caller can request them in any order. Ascending order is fastest, because the reader
/// reads neighboring checksums together.
pub(in crate::bake) struct BlockSumsReader {
    sums: BlockSums,
    /// The page (one block of the block sums section) that was read last. Its number is `page_number`.
    page: Vec<U64>,
    page_number: Option<usize>,
}

impl BlockSumsReader {
    pub(in crate::bake) fn new(sums: BlockSums) -> BlockSumsReader {
        BlockSumsReader { sums, page: Vec::new(), page_number: None }
    }

    /// Returns the checksum of a block. Blocks are counted from 0. Panics if there is no block with this number.
    pub(in crate::bake) fn get(&mut self, block: usize) -> Result<u64, BakeError> {
        let table = match &self.sums {
            BlockSums::Memory(sums) => return Ok(sums[block].get()),
            BlockSums::Table(table) => table,
        };
        let number = block / PAGE_SUMS;
        if self.page_number != Some(number) {
            self.page_number = None;
            table.read(number, &mut self.page)?;
            // The table may have been overwritten since it was opened.
            let found = block_sum(self.page.as_bytes());
            table.check(SectionKind::BlockSums, table.page_sums[number].get(), found.get())?;
            self.page_number = Some(number);
        }
        Ok(self.page[block % PAGE_SUMS].get())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::format::checksum::{BLOCK_LEN_BYTES, root_of, section_sum_of};
    use crate::format::header::{Dimensions, TableLayout};
    use crate::format::key_type::KeyType;

    /// Returns the checksums of `block_count` blocks of records and of the index, a file, and the file's layout. The
    /// file has these checksums in its block sums section, and a hole instead of records and index.
    fn table(block_count: usize) -> (Vec<U64>, Arc<File>, Layout) {
        let dimensions = Dimensions {
            table_layout: TableLayout::Fast,
            key_type: KeyType::U64,
            has_ranges: false,
            row_count: 1,
            hash_seed: 0,
            record_align_bytes: 4096,
            records_len_bytes: (block_count * BLOCK_LEN_BYTES) as u64,
            groups_len_bytes: 0,
            part_pilots: 1,
            part_slots: 1,
            schema_len_bytes: 0,
        };
        let mut layout = Layout::new(dimensions).unwrap();
        let count = layout.blocks(SectionKind::BlockSums).start as u64;
        let sums: Vec<U64> = (1..=count).map(|number| U64::new(number.wrapping_mul(u64::MAX / 7))).collect();
        layout.records.checksum = section_sum(&sums[..block_count]);
        layout.block_sums.checksum = section_sum_of(sums.as_bytes());
        let file = tempfile::tempfile().unwrap();
        let section = [&sums[..], &root_of(&sums)].concat();
        file.write_all_at(section.as_bytes(), layout.block_sums.offset_bytes).unwrap();
        (sums, Arc::new(file), layout)
    }

    fn open(file: &Arc<File>, layout: &Layout, cancel: &Cancel) -> Result<TableSums, BakeError> {
        TableSums::open(Arc::clone(file), layout, ExtentOwner::Table(Path::new("base.db").into()), cancel)
    }

    #[test]
    fn checksums_are_read_from_the_table_in_any_order() {
        for block_count in [1, PAGE_SUMS - 1, PAGE_SUMS, 2 * PAGE_SUMS + 5] {
            let (sums, file, layout) = table(block_count);
            let stored = open(&file, &layout, &Cancel::default()).unwrap();
            assert_eq!(stored.page_sums.len(), sums.len().div_ceil(PAGE_SUMS));
            let all = BlockSums::Table(Arc::new(stored));
            assert_eq!(all.len(), block_count);
            let mut reader = BlockSumsReader::new(all);
            for block in (0..block_count).chain((0..block_count).rev().step_by(101)) {
                assert_eq!(reader.get(block).unwrap(), sums[block].get(), "block {block} of {block_count}");
            }
        }
    }

    #[test]
    fn a_page_that_changed_after_its_verification_is_an_error() {
        let (sums, file, layout) = table(2 * PAGE_SUMS + 5);
        let mut reader =
            BlockSumsReader::new(BlockSums::Table(Arc::new(open(&file, &layout, &Cancel::default()).unwrap())));
        let at = layout.block_sums.offset_bytes + (PAGE_SUMS * size_of::<U64>()) as u64;
        file.write_all_at(&[0xA5], at).unwrap();
        assert_eq!(reader.get(0).unwrap(), sums[0].get());
        for _ in 0..2 {
            let error = reader.get(PAGE_SUMS + 1).unwrap_err().to_string();
            assert!(error.starts_with("base.db: ") && error.contains("block sums"), "{error}");
        }
        assert_eq!(reader.get(2 * PAGE_SUMS).unwrap(), sums[2 * PAGE_SUMS].get());
        // Opening the table again fails.
        assert!(open(&file, &layout, &Cancel::default()).is_err());
    }

    #[test]
    fn the_verification_of_the_checksums_can_be_canceled() {
        let (_, file, layout) = table(1);
        let cancel = Cancel::default();
        cancel.set();
        assert!(matches!(open(&file, &layout, &cancel), Err(BakeError::Canceled)));
    }
}
