//! Gives each key of a part its own slot. A part has the pilots and slots of about 32,768 keys.
//!
//! In: the hashes of a part's keys, and the places of their records. Out: the part's pilots and places. Keys that share
//! a pilot are a group. Pilots are chosen for large groups first: each group gets the first pilot value that selects
//! free slots for all its keys. If there is no such value, the group evicts other groups, preferably small ones, and
//! the pilots of the evicted groups are chosen again (as in PtrHash, SEA 2025).

use std::ops::Range;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::index::{Hash, Parts, SEED_COUNT};

/// The average number of keys in a group. Keys that share a pilot are a group.
const GROUP_KEYS: u64 = 3;
/// The number of keys per spare slot of a part.
const KEYS_PER_SPARE_SLOT: u64 = 16;
/// The maximum number of groups that are protected from eviction (the loss of their slots to another group). The
/// protected groups are those that most recently evicted other groups. Without protection, two groups could evict each
/// other forever.
const SETTLED_COUNT: usize = 16;
/// Marks a slot that no group owns.
const NONE: u32 = u32::MAX;

/// The index build's entry for a row: the hash of its key, and the place of its record. Entries can be written to a
/// temporary file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Entry {
    hash: U64,
    place: U32,
}

impl Entry {
    pub(super) const ZERO: Entry = Entry { hash: U64::ZERO, place: U32::ZERO };

    /// Returns the entry of a row whose record is at `place`, in units of the record alignment.
    #[inline(always)]
    pub(super) fn new(hash: Hash, place: u32) -> Entry {
        Entry { hash: hash.number().into(), place: place.into() }
    }

    #[inline(always)]
    pub(super) fn hash(&self) -> Hash {
        Hash::from_number(self.hash.get())
    }
}

