//! Tracks which blocks of a file are verified.
//!
//! A block is verified against its checksum on first access and stays trusted until the file changes. The checksum
//! itself is in a block of the section of block sums, which is verified first, against the root. The time between two
//! changes of the file is an epoch. After a change, no block is trusted until the root has been verified again. Then
//! the next trusted epoch begins, with every block unverified.
//!
//! In a **copying** epoch, changes of the file cannot be detected, so the pages of a block are copied before the block
//! is verified, and only copies are trusted. A batch may have read a page before another thread replaced it by its
//! copy. Each verified copy therefore changes the value of [`Epoch`], and a batch is correct only if the value is the
//! one with which the batch began.
//!
//! Reasons and evidence: `docs/decisions/verified-blocks.md`.

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

#[cfg(not(all(test, loom)))]
use zerocopy::FromZeros;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::format::checksum::{BLOCK_LEN_BYTES, SUMS_PER_BLOCK, block_sum};
use crate::sync::{AtomicU8, AtomicU64, Ordering, RwLock, fence};

use super::epoch::Epoch;
use super::page_copies::{COPIES_LEN_MAX_BYTES, Copier};
use super::verification::{self, BLOCK_WORK};

/// The tag of a block is the tag of the epoch in which the block was last verified, or `NEVER` if the block was never
/// verified. `NEVER` is the tag of no epoch, so no block counts as verified in an epoch in which nothing verified it.
const NEVER: u8 = Epoch::NO_TAG;
/// The maximum number of damaged blocks that are recorded in an epoch.
const DAMAGED_MAX: usize = 64;
/// The number of blocks in a group, which is 1 MiB long. Each group has one tag with the number of the last epoch in
/// which the whole group was verified, so a lookup of a long value reads few tags.
const GROUP_BLOCKS: usize = 256;

/// The bytes of a file that blocks are verified in.
#[derive(Clone, Copy)]
pub(super) struct BlockData<'a> {
    /// The sections that block sums cover, in file order. The first one is the records section.
    pub(super) sections: [&'a [u8]; 6],
    /// The checksum of each block of these sections.
    pub(super) sums: &'a [U64],
    /// The checksum of each block of `sums`. Must have been verified in this epoch.
    pub(super) root: &'a [U64],
    /// Copies blocks in copying epochs. Without it, blocks can be verified in these epochs, but are not trusted.
    pub(super) copier: Option<Copier<'a>>,
}

impl<'a> BlockData<'a> {
    fn records(&self) -> &'a [u8] {
        self.sections[0]
    }

    /// Returns the bytes of a block of the sections, and the block's expected checksum.
    fn block(&self, block: usize) -> Option<(&'a [u8], U64)> {
        let sum = self.sums.get(block)?;
        let mut number = block;
        for section in self.sections {
            let count = section.len().div_ceil(BLOCK_LEN_BYTES);
            if number < count {
                let start = number * BLOCK_LEN_BYTES;
                return Some((&section[start..section.len().min(start + BLOCK_LEN_BYTES)], *sum));
            }
            number -= count;
        }
        None
    }

    /// Returns the bytes of a block of the checksums, and the block's expected checksum.
    fn block_of_sums(&self, block: usize) -> Option<(&'a [u8], U64)> {
        let sums = self.sums.chunks(SUMS_PER_BLOCK).nth(block)?;
        Some((sums.as_bytes(), *self.root.get(block)?))
    }
}

/// The numbers of the blocks of each section that is verified block by block.
#[derive(Clone, Debug)]
pub(super) struct BlockNumbers {
    /// The fences and the tree above them.
    pub(super) fences: Range<usize>,
    pub(super) pilots: Range<usize>,
    pub(super) places: Range<usize>,
    /// The blocks of the checksums of all other blocks. They have the last numbers.
    pub(super) sums: Range<usize>,
}

