//! The state that all threads of a server share.
//!
//! The parts of the state do not depend on one another. A thread that needs only some of the parts gets only these.

use std::sync::Arc;

use super::client_memory::ClientMemory;
use super::cold_reads::ColdReads;
use super::generations::{Control, ServedTable};
use super::liveness::Liveness;
use super::log_limit::LogLimit;
use super::newest_tasks::NewestTasks;
use super::registry::Registry;
use super::residency::Residency;
use super::service::Notifier;
use super::settings::Settings;
use super::statistics::Statistics;
use super::users::Users;

/// The state that all threads of a server share.
pub(super) struct ServerState {
    pub(super) settings: Settings,
    pub(super) users: Arc<Users>,
    pub(super) table: Arc<ServedTable>,
    pub(super) statistics: Arc<Statistics>,
    /// Requests reloads and rollbacks.
    pub(super) control: Control,
    /// The number of bytes of the file that are in memory.
    pub(super) residency: Arc<Residency>,
    /// Reads records of a table that does not fit into memory.
    pub(super) cold_reads: ColdReads,
    /// The connections of each worker.
    pub(super) registries: Arc<[Arc<Registry>]>,
    pub(super) client_memory: ClientMemory,
    /// The tasks of [lingering](super::connection) sockets.
    pub(super) lingering: Arc<NewestTasks>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) liveness: Arc<Liveness>,
    /// Limits the log lines about connections that ended in a panic.
    pub(super) panic_log: LogLimit,
    /// Limits the log lines about clients that sent too much without receiving responses.
    pub(super) excess_log: LogLimit,
    /// Limits the log lines about clients that use TLS on a socket without TLS.
    pub(super) unexpected_tls_log: LogLimit,
    /// Limits the log lines about direct clients that got no descriptors.
    pub(super) descriptor_log: LogLimit,
}

impl ServerState {
    /// Creates the state of a server with as many workers as `statistics` has.
    pub(super) fn new(
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
    pub(super) fn evict_if_over_limit(&self) {
        if self.client_memory.is_over_limit() {
            self.client_memory.evict_largest(&self.registries, &self.statistics.totals);
        }
    }
}
