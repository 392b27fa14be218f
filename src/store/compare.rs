//! Counting the keys of a node that stand before a key.
//!
//! All keys of a node are compared, which takes no branch. Each count comes
//! twice: plainly, and for processors that compare four keys at once.

use zerocopy::little_endian::U64;

use crate::format::index::{LEAF_ROWS, NODE_KEYS};

/// How many of a node's keys are at most `key`.
#[inline(always)]
pub(super) fn not_above(keys: &[U64; NODE_KEYS], key: u64) -> usize {
    keys.iter().map(|other| usize::from(other.get() <= key)).sum()
}

/// How many of a leaf's keys are less than `key`.
#[inline(always)]
pub(super) fn below(keys: &[U64; LEAF_ROWS], key: u64) -> usize {
    keys.iter().map(|other| usize::from(other.get() < key)).sum()
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    //! The same for processors with AVX2. Safe to call where that is known.

    use std::arch::x86_64::{
        __m256i, _mm256_cmpgt_epi64, _mm256_movemask_epi8, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_set1_epi64x,
        _mm256_xor_si256,
    };

    use zerocopy::little_endian::U64;

    use crate::format::index::{LEAF_ROWS, NODE_KEYS};

    /// See [`super::not_above`].
    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    pub(in super::super) fn not_above(keys: &[U64; NODE_KEYS], key: u64) -> usize {
        let [a, b, c, d]: [__m256i; 4] = zerocopy::transmute!(*keys);
        let key = ordered(_mm256_set1_epi64x(key.cast_signed()));
        let above = |keys| _mm256_cmpgt_epi64(ordered(keys), key);
        let halves = (_mm256_packs_epi32(above(a), above(b)), _mm256_packs_epi32(above(c), above(d)));
        // Two bits for each key that is above. Packing mixes their order, which a count does not mind.
        let bits = _mm256_movemask_epi8(_mm256_packs_epi16(halves.0, halves.1));
        NODE_KEYS - bits.count_ones() as usize / 2
    }

    /// See [`super::below`].
    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    pub(in super::super) fn below(keys: &[U64; LEAF_ROWS], key: u64) -> usize {
        let [a, b]: [__m256i; 2] = zerocopy::transmute!(*keys);
        let key = ordered(_mm256_set1_epi64x(key.cast_signed()));
        let below = |keys| _mm256_cmpgt_epi64(key, ordered(keys));
        // Four bits for each key that is below.
        let bits = _mm256_movemask_epi8(_mm256_packs_epi32(below(a), below(b)));
        bits.count_ones() as usize / 4
    }

    /// Keys so that comparing them as signed numbers orders them as unsigned ones.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn ordered(keys: __m256i) -> __m256i {
        _mm256_xor_si256(keys, _mm256_set1_epi64x(i64::MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counts_agree() {
        let edges = [0, 1, 2, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
        for shift in 0..16 {
            let mut keys: [u64; NODE_KEYS] = std::array::from_fn(|i| edges[i / 2].wrapping_add(i as u64 * shift));
            keys.sort_unstable();
            let node = keys.map(U64::new);
            let leaf: [U64; LEAF_ROWS] = std::array::from_fn(|i| node[i * 2]);
            for key in keys.into_iter().flat_map(|key| [key.wrapping_sub(1), key, key.wrapping_add(1)]) {
                assert_eq!(not_above(&node, key), keys.iter().filter(|other| **other <= key).count());
                assert_eq!(below(&leaf, key), leaf.iter().filter(|other| other.get() < key).count());
                #[cfg(target_arch = "x86_64")]
                if super::super::search::has_avx2() {
                    // SAFETY: The processor has AVX2 and POPCNT.
                    assert_eq!(unsafe { avx2::not_above(&node, key) }, not_above(&node, key), "{key} in {keys:?}");
                    // SAFETY: As above.
                    assert_eq!(unsafe { avx2::below(&leaf, key) }, below(&leaf, key), "{key} in {leaf:?}");
                }
            }
        }
    }
}
