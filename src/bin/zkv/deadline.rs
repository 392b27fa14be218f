//! A time limit for a whole operation. A client's time-outs limit each connection attempt and each call by itself.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs an operation on a new thread, and returns its result, or `None` after the time-out. The thread of an
/// operation that timed out runs until the process exits.
pub(crate) fn run_within<T: Send + 'static>(
    timeout: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(operation()));
    receiver.recv_timeout(timeout).ok()
}
