//! Models of epochs, tags, and counts of verified blocks. They check that every byte that an accepted batch returns was
//! verified in that batch's epoch.

use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{BlockData, BlockNumbers, Blocks, Epoch};
use crate::format::checksum::{block_sum, root_of};
use crate::store::stamp::{TrustedStamp, examined};
use crate::sync::check_model;

const BAKED: u8 = 7;
const OVERWRITTEN: u8 = 8;

/// A table of one block, and its file.
struct Table {
    blocks: Blocks,
    byte: AtomicU8,
    /// The file's modification time. A write changes the modification time first, and then the file's only byte.
    modified: AtomicU64,
    /// The modification time that the file had when it was last trusted, in place of a hash.
    trusted: TrustedStamp,
}

/// Looks up the byte as `Store::get` does, in a batch of one lookup. `summed` is the byte whose checksum the file has.
/// Returns the byte if it was verified and the batch is accepted.
fn batch(blocks: &Blocks, byte: &AtomicU8, summed: u8, is_unchanged: impl FnOnce() -> bool) -> Option<u8> {
    let epoch = blocks.epoch();
    // Plain loads of mapped bytes are at best relaxed.
    let record = [byte.load(Ordering::Relaxed)];
    let sums = [block_sum(&[summed])];
    let is_intact = blocks.are_verified(epoch, 0, 1) || blocks.verify_records(epoch, &record, &sums, 0, 1);
    let copied = byte.load(Ordering::Relaxed);
    // The batch is checked even if the block is damaged and the response is therefore an error.
    let is_accepted = blocks.accept(epoch, is_unchanged);
    (is_intact && is_accepted).then_some(copied)
}

impl Table {
    fn new() -> Arc<Table> {
        let (byte, modified, trusted) = (AtomicU8::new(BAKED), AtomicU64::new(1), TrustedStamp::new());
        trusted.set(1, 1, 0);
        Arc::new(Table { blocks: Blocks::of_records(1).unwrap(), byte, modified, trusted })
    }

    fn write(&self, byte: u8) {
        self.modified.fetch_add(1, Ordering::AcqRel);
        self.byte.store(byte, Ordering::Release);
    }

    /// Returns whether the modification time is the one that the file had when it was last trusted, as
    /// `WatchedFile::looks_unchanged` does. The relaxed load stands for the system call, which is no fence.
    fn is_unchanged(&self) -> bool {
        self.trusted.has_hash(self.modified.load(Ordering::Relaxed))
    }

    fn batch(&self) -> Option<u8> {
        batch(&self.blocks, &self.byte, BAKED, || self.is_unchanged())
    }

    /// Trusts the file again, as `Store::look_again` does if the index is intact.
    fn look_again(&self) {
        let stamp = examined(|| self.modified.load(Ordering::Relaxed));
        if self.blocks.epoch() != Blocks::of_records(0).unwrap().epoch()
            && examined(|| self.modified.load(Ordering::Relaxed)) == stamp
        {
            self.trusted.set(stamp, stamp, 0);
            self.blocks.trust_again(false);
        }
    }

    /// Begins the trusted epoch that has the tag of the first one, and skips the epochs of all other tags.
    fn use_tags_again(&self) {
        let distrusted = Epoch(u64::from(u8::MAX)).next(false);
        assert_eq!((distrusted.is_distrust(), distrusted.next(false).tag()), (true, Epoch::FIRST.tag()));
        self.blocks.epoch.store(distrusted.0, Ordering::Release);
        self.look_again();
    }
}

/// A writer overwrites a block while two batches read it.
#[test]
fn an_accepted_batch_contains_only_baked_bytes() {
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
        assert_ne!(table.blocks.epoch(), Blocks::of_records(0).unwrap().epoch(), "the first epoch has ended");
    });
}

/// A block changes after it was verified, and the file is distrusted. One thread reads the block while another thread
/// begins a new trusted epoch and then reads the block, too.
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

/// A batch begins before a change of the file and ends after the file is trusted again.
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

