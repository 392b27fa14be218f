//! A generation of the server's table in direct mode.

use std::sync::Arc;

use crate::direct::{Notice, TableState};
use crate::store::Standing;
use crate::store::{MappedStore, Store, Witness};

/// A table that the server transferred, opened in this process.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) table: MappedStore,
    pub(super) witness: Arc<GenerationWitness>,
}

/// Shows whether the table's state in the shared page has changed since the server passed the table's descriptor.
pub(super) struct GenerationWitness {
    pub(super) notice: Arc<Notice>,
    /// The state that the shared page showed before any byte of the table was read.
    pub(super) state: TableState,
}

impl Generation {
    pub(super) fn new(number: u64, store: Store, witness: GenerationWitness) -> Generation {
        let witness = Arc::new(witness);
        let table = MappedStore::with_witness(store, Arc::<GenerationWitness>::clone(&witness));
        Generation { number, table, witness }
    }

    /// Returns true if the server serves this generation, or served it until the server ended.
    pub(super) fn is_current(&self) -> bool {
        self.witness.notice.state().is_of(self.number)
    }

    /// Returns true if the file, and the state in the shared page, have not changed since the transfer.
    pub(super) fn is_unchanged(&self) -> bool {
        self.witness.notice.state().is_since(self.witness.state) && self.table.is_trusted()
    }
}

impl Witness for GenerationWitness {
    #[inline]
    fn standing(&self, store: &Store) -> Standing {
        match self.notice.standing_since(self.state) {
            // The lease does not show whether all memory pages of the file can be read. After a fault, the caller must
            // therefore examine the file.
            Standing::Unchanged if store.watched_file().is_some_and(|file| file.faults() > 0) => Standing::Unknown,
            standing => standing,
        }
    }
}
