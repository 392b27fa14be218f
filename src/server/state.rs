//! The state that all threads of a server share, and the state that the connections of one worker share.
//!
//! The parts of the state do not depend on one another. A thread that needs only some of the parts gets only these.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::cold_reads::ColdReads;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tracing::warn;

use super::clients::Activity;
use super::clients::memory::ClientMemory;
use super::clients::registry::Registry;
use super::limits::Limits;
use super::process::Notifier;
use super::process::liveness::{Liveness, Thread};
use super::process::log_queue::LogLimit;
use super::process::newest_tasks::NewestTasks;
use super::sockets::{Descriptors, Peer};
use super::stats::{Counters, Statistics};
use super::table::{Control, Generation, PinnedGeneration, ServedTable, Source};
use super::users::Users;
use crate::protocol::native::Status;

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
    /// A random number, which differs from those of other runs of servers.
    pub(super) run_number: u64,
    /// The next number of a connection of the native protocol among those that are woken when the table changes.
    pub(super) next_watch: AtomicU64,
}

/// The first number of a connection of the native protocol among those that are woken. The lower numbers are those of Redis
/// clients.
const WATCH_MIN: u64 = 1 << 63;

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
            run_number: RandomState::new().build_hasher().finish(),
            next_watch: AtomicU64::new(WATCH_MIN),
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

/// What a Redis command does with a foreign key: text that is not a key of the table's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignKeys {
    /// Fails with an error, because the key reveals a bug in the client.
    #[default]
    Error,
    /// Treats the key as a missing key.
    Missing,
}

