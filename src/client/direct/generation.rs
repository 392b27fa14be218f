//! A generation that was handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::direct::{Notice, State};
use crate::store::{MappedStore, Store, Witness};

/// A table that the server transferred.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) table: MappedStore,
    pub(super) word: Arc<Word>,
}

/// What the server says of a generation.
pub(super) struct Word {
    pub(super) notice: Arc<Notice>,
    /// The notice before anything of the table was read.
    pub(super) state: State,
    pub(super) watch: Watch,
}

/// Whether the server is known to be there. One that was killed has given its lease back and not said so: the word
/// stays what it was.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<AtomicBool>);

impl Watch {
    /// The server is gone, or may be.
    pub(super) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Generation {
    pub(super) fn new(number: u64, store: Store, word: Word) -> Generation {
        let word = Arc::new(word);
        let witness: Arc<dyn Witness> = word.clone();
        Generation { number, table: MappedStore::with_witness(store, witness), word }
    }

    /// Returns whether the server serves it, as far as the server has said.
    pub(super) fn is_current(&self) -> bool {
        self.word.notice.state().is_of(self.number)
    }

    /// Returns whether nothing has happened to it since it was transferred.
    pub(super) fn is_as_handed_over(&self) -> bool {
        self.word.notice.state().is_since(self.word.state) && self.table.is_trusted()
    }
}

impl Witness for Word {
    /// A page of a leased file can be gone all the same.
    #[inline]
    fn vouches_for(&self, store: &Store) -> bool {
        self.notice.is_leased_since(self.state) && !self.watch.is_over() && store.faults() == 0
    }
}
