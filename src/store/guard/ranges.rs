//! A list of the guarded address ranges, which a signal handler can search.
//!
//! In: ranges, inserted and removed at any time. Out: the range that contains an address, and its fault counter. The
//! handler of SIGBUS can interrupt any thread at any instruction, including one that changes this list, so no function
//! of this module waits or locks.

#[cfg(all(test, loom))]
mod models;

use std::ops::Range;
use std::ptr;

use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// A list of address ranges, one in each occupied entry. Entries are reused and never freed, so the length of the list
/// is the maximum number of ranges that were guarded at the same time.
#[cfg_attr(all(test, loom), derive(Default))]
pub(super) struct Ranges {
    pub(super) newest: AtomicPtr<Entry>,
}

/// An entry of the list of ranges. It has one range or is vacant.
///
/// A sequence number protects the range from being read while it changes: if a reader loads the same sequence number,
/// with the phase [`OCCUPIED`], before and after it loads `start` and `end`, then `start` and `end` belong to one
/// range.
#[derive(Debug)]
pub(super) struct Entry {
    /// The sequence number. Its two lowest bits are the phase of the entry ([`VACANT`], [`CHANGING`], or [`OCCUPIED`]),
    /// and the other bits count removals.
    sequence: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// The number of faults since the range was inserted.
    pub(super) faults: AtomicU64,
    /// The entry that was added before this one. This pointer never changes once the entry is in the list.
    older: AtomicPtr<Entry>,
}

/// The bits of a sequence number that contain the phase.
const PHASE: usize = 3;
/// The phase of an entry that has no range.
const VACANT: usize = 0;
/// The phase of an entry whose range is being written by a thread.
const CHANGING: usize = 1;
const OCCUPIED: usize = 2;

impl Ranges {
    /// Adds a range, in a vacant entry or in a new entry. This method can allocate, so the handler must not call it.
    pub(super) fn insert(&self, range: Range<usize>) -> &'static Entry {
        let entry = self.iter().find(|entry| entry.take()).unwrap_or_else(|| self.push());
        entry.occupy(range);
        entry
    }

    /// Returns the entry whose range contains an address, and the range.
    ///
    /// Finds every range whose insertion happens before this call and whose removal happens after it. May find or miss
    /// any other range, but never returns a mixture of two ranges.
    pub(super) fn find(&self, address: usize) -> Option<(&'static Entry, Range<usize>)> {
        self.iter().find_map(|entry| Some((entry, entry.range().filter(|range| range.contains(&address))?)))
    }

    fn iter(&self) -> impl Iterator<Item = &'static Entry> {
        // SAFETY: The pointer is null, or `push` leaked the entry that it points to and published it with Release, so
        // the entry is initialized and lives forever. Nobody has a mutable reference to it.
        let entry = |pointer: *mut Entry| unsafe { pointer.as_ref::<'static>() };
        std::iter::successors(entry(self.newest.load(Ordering::Acquire)), move |newer| {
            entry(newer.older.load(Ordering::Acquire))
        })
    }

    /// Adds an entry that is reserved for the caller.
    fn push(&self) -> &'static Entry {
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            sequence: AtomicUsize::new(CHANGING),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            faults: AtomicU64::new(0),
            older: AtomicPtr::new(ptr::null_mut()),
        }));
        let mut older = self.newest.load(Ordering::Acquire);
        loop {
            entry.older.store(older, Ordering::Relaxed);
            let pointer = ptr::from_ref(entry).cast_mut();
            // Release publishes the entry. Acquire makes the older entries visible, because readers reach them through
            // the new entry.
            match self.newest.compare_exchange(older, pointer, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return entry,
                Err(newest) => older = newest,
            }
        }
    }
}

impl Entry {
    /// Reserves this entry for the caller if it is vacant. Returns whether the entry is reserved now.
    fn take(&self) -> bool {
        let sequence = self.sequence.load(Ordering::Relaxed);
        sequence & PHASE == VACANT
            && self
                .sequence
                .compare_exchange(sequence, sequence | CHANGING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Writes a range into this entry, which the caller must have reserved.
    fn occupy(&self, range: Range<usize>) {
        // This fence pairs with the fence in `Entry::range`. A reader that loads one of the values stored below, and
        // then loads the sequence number again, finds that the number differs from the number of the previous range.
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.faults.store(0, Ordering::Relaxed);
        let changing = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(changing - CHANGING + OCCUPIED, Ordering::Release);
    }

    /// Returns the range, or `None` if the entry is vacant or its range is changing.
    ///
    /// The handler of a fault need not retry: the range that contains the faulting address does not change during the
    /// fault, so a changing range is another one.
    fn range(&self) -> Option<Range<usize>> {
        let before = self.sequence.load(Ordering::Acquire);
        if before & PHASE != OCCUPIED {
            return None;
        }
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(range)
    }

    /// Removes the range. The caller must not unmap the range's memory before this call.
    pub(super) fn remove(&self) {
        let occupied = self.sequence.load(Ordering::Relaxed);
        debug_assert_eq!(occupied & PHASE, OCCUPIED);
        // The count of removals increases, so that a reader does not mistake the entry's next range for the removed
        // range.
        self.sequence.store((occupied & !PHASE).wrapping_add(PHASE + 1) | VACANT, Ordering::Release);
    }
}
