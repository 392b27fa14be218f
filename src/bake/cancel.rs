//! Cancels a bake from another thread.
//!
//! The [`Cancel`] handle also records the hidden names of unfinished files, and whether a bake has replaced its output.
//! A process can therefore exit during a bake, remove the files, and report whether the table was replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    hidden: Vec<PathBuf>,
    is_in_place: bool,
}

impl Cancel {
    /// Ends the bake with [`BakeError::Canceled`](super::BakeError::Canceled) at its next check. The bake checks at
    /// every piece of the input, while it verifies the checksums of old tables, while it merges and writes rows, at
    /// every window of the read-back, and between stages. The bake first finishes what it cannot interrupt: sorting a
    /// run, building the index, or waiting for the input or the disk.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Cancel::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Cancels the bakes of a process that exits without waiting for them, and removes their hidden files. After this
    /// call, no bake replaces its output. Returns true if no bake had replaced its output before the call.
    pub fn abandon(&self) -> bool {
        self.set();
        let mut names = self.names();
        for hidden in names.hidden.drain(..) {
            // The process is about to end, so an error here changes nothing.
            let _ = fs::remove_file(hidden);
        }
        !names.is_in_place
    }

    pub(super) fn names(&self) -> MutexGuard<'_, FileNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileNames {
    pub(super) fn add_hidden(&mut self, hidden: &Path) {
        self.hidden.push(hidden.to_path_buf());
    }

    pub(super) fn remove_hidden(&mut self, hidden: &Path) {
        self.hidden.retain(|other| other != hidden);
    }

    pub(super) fn note_in_place(&mut self) {
        self.is_in_place = true;
    }
}
