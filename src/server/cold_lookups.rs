//! Lookups that may have to wait for the disk, during one pass.
//!
//! In: the next lookups. Out: how many of these lookups find their pages in memory, and the lookups after them, whose
//! pages must be read from the disk first. Only tables that do not fit into memory need this.

use super::steps::Steps;
use crate::format::OwnedKey;
use crate::format::key::Key;
use crate::store::{ColdLookup, Store};

/// The maximum number of lookups of one connection whose pages are read together.
const BATCH_LOOKUPS: usize = 64;
/// The maximum total length of the keys of these lookups. Only the last key may take the total past this length.
const BATCH_KEYS_LEN_BYTES: usize = 64 << 10;
/// The number of steps of examining whether the pages of a lookup are in memory.
const EXAMINE_STEPS: usize = 8;
/// The number of lookups that are examined between two checks of the time limit.
const TIMED_LOOKUPS: usize = 16;

/// The lookups of a connection that wait for the disk.
#[derive(Default)]
pub(super) struct ColdLookups {
    /// The number of lookups whose pages were read before this pass. They are the first lookups of the pass.
    read_count: usize,
    /// The value of `read_count` in the next pass.
    next_read_count: usize,
    /// The lookups whose pages must be read before the next pass.
    waiting: Vec<ColdLookup<OwnedKey>>,
}

impl ColdLookups {
    /// Records that the pages of the first `count` lookups of the next pass were read.
    pub(super) fn were_read(&mut self, count: usize) {
        self.next_read_count = count;
    }

    pub(super) fn begin_pass(&mut self) {
        self.read_count = std::mem::take(&mut self.next_read_count);
        self.waiting.clear();
    }

    /// Returns whether the pass must end, because the next lookup waits for the disk.
    #[inline(always)]
    pub(super) fn must_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the lookups whose pages must be read before the next pass.
    pub(super) fn take_waiting(&mut self) -> Vec<ColdLookup<OwnedKey>> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns how many of the next `count` lookups can be answered now. If the result is less than `count`, either the
    /// lookup after them waits for the disk, or the pass must end for another reason.
    ///
    /// Lookups whose pages were read before this pass are not examined again: if the system has discarded the pages
    /// meanwhile, the lookups wait for the disk, but every pass makes progress.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_count<'k>(
        &mut self,
        store: &Store,
        count: usize,
        lookup_at: impl Fn(usize) -> ColdLookup<Key<'k>>,
        steps: &mut Steps,
    ) -> usize {
        let read_count = std::mem::take(&mut self.read_count);
        if read_count > 0 {
            return read_count.min(count);
        }
        let mut ready_count = 0;
        while ready_count < count {
            if ready_count > 0 && ready_count.is_multiple_of(TIMED_LOOKUPS) && steps.is_pass_over() {
                break;
            }
            steps.add(EXAMINE_STEPS);
            let lookup = lookup_at(ready_count);
            if !store.is_ready(&lookup) {
                self.wait_for(lookup, (ready_count + 1..count).map(lookup_at), steps);
                break;
            }
            ready_count += 1;
        }
        ready_count
    }

    fn wait_for<'k>(
        &mut self,
        first: ColdLookup<Key<'k>>,
        next: impl Iterator<Item = ColdLookup<Key<'k>>>,
        steps: &mut Steps,
    ) {
        let mut keys_len_bytes = 0;
        for lookup in std::iter::once(first).chain(next).take(BATCH_LOOKUPS) {
            let lookup = lookup.to_owned();
            keys_len_bytes += lookup.keys_len_bytes();
            steps.add(EXAMINE_STEPS);
            self.waiting.push(lookup);
            if keys_len_bytes > BATCH_KEYS_LEN_BYTES {
                break;
            }
        }
    }
}
