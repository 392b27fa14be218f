//! Reads ranges of files block by block, and verifies each block against its checksum.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};

use super::ExtentOwner;
use super::block_sums::{BlockSums, BlockSumsReader};
use crate::bake::error::BakeError;
use crate::format::FormatError;
use crate::format::checksum::block_sum;

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

    /// Asks the system to read the next blocks ahead.
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
