//! Tracks which blocks of the records are verified.
//!
//! A block is verified against its checksum on first access and stays trusted until the file changes. The time between
//! two changes of the file is an epoch. After a change, no block is trusted until the index has been verified again.
//! Then the next trusted epoch begins, with every block unverified.

#[cfg(all(test, loom))]
mod models;

use std::io;
use std::sync::{Mutex, PoisonError};

#[cfg(not(all(test, loom)))]
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum};
use crate::sync::{AtomicU8, Ordering};

use super::verification::{self, BLOCK_WORK};

/// The tag of a block is the number of the epoch in which the block was last verified, or `NEVER` if the block was
/// never verified.
const NEVER: u8 = 0;
/// The number of the first epoch. Epochs are numbered in order. In odd epochs, the file is trusted; in even epochs,
/// every block counts as damaged.
const FIRST: u8 = 1;
/// The number of the last epoch. Numbers are not reused, so a file that has reached the last epoch must be opened
/// again.
const LAST: u8 = u8::MAX - 1;
/// The maximum number of damaged blocks that are recorded in an epoch.
const DAMAGED_MAX: usize = 64;
/// The number of blocks in a group, which is 1 MiB long. Each group has one tag with the number of the last epoch in
/// which the whole group was verified, so a lookup of a long value reads few tags.
const GROUP_BLOCKS: usize = 256;

/// The time between two changes of a file: see [`Store::epoch`](super::Store::epoch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u8);

impl Epoch {
    /// Returns whether this is an epoch in which no byte is trusted.
    #[inline(always)]
    pub(super) fn is_distrust(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// The verification state of all blocks: for each block, a tag with the epoch in which the block was last verified.
#[derive(Debug)]
pub(super) struct Blocks {
    tags: Box<[AtomicU8]>,
    /// For each group of [`GROUP_BLOCKS`] blocks, the last epoch in which a lookup found all blocks of the group
    /// verified.
    group_tags: Box<[AtomicU8]>,
    epoch: AtomicU8,
    damaged: Mutex<Damaged>,
}

#[derive(Debug, Default)]
struct Damaged {
    /// The damaged blocks that [`Blocks::take_damaged`] has not returned yet.
    new: Vec<usize>,
    /// All damaged blocks that were recorded in this epoch.
    all: Vec<usize>,
}

impl Blocks {
    /// Creates the state of `count` unverified blocks.
    ///
    /// # Errors
    /// Fails if there is not enough memory for the tags of the blocks.
    pub(super) fn new(count: usize) -> io::Result<Blocks> {
        let (tags, group_tags) = (unverified_tags(count)?, unverified_tags(count / GROUP_BLOCKS)?);
        Ok(Blocks { tags, group_tags, epoch: AtomicU8::new(FIRST), damaged: Mutex::default() })
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
            && self.tags.get(start / BLOCK_LEN_BYTES).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.0)
    }

    /// Returns whether the blocks of a nonempty range of the records section are verified in an epoch. Reads the tags
    /// of at most two blocks: if the range has more than two blocks, returns `false`.
    #[inline]
    pub(super) fn are_verified(&self, epoch: Epoch, start: usize, end: usize) -> bool {
        let (first, last) = (start / BLOCK_LEN_BYTES, end.wrapping_sub(1) / BLOCK_LEN_BYTES);
        let is_verified = |block: usize| self.tags.get(block).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.0);
        // In a distrusted epoch, the result is `false`, because no block is ever tagged with a distrusted epoch.
        is_verified(first) && (first == last || is_verified(last) && last.wrapping_sub(first) == 1)
    }

    /// Returns the tags of all blocks, so that lookups can prefetch them. A block's tag is the number of the epoch in
    /// which the block was last verified.
    #[inline(always)]
    pub(super) fn tags(&self) -> &[AtomicU8] {
        &self.tags
    }

