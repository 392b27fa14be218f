//! Notifications to the service manager (systemd): ready, reloading, stopping, alive.
//!
//! In: events. Out: datagrams to NOTIFY_SOCKET, if it is set and the configuration asks for them. A failure does not
//! stop the server.

use sd_notify::NotifyState;
use tracing::warn;

use super::log_limit::LogLimit;

/// Sends notifications to the service manager.
pub(super) struct Notifier {
    wanted: bool,
    log_limit: LogLimit,
}

impl Notifier {
    /// Creates a notifier. It sends nothing unless notifications are `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Notifier { wanted, log_limit: LogLimit::default() }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Reports that requests are answered. Users of the service manager see `status`.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Changes the status that users of the service manager see.
    pub(super) fn status(&self, status: &str) {
        self.tell(&[NotifyState::Status(status)]);
    }

    /// Reports that another file is being checked, until the next [`Notifier::ready`].
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Reports that the server's threads make progress.
    pub(super) fn alive(&self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.wanted
            && let Err(error) = sd_notify::notify(states)
            && let Some(left_out) = self.log_limit.line()
        {
            warn!(left_out, "the service manager cannot be notified: {error}: check NOTIFY_SOCKET");
        }
    }
}
