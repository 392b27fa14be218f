//! Questions that must be answered in time.
//!
//! A client has no time-outs, and one for each read would not bound an answer
//! that comes byte by byte.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What a question comes to within this time. Else it is left to itself, and
/// ends with the process.
pub(crate) fn within<T: Send + 'static>(timeout: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(ask()));
    answer.recv_timeout(timeout).ok()
}