    /// Verifies those blocks of a range of the records section that are not verified yet. Returns `true` if all blocks
    /// of the range are intact. Returns `false` if a block is damaged, if the range ends beyond the section, if the
    /// epoch is distrusted, or if this thread reaches its limit on verification work before all blocks are verified.
    #[cold]
    #[inline(never)]
    pub(super) fn verify_range(&self, epoch: Epoch, records: &[u8], sums: &[U64], start: usize, end: usize) -> bool {
        if epoch.is_distrust() || end > records.len() {
            return false;
        }
        let (mut block, end_block) = (start / BLOCK_LEN_BYTES, end.div_ceil(BLOCK_LEN_BYTES));
        while block < end_block {
            let group = block / GROUP_BLOCKS;
            let blocks = block..end_block.min((group + 1) * GROUP_BLOCKS);
            block = blocks.end;
            let group_tag = self.group_tags.get(group).filter(|_| blocks.len() == GROUP_BLOCKS);
            if group_tag.is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.0) {
                verification::count(1);
                continue;
            }
            match group_tag {
                // Later lookups read the group's tag instead of the blocks' tags, so this work is not repeated.
                Some(_) if !verification::begin(blocks.len()) => return false,
                Some(_) => {}
                None => verification::count(blocks.len()),
            }
            if !{ blocks }.all(|block| self.verify_block(epoch, records, sums, block)) {
                return false;
            }
            if let Some(tag) = group_tag {
                tag.store(epoch.0, Ordering::Relaxed);
            }
        }
        true
    }

    /// Verifies one block. Returns `true` if the block is intact. Returns `false` if the block is damaged, if the epoch
    /// is distrusted, or if this thread had already reached its limit on verification work.
    pub(super) fn verify_block(&self, epoch: Epoch, records: &[u8], sums: &[U64], block: usize) -> bool {
        let Some(tag) = self.tags.get(block).filter(|_| !epoch.is_distrust()) else { return false };
        if tag.load(Ordering::Relaxed) == epoch.0 {
            return true;
        }
        if !verification::begin(BLOCK_WORK) {
            return false;
        }
        let start = block * BLOCK_LEN_BYTES;
        let bytes = records.get(start..records.len().min(start + BLOCK_LEN_BYTES));
        let is_intact = bytes.zip(sums.get(block)).is_some_and(|(bytes, sum)| block_sum(bytes) == *sum);
        match is_intact {
            true => tag.store(epoch.0, Ordering::Relaxed),
            false => self.note_damaged(block),
        }
        is_intact
    }

    /// Records that a block is verified in the current epoch.
    pub(super) fn mark_verified(&self, block: usize) {
        if let Some(tag) = self.tags.get(block) {
            tag.store(self.epoch().0, Ordering::Relaxed);
        }
    }

    /// Returns the number of blocks that are verified in the current epoch.
    pub(super) fn verified_count(&self) -> usize {
        let epoch = self.epoch().0;
        self.tags.iter().filter(|tag| tag.load(Ordering::Relaxed) == epoch).count()
    }

    /// Ends a trusted epoch: from then on, no byte is trusted. Does nothing if `epoch` is distrusted or has already
    /// ended. Returns whether this call ended the epoch.
    pub(super) fn distrust(&self, epoch: Epoch) -> bool {
        let has_ended = !epoch.is_distrust() && self.end_epoch(epoch);
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
        // In a distrusted epoch, every lookup failed, so the batch has no bytes of the file.
        if (epoch.is_distrust() || is_unchanged()) && self.epoch() == epoch {
            return true;
        }
        self.distrust(epoch);
        false
    }

    /// Begins a trusted epoch after a distrusted one. Returns `false` if the current epoch is not distrusted, or if no
    /// epoch number is left.
    pub(super) fn trust_again(&self) -> bool {
        let epoch = self.epoch();
        epoch.is_distrust() && epoch.0 < LAST && self.end_epoch(epoch)
    }

    /// Ends an epoch, if it has not ended yet, and begins the next one. Returns whether this call ended the epoch.
    fn end_epoch(&self, epoch: Epoch) -> bool {
        self.epoch.compare_exchange(epoch.0, epoch.0 + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
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
            "no memory for {count} bytes, the verification state of as many blocks: free some memory, or raise the limit \
             (`ulimit -v`)"
        );
        io::Error::new(io::ErrorKind::OutOfMemory, message)
    })
}

