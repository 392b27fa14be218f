//! The current generation of a table that this process follows.
//!
//! In: generations, from one thread. Out: the current generation, on any thread. Reading takes no lock, so a process
//! can fork at any time, and its child continues to look keys up in the generation that was current then.

use std::sync::Arc;

use arc_swap::ArcSwap;
use zero_kv::MappedStore;

/// A table with its number.
pub(crate) struct NumberedTable {
    pub(crate) number: u64,
    pub(crate) table: Arc<MappedStore>,
}

/// A table that is replaced by newer generations.
pub(crate) struct CurrentTable {
    /// The table's URL.
    pub(crate) url: String,
    current: ArcSwap<NumberedTable>,
}

impl CurrentTable {
    pub(crate) fn new(url: String, first: NumberedTable) -> CurrentTable {
        CurrentTable { url, current: ArcSwap::from_pointee(first) }
    }

    /// Makes lookups use another generation. Lookups that have begun continue in the preceding one.
    pub(crate) fn replace(&self, next: NumberedTable) {
        self.current.store(Arc::new(next));
    }

    /// Returns the number of the current generation.
    pub(crate) fn number(&self) -> u64 {
        self.current.load().number
    }

    /// Returns the current generation.
    pub(crate) fn table(&self) -> Arc<MappedStore> {
        Arc::clone(&self.current.load().table)
    }

    /// Runs `use_table` with the current generation, without a change of its number of references.
    #[inline]
    pub(crate) fn with_table<T>(&self, use_table: impl FnOnce(&MappedStore) -> T) -> T {
        use_table(&self.current.load().table)
    }
}
