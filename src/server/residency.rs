//! How much of the file is in memory.
//!
//! In: what is served. Out: a number that is some seconds old. To measure it takes
//! the system milliseconds for each gigabyte, so no worker does, however often
//! it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::shared::Serving;

/// How often to see whether another generation is served.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often to measure, and for how much of the time at most: one part of so many.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
const SHARE_OF_TIME: u32 = 200;

/// Bytes of the file, as they were last measured.
#[derive(Default)]
pub(super) struct Residency(AtomicU64);

impl Residency {
    pub(super) fn len_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Measures, and tells which generation it was and how long that took.
pub(super) fn measure(serving: &Serving) -> (u64, Duration) {
    let (generation, started) = (serving.generation(), Instant::now());
    let len_bytes = generation.store.resident_len_bytes();
    serving.residency.0.store(len_bytes, Ordering::Relaxed);
    (generation.number, started.elapsed())
}

/// Measures again and again. Ends with the runtime.
pub(super) async fn watch(serving: Arc<Serving>) {
    loop {
        let measured = Arc::clone(&serving);
        let measure = move || measured.liveness.residency.catch(|| measure(&measured));
        let Ok(measured) = tokio::task::spawn_blocking(measure).await else { return };
        // After a panic the number stays as it was, until the next turn.
        let (number, took) = measured.unwrap_or_else(|_| (serving.generation().number, Duration::ZERO));
        let until = Instant::now() + MEASURE_EVERY.max(took * SHARE_OF_TIME);
        while Instant::now() < until && serving.generation().number == number {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
