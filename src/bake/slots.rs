//! Giving each key a slot of its own.
//!
//! In: keys, and where their records are. Out: pilots and places. Keys that share
//! a pilot are a group. Large groups choose first: each takes the first pilot
//! value that leads all its keys to free slots. A group for which there is none
//! takes slots from others, the smaller the better, which then choose again
//! (as in PtrHash, SEA 2025).

use std::cmp::Reverse;
use std::hash::Hasher;
use std::ops::Range;

use twox_hash::XxHash3_64;
use zerocopy::little_endian::U32;

use crate::format::FormatError;
use crate::format::index::{Hash, Parts, SEED_COUNT};

/// Keys of a group, on average.
const GROUP_KEYS: usize = 3;
/// One slot more than keys for so many keys.
const KEYS_PER_SPARE_SLOT: usize = 16;
/// Groups that chose last and are left alone, so that two do not evict each other forever.
const SETTLED_COUNT: usize = 16;
/// A group that has no slot, or the owner of a slot that is free.
const NONE: u32 = u32::MAX;

/// What a key is hashed from.
pub(super) trait HashSource: Copy {
    fn hash(self, seed: u64) -> Hash;
    /// Hands on the bytes that the first seed follows from.
    fn feed(self, hasher: &mut XxHash3_64);
}

/// A number is hashed itself.
impl HashSource for u64 {
    fn hash(self, seed: u64) -> Hash {
        Hash::of(self, seed)
    }

    fn feed(self, hasher: &mut XxHash3_64) {
        hasher.write(&self.to_le_bytes());
    }
}

/// With its length, so that it is clear where each key ends.
impl HashSource for &[u8] {
    fn hash(self, seed: u64) -> Hash {
        Hash::of_bytes(self, seed)
    }

    fn feed(self, hasher: &mut XxHash3_64) {
        hasher.write(&(self.len() as u16).to_le_bytes());
        hasher.write(self);
    }
}

/// A row as the index sees it.
#[derive(Clone, Copy)]
pub(super) struct Keyed<S> {
    pub(super) source: S,
    /// Where its record is, in units of the record alignment.
    pub(super) place: u32,
}

/// What leads from each key to its record.
pub(super) struct Slots {
    pub(super) hash_seed: u64,
    pub(super) parts: Parts,
    pub(super) pilots: Vec<u8>,
    pub(super) places: Vec<U32>,
}

