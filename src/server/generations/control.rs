//! Requests to the supervisor.
//!
//! In: requests of clients, of signals, and of workers that notice a change. Out: messages to the supervisor's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::server::counters::Totals;

/// A message to the supervisor.
pub(super) enum Message {
    /// Look whether there is another file at the path.
    Look,
    /// Look whether the file that is served has changed in place.
    Changed,
    /// Serve the file at the path, whether or not it was refused before. The number is that of the attempt.
    Reload(u64),
    /// Serve the previous generation.
    Rollback(u64),
    Stop,
}

/// Requests another generation from a running server. Clones may be sent to other threads.
#[derive(Clone)]
pub struct Control {
    pub(super) sender: Sender<Message>,
    totals: Arc<Totals>,
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

    pub(in crate::server) fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    fn request(&self, message: impl FnOnce(u64) -> Message) -> u64 {
        let number = 1 + self.totals.reload_requested.fetch_add(1, Ordering::AcqRel);
        // A server that has ended serves nothing.
        let _ = self.sender.send(message(number));
        number
    }

    /// Reports that the file was found to have changed in place.
    #[cold]
    pub(in crate::server) fn file_has_changed(&self) {
        let _ = self.sender.send(Message::Changed);
    }
}

/// The two ends of the messages, until the supervisor runs.
pub(in crate::server) struct Told {
    pub(in crate::server) control: Control,
    pub(super) receiver: Receiver<Message>,
}

impl Told {
    pub(in crate::server) fn new(totals: Arc<Totals>) -> Told {
        let (sender, receiver) = channel();
        Told { control: Control { sender, totals }, receiver }
    }
}
