//! Stopping a bake from outside.
//!
//! Here it is known which files under work have a hidden name, and whether one
//! was put in place: whoever ends the process while a bake is at work can remove
//! the former and tell the latter.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stops the bakes whose options have it. Clones stop the same bakes.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_set: AtomicBool,
    names: Mutex<Names>,
}

/// Held while a file is given its name.
#[derive(Debug, Default)]
pub(super) struct Names {
    hidden: Vec<PathBuf>,
    is_in_place: bool,
}

impl Cancel {
    /// Ends a bake with [`BakeError::Cancelled`](super::BakeError::Cancelled) at its next check: with each piece of the
    /// input, while rows are merged and written, with each window of the read-back, and between the stages. Sorting a run,
    /// building the index, and waiting for the input or the disk are completed first.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// For a process that ends without waiting for its bakes: sets it, removes their hidden files, and gives whether
    /// none has put its file in place. From here on none does.
    pub fn abandon(&self) -> bool {
        self.set();
        let mut names = self.names();
        for hidden in names.hidden.drain(..) {
            // The process is about to end: nothing more can be done about a file that stays.
            let _ = fs::remove_file(hidden);
        }
        !names.is_in_place
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
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
