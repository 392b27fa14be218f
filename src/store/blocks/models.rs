//! Epochs and tags: a batch that is accepted has only bytes that were verified in its epoch.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use loom::thread;

use super::Blocks;
use crate::format::checksum::block_sum;
use crate::sync::check_model;

const BAKED: u8 = 7;
const OVERWRITTEN: u8 = 8;

/// A table of one block, and the file that holds it.
struct Table {
    blocks: Blocks,
    byte: AtomicU8,
    /// When the file was changed. The system changes it before the byte.
    changed_at: AtomicU64,
    /// The value of `changed_at` with which the file was last trusted.
    seen: AtomicU64,
}

impl Table {
    fn new() -> Arc<Table> {
        let (byte, changed_at, seen) = (AtomicU8::new(BAKED), AtomicU64::new(1), AtomicU64::new(1));
        Arc::new(Table { blocks: Blocks::new(1).unwrap(), byte, changed_at, seen })
    }

    fn write(&self, byte: u8) {
        self.changed_at.fetch_add(1, Ordering::AcqRel);
        self.byte.store(byte, Ordering::Release);
    }

    /// As in `stamp.rs`. The fence is that of the system call.
    fn is_unchanged(&self) -> bool {
        fence(Ordering::SeqCst);
        self.changed_at.load(Ordering::Acquire) == self.seen.load(Ordering::Acquire)
    }

    /// A batch of one lookup, as in `Store::get`.
    fn batch(&self) -> Option<u8> {
        let epoch = self.blocks.epoch();
        let record = [self.byte.load(Ordering::Acquire)];
        let sums = [block_sum(&[BAKED])];
        let is_sound = self.blocks.are_known(epoch, 0, 1) || self.blocks.look_at(epoch, &record, &sums, 0, 1);
        let copied = self.byte.load(Ordering::Acquire);
        // The answer for a damaged block is an error, and the batch is checked all the same.
        let is_accepted = self.blocks.accept(epoch, || self.is_unchanged());
        (is_sound && is_accepted).then_some(copied)
    }

    /// As in `Store::look_again`, for an index that is intact.
    fn look_again(&self) {
        let stamp = self.changed_at.load(Ordering::Acquire);
        if self.blocks.epoch() != Blocks::new(0).unwrap().epoch() && self.changed_at.load(Ordering::Acquire) == stamp {
            self.seen.store(stamp, Ordering::Release);
            self.blocks.trust_again();
        }
    }
}

/// A writer overwrites a block while two batches read it.
#[test]
fn an_accepted_batch_has_only_baked_bytes() {
    check_model(2, || {
        let table = Table::new();
        let writing = Arc::clone(&table);
        let writer = thread::spawn(move || writing.write(OVERWRITTEN));
        let reading = Arc::clone(&table);
        let reader = thread::spawn(move || assert!([None, Some(BAKED)].contains(&reading.batch())));
        assert!([None, Some(BAKED)].contains(&table.batch()));
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(table.batch(), None, "the file has changed");
        assert_ne!(table.blocks.epoch(), Blocks::new(0).unwrap().epoch(), "its epoch is over");
    });
}

/// The file has changed. One thread trusts it again while another reads: what was verified before does not count.
#[test]
fn a_block_that_was_verified_before_a_change_is_verified_again() {
    check_model(3, || {
        let table = Table::new();
        assert_eq!(table.batch(), Some(BAKED));
        table.write(OVERWRITTEN);
        let reading = Arc::clone(&table);
        let reader = thread::spawn(move || {
            assert_eq!(reading.batch(), None);
            assert_eq!(reading.batch(), None);
        });
        assert_eq!(table.batch(), None);
        table.look_again();
        assert_eq!(table.batch(), None);
        reader.join().unwrap();
    });
}

/// A batch begins before the change and ends after the file is trusted again.
#[test]
fn a_batch_that_spans_a_change_is_not_accepted() {
    check_model(3, || {
        let table = Table::new();
        let changing = Arc::clone(&table);
        let thread = thread::spawn(move || {
            changing.write(OVERWRITTEN);
            changing.batch();
            changing.look_again();
            changing.write(BAKED);
            changing.batch();
            changing.look_again();
        });
        assert!([None, Some(BAKED)].contains(&table.batch()));
        thread.join().unwrap();
    });
}
