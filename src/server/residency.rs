//! Measures how much of the served file is in memory.
//!
//! In: the served table. Out: the number of resident bytes, which may be some seconds old. A measurement takes
//! milliseconds per gigabyte, so other threads only read the last result, which is 0 before the first measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::generations::ServedTable;
use super::liveness::Thread;

/// The time between two checks of whether another generation is served. When a check finds a new generation, the new
/// generation's file is measured at once.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The minimum time between two measurements of one generation.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// The minimum ratio of the pause after a measurement to the duration of the measurement.
const PAUSE_PER_MEASUREMENT: u32 = 200;

/// The number of resident bytes of the file at the last measurement.
#[derive(Default)]
pub(super) struct Residency(AtomicU64);

impl Residency {
    pub(super) fn len_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Measures how much of the current generation's file is in memory. Returns the number of the generation, and how long
/// the measurement took.
fn measure(table: &ServedTable, residency: &Residency) -> (u64, Duration) {
    let (generation, started) = (table.current(), Instant::now());
    let len_bytes = generation.store.resident_len_bytes();
    residency.0.store(len_bytes, Ordering::Relaxed);
    (generation.number, started.elapsed())
}

/// Repeatedly measures how much of the current generation's file is in memory, until the runtime ends.
pub(super) async fn watch(table: Arc<ServedTable>, residency: Arc<Residency>, thread: Arc<Thread>) {
    loop {
        let (measured, residency, thread) = (Arc::clone(&table), Arc::clone(&residency), Arc::clone(&thread));
        let measure = move || thread.catch(|| measure(&measured, &residency));
        let Ok(measured) = tokio::task::spawn_blocking(measure).await else { return };
        // After a panic, the last result stays until the next measurement.
        let (number, took) = measured.unwrap_or_else(|_| (table.current().number, Duration::ZERO));
        let until = Instant::now() + MEASURE_EVERY.max(took * PAUSE_PER_MEASUREMENT);
        while Instant::now() < until && table.current().number == number {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}