/// Returns the hash seeds to try, in order. The first seed is derived from the keys, so that keys cannot be chosen to
/// collide under a known seed.
pub(super) fn seeds(first: u64) -> impl Iterator<Item = u64> {
    (0..SEED_COUNT).map(move |number| first.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Returns the number of parts of a table, the number of pilots per part, and the number of slots per part.
/// `part_rows_max` is the number of rows in the largest part.
pub(in crate::bake) fn parts(row_count: u64, part_rows_max: u64) -> Parts {
    Parts {
        count: Parts::count(row_count),
        pilots: part_rows_max.div_ceil(GROUP_KEYS).max(1),
        slots: (part_rows_max + part_rows_max.div_ceil(KEYS_PER_SPARE_SLOT)).max(1),
    }
}

/// Chooses pilots for one part at a time. The buffers are reused for the next part.
pub(super) struct PilotChooser {
    parts: Parts,
    /// The hashes of the part's keys, in ascending order. The keys of a group are therefore adjacent. `places` has the
    /// place of each key's record, in the same order.
    hashes: Vec<Hash>,
    places: Vec<U32>,
    /// The position in `hashes` of each group's first key.
    starts: Vec<u32>,
    /// The group that owns each slot.
    owners: Vec<u32>,
    /// One bit per slot, set if a group owns the slot. Unlike `owners`, these bits fit into the processor's first-level
    /// cache.
    taken: Vec<u64>,
    by_size: Vec<u32>,
    /// The groups that have lost their slots to another group. Their pilots must be chosen again.
    evicted: Vec<u32>,
    eviction_count: usize,
    settled: [u32; SETTLED_COUNT],
    /// The slots of the group whose pilot is being chosen.
    slots: Vec<u32>,
}

impl PilotChooser {
    pub(super) fn new(parts: Parts) -> Self {
        PilotChooser {
            parts,
            hashes: Vec::new(),
            places: Vec::new(),
            starts: Vec::new(),
            owners: Vec::new(),
            taken: Vec::new(),
            by_size: Vec::new(),
            evicted: Vec::new(),
            eviction_count: 0,
            settled: [NONE; SETTLED_COUNT],
            slots: Vec::new(),
        }
    }

    /// Chooses the pilots of a part, and writes the place of each row in `rows` into the slot of the row's key. `rows`
    /// may be in any order. `pilots` must have one entry per pilot of a part, and `places` must have one entry per
    /// slot. Both must be zeroed. Returns `None` if no pilots are found that give each key its own slot.
    pub(super) fn choose(&mut self, part: u64, rows: &[Entry], pilots: &mut [u8], places: &mut [U32]) -> Option<()> {
        self.begin(part, rows);
        let hashes = std::mem::take(&mut self.hashes);
        let chosen = self.choose_pilots(&hashes, pilots);
        self.hashes = hashes;
        chosen?;
        for (group, pilot) in pilots.iter().enumerate() {
            for row in self.keys(group as u32) {
                places[self.hashes[row].slot_in_part(*pilot, &self.parts) as usize] = self.places[row];
            }
        }
        Some(())
    }

    fn choose_pilots(&mut self, hashes: &[Hash], pilots: &mut [u8]) -> Option<()> {
        for i in 0..self.by_size.len() {
            self.evicted.push(self.by_size[i]);
            while let Some(group) = self.evicted.pop() {
                let keys = &hashes[self.keys(group)];
                if keys.is_empty() {
                    continue;
                }
                let pilot = match self.free_pilot(keys) {
                    Some(pilot) => pilot,
                    None => self.evict_for(group, hashes, pilots)?,
                };
                for hash in keys {
                    let slot = hash.slot_in_part(pilot, &self.parts) as usize;
                    self.owners[slot] = group;
                    self.taken[slot / 64] |= 1 << (slot % 64);
                }
                pilots[group as usize] = pilot;
            }
        }
        Some(())
    }

    /// Prepares the choice of a part's pilots: sorts the part's rows by hash, and its groups by size.
    fn begin(&mut self, part: u64, rows: &[Entry]) {
        let first_pilot = (part * self.parts.pilots) as usize;
        let group_of = |row: &Entry| row.hash().pilot(&self.parts) - first_pilot;
        self.starts.clear();
        self.starts.resize(self.parts.pilots as usize + 1, 0);
        for row in rows {
            self.starts[group_of(row)] += 1;
        }
        let mut end = 0;
        for start in &mut self.starts {
            end += *start;
            *start = end;
        }
        self.hashes.clear();
        self.hashes.resize(rows.len(), Hash::from_number(0));
        self.places.clear();
        self.places.resize(rows.len(), U32::ZERO);
        // At first, `starts` has the end of each group. Groups are filled from end to start, so that `starts` finally
        // has the start of each group.
        for row in rows {
            let start = &mut self.starts[group_of(row)];
            *start -= 1;
            self.hashes[*start as usize] = row.hash();
            self.places[*start as usize] = row.place;
        }
        for group in 0..self.parts.pilots as u32 {
            self.sort_group(group);
        }
        self.sort_groups();
        self.owners.clear();
        self.owners.resize(self.parts.slots as usize, NONE);
        self.taken.clear();
        self.taken.resize(self.owners.len().div_ceil(64), 0);
        self.evicted.clear();
        (self.eviction_count, self.settled) = (0, [NONE; SETTLED_COUNT]);
    }

    fn sort_group(&mut self, group: u32) {
        let keys = self.keys(group);
        for first in keys.start + 1..keys.end {
            let mut at = first;
            while at > keys.start && self.key(at - 1) > self.key(at) {
                self.hashes.swap(at - 1, at);
                self.places.swap(at - 1, at);
                at -= 1;
            }
        }
    }

    fn key(&self, row: usize) -> (Hash, u32) {
        (self.hashes[row], self.places[row].get())
    }

    /// Sorts groups from large to small, with a counting sort. Groups of the same size keep their order.
    fn sort_groups(&mut self) {
        let group_count = self.parts.pilots as u32;
        let largest = (0..group_count).map(|group| self.keys(group).len()).max().unwrap_or(0);
        let mut nexts = vec![0_u32; largest + 2];
        for group in 0..group_count {
            nexts[largest - self.keys(group).len() + 1] += 1;
        }
        for i in 1..nexts.len() {
            nexts[i] += nexts[i - 1];
        }
        self.by_size.clear();
        self.by_size.resize(group_count as usize, 0);
        for group in 0..group_count {
            let next = &mut nexts[largest - self.keys(group).len()];
            self.by_size[*next as usize] = group;
            *next += 1;
        }
    }

    fn keys(&self, group: u32) -> Range<usize> {
        self.starts[group as usize] as usize..self.starts[group as usize + 1] as usize
    }

    /// Returns the first pilot that selects a different free slot for each of these keys.
    fn free_pilot(&mut self, keys: &[Hash]) -> Option<u8> {
        (0..=u8::MAX).find(|pilot| {
            self.slots.clear();
            keys.iter().all(|hash| {
                let slot = hash.slot_in_part(*pilot, &self.parts) as u32;
                let is_taken = self.taken[slot as usize / 64] >> (slot % 64) & 1 == 1;
                let free = !is_taken && !self.slots.contains(&slot);
                self.slots.push(slot);
                free
            })
        })
    }

    /// Chooses a pilot for `group`: the pilot whose evictions have the least cost. Evicts the groups that own the
    /// pilot's slots, and returns the pilot. Returns `None` if no pilot is possible, or after too many evictions.
    fn evict_for(&mut self, group: u32, hashes: &[Hash], pilots: &[u8]) -> Option<u8> {
        let keys = &hashes[self.keys(group)];
        // Starts with a different pilot each time, to avoid cycles of evictions.
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
                let slot = hash.slot_in_part(pilots[owner as usize], &self.parts) as usize;
                self.owners[slot] = NONE;
                self.taken[slot / 64] &= !(1 << (slot % 64));
            }
            self.evicted.push(owner);
            self.eviction_count += 1;
        }
        self.settled[self.eviction_count % SETTLED_COUNT] = group;
        (self.eviction_count <= 16 + 4 * hashes.len()).then_some(pilot)
    }

    /// Returns the cost of the evictions that a pilot requires. Large groups cost more, because fewer pilots suit them.
    /// Returns `None` if two of the keys would share a slot, or if the pilot would evict a protected group.
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

    /// A row of a table whose keys are numbers.
    #[derive(Clone, Copy)]
    struct Row {
        key: u64,
        place: u32,
    }

    struct AssignedSlots {
        hash_seed: u64,
        parts: Parts,
        pilots: Vec<u8>,
        places: Vec<U32>,
    }

    fn assign(rows: &[Row]) -> AssignedSlots {
        seeds(0xD1B5_4A32_D192_ED03).find_map(|seed| assign_with(rows, seed)).expect("a seed with which pilots exist")
    }

    /// Chooses slots for a whole table. Returns `None` if no pilots are found under the hash seed.
    fn assign_with(rows: &[Row], hash_seed: u64) -> Option<AssignedSlots> {
        let mut by_part = vec![Vec::new(); Parts::count(rows.len() as u64) as usize];
        let divided = parts(rows.len() as u64, 1);
        for row in rows {
            let hash = Hash::from_u64(row.key, hash_seed);
            by_part[hash.part(&divided) as usize].push(Entry::new(hash, row.place));
        }
        let parts = parts(rows.len() as u64, by_part.iter().map(Vec::len).max().unwrap_or(0) as u64);
        let mut pilots = vec![0; (parts.count * parts.pilots) as usize];
        let mut places = vec![U32::ZERO; (parts.count * parts.slots) as usize];
        let mut choice = PilotChooser::new(parts);
        let of_parts = pilots.chunks_mut(parts.pilots as usize).zip(places.chunks_mut(parts.slots as usize));
        for ((part, rows), (pilots, places)) in (0..).zip(&by_part).zip(of_parts) {
            choice.choose(part, rows, pilots, places)?;
        }
        Some(AssignedSlots { hash_seed, parts, pilots, places })
    }

    /// Asserts that each row's key leads to a slot with the row's place, and that no two rows share a slot.
    fn assert_every_row_has_its_own_slot(rows: &[Row], slots: &AssignedSlots) {
        let mut taken = vec![false; slots.places.len()];
        for row in rows {
            let hash = Hash::from_u64(row.key, slots.hash_seed);
            let slot = hash.slot(slots.pilots[hash.pilot(&slots.parts)], &slots.parts);
            assert_eq!(slots.places[slot], row.place, "key {}", row.key);
            assert!(!std::mem::replace(&mut taken[slot], true), "key {} shares slot {slot}", row.key);
        }
    }

    fn rows(keys: impl Iterator<Item = u64>) -> Vec<Row> {
        (1..).zip(keys).map(|(place, key)| Row { key, place }).collect()
    }

    #[test]
    fn every_key_has_its_own_slot_for_any_distribution_of_keys() {
        for row_count in [0, 1, 2, 3, 4, 5, 16, 17, 100, 1000, 32_768, 32_769, 100_000] {
            let spreads = [
                rows((0..).take(row_count)),
                rows((0..).map(|i| i << 40).take(row_count)),
                rows((0..).map(|i: u64| i.reverse_bits()).take(row_count)),
                rows((0..).map(|i: u64| u64::MAX - i * i).take(row_count)),
            ];
            for rows in &spreads {
                let slots = assign(rows);
                assert_every_row_has_its_own_slot(rows, &slots);
                let spare = slots.places.len() - row_count;
                assert!(spare <= 1 + row_count / 16 + row_count / 10, "{row_count} rows, {spare} spare slots");
            }
        }
    }

    /// A table can be indexed under a hash seed only if pilots are found for each of its parts.
    #[test]
    fn pilots_are_found_for_a_full_part_under_every_seed() {
        for row_count in [1000, 32_768] {
            let rows = rows(0..row_count);
            // Similar seeds would only swap the hashes of neighboring keys, so these seeds differ in many bits.
            for number in 1..=30_u64 {
                let seed = number.wrapping_mul(0xD1B5_4A32_D192_ED03);
                assert!(assign_with(&rows, seed).is_some(), "{row_count} rows, seed {seed}");
            }
        }
    }

    #[test]
    fn few_seeds_fail_for_small_tables() {
        for row_count in [3, 10, 50] {
            let rows = rows(0..row_count);
            let seed = |number: u64| number.wrapping_mul(0xD1B5_4A32_D192_ED03);
            let failed = (1..=200).filter(|number| assign_with(&rows, seed(*number)).is_none()).count();
            assert!(failed <= 4, "{row_count} rows: {failed} of 200 seeds failed");
        }
    }

    #[test]
    fn keys_chosen_to_collide_under_one_seed_are_indexed_under_another_seed() {
        let parts = Parts { count: 1, pilots: 1000, slots: 3188 };
        let colliding = (0..).filter(|key| Hash::from_u64(*key, 7).pilot(&parts) == 1).take(200);
        let rows = rows(colliding.chain((0..2800).map(|i| u64::MAX - i)));
        assert!(assign_with(&rows, 7).is_none());
        let slots = assign(&rows);
        assert_every_row_has_its_own_slot(&rows, &slots);
    }
}
