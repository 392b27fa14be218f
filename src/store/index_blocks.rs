//! Verifies blocks of the index before lookups read them.
//!
//! In: the position of a pilot, a place, or a fence. Out: whether the block that contains it is intact. Once all blocks
//! of a part of the index are verified in an epoch, lookups skip these checks until the epoch ends.

use super::blocks::BlockData;
use super::epoch::Epoch;
#[cfg(feature = "server")]
use super::{Pace, check};
use super::{Store, WatchedFile, typed};
#[cfg(feature = "server")]
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, split_root};
use crate::format::fence::{Fence, Node};
use crate::format::header::SectionKind;
#[cfg(feature = "server")]
use crate::machine_memory;
use zerocopy::little_endian::U32;

/// The number of blocks that are verified between two calls of [`Pace`].
#[cfg(feature = "server")]
const PACED_BLOCKS: usize = 128;

impl Store {
    /// Returns the data that blocks are verified in.
    pub(super) fn block_data(&self) -> BlockData<'_> {
        let (sums, root) = split_root(typed(self.section(&self.layout.block_sums)));
        let layout = &self.layout;
        let sections =
            [&layout.records, &layout.fences, &layout.fence_tree, &layout.pilots, &layout.places, &layout.schema];
        BlockData { sections: sections.map(|section| self.section(section)), sums, root, copier: None }
    }

    /// Returns the data in which lookups verify blocks.
    pub(super) fn lookup_data(&self) -> BlockData<'_> {
        BlockData { copier: self.watched_file().map(WatchedFile::copier), ..self.block_data() }
    }

    /// Verifies the block of a pilot in an epoch. Returns whether the block is intact.
    #[inline(never)]
    pub(super) fn is_pilot_intact(&self, epoch: Epoch, pilot: usize) -> bool {
        self.is_block_intact(epoch, self.block_of_pilot(pilot))
    }

    #[inline]
    pub(super) fn block_of_pilot(&self, pilot: usize) -> usize {
        self.blocks.numbers().pilots.start + pilot / BLOCK_LEN_BYTES
    }

    /// Verifies the block of a slot's place in an epoch. Returns whether the block is intact.
    #[inline(never)]
    pub(super) fn is_place_intact(&self, epoch: Epoch, slot: usize) -> bool {
        self.is_block_intact(epoch, self.block_of_place(slot))
    }

    #[inline]
    pub(super) fn block_of_place(&self, slot: usize) -> usize {
        const BLOCK_PLACES: usize = BLOCK_LEN_BYTES / size_of::<U32>();
        self.blocks.numbers().places.start + slot / BLOCK_PLACES
    }

    #[inline]
    pub(super) fn is_block_intact(&self, epoch: Epoch, block: usize) -> bool {
        self.blocks.is_verified(epoch, block) || self.blocks.verify_block(epoch, &self.lookup_data(), block)
    }

    /// Returns a fence, after its block is verified. Returns `None` if the block is damaged, or if there is no such
    /// fence.
    #[inline]
    pub(super) fn fence(&self, number: usize) -> Option<&Fence> {
        let epoch = self.epoch();
        let is_intact = self.blocks.are_fences_verified(epoch) || self.is_fence_intact(epoch, number);
        self.fence_entries().get(number).filter(|_| is_intact)
    }

    /// Verifies the block of a fence in an epoch. Returns whether the block is intact. If there is no such fence, there
    /// is nothing to verify.
    #[inline(never)]
    pub(super) fn is_fence_intact(&self, epoch: Epoch, fence: usize) -> bool {
        fence >= self.fence_entries().len() || self.is_block_intact(epoch, self.block_of_fence(fence))
    }

    /// Verifies the block of a node of the fence tree in an epoch. Returns whether the block is intact. If there is no
    /// such node, there is nothing to verify.
    #[inline(never)]
    pub(super) fn is_node_intact(&self, epoch: Epoch, node: usize) -> bool {
        node >= self.tree_levels.node_count() || self.is_block_intact(epoch, self.block_of_node(node))
    }

    pub(super) fn block_of_fence(&self, fence: usize) -> usize {
        const BLOCK_FENCES: usize = BLOCK_LEN_BYTES / size_of::<Fence>();
        self.blocks.numbers().fences.start + fence / BLOCK_FENCES
    }

    pub(super) fn block_of_node(&self, node: usize) -> usize {
        const BLOCK_NODES: usize = BLOCK_LEN_BYTES / size_of::<Node>();
        // The blocks of the tree are the last blocks of this range.
        let tree_blocks = self.tree_levels.node_count().div_ceil(BLOCK_NODES);
        self.blocks.numbers().fences.end - tree_blocks + node / BLOCK_NODES
    }

    /// Verifies the whole index, so that no lookup has to do it.
    ///
    /// # Errors
    /// The first fault found, or an arbitrary result if `pace` cancels the work.
    #[cfg(feature = "server")]
    pub(crate) fn verify_index(&self, pace: &Pace) -> Result<(), FormatError> {
        let epoch = self.epoch();
        if !(self.blocks.are_slots_verified(epoch) && self.blocks.are_fences_verified(epoch)) {
            check::index(self, pace)?;
        }
        Ok(())
    }

    /// Verifies the blocks of the records if the whole file is in memory, so that lookups neither verify blocks nor
    /// wait until the kernel has mapped pages. If a block is damaged, lookups that need it fail.
    #[cfg(feature = "server")]
    pub(crate) fn verify_records_in_memory(&self, pace: &Pace) {
        // The kernel reports every page as resident to a process that may not write to the file. Such a process must
        // not read a file that exceeds the memory.
        let len_bytes = self.file_len_bytes();
        let fits = machine_memory::available().is_some_and(|available| len_bytes <= available.bytes);
        if !fits || self.resident_len_bytes() < len_bytes {
            return;
        }
        let (epoch, data) = (self.epoch(), self.block_data());
        for block in 0..self.blocks.numbers().fences.start {
            if block.is_multiple_of(PACED_BLOCKS) && !pace.goes_on() {
                return;
            }
            self.blocks.verify_block(epoch, &data, block);
        }
    }

    /// Removes all pages of the file from the page table, in short steps. Without this call, the removal would be one
    /// long step when the file is unmapped, and other threads that change the process's mappings would wait for it.
    /// Calls `pause` after each step.
    #[cfg(feature = "server")]
    pub(crate) fn release_pages(&self, pause: impl Fn()) {
        const STEP_LEN_BYTES: usize = 8 << 20;
        let len_bytes = self.map.bytes().len();
        for start in (0..len_bytes).step_by(STEP_LEN_BYTES) {
            self.map.release(start..len_bytes.min(start + STEP_LEN_BYTES));
            pause();
        }
    }

    /// Returns the numbers of the blocks that lookups rely on in addition to the records: the index, and the checksums
    /// of all blocks. See [`Store::verify_block`].
    #[cfg(feature = "server")]
    pub(crate) fn index_blocks(&self) -> std::ops::Range<usize> {
        self.blocks.numbers().fences.start..self.blocks.numbers().sums.end
    }

    /// Returns the section of a block of [`Store::take_damaged_blocks`], and the block's number within this section,
    /// counted from 0. Returns `None` if the file has no such block.
    pub fn section_of_block(&self, block: usize) -> Option<(SectionKind, usize)> {
        self.layout.section_of_block(block)
    }
}
