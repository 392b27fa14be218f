//! Sends messages to the supervisor.
//!
//! In: requests for reloads and rollbacks, and reports from workers that the served file was changed. Out: messages to
//! the supervisor's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::watch;

use crate::server::statistics::Statistics;

/// A message to the supervisor.
pub(super) enum Message {
    /// Check whether there is a new file at the path.
    CheckPath,
    /// Check whether the served file was changed in place.
    Changed,
    /// Serve the file at the path, even if it was rejected before. Contains the number of the attempt.
    Reload(u64),
    /// Serve the previous generation. Contains the number of the attempt.
    Rollback(u64),
    Stop,
}

/// A handle that requests reloads and rollbacks from a running server. Clones may be sent to other threads.
#[derive(Clone)]
pub struct Control {
    pub(super) sender: Sender<Message>,
    statistics: Arc<Statistics>,
    /// Announces each requested reload to the parts of the server that read other files, for example the users file.
    reloads: watch::Sender<()>,
}

impl Control {
    /// Requests a reload: the server opens, checks, and serves the file at its path, and reads the users file again.
    /// Returns the number of this attempt without waiting for its end. The response to an Info request reports the
    /// outcome.
    pub fn reload(&self) -> u64 {
        self.reloads.send_replace(());
        self.request(Message::Reload)
    }

    /// Requests a rollback: the server checks and serves the previous generation again. Returns the number of this
    /// attempt without waiting for its end. The response to an Info request reports the outcome.
    pub fn rollback(&self) -> u64 {
        self.request(Message::Rollback)
    }

    fn request(&self, message: impl FnOnce(u64) -> Message) -> u64 {
        let number = 1 + self.statistics.totals.reload_requested.fetch_add(1, Ordering::AcqRel);
        // Fails only if the server has ended.
        let _ = self.sender.send(message(number));
        number
    }

    /// Returns a receiver that is notified of each requested reload.
    pub(in crate::server) fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    /// Reports to the supervisor that the served file was changed in place.
    #[cold]
    pub(in crate::server) fn file_has_changed(&self) {
        let _ = self.sender.send(Message::Changed);
    }
}

/// Both ends of the channel to the supervisor. The supervisor takes the receiver when it starts.
pub(in crate::server) struct ControlChannel {
    pub(in crate::server) control: Control,
    pub(super) receiver: Receiver<Message>,
}

impl ControlChannel {
    /// Opens a channel. `statistics` counts the requested reloads and rollbacks.
    pub(in crate::server) fn new(statistics: Arc<Statistics>) -> ControlChannel {
        let (sender, receiver) = channel();
        ControlChannel { control: Control { sender, statistics, reloads: watch::Sender::new(()) }, receiver }
    }
}
