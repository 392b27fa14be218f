//! Generations of a table: the one that is served, the one before, the next.
//!
//! In: a path, and requests to look at it. Out: for each worker, the generation
//! that it answers from. The supervisor, a thread of its own, opens a new file,
//! checks it, reads it in, tries it on canaries, and only then hands it to the
//! workers; a file that does not pass is refused, and the one before serves on.
//! It knows no connection.

mod canary;
mod candidate;
mod control;
mod retained;
mod supervisor;
mod watch;

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub use canary::{CanaryError, value_digest};
pub use candidate::OpenError;
pub(super) use candidate::Plan;
pub use control::Control;
pub(super) use control::Told;
pub(super) use supervisor::Supervisor;

use crate::store::{Store, Writers};
use watch::Identity;

/// One immutable file that is, or was, served.
pub(super) struct Generation {
    /// Counted from 1 since the server was started; a return to an earlier file
    /// has a number of its own.
    pub(super) number: u64,
    pub(super) store: Store,
    /// What clients map that look keys up themselves. `None` if none may.
    pub(super) shared: Option<File>,
    /// Open as long as it may be returned to, wherever its bytes are.
    file: File,
    identity: Identity,
    /// Whether the system tells of processes that write to it; [`Writers::None`] for a copy.
    pub(super) writers: Writers,
}

/// The generation that one worker answers from.
///
/// Each worker has a reference of its own to count, so that none waits for
/// another's count.
pub(super) struct Slot(Mutex<Pinned>);

/// A generation that does not go while this is held.
pub(super) type Pinned = Arc<Arc<Generation>>;

impl Slot {
    pub(super) fn new(generation: &Arc<Generation>) -> Slot {
        Slot(Mutex::new(Arc::new(Arc::clone(generation))))
    }

    /// The generation to begin a batch with.
    #[inline]
    pub(super) fn pin(&self) -> Pinned {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put(&self, generation: &Arc<Generation>) {
        let new = Arc::new(Arc::clone(generation));
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), new);
        drop(old);
    }
}

/// What is served, and how it is looked for.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Where files are put in place.
    pub(super) path: PathBuf,
    pub(super) plan: Plan,
    /// Whether to look for new files without being asked.
    pub(super) watch: bool,
    /// Whether clients may have the file itself.
    pub(super) direct: bool,
}