/// Pilots and places have one block each. While two threads verify both blocks, the file changes and is trusted again.
/// The block of places is damaged by the change.
#[test]
fn an_index_with_a_damaged_block_never_counts_as_verified() {
    check_model(2, || {
        let numbers = BlockNumbers { fences: 0..0, pilots: 0..1, places: 1..2, sums: 2..3 };
        let blocks = Arc::new(Blocks::new(numbers).unwrap());
        let first = blocks.epoch();
        let verify = move |blocks: &Blocks| {
            let epoch = blocks.epoch();
            let sums = [block_sum(&[BAKED]); 2];
            let root = root_of(&sums);
            // A lookup of the first epoch may still read the old byte after the change.
            let place = if epoch == first { BAKED } else { OVERWRITTEN };
            let data = BlockData {
                sections: [&[], &[], &[], &[BAKED], &[place], &[]],
                sums: &sums,
                root: &root,
                copier: None,
            };
            blocks.verify_block(epoch, &data, 0);
            blocks.verify_block(epoch, &data, 1);
        };
        let others = Arc::clone(&blocks);
        let verifier = thread::spawn(move || verify(&others));
        blocks.distrust(first);
        blocks.trust_again(false);
        verify(&blocks);
        verifier.join().unwrap();
        assert!(!blocks.are_slots_verified(blocks.epoch()));
        assert!(blocks.is_verified(blocks.epoch(), 0) && !blocks.is_verified(blocks.epoch(), 1));
    });
}

/// A batch begins in an epoch and verifies its block while the file changes so often that a new epoch has the same tag.
#[test]
fn a_tag_of_an_ended_epoch_is_not_written_when_its_number_is_used_again() {
    check_model(3, || {
        let table = Table::new();
        let reading = Arc::clone(&table);
        let reader = thread::spawn(move || assert!([None, Some(BAKED)].contains(&reading.batch())));
        table.write(OVERWRITTEN);
        table.use_tags_again();
        assert_eq!(table.batch(), None);
        reader.join().unwrap();
    });
}

/// A block is verified, and the file changes so often that a new epoch has the same tag.
#[test]
fn a_tag_of_an_ended_epoch_does_not_count_when_its_number_is_used_again() {
    check_model(3, || {
        let table = Table::new();
        assert_eq!(table.batch(), Some(BAKED));
        let reading = Arc::clone(&table);
        let reader = thread::spawn(move || assert!([None, Some(BAKED)].contains(&reading.batch())));
        table.write(OVERWRITTEN);
        table.use_tags_again();
        reader.join().unwrap();
    });
}

/// A leased or immutable file of one block, whose page can become unreadable.
struct FaultyTable {
    blocks: Blocks,
    /// The mapped byte: 0 after the page was replaced with zeros.
    byte: AtomicU8,
    faults: AtomicU64,
    trusted: TrustedStamp,
}

impl FaultyTable {
    fn batch(&self) -> Option<u8> {
        // As `WatchedFile::is_unchanged` does it with `Proof::Unchanged`.
        let is_unchanged = || self.trusted.has_faults(self.faults.load(Ordering::Acquire));
        batch(&self.blocks, &self.byte, BAKED, is_unchanged)
    }

    /// Replaces the page, as `guard::patch` does.
    fn fault(&self) {
        self.faults.fetch_add(1, Ordering::AcqRel);
        self.byte.store(0, Ordering::Release);
    }

    /// Trusts the file again, as `Store::look_again` does. The root is in another page, which can be read.
    fn look_again(&self) {
        if self.blocks.epoch().is_distrust() {
            self.trusted.set(1, 1, self.faults.load(Ordering::Acquire));
            self.blocks.trust_again(false);
        }
    }
}

/// A batch reads a verified block while its page is replaced with zeros, another batch finds the fault, and the file is
/// trusted again.
#[test]
fn zeros_in_place_of_a_missing_page_are_not_accepted() {
    check_model(3, || {
        let (byte, faults, trusted) = (AtomicU8::new(BAKED), AtomicU64::new(0), TrustedStamp::new());
        let table = Arc::new(FaultyTable { blocks: Blocks::of_records(1).unwrap(), byte, faults, trusted });
        assert_eq!(table.batch(), Some(BAKED));
        let failing = Arc::clone(&table);
        let thread = thread::spawn(move || {
            failing.fault();
            failing.batch();
            failing.look_again();
        });
        assert!([None, Some(BAKED)].contains(&table.batch()));
        thread.join().unwrap();
    });
}

/// A file whose root is read again after a change. The only byte of its records has the checksum of the root's byte.
struct RootTable {
    table: Arc<Table>,
    root: AtomicU8,
    /// The modification time of the last write that ended some time ago: see `WatchedFile::settled_stamp`.
    settled: AtomicU64,
}

