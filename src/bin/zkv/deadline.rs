//! A time limit for a whole operation. The client's own time-outs limit each attempt to connect and each call, but not
//! the total time of an operation that connects and calls.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;

/// Starts a thread.
///
/// # Errors
/// Fails if the thread cannot be started. The message states a remedy.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<JoinHandle<T>> {
    thread::Builder::new().spawn(work).context(THREAD_ERROR)
}

/// The error message if a thread cannot be started.
pub(crate) const THREAD_ERROR: &str = "a thread cannot be started: raise the limit on processes (ulimit -u, TasksMax=)";

/// Runs an operation on a new thread, and returns its result, or `None` after the time-out. After a time-out, the
/// operation continues on its thread until it ends or the process exits.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn run_within<T: Send + 'static>(
    timeout: Duration,
    operation: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    spawn(move || sender.send(operation()))?;
    Ok(receiver.recv_timeout(timeout).ok())
}
