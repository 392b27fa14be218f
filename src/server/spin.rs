//! Polling for a while before sleeping.
//!
//! A sleeping worker takes the system tens of microseconds to wake, which is
//! most of what a client waits that sends one request at a time. A task that
//! yields whenever it is polled keeps the runtime from sleeping: it looks for
//! events without waiting, and comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// Keeps one worker awake for some time after each answer. Everything in it is
/// used on that worker's thread only.
pub(super) struct Spin {
    time: Duration,
    /// Whether something was answered since this was last looked at.
    answered: AtomicBool,
    /// Whether it takes `wake` to go on.
    asleep: AtomicBool,
    wake: Notify,
}

impl Spin {
    pub(super) fn new(time: Duration) -> Self {
        Spin { time, answered: AtomicBool::new(false), asleep: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Notes that something was answered.
    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Spins whenever something was answered. Does not end.
    pub(super) async fn run(&self) {
        loop {
            self.asleep.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let mut since = Instant::now();
            while since.elapsed() < self.time {
                yield_now().await;
                // Clients and other workers that want this processor come first.
                thread::yield_now();
                if self.answered.swap(false, Ordering::Relaxed) {
                    since = Instant::now();
                }
            }
        }
    }
}