/// Counts how many blocks of a part of the file are verified in the current epoch, so that one read shows whether the
/// whole part is verified.
#[derive(Debug)]
struct Coverage {
    blocks: Range<usize>,
    /// The number of verified blocks, and, in the highest byte, the epoch in which they were verified.
    verified: AtomicU64,
}

impl Coverage {
    const EPOCH_SHIFT: u32 = u64::BITS - u8::BITS;

    fn new(blocks: Range<usize>) -> Coverage {
        Coverage { blocks, verified: AtomicU64::new(0) }
    }

    /// Returns whether all blocks were verified in an epoch.
    #[inline(always)]
    fn is_complete(&self, epoch: Epoch) -> bool {
        let complete = u64::from(epoch.tag()) << Self::EPOCH_SHIFT | self.blocks.len() as u64;
        self.verified.load(Ordering::Relaxed) == complete
    }

    /// Counts a block that was verified in the current epoch. Must be called once per block and epoch.
    fn add(&self, epoch: Epoch, block: usize) {
        if !self.blocks.contains(&block) {
            return;
        }
        let first = u64::from(epoch.tag()) << Self::EPOCH_SHIFT | 1;
        // A count of an earlier epoch is replaced.
        let _ = self.verified.fetch_update(Ordering::Release, Ordering::Relaxed, |verified| {
            let counted = (verified >> Self::EPOCH_SHIFT) as u8;
            Some(if counted == epoch.tag() { verified + 1 } else { first })
        });
    }
}

/// The verification state of all blocks: for each block, a tag with the epoch in which the block was last verified.
#[derive(Debug)]
pub(super) struct Blocks {
    tags: Box<[AtomicU8]>,
    /// For each group of [`GROUP_BLOCKS`] blocks, the last epoch in which a lookup found all blocks of the group
    /// verified.
    group_tags: Box<[AtomicU8]>,
    epoch: AtomicU64,
    /// Locked for reading while a tag is written, and for writing while a new epoch begins. A tag is therefore written
    /// only in its own epoch, and not after a later epoch with the same lowest byte has begun.
    tagging: RwLock<()>,
    damaged: Mutex<Damaged>,
    numbers: BlockNumbers,
    /// The records.
    records: Coverage,
    /// The pilots and places, which lookups of keys read.
    slots: Coverage,
    /// The fences and the tree above them, which ordered lookups read.
    fences: Coverage,
}

#[derive(Debug, Default)]
struct Damaged {
    /// The damaged blocks that [`Blocks::take_damaged`] has not returned yet.
    new: Vec<usize>,
    /// All damaged blocks that were recorded in this epoch.
    all: Vec<usize>,
}

impl Blocks {
    /// Creates the state of a file's blocks. None of them is verified.
    ///
    /// # Errors
    /// Fails if there is not enough memory for the tags of the blocks.
    pub(super) fn new(numbers: BlockNumbers) -> io::Result<Blocks> {
        let count = numbers.sums.end;
        let (tags, group_tags) = (unverified_tags(count)?, unverified_tags(count / GROUP_BLOCKS)?);
        let (epoch, tagging) = (AtomicU64::new(Epoch::FIRST.0), RwLock::new(()));
        let records = Coverage::new(0..numbers.fences.start);
        let slots = Coverage::new(numbers.pilots.start..numbers.places.end);
        let fences = Coverage::new(numbers.fences.clone());
        Ok(Blocks { tags, group_tags, epoch, tagging, damaged: Mutex::default(), numbers, records, slots, fences })
    }

    /// Returns the numbers of the blocks of each section of the index.
    #[inline]
    pub(super) fn numbers(&self) -> &BlockNumbers {
        &self.numbers
    }

    /// Returns whether all records are verified in an epoch.
    #[inline(always)]
    pub(super) fn are_records_verified(&self, epoch: Epoch) -> bool {
        self.records.is_complete(epoch)
    }

