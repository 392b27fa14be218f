//! What the service manager (systemd) is told: ready, reloading,
//! stopping, alive.
//!
//! In: what happens. Out: datagrams to NOTIFY_SOCKET, if there is one and the
//! configuration asks for it. Whatever goes wrong with them is no reason to stop.

use sd_notify::NotifyState;
use tracing::warn;

use super::log_limit::LogLimit;

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

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
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

    /// The server's threads make progress.
    pub(super) fn alive(&self) {
        self.tell(&[NotifyState::Watchdog]);
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
