//! What the workers of a server, and the connections of a worker, know of each
//! other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::redis::Clients;
use super::spin::Spin;
use crate::store::Store;

/// What all workers of a server share.
pub(super) struct Serving {
    pub(super) store: Arc<Store>,
    /// Where clients connect.
    pub(super) socket: PathBuf,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) started: Instant,
    /// Who speaks the Redis protocol.
    pub(super) clients: Clients,
    workers: Box<[Counters]>,
}

impl Serving {
    pub(super) fn new(store: Arc<Store>, socket: PathBuf, tcp: Option<SocketAddr>, workers: usize) -> Self {
        let workers = std::iter::repeat_with(Counters::default).take(workers).collect();
        Serving { store, socket, tcp, started: Instant::now(), clients: Clients::default(), workers }
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// The sum of a counter over all workers.
    pub(super) fn total(&self, counter: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed)).sum()
    }
}

/// What a worker has counted: passes add to it, requests do not. A worker
/// writes its own only, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counters {
    /// Connections that there are.
    pub(super) connections: AtomicU64,
    /// Connections that there were or are.
    pub(super) accepted: AtomicU64,
    /// Commands of the Redis protocol. Native requests are not counted.
    pub(super) commands: AtomicU64,
    /// Keys that these commands found.
    pub(super) hits: AtomicU64,
    /// Keys that these commands did not find.
    pub(super) misses: AtomicU64,
}

/// What a worker's connections share.
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) serving: Arc<Serving>,
    /// Which of the server's workers it is.
    number: usize,
    /// Connections that owe answers their clients have not taken yet.
    owing: AtomicUsize,
    stopping: AtomicBool,
    nothing_owed: Notify,
    /// If the worker is to poll before it sleeps.
    pub(super) spin: Option<Arc<Spin>>,
}

impl Shared {
    /// Of the worker with this number, one of those that `serving` has counters for.
    pub(super) fn new(serving: Arc<Serving>, number: usize, spin: Duration) -> Self {
        Shared {
            store: Arc::clone(&serving.store),
            serving,
            number,
            owing: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            nothing_owed: Notify::new(),
            spin: (!spin.is_zero()).then(|| Arc::new(Spin::new(spin))),
        }
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
        self.counters().connections.fetch_add(1, Ordering::Relaxed);
        self.counters().accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.counters().connections.fetch_sub(1, Ordering::Relaxed);
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
        self.counters().connections.load(Ordering::Relaxed)
    }

    /// Lets connections read no more, and waits until none owes an answer.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        while self.owing.load(Ordering::Relaxed) > 0 {
            self.nothing_owed.notified().await;
        }
    }
}
