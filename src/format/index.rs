//! The hash index of a file: pilots and places lead from a key to the key's record.
//!
//! Pilots and places are a perfect hash table (as in PTHash, SIGIR 2021, and PtrHash, SEA 2025). A few keys share a
//! pilot: a byte that is chosen during the bake so that no two keys of the table get the same slot. A slot holds the
//! place of the only record that can have the key, and the record holds the key itself. Every lookup therefore reads
//! one pilot, one slot, and one record, for any distribution of keys.
//!
//! Reasons and evidence: `docs/decisions/perfect-hash.md`.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The maximum number of rows in a file, 2³².
pub const ROW_COUNT_MAX: u64 = 1 << 32;
/// The maximum average number of rows per part of the index: a table of `n` rows has `n / PART_ROWS` parts, rounded up.
/// Hashes assign rows to parts, so a part can have more rows. Each thread of a bake processes one part at a time. The
/// slots of one part fit into the processor's cache.
pub const PART_ROWS: u64 = 1 << 15;
/// The number of hash seeds that a bake tries before it fails. For almost every table, the first seed works.
pub const SEED_COUNT: u64 = 64;

/// Describes how a table's pilots and slots are divided into parts. A key's hash selects a part, which contains the
/// key's pilot and the key's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The number of parts.
    pub count: u64,
    /// The number of pilots per part.
    pub pilots: u64,
    /// The number of slots per part, less than 2³².
    pub slots: u64,
}

impl Parts {
    /// Returns the number of parts of a table with this number of rows.
    pub const fn count(row_count: u64) -> u64 {
        row_count.div_ceil(PART_ROWS)
    }
}

/// A key's hash, which determines its part, pilot, and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// Returns the hash of a number. With the same seed, different numbers have different hashes, because each
    /// operation of the hash function is reversible.
    #[inline(always)]
    pub const fn from_u64(key: u64, seed: u64) -> Hash {
        let mut hash = (key ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Hash(hash ^ (hash >> 32))
    }

    /// Returns the hash of a byte key: the XXH3-64 of the bytes with this seed.
    #[inline(always)]
    pub fn from_bytes(key: &[u8], seed: u64) -> Hash {
        Hash(xxh3_64_with_seed(key, seed))
    }

    /// Returns the hash as a number. Hashes are ordered by their numbers.
    #[inline(always)]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the hash whose [`Hash::number`] is `number`.
    #[inline(always)]
    pub const fn from_number(number: u64) -> Hash {
        Hash(number)
    }

    /// Returns the index of the key's part. A greater hash never has a smaller index.
    #[inline(always)]
    pub const fn part(self, parts: &Parts) -> u64 {
        scale(self.0, parts.count)
    }

    /// Returns the index of the key's pilot among the pilots of all parts. The pilot is in the key's part. A greater
    /// hash never has a smaller index.
    #[inline(always)]
    pub const fn pilot(self, parts: &Parts) -> usize {
        scale(self.0, parts.count * parts.pilots) as usize
    }

    /// Returns the slot that the hash and a pilot select, as an index among the slots of the key's part.
    #[inline(always)]
    pub const fn slot_in_part(self, pilot: u8, parts: &Parts) -> u64 {
        // With another pilot, the keys that share it get other slots.
        let turned = (self.0 ^ (pilot as u64).wrapping_mul(0xA076_1D64_78BD_642F)).wrapping_mul(0xE703_7ED1_A0B4_28DB);
        // This does not overflow: both factors are less than 2³².
        ((turned >> 32) * parts.slots) >> 32
    }

    /// Returns the slot that the hash and a pilot select, as an index among the slots of all parts.
    #[inline(always)]
    pub const fn slot(self, pilot: u8, parts: &Parts) -> usize {
        (self.part(parts) * parts.slots + self.slot_in_part(pilot, parts)) as usize
    }
}

/// Returns `hash * count / 2⁶⁴`, which is less than the count.
#[inline(always)]
const fn scale(hash: u64, count: u64) -> u64 {
    ((hash as u128 * count as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pilot_and_slots_of_a_hash_are_in_its_part() {
        for parts in [
            Parts { count: 1, pilots: 1, slots: 1 },
            Parts { count: 3, pilots: 7, slots: 11 },
            Parts { count: 1 << 17, pilots: 11_000, slots: u32::MAX.into() },
        ] {
            let mut hashes: Vec<Hash> = (0..1000).map(|key| Hash::from_u64(key, 0)).collect();
            hashes.extend([Hash(0), Hash(u64::MAX)]);
            hashes.sort_unstable();
            assert!(hashes.is_sorted_by_key(|hash| hash.pilot(&parts)));
            for hash in hashes {
                let part = hash.part(&parts);
                assert!(part < parts.count);
                assert_eq!(hash.pilot(&parts) as u64 / parts.pilots, part);
                for pilot in [0, 1, 255] {
                    assert_eq!(hash.slot(pilot, &parts) as u64 / parts.slots, part);
                }
            }
        }
    }
}
