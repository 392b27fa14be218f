//! The counters of one server.
//!
//! In: the counters of each worker, and counters of rare events. Out: sums over all workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::counters::{Counters, Sums};
use crate::server::process::log_queue::LogQueue;

/// The counters of a server and of its workers.
pub(in crate::server) struct Statistics {
    started: Instant,
    pub(in crate::server) totals: Totals,
    pub(in crate::server) outcomes: Outcomes,
    pub(in crate::server) tls: TlsStatus,
    /// The log of the process, if it reports how many of its lines were dropped.
    pub(in crate::server) log: OnceLock<LogQueue>,
    workers: Box<[Counters]>,
}

impl Statistics {
    /// Returns zeroed counters for a server that starts now.
    pub(in crate::server) fn new(workers: usize) -> Statistics {
        Statistics {
            started: Instant::now(),
            totals: Totals::default(),
            outcomes: Outcomes::default(),
            tls: TlsStatus::default(),
            log: OnceLock::new(),
            workers: std::iter::repeat_with(Counters::default).take(workers).collect(),
        }
    }

    /// Returns the counters of one worker. Only the worker's thread may write them, except the count of accepted
    /// connections.
    #[inline]
    pub(in crate::server) fn worker(&self, number: usize) -> &Counters {
        &self.workers[number]
    }

    pub(in crate::server) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(in crate::server) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the sums of all workers' counters.
    pub(in crate::server) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.workers.iter().for_each(|worker| sums.add(worker));
        sums
    }
}

/// The prefix of the names that the counters of disconnected connections have in the response to Info.
pub(in crate::server) const CUTS_PREFIX: &str = "connections_cut_";

/// Defines the counters of rare events, one per line. A counter whose name begins with `cut_` counts the connections
/// that were disconnected for one reason. Info and the metrics report all these counters: see [`TotalCounts::cuts`].
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of rare events, which any thread may write.
        #[derive(Default)]
        pub(in crate::server) struct Totals {
            $($(#[$doc])* pub(in crate::server) $name: AtomicU64,)*
        }

        /// The values of [`Totals`] at one moment.
        pub(in crate::server) struct TotalCounts {
            $($(#[$doc])* pub(in crate::server) $name: u64,)*
        }

        impl Totals {
            pub(in crate::server) fn counts(&self) -> TotalCounts {
                TotalCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl TotalCounts {
            /// Returns, for each reason, the name and the value of the counter of disconnected connections. The name is
            /// the one in the response to Info: [`CUTS_PREFIX`], followed by the reason.
            pub(in crate::server) fn cuts(&self) -> Vec<(&'static str, u64)> {
                let totals = [$((concat!("connections_", stringify!($name)), self.$name)),*];
                totals.into_iter().filter(|(name, _)| name.starts_with(CUTS_PREFIX)).collect()
            }
        }
    };
}

totals! {
    /// Swaps: replacements of the served generation.
    swaps,
    /// Swaps that were rollbacks to an older generation.
    rollbacks,
    /// Files that were rejected.
    refused_files,
    /// The number of times that the served file was found changed or unreadable.
    faults,
    /// The number of the last reload or rollback that was requested. Reloads and rollbacks share one sequence of
    /// numbers.
    reload_requested,
    /// The number of the last reload or rollback that is complete.
    reload_done,
    /// Connections that were disconnected because of the idle time-out: the client sent no request for that time.
    cut_idle,
    /// Connections that were disconnected because of the stall time-out: the client did not send the rest of a request,
    /// or did not receive pending responses.
    cut_stalled,
    /// Connections that were disconnected because they sent HTTP.
    cut_http,
    /// Connections that were disconnected because their clients received pending responses too slowly.
    cut_slow,
    /// Connections that were disconnected because they held an old generation when there were more retained generations
    /// than the limit allows.
    cut_generation,
    /// Connections that were disconnected because they held the most memory when the limit on client memory was
    /// exceeded.
    cut_memory,
    /// Connections that were disconnected because they sent more requests than the limit allows without receiving the
    /// responses.
    cut_buffer,
    /// Connections that a client ended with CLIENT KILL.
    cut_killed,
    /// Connections that were disconnected because their TLS handshake took too long, or because the handshakes in
    /// progress were too many or held too much memory.
    cut_handshake,
    /// Connections that were disconnected because they sent plaintext to the TLS port.
    cut_plaintext,
    /// Connections that were disconnected because they began a TLS handshake on a socket without TLS.
    cut_tls,
    /// Connections to the socket for metrics that were disconnected because they were the oldest of too many.
    cut_metrics,
    /// TLS handshakes that were completed.
    tls_handshakes,
    /// TLS handshakes that failed, for example because a client's certificate was rejected.
    tls_handshakes_failed,
    /// The number of times that changed certificates and keys were accepted.
    tls_reloads,
    /// The number of times that changed certificates and keys were rejected.
    tls_reloads_refused,
    /// Connections that were disconnected because their user was removed or disabled, or now needs a password.
    cut_user,
    /// Failed logins.
    logins_failed,
    /// Users files that were rejected.
    refused_users,
    /// Replaced generations that are still in use.
    generations_retained,
    /// Connections that were rejected.
    refused,
    /// Connections that ended in a panic.
    panics,
}

/// The outcomes of the last checks of the file, as text.
#[derive(Default)]
pub(in crate::server) struct Outcomes {
    /// The outcome of the last reload or rollback.
    pub(in crate::server) reload_last: Mutex<String>,
    /// Why the file at the path is not served. Empty if the file is served, or if there is no file.
    pub(in crate::server) file_refused: Mutex<String>,
}

/// The state of the TLS port.
#[derive(Default)]
pub(in crate::server) struct TlsStatus {
    /// When the certificate expires, in seconds since 1970. 0 if there is no TLS port, or if the time is unknown.
    pub(in crate::server) expires_s: AtomicU64,
    /// The memory that all handshakes together hold.
    pub(in crate::server) handshake_bytes: AtomicU64,
    /// Why the certificate and key files were rejected. Empty if these files are in use.
    pub(in crate::server) refused: Mutex<String>,
}