/// The resolved configuration of a running server.
pub(super) struct Settings {
    /// The path of the served file, and the checks that a new file must pass.
    pub(super) source: Source,
    /// The path or abstract name of the Unix socket.
    pub(super) socket: PathBuf,
    /// The address of the TCP socket.
    pub(super) tcp: Option<SocketAddr>,
    /// The address of the TLS socket.
    pub(super) tls: Option<SocketAddr>,
    pub(super) limits: Limits,
    /// What Redis commands do with keys that are not of the table's kind.
    pub(super) foreign_keys: ForeignKeys,
    /// The maximum number of connections.
    pub(super) connections_max: usize,
    /// The maximum number of connections and lingering sockets together, at least `connections_max`.
    pub(super) sockets_max: usize,
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
pub(super) struct Residency(AtomicU64);

impl Residency {
    pub(super) fn len_bytes(&self) -> u64 {
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
pub(super) async fn watch(table: Arc<ServedTable>, residency: Arc<Residency>, thread: Arc<Thread>) {
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

pub(super) struct WorkerState {
    pub(super) server: Arc<ServerState>,
    number: usize,
    /// The number of connections that have pending responses, or requests that will be answered in the connection's
    /// next turn.
    pending_connections: AtomicUsize,
    /// The number of connections whose last turn was ended although they could continue. Only the worker's thread
    /// changes this number.
    unfinished_connections: AtomicUsize,
    is_stopping: AtomicBool,
    nothing_pending: Notify,
    /// Keeps the worker polling for some time after a response. `None` if the worker sleeps at once.
    pub(super) spin: Option<Arc<Spin>>,
}

impl WorkerState {
    /// Creates the state of one worker. Workers are numbered from 0.
    pub(super) fn new(server: Arc<ServerState>, number: usize, spin: Duration) -> Self {
        WorkerState {
            server,
            number,
            pending_connections: AtomicUsize::new(0),
            unfinished_connections: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            nothing_pending: Notify::new(),
            spin: (!spin.is_zero()).then(|| Arc::new(Spin::new(spin))),
        }
    }

    /// Returns the generation that the worker's next pass reads.
    #[inline]
    pub(super) fn pin(&self) -> PinnedGeneration {
        self.server.table.pin(self.number)
    }

    /// Returns whether the server is stopping. Connections then read no more requests.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Records that responses were produced, so that the worker polls for a while before it sleeps.
    #[inline]
    pub(super) fn answered(&self) {
        if let Some(spin) = &self.spin {
            spin.answered();
        }
    }

    #[inline]
    pub(super) fn counters(&self) -> &Counters {
        self.server.statistics.worker(self.number)
    }

    /// Returns the worker's connections.
    #[inline]
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.server.registries[self.number]
    }

    /// Records that a connection has pending responses, or requests that will be answered in its next turn.
    pub(super) fn begin_pending(&self) {
        self.pending_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a connection no longer has pending responses or requests that will be answered in its next turn.
    pub(super) fn end_pending(&self) {
        if self.pending_connections.fetch_sub(1, Ordering::Relaxed) == 1 && self.is_stopping() {
            self.nothing_pending.notify_one();
        }
    }

    /// Returns how many connections have work left after their last turn.
    #[inline]
    pub(super) fn unfinished_connections(&self) -> usize {
        self.unfinished_connections.load(Ordering::Relaxed)
    }

    /// Records that a turn of a connection was ended although the connection could continue.
    pub(super) fn begin_unfinished(&self) {
        self.unfinished_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a connection continues its work, or that it has ended.
    pub(super) fn end_unfinished(&self) {
        self.unfinished_connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes connections read no more requests, and waits until no connection has pending responses or requests to
    /// answer.
    pub(super) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        while self.pending_connections.load(Ordering::Relaxed) > 0 {
            self.nothing_pending.notified().await;
        }
    }
}

/// The peer, the worker, and the activity of a connection. The protocols use them to answer requests.
pub(super) struct ConnectionContext {
    pub(super) peer: Peer,
    pub(super) worker: Arc<WorkerState>,
    /// The state of this connection that other parts of the server see.
    pub(super) activity: Arc<Activity>,
}

impl ConnectionContext {
    pub(super) fn new(peer: Peer, worker: Arc<WorkerState>) -> ConnectionContext {
        ConnectionContext { peer, activity: worker.registry().activity(peer), worker }
    }

    /// Opens the files whose descriptors a response passes to a direct client. `passes` states whether the response
    /// passes descriptors. Returns `None` if it does not, or if the generation is not available to direct clients.
    #[inline]
    pub(super) fn descriptors(&self, generation: &Generation, passes: bool) -> io::Result<Option<Descriptors>> {
        if !passes {
            return Ok(None);
        }
        self.worker.server.table.open_descriptors(generation)
    }

    /// Logs why no descriptors are passed to a direct client. Returns the response that the client gets instead.
    pub(super) fn refuse_descriptors(&self, error: &io::Error) -> &'static [u8] {
        if let Some(left_out) = self.worker.server.descriptor_log.line() {
            warn!(
                peer = %self.peer,
                left_out,
                "the table's file was not passed to a direct client: {error}: the server has reached its limit on open \
                 files, or on descriptors that clients have not received yet: raise the limit (ulimit -n), or \
                 disconnect clients that do not read their responses"
            );
        }
        const { &[0, 0, 0, Status::Error as u8, 0, 0, 0, 0] }
    }
}

#[cfg(all(test, feature = "bake"))]
pub(super) mod tests {
    use std::path::Path;

    use super::{Settings, *};
    use crate::server::Config;
    use crate::server::process::Notifier;
    use crate::server::stats::Statistics;
    use crate::server::table::{ControlChannel, ServedTable};
    use crate::server::users::Users;

    /// Creates the state of a server that serves the file `db` with one worker. Returns the worker's state.
    pub(in crate::server) fn worker_over(db: &Path, config: &Config) -> Arc<WorkerState> {
        let statistics = Arc::new(Statistics::new(1));
        let control = ControlChannel::new(Arc::clone(&statistics)).control;
        let source = config.source(db);
        let table = ServedTable::new(source.open().unwrap(), 1, source.direct);
        let settings = Settings {
            source,
            socket: "s.sock".into(),
            tcp: None,
            tls: None,
            limits: config.limits.clone(),
            foreign_keys: config.foreign_keys,
            connections_max: config.limits.connections_max(100),
            sockets_max: 100,
        };
        let notifier = Notifier::new(config.notify);
        let users = Arc::new(Users::new(config.users.as_deref()).unwrap());
        let server = ServerState::new(settings, users, table, statistics, control, notifier);
        Arc::new(WorkerState::new(Arc::new(server), 0, Duration::ZERO))
    }
}

/// Keeps one worker awake for some time after each response. Only the worker's own thread uses this type.
pub(super) struct Spin {
    time: Duration,
    /// Whether responses were produced since the polling task last checked.
    answered: AtomicBool,
    /// Whether the polling task waits for `wake`.
    asleep: AtomicBool,
    wake: Notify,
}

impl Spin {
    pub(super) fn new(time: Duration) -> Self {
        Spin { time, answered: AtomicBool::new(false), asleep: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Records that responses were produced, and wakes the polling task.
    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// After each response, polls for the configured time, and then sleeps until the next response. Never returns.
    pub(super) async fn run(&self) {
        loop {
            // An idle worker does not poll, so polling costs nothing until the next response.
            self.asleep.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let mut since = Instant::now();
            while since.elapsed() < self.time {
                // While this task exists, the runtime looks for events without waiting.
                yield_now().await;
                // Yields the processor to clients and other workers that wait for it.
                thread::yield_now();
                if self.answered.swap(false, Ordering::Relaxed) {
                    since = Instant::now();
                }
            }
        }
    }
}
