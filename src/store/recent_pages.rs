//! Remembers for a moment which pages of the index are in memory.
//!
//! In: offsets of the file. Out: whether their pages are in memory. Asking the system costs more than a lookup of a key.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock;

const PAGE_LEN_BYTES: usize = 4096;
/// The number of bits of nanoseconds in one tick of [`RecentPages`]: a tick takes 268 ms.
const TICK_BITS: u32 = 28;

/// The pages of the index that were recently found in memory. A page that a lookup has just read is not examined again
/// for a moment, because the system discards the pages first that were not read for a long time.
#[derive(Debug, Default)]
pub(super) struct RecentPages {
    /// The offset of the index in the file.
    start: usize,
    /// For each page, the tick in which it was last found in memory.
    ticks: Box<[AtomicU32]>,
}

impl RecentPages {
    pub(super) fn new(index: &Range<usize>) -> RecentPages {
        let pages = index.len().div_ceil(PAGE_LEN_BYTES) + 1;
        let start = index.start - index.start % PAGE_LEN_BYTES;
        RecentPages { start, ticks: (0..pages).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Returns whether the page at an offset of the file was found in memory in this tick. If not, calls `examine`, which
    /// returns whether the page is in memory.
    pub(super) fn contains_or(&self, at: usize, examine: impl FnOnce() -> bool) -> bool {
        let tick = tick_now();
        let page = at.checked_sub(self.start).and_then(|at| self.ticks.get(at / PAGE_LEN_BYTES));
        if page.is_some_and(|found_in| found_in.load(Ordering::Relaxed) == tick) {
            return true;
        }
        let is_in_memory = examine();
        if let Some(found_in) = page.filter(|_| is_in_memory) {
            found_in.store(tick, Ordering::Relaxed);
        }
        is_in_memory
    }
}

fn tick_now() -> u32 {
    // 0 means that a page was never found in memory.
    (clock::now_ns() >> TICK_BITS) as u32 | 1 << 31
}
