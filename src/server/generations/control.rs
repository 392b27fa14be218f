//! Requests to the supervisor.
//!
//! In: requests of clients, of signals, and of workers that notice a change. Out: messages to the supervisor's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::server::statistics::Statistics;

/// A message to the supervisor.
pub(super) enum Message {
    /// Check whether there is another file at the path.
    Look,
    /// Check whether the file that is served was changed in place.
    Changed,
    /// Serve the file at the path, whether or not it was rejected before. The number counts the attempts.
    Reload(u64),
    /// Serve the previous generation.
    Rollback(u64),
    Stop,
}

/// Requests reloads and rollbacks from a running server. Clones may be sent to other threads.
#[derive(Clone)]
pub struct Control {
    pub(super) sender: Sender<Message>,
    statistics: Arc<Statistics>,
}

impl Control {
    /// Opens, checks, and serves the file at the server's path, on the server's own thread. Returns the number of the
    /// attempt, whose outcome Info reports.
    pub fn reload(&self) -> u64 {
        self.request(Message::Reload)
    }

    /// Checks and serves the previous generation again. Returns the number of the attempt.
    pub fn rollback(&self) -> u64 {
        self.request(Message::Rollback)
    }

    fn request(&self, message: impl FnOnce(u64) -> Message) -> u64 {
        let number = 1 + self.statistics.totals.reload_requested.fetch_add(1, Ordering::AcqRel);
        // A server that has ended serves nothing.
        let _ = self.sender.send(message(number));
        number
    }

    /// Reports that the file was changed in place.
    #[cold]
    pub(in crate::server) fn file_has_changed(&self) {
        let _ = self.sender.send(Message::Changed);
    }
}

/// Both ends of the channel to the supervisor, until it runs.
pub(in crate::server) struct ControlChannel {
    pub(in crate::server) control: Control,
    pub(super) receiver: Receiver<Message>,
}

impl ControlChannel {
    /// Opens a channel. `statistics` counts the requests.
    pub(in crate::server) fn new(statistics: Arc<Statistics>) -> ControlChannel {
        let (sender, receiver) = channel();
        ControlChannel { control: Control { sender, statistics }, receiver }
    }
}
