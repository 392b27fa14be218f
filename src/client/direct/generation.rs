//! A generation that the server transferred.

use std::sync::Arc;

use crate::direct::{Notice, Standing, State};
use crate::store::{MappedStore, Store, Witness};

/// A table that the server transferred.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) table: MappedStore,
    pub(super) word: Arc<Word>,
}

/// What the server publishes about a generation.
pub(super) struct Word {
    pub(super) notice: Arc<Notice>,
    /// The state before anything of the table was read.
    pub(super) state: State,
}

impl Generation {
    pub(super) fn new(number: u64, store: Store, word: Word) -> Generation {
        let word = Arc::new(word);
        let witness: Arc<dyn Witness> = word.clone();
        Generation { number, table: MappedStore::with_witness(store, witness), word }
    }

    /// Returns whether the server serves it, or served it when the server ended.
    pub(super) fn is_current(&self) -> bool {
        self.word.notice.state().is_of(self.number)
    }

    /// Returns whether nothing has happened to it since it was transferred.
    pub(super) fn is_as_handed_over(&self) -> bool {
        self.word.notice.state().is_since(self.word.state) && self.table.is_trusted()
    }
}

impl Witness for Word {
    #[inline]
    fn standing(&self, store: &Store) -> Standing {
        match self.notice.standing_since(self.state) {
            // A page of a leased file can still be unreadable.
            Standing::Unchanged if store.faults() > 0 => Standing::Unknown,
            standing => standing,
        }
    }
}
