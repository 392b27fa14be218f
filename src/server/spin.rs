//! Polling before sleeping.
//!
//! The system needs tens of microseconds to wake a sleeping worker, which is most of the latency of a client that sends
//! one request at a time. A task that yields whenever it is polled keeps the runtime awake: the runtime checks for
//! events without waiting, and polls the task again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// Keeps one worker awake for some time after each response. Only that worker's thread uses it.
pub(super) struct Spin {
    time: Duration,
    /// Whether responses were made since the last check.
    answered: AtomicBool,
    /// Whether the task waits for `wake`.
    asleep: AtomicBool,
    wake: Notify,
}

impl Spin {
    pub(super) fn new(time: Duration) -> Self {
        Spin { time, answered: AtomicBool::new(false), asleep: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Records that responses were made.
    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Polls after each response. Never ends.
    pub(super) async fn run(&self) {
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let mut since = Instant::now();
            while since.elapsed() < self.time {
                yield_now().await;
                // Lets clients and other workers that wait for this processor run.
                thread::yield_now();
                if self.answered.swap(false, Ordering::Relaxed) {
                    since = Instant::now();
                }
            }
        }
    }
}
