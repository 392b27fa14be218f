//! Replaced generations that are still held.
//!
//! In: generations that were replaced. Out: their release once nothing else refers to them, on the supervisor's thread,
//! because unmapping gigabytes takes time; and the oldest generation that connections may still hold when there are
//! more than the limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Generation;

/// The shortest and the longest time between two checks whether a generation is still held.
const RELEASE_AFTER: Duration = Duration::from_millis(2);
const RELEASE_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Retained {
    max: usize,
    /// The generations, oldest first, each with the time at which it was replaced.
    generations: Vec<(Arc<Generation>, Instant)>,
}

impl Retained {
    /// Creates an empty list. Connections must release the oldest generations if there are more than `max`.
    pub(super) fn new(max: usize) -> Retained {
        Retained { max, generations: Vec::new() }
    }

    /// Adds the generation that was just replaced.
    pub(super) fn add(&mut self, generation: Arc<Generation>) {
        self.generations.push((generation, Instant::now()));
    }

    /// Closes the generations that nobody else holds. Returns how many are left.
    pub(super) fn release(&mut self) -> usize {
        self.generations.retain(|(generation, since)| {
            let is_held = Arc::strong_count(generation) > 1;
            if !is_held {
                tracing::debug!(
                    "generation {} is closed {:?} after it was replaced",
                    generation.number,
                    since.elapsed()
                );
            }
            is_held
        });
        self.generations.len()
    }

    /// Returns the number of the oldest generation that connections may still hold, if there are more replaced
    /// generations than the limit. With a limit of 0, that is the generation after the newest replaced one.
    pub(super) fn oldest_allowed(&self) -> Option<u64> {
        let exceeding = self.generations.len().checked_sub(self.max).filter(|exceeding| *exceeding > 0)?;
        let (newest_exceeding, _) = &self.generations[exceeding - 1];
        Some(newest_exceeding.number + 1)
    }

    /// Returns how long to wait before the next call of [`Retained::release`]. `None` if there is nothing to release.
    pub(super) fn patience(&self) -> Option<Duration> {
        let (_, since) = self.generations.last()?;
        Some(since.elapsed().clamp(RELEASE_AFTER, RELEASE_EVERY))
    }
}
