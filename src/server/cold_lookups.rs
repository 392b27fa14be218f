//! Lookups whose records may not be in memory, during one pass.
//!
//! In: the keys of the next lookups. Out: how many of these lookups find their records in memory, and the records of
//! the lookups after them, which must be read from the disk first. Only tables that do not fit into memory need this.

use super::steps::Steps;
use crate::format::key::LookupKey;
use crate::store::{RecordOffset, Store};

/// The maximum number of lookups of one connection whose records are read together.
const BATCH_KEYS: usize = 64;
/// The number of steps of examining whether a record is in memory.
const EXAMINE_STEPS: usize = 4;

/// The records that the next lookups of a connection need.
#[derive(Default)]
pub(super) struct ColdLookups {
    /// The number of lookups whose records were read before this pass. They are the first lookups of the pass.
    read_count: usize,
    /// The value of `read_count` in the next pass.
    next_read_count: usize,
    /// The records that must be read before the next pass.
    records: Vec<RecordOffset>,
}

impl ColdLookups {
    /// Records that the records of the first `count` lookups of the next pass were read.
    pub(super) fn were_read(&mut self, count: usize) {
        self.next_read_count = count;
    }

    pub(super) fn begin_pass(&mut self) {
        self.read_count = std::mem::take(&mut self.next_read_count);
        self.records.clear();
    }

    /// Returns whether the pass must end, because the next lookup waits for the disk.
    #[inline(always)]
    pub(super) fn must_wait(&self) -> bool {
        !self.records.is_empty()
    }

    /// Returns the records that must be read before the next pass.
    pub(super) fn take_records(&mut self) -> Vec<RecordOffset> {
        std::mem::take(&mut self.records)
    }

    /// Returns how many of the next `count` lookups can be answered now. If the result is less than `count` although no
    /// records were read before this pass, the lookup after them waits for the disk.
    ///
    /// Records that were read before this pass are not examined again: if the system has discarded them meanwhile, the
    /// lookups wait for the disk, but every pass makes progress.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_count<K: LookupKey>(
        &mut self,
        store: &Store,
        count: usize,
        key_at: impl Fn(usize) -> K,
        steps: &mut Steps,
    ) -> usize {
        let read_count = std::mem::take(&mut self.read_count);
        if read_count > 0 {
            return read_count.min(count);
        }
        let mut ready_count = 0;
        while ready_count < count {
            let mut records = store.records_of(BATCH_KEYS.min(count - ready_count), |i| key_at(ready_count + i));
            let cold_at = records.iter().position(|record| !store.is_in_memory(*record));
            let examined_count = cold_at.map_or(records.len(), |at| at + 1);
            steps.add(EXAMINE_STEPS * examined_count);
            ready_count += cold_at.unwrap_or(records.len());
            if let Some(at) = cold_at {
                records.drain(..at);
                self.records = records;
                break;
            }
        }
        ready_count
    }
}
