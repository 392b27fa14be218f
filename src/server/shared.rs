//! What a worker and its connections know of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::spin::Spin;
use crate::store::Store;

/// What a worker's connections share.
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    connections: AtomicUsize,
    /// Connections that owe answers their clients have not taken yet.
    owing: AtomicUsize,
    stopping: AtomicBool,
    nothing_owed: Notify,
    /// If the worker is to poll before it sleeps.
    pub(super) spin: Option<Arc<Spin>>,
}

impl Shared {
    pub(super) fn new(store: Arc<Store>, spin: Duration) -> Self {
        Shared {
            store,
            connections: AtomicUsize::new(0),
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

    pub(super) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
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
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Lets connections read no more, and waits until none owes an answer.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        while self.owing.load(Ordering::Relaxed) > 0 {
            self.nothing_owed.notified().await;
        }
    }
}
