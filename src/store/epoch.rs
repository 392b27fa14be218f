//! Epochs: the times between two changes of a file.

/// The time between two changes of a file: see [`Store::epoch`](super::Store::epoch).
///
/// Bits 0 to 7 are the tag of the epoch. Tags are numbered in order, and repeat after 254 epochs: no epoch has the tag
/// 0, or the tag 1, which would follow it. In epochs with odd tags, the file is trusted; in epochs with even tags,
/// every block counts as damaged. Bit 8 is set in copying epochs. Bits 9 to 63 count the epochs and, in copying epochs,
/// the copies that were verified. This count does not wrap around in the lifetime of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub(super) u64);

impl Epoch {
    /// The first epoch, in which the file is trusted.
    pub(super) const FIRST: Epoch = Epoch(3);
    /// The tag of no epoch.
    pub(super) const NO_TAG: u8 = 0;
    const COPYING: u64 = 1 << 8;
    const COUNT_ONE: u64 = 1 << 9;

    /// Returns the tag of the blocks that are verified in this epoch.
    #[inline(always)]
    pub(super) fn tag(self) -> u8 {
        self.0 as u8
    }

    /// Returns whether only copies of blocks are trusted in this epoch.
    #[inline]
    pub(super) fn is_copying(self) -> bool {
        self.0 & Epoch::COPYING != 0
    }

    /// Returns whether this value is older than another value of the same file.
    pub(super) fn is_before(self, other: Epoch) -> bool {
        self.0 / Epoch::COUNT_ONE < other.0 / Epoch::COUNT_ONE
    }

    /// Returns how many epochs began, and how many copies were verified, since an older value.
    #[cfg(all(test, feature = "bake"))]
    pub(super) fn counted_since(self, older: Epoch) -> u64 {
        self.0 / Epoch::COUNT_ONE - older.0 / Epoch::COUNT_ONE
    }

    /// Returns the value with which the next epoch begins.
    pub(super) fn next(self, is_copying: bool) -> Epoch {
        let count = (self.0 / Epoch::COUNT_ONE + 1) * Epoch::COUNT_ONE;
        // The tags 0 and 1 are left out. A distrusted epoch begins after the highest tag, which is odd.
        let tag = self.tag().checked_add(1).unwrap_or(2);
        Epoch(count | if is_copying { Epoch::COPYING } else { 0 } | u64::from(tag))
    }

    /// Returns the value after another copy was verified in this copying epoch.
    pub(super) fn with_copy(self) -> Epoch {
        Epoch(self.0 + Epoch::COUNT_ONE)
    }

    /// Returns whether this is an epoch in which no byte is trusted.
    #[inline(always)]
    pub(crate) fn is_distrust(self) -> bool {
        self.0.is_multiple_of(2)
    }
}