#[cfg(all(test, loom))]
fn unverified_tags(count: usize) -> io::Result<Box<[AtomicU8]>> {
    Ok(std::iter::repeat_with(|| AtomicU8::new(NEVER)).take(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(blocks: usize) -> (Vec<u8>, Vec<U64>) {
        let records: Vec<u8> = (0..blocks * BLOCK_LEN_BYTES - 7).map(|at| ((at * 31) >> 3) as u8).collect();
        let sums = records.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
        (records, sums)
    }

    #[test]
    fn a_block_is_verified_once_per_epoch() {
        let (mut records, sums) = records(4);
        let blocks = Blocks::new(4).unwrap();
        let epoch = blocks.epoch();
        let (start, end) = (BLOCK_LEN_BYTES - 1, BLOCK_LEN_BYTES + 1);
        assert!(!blocks.are_verified(epoch, start, end));
        assert!(blocks.verify_range(epoch, &records, &sums, start, end));
        assert!(blocks.are_verified(epoch, start, end) && blocks.verified_count() == 2);
        assert!(!blocks.are_verified(epoch, 0, records.len()), "two of four blocks are verified");

        // Verified blocks are not verified again; unverified blocks are verified.
        records[0] ^= 1;
        records[3 * BLOCK_LEN_BYTES] ^= 1;
        assert!(blocks.verify_range(epoch, &records, &sums, start, end));
        assert!(!blocks.verify_range(epoch, &records, &sums, 0, records.len()));
        assert_eq!((blocks.take_damaged(), blocks.take_damaged()), (vec![3], vec![]));

        assert!(blocks.distrust(epoch) && !blocks.distrust(epoch));
        assert!(!blocks.are_verified(blocks.epoch(), start, end));
        assert!(!blocks.verify_range(blocks.epoch(), &records, &sums, start, end));
        assert!(blocks.trust_again());
        assert_eq!(blocks.verified_count(), 0);
        assert!(!blocks.verify_range(blocks.epoch(), &records, &sums, start, end));
        assert!(blocks.verify_range(blocks.epoch(), &records, &sums, end, end + 1));
    }

    #[test]
    fn a_block_that_was_verified_in_one_epoch_is_unverified_in_the_next() {
        let (records, sums) = records(1);
        let blocks = Blocks::new(1).unwrap();
        let old = blocks.epoch();
        assert!(blocks.distrust(old) && blocks.trust_again());
        // A lookup that began before the change ends after the change.
        assert!(blocks.verify_range(old, &records, &sums, 0, 1));
        assert!(!blocks.are_verified(blocks.epoch(), 0, 1));
    }

    #[test]
    fn a_group_is_verified_block_by_block_and_then_read_as_one_tag() {
        let (mut records, sums) = records(3 * GROUP_BLOCKS + 10);
        let blocks = Blocks::new(sums.len()).unwrap();
        let epoch = blocks.epoch();
        let (start, end) = (BLOCK_LEN_BYTES - 1, records.len());
        assert!(blocks.verify_range(epoch, &records, &sums, start, end));
        assert_eq!(blocks.verified_count(), sums.len());
        let byte = GROUP_BLOCKS * BLOCK_LEN_BYTES + 5;
        records[byte] ^= 1;
        assert!(blocks.verify_range(epoch, &records, &sums, start, end), "verified in this epoch");
        assert!(blocks.distrust(epoch) && blocks.trust_again());
        let epoch = blocks.epoch();
        assert!(!blocks.verify_range(epoch, &records, &sums, start, end));
        assert_eq!(blocks.take_damaged(), [GROUP_BLOCKS]);
        records[byte] ^= 1;
        assert!(blocks.verify_range(epoch, &records, &sums, start, end));
        // When the epoch ends, group tags become invalid, too.
        assert!(blocks.distrust(epoch) && !blocks.verify_range(blocks.epoch(), &records, &sums, start, end));
    }

    #[cfg(feature = "server")]
    #[test]
    fn interrupted_verification_continues_after_the_verified_blocks() {
        use super::verification::{VerificationLimit, is_verification_interrupted, verification_work_on_thread};

        const BLOCKS_MAX: usize = 100;
        let (records, sums) = records(2 * GROUP_BLOCKS + 10);
        let blocks = Blocks::new(sums.len()).unwrap();
        let verify_all = || {
            let _limit = VerificationLimit::begin(BLOCKS_MAX * BLOCK_WORK);
            let is_complete = blocks.verify_range(blocks.epoch(), &records, &sums, 0, records.len());
            assert_ne!(is_complete, is_verification_interrupted());
            is_complete
        };
        let mut rounds = 0;
        while !verify_all() {
            rounds += 1;
            assert_eq!(blocks.verified_count(), rounds * BLOCKS_MAX);
            // The file changes once, so the whole file is verified again.
            if rounds == 3 {
                assert!(blocks.distrust(blocks.epoch()));
                assert!(
                    !blocks.verify_range(blocks.epoch(), &records, &sums, 0, records.len()) && blocks.trust_again()
                );
                break;
            }
        }
        assert_eq!(blocks.verified_count(), 0);
        let rounds = 1 + (0..).take_while(|_| !verify_all()).count();
        assert_eq!(rounds, sums.len().div_ceil(BLOCKS_MAX));
        assert!(blocks.take_damaged().is_empty() && !is_verification_interrupted());

        // The lookup reads two group tags, and the tags of the last ten blocks.
        let work_before = verification_work_on_thread();
        assert!(verify_all());
        assert_eq!(verification_work_on_thread() - work_before, 2 + 10);
    }

    #[test]
    fn a_count_of_blocks_that_exceeds_the_address_space_is_an_error() {
        assert_eq!(Blocks::new(isize::MAX as usize).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(Blocks::new(usize::MAX).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn epoch_numbers_run_out_and_are_not_reused() {
        let blocks = Blocks::new(1).unwrap();
        let mut epochs = vec![blocks.epoch().0];
        while blocks.distrust(blocks.epoch()) && blocks.trust_again() {
            epochs.push(blocks.epoch().0);
        }
        assert!(blocks.epoch().is_distrust());
        assert!(epochs.is_sorted_by(|a, b| a < b) && epochs.len() > 100, "{epochs:?}");
    }

    #[test]
    fn a_range_beyond_the_end_is_damaged() {
        let (records, sums) = records(2);
        let blocks = Blocks::new(2).unwrap();
        for (start, end) in [(0, records.len() + 1), (3 * BLOCK_LEN_BYTES, 3 * BLOCK_LEN_BYTES + 1), (0, usize::MAX)] {
            assert!(!blocks.are_verified(blocks.epoch(), start, end));
            assert!(!blocks.verify_range(blocks.epoch(), &records, &sums, start, end));
        }
    }
}
