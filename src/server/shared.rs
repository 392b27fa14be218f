//! What the workers of a server, and the connections of a worker, know of each
//! other.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::warn;

use super::client_memory::ClientMemory;
use super::counters::{Counters, Sums, Totals};
use super::generations::{Control, Generation, Pinned, Slot, Source};
use super::limits::Limits;
use super::liveness::Liveness;
use super::log_limit::LogLimit;
use super::peer::Peer;
use super::redis::Clients;
use super::registry::Registry;
use super::residency::Residency;
use super::service::Notifier;
use super::spin::Spin;
use super::stream::Descriptors;
use crate::direct::{Board, Waiter};
use crate::protocol::native::Status;
use crate::store::reopened;

/// What all workers of a server share.
pub(super) struct Serving {
    /// What is served.
    current: Mutex<Arc<Generation>>,
    /// What each worker answers from: the same, but while it is being changed.
    slots: Box<[Slot]>,
    /// Whether the file that is served was changed in place, and is not believed.
    changed: AtomicBool,
    /// Who puts another generation there.
    pub(super) control: Control,
    /// Where clients that look keys up themselves see what is served. `None` if none may.
    pub(super) board: Option<Board>,
    /// Where files are put in place, and what is done with them.
    pub(super) source: Source,
    /// How much of the file is in memory.
    pub(super) residency: Residency,
    /// Where clients connect.
    pub(super) socket: PathBuf,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) limits: Limits,
    /// The connections of each worker.
    pub(super) registries: Box<[Arc<Registry>]>,
    pub(super) client_memory: ClientMemory,
    /// Connections at a time.
    pub(super) connections_max: usize,
    /// What is logged of connections that were not let in, that sent too long a
    /// command, and that ended in a panic.
    pub(super) refusals_logged: LogLimit,
    pub(super) buffers_logged: LogLimit,
    pub(super) panics_logged: LogLimit,
    /// Connections that sent HTTP.
    pub(super) http_logged: LogLimit,
    /// And of those that were not handed what they asked for.
    pub(super) descriptors_logged: LogLimit,
    pub(super) started: Instant,
    /// Who speaks the Redis protocol.
    pub(super) clients: Clients,
    pub(super) totals: Arc<Totals>,
    pub(super) notifier: Notifier,
    pub(super) liveness: Liveness,
    workers: Box<[Counters]>,
}

/// What a server is made of when it begins to run.
pub(super) struct Beginning {
    pub(super) generation: Generation,
    pub(super) control: Control,
    pub(super) totals: Arc<Totals>,
    pub(super) source: Source,
    pub(super) socket: PathBuf,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) workers: usize,
    pub(super) notifier: Notifier,
    pub(super) limits: Limits,
}

impl Serving {
    pub(super) fn new(beginning: Beginning) -> Self {
        let Beginning { generation, control, totals, source, socket, tcp, workers, notifier, limits } = beginning;
        let current = Arc::new(generation);
        let board = source.direct.then(board).flatten();
        if let Some(board) = &board {
            announce(board, &current);
        }
        let slots = std::iter::repeat_with(|| Slot::new(&current)).take(workers).collect();
        Serving {
            current: Mutex::new(current),
            slots,
            changed: AtomicBool::new(false),
            control,
            board,
            source,
            residency: Residency::default(),
            socket,
            tcp,
            registries: std::iter::repeat_with(|| Arc::new(Registry::new(&limits))).take(workers).collect(),
            client_memory: ClientMemory::new(limits.client_memory_max_bytes()),
            connections_max: limits.connections_max(workers),
            limits,
            refusals_logged: LogLimit::default(),
            buffers_logged: LogLimit::default(),
            panics_logged: LogLimit::default(),
            http_logged: LogLimit::default(),
            descriptors_logged: LogLimit::default(),
            started: Instant::now(),
            clients: Clients::default(),
            totals,
            liveness: Liveness::new(workers, notifier.is_wanted()),
            notifier,
            workers: std::iter::repeat_with(Counters::default).take(workers).collect(),
        }
    }

    /// What is served.
    pub(super) fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has every batch that begins from now on answered from a generation.
    pub(super) fn serve(&self, generation: &Arc<Generation>) {
        self.slots.iter().for_each(|slot| slot.put(generation));
        if let Some(board) = &self.board {
            announce(board, generation);
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(generation);
    }

    /// Whether clients that ask for it are handed a generation.
    pub(super) fn hands_over(&self, generation: &Generation) -> bool {
        self.board.is_some() && generation.shared.is_some()
    }

    /// Whether the file that is served was changed in place, and is not believed.
    pub(super) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Notes whether it was. Tells whether that is news.
    pub(super) fn set_changed(&self, changed: bool) -> bool {
        if let Some(board) = &self.board {
            board.set_changed(changed);
        }
        self.changed.swap(changed, Ordering::Relaxed) != changed
    }

    /// Disconnects connections that hold a generation older than this one between turns.
    pub(super) fn disconnect_generations_before(&self, number: u64) {
        self.registries.iter().for_each(|registry| registry.disconnect_generations_before(number));
    }

    /// Evicts the connections that hold the most memory, if all together hold too much.
    pub(super) fn evict_if_over_limit(&self) {
        if self.client_memory.is_over_limit() {
            self.client_memory.evict_largest(&self.registries, &self.totals);
        }
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// What all workers have counted.
    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.workers.iter().for_each(|worker| sums.add(worker));
        sums
    }
}

fn board() -> Option<Board> {
    Board::new().inspect_err(|error| warn!("clients cannot look keys up themselves: {error}")).ok()
}

/// Publishes that a generation is served, and from now on the state of its lease.
fn announce(board: &Board, generation: &Generation) {
    let (number, of_lease) = (generation.number, board.clone());
    board.serve(number);
    generation.store.report_lease(move |state| of_lease.set_lease(number, state));
}

/// A connection, as protocols see it.
pub(super) struct Client {
    pub(super) peer: Peer,
    pub(super) shared: Arc<Shared>,
}

impl Client {
    /// Whether what a client knows of the state is what is served. If so, the task is
    /// woken when it is no more, as long as there is the waiter.
    pub(super) fn waits(&self, waiter: &mut Option<Waiter>, known: u64, waker: &Waker) -> bool {
        let Some(board) = &self.shared.serving.board else { return false };
        waiter.get_or_insert_with(|| board.waiter()).wait(known, waker)
    }