impl RootTable {
    /// Overwrites the file with another intact table, whose root is another one.
    fn write(&self) {
        self.table.modified.fetch_add(1, Ordering::AcqRel);
        self.root.store(OVERWRITTEN, Ordering::Release);
        self.table.byte.store(OVERWRITTEN, Ordering::Release);
        self.settled.store(2, Ordering::Release);
    }

    /// Does what `Store::look_again` does: takes a settled stamp, verifies the root, and trusts the file.
    fn look_again(&self) {
        let load = || (self.table.modified.load(Ordering::Relaxed), self.settled.load(Ordering::Relaxed));
        let (stamp, settled) = examined(load);
        if stamp == settled && self.root.load(Ordering::Relaxed) == BAKED && self.table.blocks.epoch().is_distrust() {
            self.table.trusted.set(stamp, stamp, 0);
            self.table.blocks.trust_again(false);
        }
    }

    fn batch(&self) -> Option<u8> {
        let Table { blocks, byte, .. } = &*self.table;
        batch(blocks, byte, self.root.load(Ordering::Relaxed), || self.table.is_unchanged())
    }
}

/// The file is overwritten by another table while a thread rechecks it.
#[test]
fn a_root_that_was_read_before_a_change_does_not_make_the_changed_file_trusted() {
    check_model(3, || {
        let table = Arc::new(RootTable { table: Table::new(), root: AtomicU8::new(BAKED), settled: AtomicU64::new(1) });
        table.table.blocks.distrust(table.table.blocks.epoch());
        let writing = Arc::clone(&table);
        let writer = thread::spawn(move || writing.write());
        table.look_again();
        writer.join().unwrap();
        assert!([None, Some(BAKED)].contains(&table.batch()));
    });
}

/// A file of one block, whose page is replaced by a copy before it is trusted: nothing else reveals its changes.
struct CopiedTable {
    blocks: Blocks,
    page: AtomicU8,
    copy: AtomicU8,
    /// Whether the mapping shows the copy. Replacing a page is no fence in the model.
    is_copied: AtomicBool,
    copies: Mutex<()>,
}

impl CopiedTable {
    fn read(&self) -> u8 {
        let byte = if self.is_copied.load(Ordering::Relaxed) { &self.copy } else { &self.page };
        byte.load(Ordering::Relaxed)
    }

    /// Copies the block and verifies the copy, as `Blocks::compare_sum_of_copy` does.
    fn verify(&self, epoch: Epoch) -> bool {
        let _copies = self.copies.lock().unwrap();
        if !self.is_copied.load(Ordering::Relaxed) {
            self.copy.store(self.page.load(Ordering::Relaxed), Ordering::Relaxed);
            self.is_copied.store(true, Ordering::Relaxed);
        }
        let is_intact = self.read() == BAKED;
        if is_intact {
            self.blocks.note_verified_copy(epoch, 0);
        }
        is_intact
    }

    fn batch(&self) -> Option<u8> {
        let epoch = self.blocks.epoch();
        let is_intact = self.blocks.are_verified(epoch, 0, 1) || self.verify(epoch);
        let copied = self.read();
        let is_accepted = self.blocks.accept(epoch, || true);
        (is_intact && is_accepted).then_some(copied)
    }
}

/// A writer overwrites a block and restores the file's times, while one thread copies the block and another one reads
/// it.
#[test]
fn a_batch_that_may_have_read_the_page_before_its_copy_is_not_accepted() {
    check_model(3, || {
        let blocks = Blocks::of_records(1).unwrap();
        blocks.distrust(blocks.epoch());
        blocks.trust_again(true);
        let (page, copy, is_copied) = (AtomicU8::new(BAKED), AtomicU8::new(0), AtomicBool::new(false));
        let table = Arc::new(CopiedTable { blocks, page, copy, is_copied, copies: Mutex::new(()) });
        let reading = Arc::clone(&table);
        let reader = thread::spawn(move || {
            assert!([None, Some(BAKED)].contains(&reading.batch()));
            assert!([None, Some(BAKED)].contains(&reading.batch()));
        });
        let writing = Arc::clone(&table);
        let writer = thread::spawn(move || writing.page.store(OVERWRITTEN, Ordering::Relaxed));
        assert!([None, Some(BAKED)].contains(&table.batch()));
        reader.join().unwrap();
        writer.join().unwrap();
    });
}
