//! A generation that was handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::direct::{Notice, State};
use crate::store::{Epoch, Store};

/// A mapped table, and the server's word on it.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) store: Store,
    pub(super) notice: Arc<Notice>,
    /// What the word was before anything of the table was read.
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
    /// Whether it is what the server serves, as far as that has said.
    pub(super) fn is_current(&self) -> bool {
        self.notice.state().is_of(self.number)
    }

    /// Whether what was read since is as it was baked.
    #[inline(always)]
    pub(super) fn is_unchanged_since(&self, epoch: Epoch) -> bool {
        if self.store.is_private() {
            return true;
        }
        // A page of a leased file can be gone all the same.
        if self.notice.is_leased_since(self.state) && !self.watch.is_over() && self.store.faults() == 0 {
            return true;
        }
        self.store.is_unchanged_since(epoch)
    }

    /// Whether nothing has become of it since it was handed over.
    pub(super) fn is_as_handed_over(&self) -> bool {
        self.notice.state().is_since(self.state) && self.store.is_trusted()
    }
}
