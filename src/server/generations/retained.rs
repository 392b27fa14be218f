//! Replaced generations that are still in use.
//!
//! In: generations that were replaced. Out: the lowest generation number that connections may still hold, if there are
//! more replaced generations than the limit allows. A generation is closed once nothing else refers to it. The
//! supervisor's thread closes it, so that no worker waits while gigabytes are unmapped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Generation;
use super::source::pause;

/// The minimum time between two checks of whether replaced generations are still in use. The checks become less
/// frequent with the time since the last replacement.
const RELEASE_AFTER: Duration = Duration::from_millis(2);
/// The maximum time between two checks of whether replaced generations are still in use.
const RELEASE_EVERY: Duration = Duration::from_millis(250);

/// The replaced generations that are still in use.
pub(super) struct Retained {
    max: usize,
    /// The generations, oldest first, each with the time at which it was replaced.
    generations: Vec<(Arc<Generation>, Instant)>,
}

impl Retained {
    /// Creates an empty list. Whenever the list has more than `max` generations, connections must release the oldest
    /// ones.
    pub(super) fn new(max: usize) -> Retained {
        Retained { max, generations: Vec::new() }
    }

    /// Adds the generation that was just replaced.
    pub(super) fn add(&mut self, generation: Arc<Generation>) {
        self.generations.push((generation, Instant::now()));
    }

    /// Closes the generations that nothing else refers to. Returns the number of generations that are left.
    pub(super) fn release(&mut self) -> usize {
        self.generations.retain(|(generation, since)| {
            let is_held = Arc::strong_count(generation) > 1;
            if !is_held {
                tracing::debug!(
                    "generation {} is closed {:?} after it was replaced",
                    generation.number,
                    since.elapsed()
                );
                generation.store.release_pages(pause);
            }
            is_held
        });
        self.generations.len()
    }

    /// Returns the lowest generation number that connections may still hold. Returns `None` if the number of replaced
    /// generations does not exceed the limit.
    pub(super) fn oldest_allowed(&self) -> Option<u64> {
        let exceeding = self.generations.len().checked_sub(self.max).filter(|exceeding| *exceeding > 0)?;
        let (newest_exceeding, _) = &self.generations[exceeding - 1];
        Some(newest_exceeding.number + 1)
    }

    /// Returns how long to wait before the next call of [`Retained::release`]. `None` if no replaced generation is
    /// left.
    pub(super) fn release_after(&self) -> Option<Duration> {
        let (_, since) = self.generations.last()?;
        Some(since.elapsed().clamp(RELEASE_AFTER, RELEASE_EVERY))
    }
}
