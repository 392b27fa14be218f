//! The memory and the processor: hints, wider instructions, and what a random
//! cache line costs.

use std::hint::black_box;

use crate::support::Random;

pub(crate) const LINE_LEN_BYTES: usize = 64;

/// Starts to load the cache line in which a value begins, and does not wait.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address: *const T = value;
        // SAFETY: A prefetch is a hint: it reads nothing that the program sees, and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Whether the processor has what [`crate::rivals`] compile their wide code for.
pub(crate) fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Memory to read random cache lines of: each holds the number of another, and
/// all together are one circle.
pub(crate) struct Lines {
    lines: Vec<[u64; LINE_LEN_BYTES / 8]>,
    random: Random,
}

impl Lines {
    pub(crate) fn new(len_bytes: usize) -> Lines {
        let mut random = Random(3);
        let mut lines: Vec<_> =
            (0..len_bytes as u64 / LINE_LEN_BYTES as u64 + 2).map(|i| [i; LINE_LEN_BYTES / 8]).collect();
        // Sattolo's shuffle.
        for i in (1..lines.len()).rev() {
            lines.swap(i, random.below(i as u64) as usize);
        }
        Lines { lines, random }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Reads lines whose places do not depend on each other.
    pub(crate) fn read_overlapped(&mut self, count: usize) {
        let first = self.random.number() >> 1;
        let at = |i: u64| (((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * self.lines.len() as u64) >> 32) as usize;
        black_box((first..first + count as u64).map(|i| self.lines[at(i)][0]).fold(0, u64::wrapping_add));
    }

    /// Reads lines, the place of each known when the one before was read.
    pub(crate) fn read_dependent(&mut self, count: usize) {
        let first = self.random.below(self.lines.len() as u64);
        black_box((0..count).fold(first, |at, _| self.lines[at as usize][0]));
    }
}
