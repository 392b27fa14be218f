//! Pseudorandom numbers, for commands that choose rows or fields (SplitMix64).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// The state of a sequence. A copy continues with the same numbers.
#[derive(Clone, Copy)]
pub(super) struct Random(u64);

impl Random {
    /// Begins a sequence that differs from others.
    pub(super) fn new() -> Random {
        Random(RandomState::new().build_hasher().finish())
    }

    /// Returns the next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
