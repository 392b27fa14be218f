//! Which blocks of the records are known to be as they were baked.
//!
//! A block is held against its checksum when a lookup first touches it, and that
//! is remembered, for as long as the file stays as it is: an epoch. When a file
//! is found to have changed, no byte of it is believed until it has been looked
//! at again, in the next epoch, where nothing is remembered.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use zerocopy::little_endian::U64;

use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum};
use crate::sync::{AtomicU8, Ordering};

/// No block has been looked at in the epoch with this number.
const NEVER: u8 = 0;
/// Epochs are numbered as they come: in odd ones the file is believed, in even ones
/// every block is damaged.
const FIRST: u8 = 1;
/// None is used twice: after the last, a file has changed so often that it must be
/// opened anew.
const LAST: u8 = u8::MAX - 1;
/// Damaged blocks that are remembered until they are told.
const DAMAGED_MAX: usize = 64;

thread_local! {
    static VERIFIED: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many blocks this thread has verified. The count wraps.
#[cfg(feature = "server")]
#[inline]
pub(crate) fn verified_blocks_on_thread() -> usize {
    VERIFIED.get()
}

/// The time between two changes of a file: see [`Store::epoch`](super::Store::epoch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u8);

impl Epoch {
    /// Whether nothing is to be believed in it.
    #[inline(always)]
    pub(super) fn is_distrust(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// A tag for each block: the epoch in which it was last found sound.
#[derive(Debug)]
pub(super) struct Blocks {
    tags: Box<[AtomicU8]>,
    epoch: AtomicU8,
    damaged: Mutex<Damaged>,
}

#[derive(Debug, Default)]
struct Damaged {
    /// Those that are not told yet, and all that ever were, up to a number.
    new: Vec<usize>,
    known: Vec<usize>,
}

impl Blocks {
    /// So many blocks, of which none has been looked at.
    pub(super) fn new(count: usize) -> Blocks {
        let tags = std::iter::repeat_with(|| AtomicU8::new(NEVER)).take(count).collect();
        Blocks { tags, epoch: AtomicU8::new(FIRST), damaged: Mutex::default() }
    }

    #[inline(always)]
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Whether the bytes of a range that is not empty are known to be sound.
    #[inline(always)]
    pub(super) fn are_known(&self, epoch: Epoch, start: usize, end: usize) -> bool {
        let (first, last) = (start / BLOCK_LEN_BYTES, end.wrapping_sub(1) / BLOCK_LEN_BYTES);
        let is_known = |block: usize| self.tags.get(block).is_some_and(|tag| tag.load(Ordering::Relaxed) == epoch.0);
        // A distrusted epoch is no block's.
        is_known(first) && (first == last || is_known(last) && last.wrapping_sub(first) == 1)
    }

    /// The tags, for a prefetch.
    #[inline(always)]
    pub(super) fn tags(&self) -> &[AtomicU8] {
        &self.tags
    }

    /// Holds the blocks of a range against their checksums, those that are not
    /// known yet, and remembers which are sound. Tells whether all are.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at(&self, epoch: Epoch, records: &[u8], sums: &[U64], start: usize, end: usize) -> bool {
        if epoch.is_distrust() || end > records.len() {
            return false;
        }
        (start / BLOCK_LEN_BYTES..end.div_ceil(BLOCK_LEN_BYTES)).all(|block| self.is_sound(epoch, records, sums, block))
    }

    /// Whether one block is sound.
    pub(super) fn is_sound(&self, epoch: Epoch, records: &[u8], sums: &[U64], block: usize) -> bool {
        let Some(tag) = self.tags.get(block).filter(|_| !epoch.is_distrust()) else { return false };
        if tag.load(Ordering::Relaxed) == epoch.0 {
            return true;
        }
        VERIFIED.set(VERIFIED.get().wrapping_add(1));
        let start = block * BLOCK_LEN_BYTES;
        let bytes = records.get(start..records.len().min(start + BLOCK_LEN_BYTES));
        let is_sound = bytes.zip(sums.get(block)).is_some_and(|(bytes, sum)| block_sum(bytes) == *sum);
        match is_sound {
            true => tag.store(epoch.0, Ordering::Relaxed),
            false => self.note_damaged(block),
        }
        is_sound
    }

    /// Notes that a block was found sound.
    pub(super) fn remember(&self, block: usize) {
        if let Some(tag) = self.tags.get(block) {
            tag.store(self.epoch().0, Ordering::Relaxed);
        }
    }

    /// How many blocks are known to be sound.
    pub(super) fn known_count(&self) -> usize {
        let epoch = self.epoch().0;
        self.tags.iter().filter(|tag| tag.load(Ordering::Relaxed) == epoch).count()
    }

    /// Believes no byte any more, unless that is so already or a newer epoch has
    /// begun. Tells whether this call did it.
    pub(super) fn distrust(&self, since: Epoch) -> bool {
        let is_news = !since.is_distrust() && self.follow(since);
        if is_news {
            // What was found of a file that others wrote to meanwhile says nothing about what it will hold.
            *self.damaged.lock().unwrap_or_else(PoisonError::into_inner) = Damaged::default();
        }
        is_news
    }

    /// Whether a batch that was looked up in an epoch is as it was baked: `is_unchanged` says that the file looks as it
    /// did when it was last trusted. Otherwise ends the epoch.
    ///
    /// Called after the bytes are copied. `is_unchanged` is called before the epoch is compared, because the file has
    /// another look in a later epoch.
    #[inline(always)]
    pub(super) fn accept(&self, epoch: Epoch, is_unchanged: impl FnOnce() -> bool) -> bool {
        // In an epoch of distrust every answer was an error.
        if (epoch.is_distrust() || is_unchanged()) && self.epoch() == epoch {
            return true;
        }
        self.distrust(epoch);
        false
    }

    /// Begins a new epoch after one of distrust. Tells whether there was one left.
    pub(super) fn trust_again(&self) -> bool {
        let since = self.epoch();
        since.is_distrust() && since.0 < LAST && self.follow(since)
    }

    /// Begins the epoch behind one, if that is not over.
    fn follow(&self, epoch: Epoch) -> bool {
        self.epoch.compare_exchange(epoch.0, epoch.0 + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn note_damaged(&self, block: usize) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.known.len() < DAMAGED_MAX && !damaged.known.contains(&block) {
            damaged.known.push(block);
            damaged.new.push(block);
        }
    }

    /// How many blocks were found damaged in this epoch, up to a number.
    pub(super) fn damaged_count(&self) -> usize {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).known.len()
    }

    /// The blocks that were found damaged since this was last asked, each once.
    pub(super) fn take_damaged(&self) -> Vec<usize> {
        std::mem::take(&mut self.damaged.lock().unwrap_or_else(PoisonError::into_inner).new)
    }
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
    fn a_block_is_looked_at_once_in_an_epoch() {
        let (mut records, sums) = records(4);
        let blocks = Blocks::new(4);
        let epoch = blocks.epoch();
        let (start, end) = (BLOCK_LEN_BYTES - 1, BLOCK_LEN_BYTES + 1);
        assert!(!blocks.are_known(epoch, start, end));
        assert!(blocks.look_at(epoch, &records, &sums, start, end));
        assert!(blocks.are_known(epoch, start, end) && blocks.known_count() == 2);
        assert!(!blocks.are_known(epoch, 0, records.len()), "two of four");

        // What is remembered is not looked at again, what is not is.
        records[0] ^= 1;
        records[3 * BLOCK_LEN_BYTES] ^= 1;
        assert!(blocks.look_at(epoch, &records, &sums, start, end));
        assert!(!blocks.look_at(epoch, &records, &sums, 0, records.len()));
        assert_eq!((blocks.take_damaged(), blocks.take_damaged()), (vec![3], vec![]));

        assert!(blocks.distrust(epoch) && !blocks.distrust(epoch));
        assert!(!blocks.are_known(blocks.epoch(), start, end));
        assert!(!blocks.look_at(blocks.epoch(), &records, &sums, start, end));
        assert!(blocks.trust_again());
        assert_eq!(blocks.known_count(), 0);
        assert!(!blocks.look_at(blocks.epoch(), &records, &sums, start, end));
        assert!(blocks.look_at(blocks.epoch(), &records, &sums, end, end + 1));
    }

    #[test]
    fn what_was_found_in_one_epoch_does_not_count_in_the_next() {
        let (records, sums) = records(1);
        let blocks = Blocks::new(1);
        let old = blocks.epoch();
        assert!(blocks.distrust(old) && blocks.trust_again());
        // A lookup that began before the change ends after it.
        assert!(blocks.look_at(old, &records, &sums, 0, 1));
        assert!(!blocks.are_known(blocks.epoch(), 0, 1));
    }

    #[test]
    fn epochs_come_to_an_end_and_none_comes_twice() {
        let blocks = Blocks::new(1);
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
        let blocks = Blocks::new(2);
        for (start, end) in [(0, records.len() + 1), (3 * BLOCK_LEN_BYTES, 3 * BLOCK_LEN_BYTES + 1), (0, usize::MAX)] {
            assert!(!blocks.are_known(blocks.epoch(), start, end));
            assert!(!blocks.look_at(blocks.epoch(), &records, &sums, start, end));
        }
    }
}
