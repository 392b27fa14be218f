//! The counters of one server.
//!
//! In: the counters of each worker, and counters of rare events. Out: sums over all workers.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::counters::{Counters, Sums};

/// The counters of a server and of its workers.
pub(super) struct Statistics {
    started: Instant,
    pub(super) totals: Totals,
    workers: Box<[Counters]>,
}

impl Statistics {
    /// Returns zeroed counters for a server that starts now.
    pub(super) fn new(workers: usize) -> Statistics {
        Statistics {
            started: Instant::now(),
            totals: Totals::default(),
            workers: std::iter::repeat_with(Counters::default).take(workers).collect(),
        }
    }

    /// Returns the counters of one worker. Only the worker's thread may write them, except the count of accepted
    /// connections.
    #[inline]
    pub(super) fn worker(&self, number: usize) -> &Counters {
        &self.workers[number]
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the sums of all workers' counters.
    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.workers.iter().for_each(|worker| sums.add(worker));
        sums
    }
}

/// Counters of rare events, which any thread may write.
#[derive(Default)]
pub(super) struct Totals {
    /// Swaps: replacements of the served generation.
    pub(super) swaps: AtomicU64,
    /// Swaps that were rollbacks to an older generation.
    pub(super) rollbacks: AtomicU64,
    /// Files that were rejected.
    pub(super) refused_files: AtomicU64,
    /// The number of times that the served file was found changed or unreadable.
    pub(super) faults: AtomicU64,
    /// The number of the last reload or rollback that was requested. Reloads and rollbacks share one sequence of
    /// numbers.
    pub(super) reload_requested: AtomicU64,
    /// The number of the last reload or rollback that is complete.
    pub(super) reload_done: AtomicU64,
    /// The outcome of the last reload or rollback.
    pub(super) reload_last: Mutex<String>,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(super) file_refused: Mutex<String>,
    /// Connections that were disconnected because they sent no request.
    pub(super) cut_idle: AtomicU64,
    /// Connections that were disconnected because of the stall time-out: the client did not send the rest of a request,
    /// or did not receive pending responses.
    pub(super) cut_stalled: AtomicU64,
    /// Connections that were disconnected because they sent HTTP.
    pub(super) cut_http: AtomicU64,
    /// Connections that were disconnected because their clients received pending responses too slowly.
    pub(super) cut_slow: AtomicU64,
    /// Connections that were disconnected because they held an old generation when there were more retained generations
    /// than the limit allows.
    pub(super) cut_generation: AtomicU64,
    /// Connections that were disconnected because they held the most memory when the limit on client memory was
    /// exceeded.
    pub(super) cut_memory: AtomicU64,
    /// Replaced generations that are still in use.
    pub(super) generations_retained: AtomicU64,
    /// Connections that were rejected.
    pub(super) refused: AtomicU64,
    /// Connections that ended in a panic.
    pub(super) panics: AtomicU64,
}