/// Slots for all keys, the same for the same rows.
///
/// # Errors
/// [`FormatError::Unhashable`].
pub(super) fn assign<S: HashSource>(rows: &[Keyed<S>]) -> Result<Slots, FormatError> {
    // From the keys, so that nobody can choose keys that collide under a seed known beforehand.
    let mut hasher = XxHash3_64::new();
    for row in rows {
        row.source.feed(&mut hasher);
    }
    let first = hasher.finish();
    let mut seeds = (0..SEED_COUNT).map(|number| first.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    seeds.find_map(|seed| assign_with(rows, seed)).ok_or(FormatError::Unhashable)
}

/// Slots under one seed, if there are any.
fn assign_with<S: HashSource>(rows: &[Keyed<S>], hash_seed: u64) -> Option<Slots> {
    // Each key is hashed once: one of bytes lies anywhere in memory.
    let mut rows: Vec<(Hash, u32)> = rows.iter().map(|row| (row.source.hash(hash_seed), row.place)).collect();
    rows.sort_unstable();
    let mut parts = Parts { count: Parts::count(rows.len() as u64), pilots: 1, slots: 1 };
    let part_ends: Vec<usize> =
        (1..=parts.count).map(|next| rows.partition_point(|(hash, _)| hash.part(&parts) < next)).collect();
    let part_rows = |part: usize| part.checked_sub(1).map_or(0, |before| part_ends[before])..part_ends[part];
    let rows_max = (0..part_ends.len()).map(|part| part_rows(part).len()).max().unwrap_or(0);
    parts.pilots = rows_max.div_ceil(GROUP_KEYS).max(1) as u64;
    parts.slots = (rows_max + rows_max.div_ceil(KEYS_PER_SPARE_SLOT)).max(1) as u64;

    let mut pilots = vec![0; (parts.count * parts.pilots) as usize];
    let mut places = vec![U32::ZERO; (parts.count * parts.slots) as usize];
    let (mut hashes, mut choice) = (Vec::new(), Choice::new(parts));
    for (part, pilots) in pilots.chunks_exact_mut(parts.pilots as usize).enumerate() {
        let rows = &rows[part_rows(part)];
        hashes.clear();
        hashes.extend(rows.iter().map(|(hash, _)| *hash));
        choice.choose(&hashes, pilots)?;
        for (hash, place) in rows {
            let pilot = pilots[hash.pilot(&parts) - part * parts.pilots as usize];
            places[hash.slot(pilot, &parts)] = (*place).into();
        }
    }
    Some(Slots { hash_seed, parts, pilots, places })
}

/// The choice of one part's pilots after another's.
struct Choice {
    parts: Parts,
    /// Where each group's keys begin.
    starts: Vec<u32>,
    /// Which group has each slot.
    owners: Vec<u32>,
    by_size: Vec<u32>,
    /// Groups that have lost their slots.
    evicted: Vec<u32>,
    eviction_count: usize,
    settled: [u32; SETTLED_COUNT],
    /// The slots of the group that is choosing.
    slots: Vec<u32>,
}

impl Choice {
    fn new(parts: Parts) -> Self {
        Choice {
            parts,
            starts: Vec::new(),
            owners: Vec::new(),
            by_size: Vec::new(),
            evicted: Vec::new(),
            eviction_count: 0,
            settled: [NONE; SETTLED_COUNT],
            slots: Vec::new(),
        }
    }

    /// Chooses the pilots of a part with these hashes, which ascend. `None` if
    /// it does not come to an end.
    fn choose(&mut self, hashes: &[Hash], pilots: &mut [u8]) -> Option<()> {
        self.begin(hashes, pilots.len());
        for i in 0..self.by_size.len() {
            self.evicted.push(self.by_size[i]);
            while let Some(group) = self.evicted.pop() {
                let keys = &hashes[self.keys(group)];
                if keys.is_empty() {
                    continue;
                }
                let pilot = match self.free_pilot(keys) {
                    Some(pilot) => pilot,
                    None => self.take_slots(group, hashes, pilots)?,
                };
                for hash in keys {
                    self.owners[hash.slot_in_part(pilot, &self.parts) as usize] = group;
                }
                pilots[group as usize] = pilot;
            }
        }
        Some(())
    }

    fn begin(&mut self, hashes: &[Hash], group_count: usize) {
        let first = hashes.first().map_or(0, |hash| (hash.part(&self.parts) * self.parts.pilots) as usize);
        self.starts.clear();
        self.starts.resize(group_count + 1, 0);
        for hash in hashes {
            self.starts[hash.pilot(&self.parts) - first + 1] += 1;
        }
        for group in 0..group_count {
            self.starts[group + 1] += self.starts[group];
        }
        self.owners.clear();
        self.owners.resize(self.parts.slots as usize, NONE);
        let mut by_size: Vec<u32> = (0..group_count as u32).collect();
        by_size.sort_by_key(|group| Reverse(self.keys(*group).len()));
        self.by_size = by_size;
        (self.eviction_count, self.settled) = (0, [NONE; SETTLED_COUNT]);
    }

    fn keys(&self, group: u32) -> Range<usize> {
        self.starts[group as usize] as usize..self.starts[group as usize + 1] as usize
    }

    /// The first pilot that leads these keys to slots that are free.
    fn free_pilot(&mut self, keys: &[Hash]) -> Option<u8> {
        (0..=u8::MAX).find(|pilot| {
            self.slots.clear();
            keys.iter().all(|hash| {
                let slot = hash.slot_in_part(*pilot, &self.parts) as u32;
                let free = self.owners[slot as usize] == NONE && !self.slots.contains(&slot);
                self.slots.push(slot);
                free
            })
        })
    }

    /// The pilot that takes the fewest slots from others, and evicts these.
    fn take_slots(&mut self, group: u32, hashes: &[Hash], pilots: &[u8]) -> Option<u8> {
        let keys = &hashes[self.keys(group)];
        // Begins elsewhere each time, so that groups do not go round in circles.
        let first = (self.eviction_count as u8).wrapping_mul(93);
        let all = (0..=u8::MAX).map(|pilot| pilot.wrapping_add(first));
        let (_, pilot) =
            all.filter_map(|pilot| Some((self.cost(keys, pilot)?, pilot))).min_by_key(|(cost, _)| *cost)?;
        for hash in keys {
            let owner = self.owners[hash.slot_in_part(pilot, &self.parts) as usize];
            if owner == NONE {
                continue;
            }
            for hash in &hashes[self.keys(owner)] {
                self.owners[hash.slot_in_part(pilots[owner as usize], &self.parts) as usize] = NONE;
            }
            self.evicted.push(owner);
            self.eviction_count += 1;
        }
        self.settled[self.eviction_count % SETTLED_COUNT] = group;
        (self.eviction_count <= 16 + 4 * hashes.len()).then_some(pilot)
    }

    /// How hard it will be for others if a group takes a pilot: large groups have
    /// fewer pilots to choose from. `None` if two of its own keys collide, or a
    /// group would be evicted that has just settled.
    fn cost(&mut self, keys: &[Hash], pilot: u8) -> Option<usize> {
        let mut cost = 0;
        self.slots.clear();
        for hash in keys {
            let slot = hash.slot_in_part(pilot, &self.parts) as u32;
            let owner = self.owners[slot as usize];
            if self.slots.contains(&slot) || owner != NONE && self.settled.contains(&owner) {
                return None;
            }
            if owner != NONE {
                cost += self.keys(owner).len().pow(2);
            }
            self.slots.push(slot);
        }
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each row's key leads to a slot with its place, and each slot is one row's.
    fn assert_each_has_its_own(rows: &[Keyed<u64>], slots: &Slots) {
        let mut taken = vec![false; slots.places.len()];
        for row in rows {
            let hash = row.source.hash(slots.hash_seed);
            let slot = hash.slot(slots.pilots[hash.pilot(&slots.parts)], &slots.parts);
            assert_eq!(slots.places[slot], row.place, "key {}", row.source);
            assert!(!std::mem::replace(&mut taken[slot], true), "key {} has slot {slot} for itself", row.source);
        }
    }

    fn rows(keys: impl Iterator<Item = u64>) -> Vec<Keyed<u64>> {
        (1..).zip(keys).map(|(place, source)| Keyed { source, place }).collect()
    }

    #[test]
    fn every_key_has_a_slot_of_its_own_however_keys_are_spread() {
        for row_count in [0, 1, 2, 3, 4, 5, 16, 17, 100, 1000, 32_768, 32_769, 100_000] {
            let spreads = [
                rows((0..).take(row_count)),
                rows((0..).map(|i| i << 40).take(row_count)),
                rows((0..).map(|i: u64| i.reverse_bits()).take(row_count)),
                rows((0..).map(|i: u64| u64::MAX - i * i).take(row_count)),
            ];
            for rows in &spreads {
                let slots = assign(rows).unwrap();
                assert_each_has_its_own(rows, &slots);
                let spare = slots.places.len() - row_count;
                assert!(spare <= 1 + row_count / 16 + row_count / 10, "{row_count} rows, {spare} slots to spare");
            }
        }
    }

    /// A table has a seed only if it serves each of its parts.
    #[test]
    fn every_seed_serves_a_part_that_is_full() {
        for row_count in [1000, 32_768] {
            let rows = rows(0..row_count);
            // Seeds that differ in all bits: near ones only swap neighbouring keys.
            for number in 1..=30_u64 {
                let seed = number.wrapping_mul(0xD1B5_4A32_D192_ED03);
                assert!(assign_with(&rows, seed).is_some(), "{row_count} rows, seed {seed}");
            }
        }
    }

    #[test]
    fn a_seed_fails_for_few_small_tables() {
        for row_count in [3, 10, 50] {
            let rows = rows(0..row_count);
            let seed = |number: u64| number.wrapping_mul(0xD1B5_4A32_D192_ED03);
            let failed = (1..=200).filter(|number| assign_with(&rows, seed(*number)).is_none()).count();
            assert!(failed <= 4, "{row_count} rows: {failed} of 200 seeds failed");
        }
    }

    #[test]
    fn keys_made_to_share_one_pilot_under_a_seed_fail_there_and_are_hashed_with_another() {
        let parts = Parts { count: 1, pilots: 1000, slots: 3188 };
        let colliding = (0..).filter(|key| Hash::of(*key, 7).pilot(&parts) == 1).take(200);
        let rows = rows(colliding.chain((0..2800).map(|i| u64::MAX - i)));
        assert!(assign_with(&rows, 7).is_none());
        let slots = assign(&rows).unwrap();
        assert_each_has_its_own(&rows, &slots);
    }
}