    /// Returns whether all pilots and places are verified in an epoch.
    #[inline(always)]
    pub(super) fn are_slots_verified(&self, epoch: Epoch) -> bool {
        self.slots.is_complete(epoch)
    }

    /// Returns whether all fences and the tree above them are verified in an epoch.
    #[inline(always)]
    pub(super) fn are_fences_verified(&self, epoch: Epoch) -> bool {
        self.fences.is_complete(epoch)
    }

    #[inline(always)]
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Returns whether a range of the records section is inside one block, and this block is verified in an epoch.
    #[inline(always)]
    pub(super) fn is_in_verified_block(&self, epoch: Epoch, start: usize, end: usize) -> bool {
        // No block is ever tagged with a distrusted epoch.
        start % BLOCK_LEN_BYTES + (end - start) <= BLOCK_LEN_BYTES
            && self.tags.get(start / BLOCK_LEN_BYTES).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.tag())
    }

    /// Returns whether the blocks of a nonempty range of the records section are verified in an epoch. Reads the tags
    /// of at most two blocks: if the range has more than two blocks, returns `false`.
    #[inline]
    pub(super) fn are_verified(&self, epoch: Epoch, start: usize, end: usize) -> bool {
        let (first, last) = (start / BLOCK_LEN_BYTES, end.wrapping_sub(1) / BLOCK_LEN_BYTES);
        let is_verified =
            |block: usize| self.tags.get(block).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.tag());
        // In a distrusted epoch, the result is `false`, because no block is ever tagged with a distrusted epoch.
        is_verified(first) && (first == last || is_verified(last) && last.wrapping_sub(first) == 1)
    }

    /// Returns the tags of all blocks, so that lookups can prefetch them.
    #[inline(always)]
    pub(super) fn tags(&self) -> &[AtomicU8] {
        &self.tags
    }

    /// Verifies those blocks of a range of the records section that are not verified yet. Returns `true` if all blocks
    /// of the range are intact. Returns `false` if a block is damaged, if the range ends beyond the section, if the
    /// epoch is distrusted, or if this thread reaches its limit on verification work before all blocks are verified.
    #[cold]
    #[inline(never)]
    pub(super) fn verify_range(&self, epoch: Epoch, data: &BlockData<'_>, start: usize, end: usize) -> bool {
        if epoch.is_distrust() || end > data.records().len() {
            return false;
        }
        let (mut block, end_block) = (start / BLOCK_LEN_BYTES, end.div_ceil(BLOCK_LEN_BYTES));
        while block < end_block {
            let group = block / GROUP_BLOCKS;
            let blocks = block..end_block.min((group + 1) * GROUP_BLOCKS);
            block = blocks.end;
            let group_tag = self.group_tags.get(group).filter(|_| blocks.len() == GROUP_BLOCKS);
            if group_tag.is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.tag()) {
                verification::count(1);
                continue;
            }
            match group_tag {
                // Later lookups read the group's tag instead of the blocks' tags, so this work is not repeated.
                Some(_) if !verification::begin(blocks.len()) => return false,
                Some(_) => {}
                None => verification::count(blocks.len()),
            }
            if epoch.is_copying() && !self.copy_records(epoch, data, &blocks, end - start) {
                return false;
            }
            if !{ blocks }.all(|block| self.verify_block(epoch, data, block)) {
                return false;
            }
            if let Some(tag) = group_tag {
                // The blocks may be copies that another thread has verified. A batch that skips them because of this
                // tag must find that the value of the epoch has changed since.
                self.in_epoch(epoch, || tag.store(epoch.tag(), Ordering::Release));
            }
        }
        true
    }

    /// Returns whether a block is verified in an epoch.
    #[inline(always)]
    pub(super) fn is_verified(&self, epoch: Epoch, block: usize) -> bool {
        // No block is ever tagged with a distrusted epoch.
        self.tags.get(block).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.tag())
    }

    /// Verifies one block, after the block of checksums that has its checksum. Returns `true` if both blocks are
    /// intact. Returns `false` if one of them is damaged, if the epoch is distrusted, or if this thread had already
    /// reached its limit on verification work.
    pub(super) fn verify_block(&self, epoch: Epoch, data: &BlockData<'_>, block: usize) -> bool {
        let sums = &self.numbers.sums;
        if self.is_verified(epoch, block) {
            return true;
        }
        if block >= sums.start {
            return self.compare_sum(epoch, data, block, || data.block_of_sums(block - sums.start));
        }
        let sums_block = sums.start + block / SUMS_PER_BLOCK;
        let are_sums_intact = self.is_verified(epoch, sums_block)
            || self.compare_sum(epoch, data, sums_block, || data.block_of_sums(block / SUMS_PER_BLOCK));
        are_sums_intact && self.compare_sum(epoch, data, block, || data.block(block))
    }

    /// Compares the checksum of a block's bytes with the expected checksum, which `block_and_sum` returns. Records the
    /// result. Returns whether the checksums are equal, or `false` if the block is not verified: see
    /// [`Blocks::verify_block`].
    fn compare_sum<'a>(
        &self,
        epoch: Epoch,
        data: &BlockData<'_>,
        block: usize,
        block_and_sum: impl FnOnce() -> Option<(&'a [u8], U64)>,
    ) -> bool {
        if block >= self.tags.len() || epoch.is_distrust() {
            return false;
        }
        if let Some(copier) = data.copier.filter(|_| epoch.is_copying()) {
            return self.compare_sum_of_copy(epoch, copier, block, block_and_sum);
        }
        if !verification::begin(BLOCK_WORK) {
            return false;
        }
        let is_intact = block_and_sum().is_some_and(|(bytes, sum)| block_sum(bytes) == sum);
        match is_intact {
            true => self.note_verified(epoch, block),
            false => self.note_damaged(block),
        }
        is_intact
    }

    /// Copies a block in a copying epoch, and does what [`Blocks::compare_sum`] does with the copy.
    #[cold]
    fn compare_sum_of_copy<'a>(
        &self,
        epoch: Epoch,
        copier: Copier<'_>,
        block: usize,
        block_and_sum: impl FnOnce() -> Option<(&'a [u8], U64)>,
    ) -> bool {
        if !verification::begin_copy() {
            return false;
        }
        let mut copies = copier.lock();
        if !copies.is_in(epoch) {
            return false;
        }
        if copies.are_too_many() {
            // The next batch releases the copies, and begins another copying epoch.
            self.distrust(self.epoch());
            return false;
        }
        // The checksum is in a block whose copy was verified and tagged under this lock in this epoch. It is read under
        // the lock, too: a processor could otherwise have read it before the tag, from the original page.
        let Some((bytes, sum)) = block_and_sum() else {
            self.note_damaged(block);
            return false;
        };
        if !copier.copy(&mut copies, bytes) {
            return false;
        }
        let is_intact = block_sum(bytes) == sum;
        match is_intact {
            true => self.note_verified_copy(epoch, block),
            false => self.note_damaged(block),
        }
        is_intact
    }

    /// Copies the blocks of a run of records at once, which needs fewer mappings than one copy per block. `len_bytes`
    /// is the length of the range that a lookup needs. Returns `false` if the copies of a range of this length would
    /// take too much memory.
    #[cold]
    fn copy_records(&self, epoch: Epoch, data: &BlockData<'_>, blocks: &Range<usize>, len_bytes: usize) -> bool {
        let is_pending = || blocks.clone().any(|block| !self.is_verified(epoch, block));
        let copier = data.copier.filter(|_| blocks.len() > 1 && is_pending() && !verification::has_fixed_copies());
        let (start, end) = (blocks.start * BLOCK_LEN_BYTES, blocks.end * BLOCK_LEN_BYTES);
        if let (Some(copier), Some(bytes)) = (copier, data.records().get(start..end.min(data.records().len()))) {
            let mut copies = copier.lock();
            if copies.is_in(epoch) && !copies.are_too_many() {
                // If the system refuses, so it does for each block.
                copier.copy(&mut copies, bytes);
            }
        }
        len_bytes <= COPIES_LEN_MAX_BYTES / 4 * 3
    }

    /// Records that the copy of a block is verified in a copying epoch. The copies must be locked, so no other trusted
    /// epoch begins meanwhile.
    fn note_verified_copy(&self, epoch: Epoch, block: usize) {
        // A batch that finds the tag also finds that the value of the epoch has changed, if the batch began before: the
        // value is changed first. The fence in `Blocks::accept` is the other half of this order.
        let count = |now: u64| Some(Epoch(now)).filter(|now| !now.is_distrust()).map(|now| now.with_copy().0);
        let _ = self.epoch.fetch_update(Ordering::AcqRel, Ordering::Relaxed, count);
        self.tag(epoch, block);
    }

    /// Records that a block is verified in the current epoch.
    pub(super) fn mark_verified(&self, block: usize) {
        self.note_verified(self.epoch(), block);
    }

    fn note_verified(&self, epoch: Epoch, block: usize) {
        // In a copying epoch, only copies are trusted.
        if !epoch.is_copying() {
            self.in_epoch(epoch, || self.tag(epoch, block));
        }
    }

    fn tag(&self, epoch: Epoch, block: usize) {
        let Some(tag) = self.tags.get(block) else { return };
        if tag.swap(epoch.tag(), Ordering::Release) != epoch.tag() {
            self.records.add(epoch, block);
            self.slots.add(epoch, block);
            self.fences.add(epoch, block);
        }
    }

    /// Calls `write_tags` if `epoch` is the current epoch. No new trusted epoch begins during the call.
    fn in_epoch(&self, epoch: Epoch, write_tags: impl FnOnce()) {
        let _tagging = self.tagging.read().unwrap_or_else(PoisonError::into_inner);
        if self.epoch() == epoch {
            write_tags();
        }
    }

    /// Returns the number of blocks that are verified in the current epoch.
    pub(super) fn verified_count(&self) -> usize {
        let tag = self.epoch().tag();
        self.tags.iter().filter(|found| found.load(Ordering::Relaxed) == tag).count()
    }

    /// Ends a trusted epoch: from then on, no byte is trusted. Does nothing if `epoch` is distrusted or has already
    /// ended. Returns whether this call ended the epoch.
    pub(super) fn distrust(&self, epoch: Epoch) -> bool {
        let has_ended = !epoch.is_distrust() && self.end_epoch(epoch, false);
        if has_ended {
            // The list of damaged blocks is cleared, because blocks that were damaged while a process wrote to the file
            // may be intact after the writes.
            *self.damaged.lock().unwrap_or_else(PoisonError::into_inner) = Damaged::default();
        }
        has_ended
    }

    /// Returns whether a batch is correct. If it is not, ends `epoch`, in which the batch was looked up. `is_unchanged`
    /// returns whether nobody has changed the file since the file was last trusted.
    ///
    /// Must be called after the bytes are copied. Calls `is_unchanged` first, and then checks that `epoch` is still the
    /// current epoch. The second check rejects a batch if the file was changed and then trusted again: `is_unchanged`
    /// returns `true` in this case, but the epoch has ended.
    #[inline(always)]
    pub(super) fn accept(&self, epoch: Epoch, is_unchanged: impl FnOnce() -> bool) -> bool {
        // Orders the reads of tags and of the file's bytes before all reads that decide whether the bytes are right: of
        // the lease, the clock, the file's times, faults, and the epoch. A system call is not a fence on all
        // processors.
        fence(Ordering::Acquire);
        // In a distrusted epoch, every lookup failed, so the batch has no bytes of the file.
        if (epoch.is_distrust() || is_unchanged()) && self.epoch() == epoch {
            return true;
        }
        self.distrust(epoch);
        false
    }

    /// Begins a trusted epoch after a distrusted one, in which only copies of blocks are trusted if `is_copying` is
    /// set. Returns `false` if the current epoch is not distrusted.
    pub(super) fn trust_again(&self, is_copying: bool) -> bool {
        let epoch = self.epoch();
        let _tagging = self.tagging.write().unwrap_or_else(PoisonError::into_inner);
        if epoch.next(is_copying).tag() == Epoch::FIRST.tag() {
            self.forget_tags();
        }
        epoch.is_distrust() && self.end_epoch(epoch, is_copying)
    }

    /// Marks all blocks as unverified, before the tags of earlier epochs are used again.
    #[cold]
    fn forget_tags(&self) {
        self.tags.iter().chain(&self.group_tags).for_each(|tag| tag.store(NEVER, Ordering::Relaxed));
        for coverage in [&self.records, &self.slots, &self.fences] {
            coverage.verified.store(0, Ordering::Relaxed);
        }
    }

    /// Ends an epoch, if it has not ended yet, and begins the next one. Returns whether this call ended the epoch.
    fn end_epoch(&self, epoch: Epoch, is_next_copying: bool) -> bool {
        let next = epoch.next(is_next_copying);
        self.epoch.compare_exchange(epoch.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn note_damaged(&self, block: usize) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.all.len() < DAMAGED_MAX && !damaged.all.contains(&block) {
            damaged.all.push(block);
            damaged.new.push(block);
        }
    }

    /// Returns the number of blocks that were found damaged in this epoch, at most [`DAMAGED_MAX`].
    pub(super) fn damaged_count(&self) -> usize {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).all.len()
    }

    /// Returns the indexes of the blocks that were found damaged since the last call, each block once.
    pub(super) fn take_damaged(&self) -> Vec<usize> {
        std::mem::take(&mut self.damaged.lock().unwrap_or_else(PoisonError::into_inner).new)
    }
}

