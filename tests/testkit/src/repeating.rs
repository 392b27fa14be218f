//! Threads that repeat some work while a test runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs `body` while threads repeat some work: `start` returns the work of the thread with a given number. The threads
/// end with `body`, even if `body` panics. Panics if the work of a thread panics.
pub fn while_threads_repeat<W, R>(threads: usize, start: impl Fn(usize) -> W, body: impl FnOnce() -> R) -> R
where
    W: FnMut() + Send,
{
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for thread in 0..threads {
            let (mut work, stop) = (start(thread), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        body()
    })
}

/// Sets a flag when it is dropped, also by a panic.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
