//! Filling the hash table.

use crate::format::FormatError;
use crate::format::index::{BUCKET_SLOTS, Bucket, Hash, PROBES_MAX, SEED_COUNT, home_count, seed};

/// A row as the hash table sees it.
#[derive(Clone, Copy)]
pub(super) struct Keyed {
    pub(super) key: u64,
    /// Where its record is, in units of the record alignment.
    pub(super) place: u32,
}

/// The buckets for some rows, and the seed with which their keys are hashed: the
/// first that spreads them well enough.
///
/// Rows are placed in the order of their hashes, each as near to its home as
/// those before it leave room, so the same rows give the same buckets.
///
/// # Errors
/// [`FormatError::Unhashable`].
pub(super) fn fill(mut rows: Vec<Keyed>) -> Result<(u64, Vec<Bucket>), FormatError> {
    for number in 0..SEED_COUNT {
        let seed = seed(number);
        rows.sort_unstable_by_key(|row| Hash::of(row.key, seed));
        if let Some(buckets) = fill_with(&rows, seed) {
            return Ok((seed, buckets));
        }
    }
    Err(FormatError::Unhashable)
}

fn fill_with(rows: &[Keyed], seed: u64) -> Option<Vec<Bucket>> {
    let home_count = home_count(rows.len() as u64);
    let mut buckets = vec![Bucket::EMPTY; home_count];
    let (mut at, mut used) = (0, 0);
    for row in rows {
        let hash = Hash::of(row.key, seed);
        let home = hash.home(home_count);
        if home > at {
            (at, used) = (home, 0);
        }
        if used == BUCKET_SLOTS {
            buckets[at].overflows = 1;
            (at, used) = (at + 1, 0);
        }
        if at - home >= PROBES_MAX {
            return None;
        }
        if at == buckets.len() {
            buckets.push(Bucket::EMPTY);
        }
        buckets[at].tags[used] = hash.tag();
        buckets[at].places[used] = row.place.into();
        used += 1;
    }
    Some(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: impl Iterator<Item = u64>) -> Vec<Keyed> {
        (0..).zip(keys).map(|(place, key)| Keyed { key, place }).collect()
    }

    #[test]
    fn every_row_is_near_its_home() {
        let rows = rows((0..100_000).map(|i| i << 40));
        let (seed, buckets) = fill(rows.clone()).unwrap();
        let home_count = home_count(rows.len() as u64);
        for row in rows {
            let hash = Hash::of(row.key, seed);
            let home = hash.home(home_count);
            let reached = buckets[home..].iter().take(PROBES_MAX);
            let end = 1 + reached.take_while(|bucket| bucket.overflows == 1).count();
            let found = buckets[home..].iter().take(end).any(|bucket| {
                (0..BUCKET_SLOTS).any(|slot| bucket.tags[slot] == hash.tag() && bucket.places[slot] == row.place)
            });
            assert!(found, "key {}", row.key);
        }
    }

    #[test]
    fn keys_that_collide_with_one_seed_are_hashed_with_another() {
        let home_count = home_count(4000);
        // More keys of one home than it and all that may follow it can hold.
        let colliding = (0..).filter(|key| Hash::of(*key, 0).home(home_count) == 7).take(3 * BUCKET_SLOTS * PROBES_MAX);
        let keys: Vec<u64> = colliding.collect();
        let others = (0..).map(|i| u64::MAX - i).take(4000 - keys.len());
        let rows = rows(keys.iter().copied().chain(others));
        assert!(
            fill_with(
                &{
                    let mut sorted = rows.clone();
                    sorted.sort_unstable_by_key(|row| Hash::of(row.key, 0));
                    sorted
                },
                0
            )
            .is_none()
        );
        let (seed, _) = fill(rows).unwrap();
        assert_ne!(seed, 0);
    }
}
