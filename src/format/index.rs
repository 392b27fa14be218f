//! The index: buckets, which lead from a key to its record, and fences, which
//! lead from a row's number to it.
//!
//! Buckets are a hash table without pointers, filled in the order of the keys'
//! hashes. A bucket is one cache line and holds, for each of its records, eight
//! bits of the key's hash and the place of the record; the key itself stands in
//! the record, so most lookups touch one line of the index and then the answer.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A file holds at most this many rows, 2³².
pub const ROW_COUNT_MAX: u64 = 1 << 32;
/// Records that a bucket can hold.
pub const BUCKET_SLOTS: usize = 12;
/// Records that it holds on average, so that few find their bucket full.
pub const BUCKET_ROWS: usize = 8;
/// A record is in its home bucket or one of those behind it, this many in all.
pub const PROBES_MAX: usize = 16;
/// Rows from one fence to the next.
pub const FENCE_ROWS: usize = 8;
/// Seeds that a baker tries, from 0 on, before it gives up. One fails for a
/// table of random keys about never.
pub const SEED_COUNT: u64 = 64;

/// One cache line of the hash table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bucket {
    /// The tag of each record, from the front; 0 where there is none.
    pub tags: [u8; BUCKET_SLOTS],
    /// 1 if a record whose home is here or before stands in the next bucket.
    pub overflows: u8,
    /// Zeros.
    pub reserved: [u8; 3],
    /// Where each record is, in units of the file's record alignment.
    pub places: [U32; BUCKET_SLOTS],
}

/// The first of [`FENCE_ROWS`] rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Fence {
    /// Its key.
    pub key: U64,
    /// Where its record begins in the records section.
    pub offset_bytes: U64,
}

const _: () = {
    assert!(size_of::<Bucket>() == 64);
    assert!(size_of::<Fence>() == 16);
    assert!(ROW_COUNT_MAX / (BUCKET_ROWS as u64) < 1 << 32);
};

impl Bucket {
    /// A bucket without records.
    pub const EMPTY: Bucket =
        Bucket { tags: [0; BUCKET_SLOTS], overflows: 0, reserved: [0; 3], places: [U32::ZERO; BUCKET_SLOTS] };
}

/// A key's hash, from which its home bucket and its tag follow.
///
/// Different keys have different hashes: each step can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// The hash of a key, in a file with this seed.
    #[inline(always)]
    pub const fn of(key: u64, seed: u64) -> Hash {
        let mut hash = (key ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Hash(hash ^ (hash >> 32))
    }

    /// The bucket where the search begins. Ascends with the hash.
    #[inline(always)]
    pub const fn home(self, home_count: usize) -> usize {
        // In range: both factors are below 2³², and the product's upper half is below the second.
        (((self.0 >> 32) * home_count as u64) >> 32) as usize
    }

    /// What a bucket keeps of the hash: never 0.
    #[inline(always)]
    pub const fn tag(self) -> u8 {
        let bits = self.0 as u8;
        if bits == 0 { 1 } else { bits }
    }
}

/// How many buckets are the home of some hash. Behind them are as many more as
/// the last ones need, less than [`PROBES_MAX`].
pub const fn home_count(row_count: u64) -> usize {
    row_count.div_ceil(BUCKET_ROWS as u64) as usize
}

/// How many fences a table has.
pub const fn fence_count(row_count: u64) -> usize {
    row_count.div_ceil(FENCE_ROWS as u64) as usize
}

/// The seed of the `number`th try: the first is 0, the others differ in all bits.
pub const fn seed(number: u64) -> u64 {
    number.wrapping_mul(0xA076_1D64_78BD_642F)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_in_range_and_ascend_with_the_hash() {
        for home_count in [1, 2, 3, 1000, home_count(ROW_COUNT_MAX)] {
            let mut hashes: Vec<Hash> = (0..1000).chain([u64::MAX]).map(|key| Hash::of(key, 0)).collect();
            hashes.extend([Hash(0), Hash(u64::MAX)]);
            hashes.sort_unstable();
            assert!(hashes.is_sorted_by_key(|hash| hash.home(home_count)));
            assert_eq!(Hash(u64::MAX).home(home_count), home_count - 1);
            assert!(hashes.iter().all(|hash| hash.tag() != 0));
        }
    }
}
