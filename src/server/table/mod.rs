//! The served table: its generations (the current one, the previous one, and the next), the fields of its rows as Redis
//! hashes, and the leases of its files.
//!
//! In: a path, and requests to check it. Out: the generation that each worker reads. The supervisor thread opens a new
//! file, checks it, brings it into memory as configured, looks canaries up in it, and only then replaces the current
//! generation. If a file fails a check, it is rejected, and the current generation stays. This folder does not depend
//! on connections.

mod candidate;
mod control;
pub(super) mod fields;
mod file_slots;
mod rollback;
mod served;
mod supervisor;
mod watch;

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tracing::{info, warn};

use super::cluster::ClusterNode;
use super::process::liveness::Thread;
use crate::Lookup;
use crate::cluster::SlotSet;
use crate::setting::Setting;
use crate::store::{Pace, Store, Writers, header_digest, open_file};
pub use candidate::OpenError;
pub(super) use candidate::Plan;
use candidate::{Candidate, Replaces};
pub(super) use control::ControlChannel;
pub use control::{Control, PublishedFacts, PublishedTable};
use fields::Fields;
pub(super) use rollback::SavedTables;
pub(super) use served::{PinnedGeneration, ServedTable};
pub(super) use supervisor::{Supervised, Supervisor};
use watch::Identity;
pub(super) use watch::{FileVersion, FolderWatch, start_leases};

/// A version of the table: one immutable file that is or was served.
pub(super) struct Generation {
    /// The number of the generation, counted from 1 since the server started. A rollback serves an earlier file again,
    /// under a new number.
    pub(super) number: u64,
    pub(super) store: Store,
    /// The fields of the rows as Redis hashes, if the table is typed.
    pub(super) fields: Option<Fields>,
    /// The schema as clients receive it, if the table is typed.
    pub(super) encoded_schema: Option<Arc<[u8]>>,
    /// Whether a rollback serves this table instead of the newer one at the path, also after a restart.
    pub(super) is_rollback: bool,
    /// The slots whose rows the file has: all slots, unless the server is a node of a cluster.
    pub(super) slots: Arc<SlotSet>,
    /// The number of keys of each slot, after a command has counted them.
    pub(super) slot_counts: OnceLock<Arc<Vec<u32>>>,
    /// The file that direct clients map. `None` if direct clients cannot map the table.
    pub(super) shared: Option<File>,
    /// The table's file. It stays open for a rollback, even if the table was copied into memory.
    file: File,
    identity: Identity,
    /// Whether the server detects processes that write to the file: [`Writers::None`] if it does, or if the table is a
    /// private copy, and [`Writers::Unknown`] otherwise.
    pub(super) writers: Writers,
}

impl Generation {
    /// Returns the modification time that the file had when it was opened, in seconds since 1970. This is when the file
    /// was baked, unless somebody has changed the modification time since then.
    pub(super) fn modified_s(&self) -> u64 {
        self.identity.modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
}

/// The maximum time that a starting server waits for the writers of its file to close the file.
const WRITERS_WAIT_MAX: Duration = Duration::from_secs(2);

/// The time that the supervisor pauses after each step of a check, at most a MiB in most checks. Without pauses, the
/// scheduler would let it run for a whole time slice of several milliseconds, and a worker on the same processor would
/// wait for it.
const PAUSE: Duration = Duration::from_micros(300);

/// Lets workers run.
fn pause() {
    thread::sleep(PAUSE);
}

/// The file to serve, and how to find and check new files.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The path at which new files appear.
    pub(super) path: PathBuf,
    pub(super) plan: Plan,
    /// The tables that rollbacks serve, for restarts.
    pub(super) saved: SavedTables,
    /// Whether to serve new files as soon as they appear, without a reload request.
    pub(super) watch: bool,
    /// Whether clients may map the file.
    pub(super) direct: bool,
    /// This server as a node of a cluster.
    pub(super) cluster: Option<Arc<ClusterNode>>,
}

impl Source {
    pub(super) fn open(&self) -> Result<Generation, OpenError> {
        let (started, mut is_waiting) = (Instant::now(), false);
        let (candidate, is_rollback) = loop {
            match self.open_first() {
                Err(OpenError::Writer { path }) if started.elapsed() < WRITERS_WAIT_MAX => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        let wait_max_s = WRITERS_WAIT_MAX.as_secs();
                        info!(
                            "{}: waiting up to {wait_max_s} s until no process has it open for writing",
                            path.display()
                        );
                    }
                }
                opened => break opened?,
            }
        };
        if candidate.store.is_empty() {
            warn!(
                "{}: the table has no rows: check the input, or set {} to reject such a table",
                self.path.display(),
                Setting::RowsMin
            );
        }
        Ok(Generation { is_rollback, ..self.generation_of(candidate, 1, self.file_slots()) })
    }

    /// Opens the file at the path, or the table that a rollback saved to be served instead. Returns the table, and
    /// whether a rollback saved it.
    fn open_first(&self) -> Result<(Candidate, bool), OpenError> {
        let file = open_file(&self.path)?;
        match self.rolled_back(&file) {
            Some(digest) => {
                let path = self.saved.path(digest);
                warn!(
                    "{}: table {digest:032x} was replaced by a rollback: serving {} instead",
                    self.path.display(),
                    path.display()
                );
                Ok((self.plan.open(&path, Replaces::Nothing)?, true))
            }
            None => Ok((self.plan.open_file(file, &self.path, Replaces::Nothing)?, false)),
        }
    }

    /// Returns the digest of a file's table if a rollback saved another table to be served instead.
    fn rolled_back(&self, file: &File) -> Option<u128> {
        header_digest(file, &self.path).ok().filter(|digest| self.saved.has(*digest))
    }

    /// Returns a source whose checks report the progress of `thread`, pause regularly, and end early when the server
    /// stops.
    fn paced(mut self, thread: Arc<Thread>, is_stopping: Arc<AtomicBool>) -> Source {
        let configured = std::mem::take(&mut self.plan.options.pace);
        self.plan.options.pace = Pace::new(move || {
            thread.beat();
            pause();
            !is_stopping.load(Ordering::Relaxed) && configured.goes_on()
        });
        self
    }

    /// Returns the slots whose rows the file at the path has.
    fn file_slots(&self) -> Arc<SlotSet> {
        self.cluster.as_ref().map_or_else(|| Arc::new(SlotSet::ALL), |node| node.file_slots())
    }

    /// Creates a generation from a file that passed the checks and has the rows of `slots`.
    fn generation_of(&self, candidate: Candidate, number: u64, slots: Arc<SlotSet>) -> Generation {
        let Candidate { store, file, identity, writers } = candidate;
        let shared = if self.direct { store.share() } else { Ok(None) };
        let shared = shared.unwrap_or_else(|error| {
            warn!("direct clients cannot map generation {number}: {error}: they send requests to the server");
            None
        });
        let fields = store.schema_ref().map(|schema| Fields::new(Arc::clone(schema)));
        let encoded_schema = store.schema_ref().map(|schema| schema.encode().into());
        let (is_rollback, slot_counts) = (false, OnceLock::new());
        Generation {
            number,
            store,
            fields,
            encoded_schema,
            is_rollback,
            slots,
            slot_counts,
            shared,
            file,
            identity,
            writers,
        }
    }
}
