//! A generation that the server transferred.

use std::sync::Arc;

use crate::direct::{Notice, TableState};
use crate::store::Standing;
use crate::store::{MappedStore, Store, Witness};

/// A table that the server transferred.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) table: MappedStore,
    pub(super) witness: Arc<GenerationWitness>,
}

/// The state of a generation that the server publishes in shared memory.
pub(super) struct GenerationWitness {
    pub(super) notice: Arc<Notice>,
    /// The state before any byte of the table was read.
    pub(super) state: TableState,
}

impl Generation {
    pub(super) fn new(number: u64, store: Store, witness: GenerationWitness) -> Generation {
        let witness = Arc::new(witness);
        let table = MappedStore::with_witness(store, Arc::<GenerationWitness>::clone(&witness));
        Generation { number, table, witness }
    }

    /// Returns whether the server serves this generation, or served it when the server ended.
    pub(super) fn is_current(&self) -> bool {
        self.witness.notice.state().is_of(self.number)
    }

    /// Returns whether neither the published state nor the file has changed since the transfer.
    pub(super) fn is_unchanged(&self) -> bool {
        self.witness.notice.state().is_since(self.witness.state) && self.table.is_trusted()
    }
}

impl Witness for GenerationWitness {
    #[inline]
    fn standing(&self, store: &Store) -> Standing {
        match self.notice.standing_since(self.state) {
            // A page of a leased file can still be unreadable.
            Standing::Unchanged if store.faults() > 0 => Standing::Unknown,
            standing => standing,
        }
    }
}
