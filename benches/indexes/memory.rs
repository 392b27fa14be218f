//! Prefetches, detection of vector instructions, and reads of random cache lines.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use std::hint::black_box;

pub(crate) const LINE_LEN_BYTES: usize = 64;

/// Starts to load the cache line in which a value begins, without waiting for it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address: *const T = value;
        // SAFETY: a prefetch is a hint. It has no visible effect and does not fault on any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Returns whether the processor has AVX2 and POPCNT, the features that the vector code of [`crate::indexes::rivals`]
/// needs.
pub(crate) fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// A buffer of cache lines. Each line contains the index of another line, and all lines form one cycle.
pub(crate) struct Lines {
    lines: Vec<[u64; LINE_LEN_BYTES / 8]>,
    random: SmallRng,
}

impl Lines {
    pub(crate) fn new(len_bytes: usize) -> Lines {
        let mut random = SmallRng::seed_from_u64(3);
        let mut lines: Vec<_> =
            (0..len_bytes as u64 / LINE_LEN_BYTES as u64 + 2).map(|i| [i; LINE_LEN_BYTES / 8]).collect();
        // Sattolo's algorithm makes a random permutation with one cycle.
        for i in (1..lines.len()).rev() {
            lines.swap(i, random.random_range(0..i as u64) as usize);
        }
        Lines { lines, random }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Reads `count` random lines whose addresses do not depend on each other, so the processor can overlap the reads.
    pub(crate) fn read_overlapped(&mut self, count: usize) {
        let first = self.random.next_u64() >> 1;
        let at = |i: u64| (((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * self.lines.len() as u64) >> 32) as usize;
        black_box((first..first + count as u64).map(|i| self.lines[at(i)][0]).fold(0, u64::wrapping_add));
    }

    /// Reads `count` lines of the cycle. The address of each line depends on the contents of the previous line.
    pub(crate) fn read_dependent(&mut self, count: usize) {
        let first = self.random.random_range(0..self.lines.len() as u64);
        black_box((0..count).fold(first, |at, _| self.lines[at as usize][0]));
    }
}
