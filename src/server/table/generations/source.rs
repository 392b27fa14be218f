//! The file to serve, and the checks that it must pass.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::candidate::{Candidate, Plan, Replaces};
use super::{Generation, OpenError};
use crate::Lookup;
use crate::cluster::SlotSet;
use crate::server::cluster::ClusterNode;
use crate::server::process::liveness::Thread;
use crate::server::table::fields::Fields;
use crate::setting::Setting;
use crate::store::Pace;

/// The maximum time that a starting server waits for the writers of its file to close the file.
const WRITERS_WAIT_MAX: Duration = Duration::from_secs(2);

/// The time that the supervisor pauses after each step of a check, at most a MiB in most checks. Without pauses, the
/// scheduler would let it run for a whole time slice of several milliseconds, and a worker on the same processor would
/// wait for it.
pub(super) const PAUSE: Duration = Duration::from_micros(300);

/// Lets workers run.
pub(super) fn pause() {
    thread::sleep(PAUSE);
}

/// The file to serve, and how to find and check new files.
#[derive(Clone, Debug)]
pub(in crate::server) struct Source {
    /// The path at which new files appear.
    pub(in crate::server) path: PathBuf,
    pub(in crate::server) plan: Plan,
    /// Whether to serve new files as soon as they appear, without a reload request.
    pub(in crate::server) watch: bool,
    /// Whether clients may map the file.
    pub(in crate::server) direct: bool,
    /// This server as a node of a cluster.
    pub(in crate::server) cluster: Option<Arc<ClusterNode>>,
}

impl Source {
    /// Opens the first generation.
    ///
    /// # Errors
    /// If the file fails a check.
    pub(in crate::server) fn open(&self) -> Result<Generation, OpenError> {
        let (started, mut is_waiting) = (Instant::now(), false);
        let candidate = loop {
            match self.plan.open(&self.path, Replaces::Nothing) {
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
        Ok(self.generation_of(candidate, 1, self.file_slots()))
    }

    /// Returns a source whose checks report the progress of `thread`, pause regularly, and end early when the server
    /// stops.
    pub(super) fn paced(mut self, thread: Arc<Thread>, is_stopping: Arc<AtomicBool>) -> Source {
        let configured = std::mem::take(&mut self.plan.options.pace);
        self.plan.options.pace = Pace::new(move || {
            thread.beat();
            pause();
            !is_stopping.load(Ordering::Relaxed) && configured.goes_on()
        });
        self
    }

    /// Returns the slots whose rows the file at the path has.
    pub(super) fn file_slots(&self) -> Arc<SlotSet> {
        self.cluster.as_ref().map_or_else(|| Arc::new(SlotSet::ALL), |node| node.file_slots())
    }

    /// Creates a generation from a file that passed the checks and has the rows of `slots`.
    pub(super) fn generation_of(&self, candidate: Candidate, number: u64, slots: Arc<SlotSet>) -> Generation {
        let Candidate { store, file, identity, writers } = candidate;
        let shared = if self.direct { store.share() } else { Ok(None) };
        let shared = shared.unwrap_or_else(|error| {
            warn!("direct clients cannot map generation {number}: {error}: they send requests to the server");
            None
        });
        let fields = store.schema_ref().map(|schema| Fields::new(Arc::clone(schema)));
        let encoded_schema = store.schema_ref().map(|schema| schema.encode().into());
        Generation { number, store, fields, encoded_schema, slots, shared, file, identity, writers }
    }
}
