//! The current generation, as workers and direct clients read it.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use tracing::warn;

use super::Generation;
use crate::direct::{Board, Waiter};
use crate::server::sockets::Descriptors;
use crate::server::watchers::Watchers;
use crate::store::reopened;
use crate::sync::unpoisoned;

/// A reference to a generation, which keeps the generation open.
///
/// Each worker has a separate reference count, because workers that shared one count would contend for its cache line.
#[derive(Clone)]
#[expect(clippy::redundant_allocation, reason = "the outer count belongs to one worker")]
pub(in crate::server) struct PinnedGeneration(Arc<Arc<Generation>>);

impl PinnedGeneration {
    fn new(generation: &Arc<Generation>) -> Self {
        PinnedGeneration(Arc::new(Arc::clone(generation)))
    }

    /// Returns the number of references that this worker has to the generation.
    #[cfg(test)]
    pub(in crate::server) fn count(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for PinnedGeneration {
    type Target = Generation;

    #[inline]
    fn deref(&self) -> &Generation {
        &self.0
    }
}

/// The current generation, a reference to it for each worker, and the shared page that announces it to direct clients.
pub(in crate::server) struct ServedTable {
    current: Mutex<Arc<Generation>>,
    /// The generation that each worker reads. Differs from `current` only while [`ServedTable::replace`] runs.
    slots: Box<[Mutex<PinnedGeneration>]>,
    /// Whether the current file was changed in place and is not trusted.
    is_changed: AtomicBool,
    /// The shared page, which announces the table's state to direct clients. `None` if direct mode is off.
    board: Option<Board>,
    /// The connections that are woken when the generation is replaced.
    watchers: Watchers,
}

impl ServedTable {
    /// Serves the first generation to `workers` workers, and to direct clients if `direct` is true.
    pub(in crate::server) fn new(generation: Generation, workers: usize, direct: bool) -> ServedTable {
        let current = Arc::new(generation);
        let board = direct.then(new_board).flatten();
        if let Some(board) = &board {
            announce(board, &current);
        }
        let slot = || Mutex::new(PinnedGeneration::new(&current));
        ServedTable {
            slots: std::iter::repeat_with(slot).take(workers).collect(),
            current: Mutex::new(current),
            is_changed: AtomicBool::new(false),
            board,
            watchers: Watchers::default(),
        }
    }

    pub(in crate::server) fn current(&self) -> Arc<Generation> {
        Arc::clone(&unpoisoned(&self.current))
    }

    /// Returns the generation that a worker's next pass reads.
    #[inline]
    pub(in crate::server) fn pin(&self, worker: usize) -> PinnedGeneration {
        unpoisoned(&self.slots[worker]).clone()
    }

    /// Makes a generation the current one. Every pass that begins after this call reads the new generation. Returns the
    /// generation that was replaced.
    pub(in crate::server) fn replace(&self, generation: &Arc<Generation>) -> Arc<Generation> {
        for slot in &self.slots {
            let new = PinnedGeneration::new(generation);
            let old = std::mem::replace(&mut *unpoisoned(slot), new);
            // The old generation is dropped after the slot is unlocked, because dropping it may unmap a file.
            drop(old);
        }
        if let Some(board) = &self.board {
            announce(board, generation);
        }
        let old = std::mem::replace(&mut *unpoisoned(&self.current), Arc::clone(generation));
        self.watchers.wake();
        old
    }

    pub(in crate::server) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Returns whether the current file was changed in place and is not trusted.
    pub(in crate::server) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Records whether the current file was changed in place. Returns whether this differs from the previous record.
    pub(super) fn set_changed(&self, is_changed: bool) -> bool {
        if let Some(board) = &self.board {
            board.set_changed(is_changed);
        }
        self.is_changed.swap(is_changed, Ordering::Relaxed) != is_changed
    }

    /// Returns whether direct clients may map a generation.
    pub(in crate::server) fn is_direct(&self, generation: &Generation) -> bool {
        self.board.is_some() && generation.shared.is_some()
    }

    /// Returns the shared page, which announces the table's state to direct clients, or `None` if direct mode is off.
    pub(in crate::server) fn board(&self) -> Option<&Board> {
        self.board.as_ref()
    }

    /// If the state of the table is still `known` (the state that a direct client sent in its Open request), returns
    /// true, and wakes `waker` when the state changes, unless `waiter` is dropped first. Otherwise, or if direct mode
    /// is off, returns false.
    pub(in crate::server) fn waits(&self, waiter: &mut Option<Waiter>, known: u64, waker: &Waker) -> bool {
        let Some(board) = &self.board else { return false };
        waiter.get_or_insert_with(|| board.waiter()).wait(known, waker)
    }

    /// Opens the files whose descriptors a direct client receives: the generation's file, and the shared page. Returns
    /// `None` if direct clients cannot map the generation. Each client receives new open file descriptions, so that
    /// clients share no file position, no `flock` lock, and no read-ahead advice.
    #[cold]
    pub(in crate::server) fn open_descriptors(&self, generation: &Generation) -> io::Result<Option<Descriptors>> {
        let (Some(table), Some(board)) = (&generation.shared, &self.board) else { return Ok(None) };
        Ok(Some([reopened(table)?, reopened(board.file())?]))
    }
}

fn new_board() -> Option<Board> {
    let cannot = |error: &io::Error| {
        warn!("direct mode is off: the shared page cannot be created: {error}: clients send requests to the server");
    };
    Board::new().inspect_err(cannot).ok()
}

/// Publishes the number of the current generation on the shared page, and from then on, each change of the generation's
/// lease.
fn announce(board: &Board, generation: &Generation) {
    let (number, lease_board) = (generation.number, board.clone());
    board.serve(number);
    if let Some(file) = generation.store.watched_file() {
        file.report_lease(move |state| lease_board.set_lease(number, state));
    }
}
