//! The index: pilots and places, which lead from a key to its record, and
//! fences, which lead from a row's number to it.
//!
//! Pilots and places are a perfect hash table (the kind that PTHash, SIGIR 2021,
//! and PtrHash, SEA 2025, describe). A few keys share a pilot, a byte
//! chosen at the bake so that no two keys of the table get the same slot. Behind
//! the slot stands the place of the one record that the key can have; the key
//! itself stands in the record. So every lookup takes the same three steps, and
//! none depends on how the keys are spread.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A file holds at most this many rows, 2³².
pub const ROW_COUNT_MAX: u64 = 1 << 32;
/// Rows of a part of the table, on average, from which its number of parts
/// follows: few enough that a bake has a part's slots in the processor's cache.
pub const PART_ROWS: u64 = 1 << 15;
/// Rows from one fence to the next.
pub const FENCE_ROWS: usize = 16;
/// Hash seeds that a baker tries before it gives up. One fails for about no table.
pub const SEED_COUNT: u64 = 64;

/// The first of [`FENCE_ROWS`] rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Fence {
    /// What stands for its key: see [`Key::head`](super::key::Key::head).
    pub head: U64,
    /// Where its record begins in the records section.
    pub offset_bytes: U64,
}

const _: () = assert!(size_of::<Fence>() == 16);

/// How pilots and slots are divided into parts. Keys of a part have their
/// pilots and their slots in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Parts of the table.
    pub count: u64,
    /// Pilots of a part.
    pub pilots: u64,
    /// Slots of a part, below 2³².
    pub slots: u64,
}

impl Parts {
    /// How many parts a table of so many rows has.
    pub const fn count(row_count: u64) -> u64 {
        row_count.div_ceil(PART_ROWS)
    }
}

/// A key's hash, from which its part, its pilot and its slot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// The hash of a number, in a file with this seed. Different numbers have
    /// different hashes: each step can be undone.
    #[inline(always)]
    pub const fn of(key: u64, seed: u64) -> Hash {
        let mut hash = (key ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Hash(hash ^ (hash >> 32))
    }

    /// The hash of a key of bytes, in a file with this seed: its XXH3-64 with it.
    #[inline(always)]
    pub fn of_bytes(key: &[u8], seed: u64) -> Hash {
        Hash(xxh3_64_with_seed(key, seed))
    }

    /// Its number, by which hashes are ordered.
    #[inline(always)]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The hash with this number.
    #[inline(always)]
    pub const fn of_number(number: u64) -> Hash {
        Hash(number)
    }

    /// The part that the key belongs to. Ascends with the hash.
    #[inline(always)]
    pub const fn part(self, parts: &Parts) -> u64 {
        scale(self.0, parts.count)
    }

    /// The pilot that the key shares, counted over all parts. Ascends with the
    /// hash, and lies in the key's part.
    #[inline(always)]
    pub const fn pilot(self, parts: &Parts) -> usize {
        scale(self.0, parts.count * parts.pilots) as usize
    }

    /// The slot, within its part, that a pilot of this value gives the key.
    #[inline(always)]
    pub const fn slot_in_part(self, pilot: u8, parts: &Parts) -> u64 {
        let turned = (self.0 ^ (pilot as u64).wrapping_mul(0xA076_1D64_78BD_642F)).wrapping_mul(0xE703_7ED1_A0B4_28DB);
        // Does not overflow: both factors are below 2³².
        ((turned >> 32) * parts.slots) >> 32
    }

    /// The slot that a pilot of this value gives the key, counted over all parts.
    #[inline(always)]
    pub const fn slot(self, pilot: u8, parts: &Parts) -> usize {
        (self.part(parts) * parts.slots + self.slot_in_part(pilot, parts)) as usize
    }
}

/// `hash * count / 2⁶⁴`: below the count.
#[inline(always)]
const fn scale(hash: u64, count: u64) -> u64 {
    ((hash as u128 * count as u128) >> 64) as u64
}

/// How many fences a table has.
pub const fn fence_count(row_count: u64) -> usize {
    row_count.div_ceil(FENCE_ROWS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pilots_and_slots_lie_in_their_part() {
        for parts in [
            Parts { count: 1, pilots: 1, slots: 1 },
            Parts { count: 3, pilots: 7, slots: 11 },
            Parts { count: 1 << 17, pilots: 11_000, slots: u32::MAX.into() },
        ] {
            let mut hashes: Vec<Hash> = (0..1000).map(|key| Hash::of(key, 0)).collect();
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
