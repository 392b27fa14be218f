//! Cancels a bake from another thread.
//!
//! The [`Cancel`] handle also records the hidden names of unfinished files, and whether a bake has replaced its output.
//! A process that must exit during a bake can therefore remove these files and report whether the table was replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::folder::Folder;
use crate::progress::WithProgress;

/// A handle that cancels bakes. All clones of a handle cancel the same bakes.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    is_set: AtomicBool,
    names: Mutex<FileNames>,
}

/// The hidden names of unfinished files, and whether a bake has replaced its output. A bake holds the lock on this
/// struct while it renames a file.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    pub(super) hidden: Vec<(Arc<Folder>, String)>,
    pub(super) is_in_place: bool,
}

impl FileNames {
    /// Removes a name from the list.
    pub(super) fn forget(&mut self, folder: &Arc<Folder>, hidden: &str) {
        self.hidden.retain(|(other, name)| !Arc::ptr_eq(other, folder) || name != hidden);
    }
}

impl Cancel {
    /// Cancels all bakes that use this handle: each fails with [`BakeError::Canceled`](super::BakeError::Canceled) at
    /// its next check. A bake checks the handle at every piece of the input, while it verifies the checksums of old
    /// tables, while it merges and writes rows, while it reads the new file back, and between stages. A bake cannot be
    /// interrupted while it sorts a run, builds the index, or waits for the input or the disk.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Cancel::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Adds a function that a transfer calls with each event of its progress: see [`crate::publish`].
    pub fn with_progress<'a, E>(&'a self, progress: &'a mut (dyn FnMut(E) + Send)) -> WithProgress<'a, Cancel, E> {
        WithProgress::new(self, progress)
    }

    /// Cancels all bakes that use this handle and removes their hidden files, so that the process can exit without
    /// waiting for the bakes. After this call, no bake replaces its output. Returns true if no bake had replaced its
    /// output before the call.
    pub fn abandon(&self) -> bool {
        self.set();
        let mut names = self.names();
        for (folder, hidden) in names.hidden.drain(..) {
            // The process is about to end, so an error here changes nothing.
            let _ = folder.remove(hidden);
        }
        !names.is_in_place
    }

    pub(super) fn names(&self) -> MutexGuard<'_, FileNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
