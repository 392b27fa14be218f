//! Waiting for a condition, and the duration of tests that can run for any time.

use std::time::{Duration, Instant};

/// The longest time that a test waits for something that must happen, even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two checks of a condition. The processor is free for the processes that a test waits for.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until a condition holds, and fails after [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    found_eventually(what, || holds().then_some(()));
}

/// Waits until `find` returns something, and fails after [`PATIENCE`].
#[track_caller]
pub fn found_eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "the condition did not become true in time: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Returns the duration that `ZERO_KV_FAULTS_SECONDS` sets for each test that can run for any time.
pub fn configured_duration() -> Option<Duration> {
    let seconds = std::env::var("ZERO_KV_FAULTS_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("ZERO_KV_FAULTS_SECONDS is a number of seconds")))
}
