//! Questions that must be answered in time.
//!
//! A client's time-outs are those of connecting and of a call: this is one for all that
//! it takes.

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
