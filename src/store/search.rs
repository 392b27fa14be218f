//! Looking keys up.
//!
//! One key at a time, or many in stages, so that the memory fetches what the
//! next stage needs while others are looked at. Whatever the buckets hold, a key
//! is found only where it stands in a record.

use std::ops::ControlFlow;

use super::machine::{prefetch, slots_with};
use crate::format::index::{Bucket, Hash, PROBES_MAX};

/// Keys that go through the stages together: enough to keep the memory busy,
/// few enough that what was prefetched first is still in the cache.
const STAGE_KEYS: usize = 64;

const LINE_LEN_BYTES: usize = 64;

/// Where a record is in the records section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset_bytes: u64,
}

impl Place {
    /// No record has this key.
    pub(crate) const MISSING: Place = Place { offset_bytes: u64::MAX };
}

/// What a lookup needs of a file.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    pub(super) hash_seed: u64,
    pub(super) home_count: usize,
    pub(super) buckets: &'a [Bucket],
    pub(super) records: &'a [u8],
    pub(super) record_align_bits: u32,
    /// What most records are not longer than.
    pub(super) typical_len_bytes: usize,
}

impl Index<'_> {
    /// Where a key's record is.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Place {
        self.find_hashed(key, Hash::of(key, self.hash_seed))
    }

    /// Hands on, in order, where the records of many keys are, with each key's
    /// position, until it is told to stop.
    #[inline(always)]
    pub(super) fn find_each(&self, keys: &[u64], mut found: impl FnMut(usize, Place) -> ControlFlow<()>) {
        let mut hashes = [Hash::of(0, 0); STAGE_KEYS];
        let mut candidates = [Place::MISSING; STAGE_KEYS];
        for (stage, keys) in keys.chunks(STAGE_KEYS).enumerate() {
            for (key, hash) in keys.iter().zip(&mut hashes) {
                *hash = Hash::of(*key, self.hash_seed);
                if let Some(bucket) = self.buckets.get(hash.home(self.home_count)) {
                    prefetch(bucket);
                }
            }
            for (hash, candidate) in hashes[..keys.len()].iter().zip(&mut candidates) {
                *candidate = self.candidate(*hash);
                self.prefetch_record(*candidate);
            }
            for (i, key) in keys.iter().enumerate() {
                let candidate = candidates[i];
                let place = if self.is_at(*key, candidate) { candidate } else { self.find_hashed(*key, hashes[i]) };
                if found(stage * STAGE_KEYS + i, place).is_break() {
                    return;
                }
            }
        }
    }

    /// The first record in a hash's home bucket that may be the one. A guess,
    /// right for nearly all keys that are there.
    #[inline(always)]
    fn candidate(&self, hash: Hash) -> Place {
        let Some(bucket) = self.buckets.get(hash.home(self.home_count)) else { return Place::MISSING };
        self.place(bucket, slots_with(bucket, hash.tag())).unwrap_or(Place::MISSING)
    }

    #[inline]
    fn find_hashed(&self, key: u64, hash: Hash) -> Place {
        let home = hash.home(self.home_count);
        for bucket in self.buckets.iter().skip(home).take(PROBES_MAX) {
            let mut slots = slots_with(bucket, hash.tag());
            while let Some(place) = self.place(bucket, slots) {
                if self.is_at(key, place) {
                    return place;
                }
                slots &= slots - 1;
            }
            if bucket.overflows == 0 {
                break;
            }
        }
        Place::MISSING
    }

    /// The place in the lowest of some slots.
    #[inline(always)]
    fn place(&self, bucket: &Bucket, slots: u32) -> Option<Place> {
        let place = bucket.places.get(slots.trailing_zeros() as usize)?;
        Some(Place { offset_bytes: u64::from(place.get()) << self.record_align_bits })
    }

    /// Whether this key's record is there.
    #[inline(always)]
    fn is_at(&self, key: u64, place: Place) -> bool {
        let found = self.records.get(place.offset_bytes as usize..).and_then(|rest| rest.first_chunk());
        found.is_some_and(|found| u64::from_le_bytes(*found) == key)
    }

    /// Starts to load as much of a record as most records have.
    #[inline(always)]
    fn prefetch_record(&self, place: Place) {
        let Some(record) = self.records.get(place.offset_bytes as usize..) else { return };
        let mut at = 0;
        while at < self.typical_len_bytes.min(record.len()) {
            prefetch(&record[at]);
            at += LINE_LEN_BYTES;
        }
        if let Some(last) = record.get(self.typical_len_bytes.saturating_sub(1)) {
            prefetch(last);
        }
    }
}