    /// Logs why the table was not passed to a client. Returns the response for that case.
    pub(super) fn passes_nothing(&self, error: &io::Error) -> &'static [u8] {
        if let Some(left_out) = self.shared.serving.descriptors_logged.line() {
            warn!(
                peer = %self.peer,
                left_out,
                "the table was not passed to a client: {error}: this server has as many files open, or descriptors in \
                 flight that clients do not take, as it may have: raise the limit (ulimit -n), or disconnect these clients"
            );
        }
        const { &[0, 0, 0, Status::Error as u8, 0, 0, 0, 0] }
    }

    /// Opens what is passed with a response that passes a generation. Each client gets open file
    /// descriptions of its own: file position, locks (`flock`), and read-ahead advice belong to one.
    ///
    /// # Errors
    /// If the system does not open them.
    #[inline]
    pub(super) fn descriptors(&self, of: &Generation, passes: bool) -> io::Result<Option<Descriptors>> {
        if !passes {
            return Ok(None);
        }
        self.open_descriptors(of)
    }

    #[cold]
    fn open_descriptors(&self, of: &Generation) -> io::Result<Option<Descriptors>> {
        let (Some(table), Some(board)) = (&of.shared, &self.shared.serving.board) else { return Ok(None) };
        Ok(Some([reopened(table)?, reopened(board.file())?]))
    }
}

/// What a worker's connections share.
pub(super) struct Shared {
    pub(super) serving: Arc<Serving>,
    /// Which of the server's workers it is.
    number: usize,
    /// Connections that owe answers their clients have not taken yet.
    owing: AtomicUsize,
    stopping: AtomicBool,
    nothing_owed: Notify,
    /// Its connections.
    pub(super) registry: Arc<Registry>,
    /// If the worker is to poll before it sleeps.
    pub(super) spin: Option<Arc<Spin>>,
}

impl Shared {
    /// Of the worker with this number, one of those that `serving` has counters for.
    pub(super) fn new(serving: Arc<Serving>, number: usize, spin: Duration) -> Self {
        let registry = Arc::clone(&serving.registries[number]);
        Shared {
            serving,
            number,
            owing: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            nothing_owed: Notify::new(),
            registry,
            spin: (!spin.is_zero()).then(|| Arc::new(Spin::new(spin))),
        }
    }

    /// What to answer the next batch from.
    #[inline]
    pub(super) fn pin(&self) -> Pinned {
        self.serving.slots[self.number].pin()
    }

    /// Whether no more requests are to be read.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Notes that requests were answered.
    #[inline]
    pub(super) fn answered(&self) {
        if let Some(spin) = &self.spin {
            spin.answered();
        }
    }

    /// What the worker counts.
    pub(super) fn counters(&self) -> &Counters {
        &self.serving.workers[self.number]
    }

    pub(super) fn connection_opened(&self) {
        self.counters().connection_opened();
    }

    pub(super) fn connection_closed(&self) {
        self.counters().connection_closed();
    }

    pub(super) fn owes(&self) {
        self.owing.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn owes_no_more(&self) {
        if self.owing.fetch_sub(1, Ordering::Relaxed) == 1 && self.is_stopping() {
            self.nothing_owed.notify_one();
        }
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> u64 {
        self.counters().connections()
    }

    /// Lets connections read no more, and waits until none owes an answer.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        while self.owing.load(Ordering::Relaxed) > 0 {
            self.nothing_owed.notified().await;
        }
    }
}

#[cfg(all(test, feature = "bake"))]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::server::generations::Told;
    use crate::server::{Config, source};

    /// What a single worker's connections share over a file.
    pub(in crate::server) fn shared_over(db: &Path, config: &Config) -> Arc<Shared> {
        let control = Told::new(Arc::default()).control;
        let source = source(db, config);
        let serving = Serving::new(Beginning {
            generation: source.open().unwrap(),
            totals: control.totals(),
            control,
            source,
            socket: "s.sock".into(),
            tcp: None,
            workers: 1,
            notifier: Notifier::new(config.notify),
            limits: config.limits.clone(),
        });
        Arc::new(Shared::new(Arc::new(serving), 0, Duration::ZERO))
    }
}