/// Returns tags for `count` blocks or groups that were never verified. The kernel zeroes the tags' pages on first
/// access, so even a huge count from a forged header takes no memory at first.
#[cfg(not(all(test, loom)))]
fn unverified_tags(count: usize) -> io::Result<Box<[AtomicU8]>> {
    const { assert!(NEVER == 0) };
    <[AtomicU8]>::new_box_zeroed_with_elems(count).map_err(|_| {
        let message = format!(
            "no memory for {count} bytes, the verification state of as many blocks: free some memory, or raise the \
             limit (`ulimit -v`)"
        );
        io::Error::new(io::ErrorKind::OutOfMemory, message)
    })
}

#[cfg(all(test, loom))]
fn unverified_tags(count: usize) -> io::Result<Box<[AtomicU8]>> {
    Ok(std::iter::repeat_with(|| AtomicU8::new(NEVER)).take(count).collect())
}

#[cfg(test)]
impl Blocks {
    /// Creates the state of a file with `count` blocks of records, and without an index.
    pub(super) fn of_records(count: usize) -> io::Result<Blocks> {
        let none = count..count;
        let sums = count..count + count.div_ceil(SUMS_PER_BLOCK);
        Blocks::new(BlockNumbers { fences: none.clone(), pilots: none.clone(), places: none, sums })
    }

    /// Verifies a range of the records of a file without an index.
    pub(super) fn verify_records(&self, epoch: Epoch, records: &[u8], sums: &[U64], start: usize, end: usize) -> bool {
        let root = crate::format::checksum::root_of(sums);
        self.verify_range(
            epoch,
            &BlockData { sections: [records, &[], &[], &[], &[], &[]], sums, root: &root, copier: None },
            start,
            end,
        )
    }
}
