//! A search tree over the fences.
//!
//! In: the head of each fence, which is 8 bytes of a key. Out: the number of heads less than a bound. Each level of the
//! tree contains every sixteenth head of the level below it. A search therefore reads a few cache lines per level, and
//! the upper levels stay in the processor's cache. The tree takes half a byte per fence.

use super::Pace;
use super::check::WINDOW_FENCES;
use super::machine::prefetch;
use crate::format::index::Fence;

/// The number of heads in a node of the search tree. A head is 8 bytes of a key.
const NODE_HEADS: usize = 16;

// The fences are read in windows. Each window begins with the first fence of a node.
const _: () = assert!(WINDOW_FENCES.is_multiple_of(NODE_HEADS));

/// The levels of the search tree that are above the fences.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The heads in all levels, the lowest level first. A head is 8 bytes of a key.
    heads: Vec<u64>,
    /// The start of each level in `heads`, the lowest level first.
    starts: Vec<usize>,
}

impl Directory {
    /// Builds the tree. If `pace` cancels the build, the caller must discard the result.
    pub(super) fn from_fences(fences: &[Fence], pace: &Pace) -> Directory {
        let mut directory = Directory::default();
        let mut level: Vec<u64> = Vec::with_capacity(fences.len().div_ceil(NODE_HEADS));
        for window in fences.chunks(WINDOW_FENCES).take_while(|_| pace.goes_on()) {
            level.extend(window.iter().step_by(NODE_HEADS).map(|fence| fence.head.get()));
        }
        let mut below = fences.len();
        // A level of one node needs no level above it.
        while below > NODE_HEADS {
            directory.starts.push(directory.heads.len());
            directory.heads.extend_from_slice(&level);
            below = level.len();
            level = level.iter().copied().step_by(NODE_HEADS).collect();
        }
        directory
    }

    /// Returns the number of fences whose head (8 bytes of a key) is less than `bound`. `fences` must be the fences
    /// that the tree was built from.
    #[inline]
    pub(super) fn below(&self, fences: &[Fence], bound: u64) -> usize {
        let mut node = 0;
        let mut end = self.heads.len();
        for start in self.starts.iter().rev() {
            let level = self.heads.get(*start..end).unwrap_or_default();
            end = *start;
            let from = node * NODE_HEADS;
            let heads = level.get(from..(from + NODE_HEADS).min(level.len())).unwrap_or_default();
            let count = heads.iter().map(|head| usize::from(*head < bound)).sum::<usize>();
            // The search continues in the node below the last head that is less than the bound. If there is no such
            // head, every fence is at or above the bound.
            let Some(last) = (from + count).checked_sub(1) else { return 0 };
            node = last;
        }
        let from = node * NODE_HEADS;
        let heads = fences.get(from..(from + NODE_HEADS).min(fences.len())).unwrap_or_default();
        from + heads.iter().map(|fence| usize::from(fence.head.get() < bound)).sum::<usize>()
    }
}

/// Prefetches a range of `bytes`, but at most the first 4 KiB of the range.
#[inline]
pub(super) fn prefetch_bytes(bytes: &[u8], offset_bytes: usize, len_bytes: usize) {
    const LINE_LEN_BYTES: usize = 64;
    const LEN_MAX_BYTES: usize = 4096;
    for at in (0..len_bytes.min(LEN_MAX_BYTES)).step_by(LINE_LEN_BYTES) {
        prefetch(bytes, offset_bytes.wrapping_add(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_counts_as_many_fences_as_a_binary_search() {
        for count in [0, 1, 2, 15, 16, 17, 31, 255, 256, 257, 4096, 4097, 5000] {
            for repeated in [1, 3, 20] {
                let fence = |i: u64| Fence { head: (10 + i / repeated * 2).into(), offset_bytes: i.into() };
                let fences: Vec<Fence> = (0..count).map(fence).collect();
                let directory = Directory::from_fences(&fences, &Pace::default());
                for bound in (0..count * 2 + 20).chain([u64::MAX]) {
                    let expected = fences.partition_point(|fence| fence.head.get() < bound);
                    assert_eq!(directory.below(&fences, bound), expected, "{count} fences, bound {bound}");
                }
            }
        }
    }
}
