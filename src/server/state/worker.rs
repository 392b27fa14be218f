//! The state that the connections of one worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tracing::warn;

use super::server::ServerState;
use crate::protocol::native::Status;
use crate::server::clients::activity::Activity;
use crate::server::clients::registry::Registry;
use crate::server::sockets::peer::Peer;
use crate::server::sockets::stream::Descriptors;
use crate::server::stats::counters::Counters;
use crate::server::table::generations::{Generation, PinnedGeneration};

/// The state that the connections of one worker share.
pub(in crate::server) struct WorkerState {
    pub(in crate::server) server: Arc<ServerState>,
    number: usize,
    /// The number of connections that have pending responses, or requests that will be answered in the connection's
    /// next turn.
    pending_connections: AtomicUsize,
    /// The number of connections whose last turn was ended although they could continue. Only the worker's thread changes
    /// this number.
    unfinished_connections: AtomicUsize,
    is_stopping: AtomicBool,
    nothing_pending: Notify,
    /// Keeps the worker polling for some time after a response. `None` if the worker sleeps at once.
    pub(in crate::server) spin: Option<Arc<Spin>>,
}

impl WorkerState {
    /// Creates the state of one worker. Workers are numbered from 0.
    pub(in crate::server) fn new(server: Arc<ServerState>, number: usize, spin: Duration) -> Self {
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
    pub(in crate::server) fn pin(&self) -> PinnedGeneration {
        self.server.table.pin(self.number)
    }

    /// Returns whether the server is stopping. Connections then read no more requests.
    #[inline]
    pub(in crate::server) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Records that responses were produced, so that the worker polls for a while before it sleeps.
    #[inline]
    pub(in crate::server) fn answered(&self) {
        if let Some(spin) = &self.spin {
            spin.answered();
        }
    }

    /// Returns the worker's counters.
    #[inline]
    pub(in crate::server) fn counters(&self) -> &Counters {
        self.server.statistics.worker(self.number)
    }

    /// Returns the worker's connections.
    #[inline]
    pub(in crate::server) fn registry(&self) -> &Arc<Registry> {
        &self.server.registries[self.number]
    }

    /// Records that a connection has pending responses, or requests that will be answered in its next turn.
    pub(in crate::server) fn begin_pending(&self) {
        self.pending_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a connection no longer has pending responses or requests that will be answered in its next turn.
    pub(in crate::server) fn end_pending(&self) {
        if self.pending_connections.fetch_sub(1, Ordering::Relaxed) == 1 && self.is_stopping() {
            self.nothing_pending.notify_one();
        }
    }

    /// Returns how many connections have work left after their last turn.
    #[inline]
    pub(in crate::server) fn unfinished_connections(&self) -> usize {
        self.unfinished_connections.load(Ordering::Relaxed)
    }

    /// Records that a turn of a connection was ended although the connection could continue.
    pub(in crate::server) fn begin_unfinished(&self) {
        self.unfinished_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a connection continues its work, or that it has ended.
    pub(in crate::server) fn end_unfinished(&self) {
        self.unfinished_connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes connections read no more requests, and waits until no connection has pending responses or requests to
    /// answer.
    pub(in crate::server) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        while self.pending_connections.load(Ordering::Relaxed) > 0 {
            self.nothing_pending.notified().await;
        }
    }
}

/// The peer, the worker, and the activity of a connection. The protocols use them to answer requests.
pub(in crate::server) struct ConnectionContext {
    pub(in crate::server) peer: Peer,
    pub(in crate::server) worker: Arc<WorkerState>,
    /// The state of this connection that other parts of the server see.
    pub(in crate::server) activity: Arc<Activity>,
}

impl ConnectionContext {
    /// Creates the context of a new connection.
    pub(in crate::server) fn new(peer: Peer, worker: Arc<WorkerState>) -> ConnectionContext {
        ConnectionContext { peer, activity: worker.registry().activity(peer), worker }
    }

    /// Opens the files whose descriptors a response passes to a direct client. `passes` states whether the response
    /// passes descriptors. Returns `None` if it does not, or if the generation is not available to direct clients.
    ///
    /// # Errors
    /// If the system cannot open the files.
    #[inline]
    pub(in crate::server) fn descriptors(
        &self,
        generation: &Generation,
        passes: bool,
    ) -> io::Result<Option<Descriptors>> {
        if !passes {
            return Ok(None);
        }
        self.worker.server.table.open_descriptors(generation)
    }

    /// Logs why no descriptors are passed to a direct client. Returns the response that the client gets instead.
    pub(in crate::server) fn refuse_descriptors(&self, error: &io::Error) -> &'static [u8] {
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
pub(in crate::server) mod tests {
    use std::path::Path;

    use super::*;
    use crate::server::Config;
    use crate::server::process::service::Notifier;
    use crate::server::state::server::Settings;
    use crate::server::stats::statistics::Statistics;
    use crate::server::table::generations::{ControlChannel, ServedTable};
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
pub(in crate::server) struct Spin {
    time: Duration,
    /// Whether responses were produced since the polling task last checked.
    answered: AtomicBool,
    /// Whether the polling task waits for `wake`.
    asleep: AtomicBool,
    wake: Notify,
}

impl Spin {
    pub(in crate::server) fn new(time: Duration) -> Self {
        Spin { time, answered: AtomicBool::new(false), asleep: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Records that responses were produced, and wakes the polling task.
    pub(in crate::server) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// After each response, polls for the configured time, and then sleeps until the next response. Never returns.
    pub(in crate::server) async fn run(&self) {
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let mut since = Instant::now();
            while since.elapsed() < self.time {
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
