//! What the workers of a server, and the connections of a worker, know of each
//! other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::counters::{Counters, Sums, Totals};
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
    pub(super) totals: Totals,
    workers: Box<[Counters]>,
}

impl Serving {
    pub(super) fn new(store: Arc<Store>, socket: PathBuf, tcp: Option<SocketAddr>, workers: usize) -> Self {
        let workers = std::iter::repeat_with(Counters::default).take(workers).collect();
        let (started, clients, totals) = (Instant::now(), Clients::default(), Totals::default());
        Serving { store, socket, tcp, started, clients, totals, workers }
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
