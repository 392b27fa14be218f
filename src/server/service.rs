//! What the service manager (systemd) is told: ready, reloading,
//! stopping, alive.
//!
//! In: what happens. Out: datagrams to NOTIFY_SOCKET, if there is one and the
//! configuration asks for it. Whatever goes wrong with them is no reason to stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use super::log_limit::LogLimit;

/// How often a worker's heart beats before the watchdog's time is over.
const BEATS: u32 = 8;

/// The way to the service manager.
pub(super) struct Notifier {
    wanted: bool,
    log_limit: LogLimit,
}

impl Notifier {
    /// Tells nothing unless it is `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Notifier { wanted, log_limit: LogLimit::default() }
    }

    /// Requests are answered; `status` is for who looks at the service.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// What is to be said of the server from now on.
    pub(super) fn status(&self, status: &str) {
        self.tell(&[NotifyState::Status(status)]);
    }

    /// Another file is being looked at; [`Notifier::ready`] ends that.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.wanted
            && let Err(error) = sd_notify::notify(states)
            && let Some(left_out) = self.log_limit.line()
        {
            warn!(left_out, "the service manager cannot be told: {error}: look at NOTIFY_SOCKET");
        }
    }
}

/// Whether workers go round their loops, for the service manager's watchdog.
pub(super) struct Heartbeats {
    beats: Box<[AtomicU64]>,
    /// The service manager takes a server that says nothing for so long for hung.
    timeout: Option<Duration>,
}

impl Heartbeats {
    pub(super) fn new(workers: usize, wanted: bool) -> Self {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| wanted && !timeout.is_zero());
        Heartbeats { beats: (0..workers).map(|_| AtomicU64::new(0)).collect(), timeout }
    }

    /// Beats on the runtime of a worker as long as that goes round. Does not end if
    /// there is a watchdog.
    pub(super) async fn beat(&self, worker: usize) {
        let Some(timeout) = self.timeout else { return };
        loop {
            self.beats[worker].fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(timeout / BEATS).await;
        }
    }

    /// Tells the service manager twice in its time that the server lives, unless a
    /// worker hangs. Does not end.
    pub(super) async fn watch(&self, notifier: &Notifier) {
        let Some(timeout) = self.timeout else { return std::future::pending().await };
        let mut seen = vec![0; self.beats.len()];
        loop {
            tokio::time::sleep(timeout / 2).await;
            match self.hanging(&mut seen) {
                Some(worker) => warn!(worker, "a worker hangs: the service manager is not told that the server lives"),
                None => notifier.tell(&[NotifyState::Watchdog]),
            }
        }
    }

    /// A worker whose heart has not beaten since it was last looked at.
    fn hanging(&self, seen: &mut [u64]) -> Option<usize> {
        let mut hanging = None;
        for (worker, (beats, seen)) in self.beats.iter().zip(seen).enumerate() {
            let now = beats.load(Ordering::Relaxed);
            if now == std::mem::replace(seen, now) {
                hanging = Some(worker);
            }
        }
        hanging
    }
}
