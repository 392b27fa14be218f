//! Keeps a worker polling for a short time before it sleeps.
//!
//! Waking a sleeping worker takes tens of microseconds. For a client that sends one request at a time, this is most of
//! the latency. A task that yields whenever it is polled keeps the runtime awake: the runtime checks for events without
//! waiting, and polls the task again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// Keeps one worker awake for some time after each response. Only the worker's own thread uses this type.
pub(super) struct Spin {
    time: Duration,
    /// Whether responses were produced since the polling task last checked.
    answered: AtomicBool,
    /// Whether the polling task waits for `wake`.
    asleep: AtomicBool,
    wake: Notify,
}

impl Spin {
    pub(super) fn new(time: Duration) -> Self {
        Spin { time, answered: AtomicBool::new(false), asleep: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Records that responses were produced, and wakes the polling task.
    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// After each response, polls for the configured time, and then sleeps until the next response. Never returns.
    pub(super) async fn run(&self) {
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let mut since = Instant::now();
            while since.elapsed() < self.time {
                yield_now().await;
                // Yields the processor to clients and other workers that wait for it.
                thread::yield_now();
                if self.answered.swap(false, Ordering::Relaxed) {
                    since = Instant::now();
                }
            }
        }
    }
}
