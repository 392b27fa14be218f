//! The state that all threads of a server share.
//!
//! The parts of the state do not depend on one another. A thread that needs only some of the parts gets only these.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::cold_reads::ColdReads;
use crate::server::clients::memory::ClientMemory;
use crate::server::clients::registry::Registry;
use crate::server::limits::Limits;
use crate::server::process::liveness::{Liveness, Thread};
use crate::server::process::log_queue::LogLimit;
use crate::server::process::newest_tasks::NewestTasks;
use crate::server::process::service::Notifier;
use crate::server::stats::statistics::Statistics;
use crate::server::table::generations::{Control, ServedTable, Source};
use crate::server::users::Users;

/// The state that all threads of a server share.
pub(in crate::server) struct ServerState {
    pub(in crate::server) settings: Settings,
    pub(in crate::server) users: Arc<Users>,
    pub(in crate::server) table: Arc<ServedTable>,
    pub(in crate::server) statistics: Arc<Statistics>,
    /// Requests reloads and rollbacks.
    pub(in crate::server) control: Control,
    /// The number of bytes of the file that are in memory.
    pub(in crate::server) residency: Arc<Residency>,
    /// Reads records of a table that does not fit into memory.
    pub(in crate::server) cold_reads: ColdReads,
    /// The connections of each worker.
    pub(in crate::server) registries: Arc<[Arc<Registry>]>,
    pub(in crate::server) client_memory: ClientMemory,
    /// The tasks of [lingering](crate::server::connection) sockets.
    pub(in crate::server) lingering: Arc<NewestTasks>,
    pub(in crate::server) notifier: Arc<Notifier>,
    pub(in crate::server) liveness: Arc<Liveness>,
    /// Limits the log lines about connections that ended in a panic.
    pub(in crate::server) panic_log: LogLimit,
    /// Limits the log lines about clients that sent too much without receiving responses.
    pub(in crate::server) excess_log: LogLimit,
    /// Limits the log lines about clients that use TLS on a socket without TLS.
    pub(in crate::server) unexpected_tls_log: LogLimit,
    /// Limits the log lines about direct clients that got no descriptors.
    pub(in crate::server) descriptor_log: LogLimit,
}

impl ServerState {
    /// Creates the state of a server with as many workers as `statistics` has.
    pub(in crate::server) fn new(
        settings: Settings,
        users: Arc<Users>,
        table: ServedTable,
        statistics: Arc<Statistics>,
        control: Control,
        notifier: Notifier,
    ) -> ServerState {
        let (limits, workers) = (&settings.limits, statistics.worker_count());
        ServerState {
            table: Arc::new(table),
            control,
            residency: Arc::default(),
            cold_reads: ColdReads::default(),
            registries: std::iter::repeat_with(|| Arc::new(Registry::new(limits, &users))).take(workers).collect(),
            users,
            client_memory: ClientMemory::new(limits.client_memory_max_bytes()),
            lingering: NewestTasks::new(settings.sockets_max),
            liveness: Arc::new(Liveness::new(workers, notifier.is_wanted())),
            notifier: Arc::new(notifier),
            panic_log: LogLimit::default(),
            excess_log: LogLimit::default(),
            unexpected_tls_log: LogLimit::default(),
            descriptor_log: LogLimit::default(),
            settings,
            statistics,
        }
    }

    /// Evicts the connections that hold the most memory, if all connections together hold more than the limit.
    pub(in crate::server) fn evict_if_over_limit(&self) {
        if self.client_memory.is_over_limit() {
            self.client_memory.evict_largest(&self.registries, &self.statistics.totals);
        }
    }
}

/// What a Redis command does with a foreign key: a key that is not a number, in a table of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignKeys {
    /// Fails with an error, because the key reveals a bug in the client.
    #[default]
    Error,
    /// Treats the key as a missing key.
    Missing,
}

/// The resolved configuration of a running server.
pub(in crate::server) struct Settings {
    /// The path of the served file, and the checks that a new file must pass.
    pub(in crate::server) source: Source,
    /// The path or abstract name of the Unix socket.
    pub(in crate::server) socket: PathBuf,
    /// The address of the TCP socket.
    pub(in crate::server) tcp: Option<SocketAddr>,
    /// The address of the TLS socket.
    pub(in crate::server) tls: Option<SocketAddr>,
    pub(in crate::server) limits: Limits,
    /// What Redis commands do with keys that are not of the table's kind.
    pub(in crate::server) foreign_keys: ForeignKeys,
    /// The maximum number of connections.
    pub(in crate::server) connections_max: usize,
    /// The maximum number of connections and lingering sockets together, at least `connections_max`.
    pub(in crate::server) sockets_max: usize,
}

/// The time between two checks of whether another generation is served. When a check finds a new generation, the new
/// generation's file is measured at once.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The minimum time between two measurements of one generation.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// The minimum ratio of the pause after a measurement to the duration of the measurement.
const PAUSE_PER_MEASUREMENT: u32 = 200;

/// The number of resident bytes of the file at the last measurement.
#[derive(Default)]
pub(in crate::server) struct Residency(AtomicU64);

impl Residency {
    pub(in crate::server) fn len_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Measures how much of the current generation's file is in memory. Returns the number of the generation, and how long
/// the measurement took.
fn measure(table: &ServedTable, residency: &Residency) -> (u64, Duration) {
    let (generation, started) = (table.current(), Instant::now());
    let len_bytes = generation.store.resident_len_bytes();
    residency.0.store(len_bytes, Ordering::Relaxed);
    (generation.number, started.elapsed())
}

/// Repeatedly measures how much of the current generation's file is in memory, until the runtime ends.
pub(in crate::server) async fn watch(table: Arc<ServedTable>, residency: Arc<Residency>, thread: Arc<Thread>) {
    loop {
        let (measured, residency, thread) = (Arc::clone(&table), Arc::clone(&residency), Arc::clone(&thread));
        let measure = move || thread.catch(|| measure(&measured, &residency));
        let Ok(measured) = tokio::task::spawn_blocking(measure).await else { return };
        // After a panic, the last result stays until the next measurement.
        let (number, took) = measured.unwrap_or_else(|_| (table.current().number, Duration::ZERO));
        let until = Instant::now() + MEASURE_EVERY.max(took * PAUSE_PER_MEASUREMENT);
        while Instant::now() < until && table.current().number == number {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}
