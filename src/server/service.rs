//! Notifications to the service manager (systemd): ready, reloading, stopping, alive.
//!
//! In: events. Out: datagrams to NOTIFY_SOCKET, if this variable is set and the configuration enables notifications. A
//! failure to notify does not stop the server.

use sd_notify::NotifyState;
use tracing::warn;

use super::log_limit::LogLimit;

/// Sends notifications to the service manager.
pub(super) struct Notifier {
    wanted: bool,
    log_limit: LogLimit,
}

impl Notifier {
    /// Creates a notifier, which sends notifications only if they are `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Notifier { wanted, log_limit: LogLimit::default() }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Reports that the server answers requests. The service manager shows `status` to its users.
    pub(super) fn ready(&self, status: &str) {
        self.send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Changes the status that the service manager shows to its users.
    pub(super) fn status(&self, status: &str) {
        self.send(&[NotifyState::Status(status)]);
    }

    /// Reports that the server is checking another file. The next call of [`Notifier::ready`] ends this state.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Reports that the server's threads make progress.
    pub(super) fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.wanted
            && let Err(error) = sd_notify::notify(states)
            && let Some(left_out) = self.log_limit.line()
        {
            warn!(left_out, "the service manager cannot be notified: {error}: check NOTIFY_SOCKET");
        }
    }
}
