//! Finds a fence by a key's head, and a row's record by the row's number.
//!
//! In: fences, and the tree above them, as the file stores them. Out: indexes of fences, and offsets of records. A
//! [`Gate`] verifies each block before a search reads it. Without this check, the result is wrong if either section is
//! damaged, but every access is in bounds.

use zerocopy::{Immutable, IntoBytes};

use super::Store;
use super::epoch::Epoch;
use super::machine::prefetch;
use crate::format::fence::{FENCE_ROWS, Fence, NODE_HEADS, Node, TreeLevels, last_below};

const LINE_LEN_BYTES: usize = 64;

/// The position of a search that the gate did not admit to a block on its path. No node and no fence has this number.
pub(super) const NOT_ADMITTED: u64 = u64::MAX;

/// Determines whether searches may read a block of the fences or of the tree above them.
pub(super) trait Gate: Copy {
    /// Whether the gate admits searches to every block.
    const IS_OPEN: bool;

    fn admits_node(self, node: usize) -> bool;

    fn admits_fence(self, fence: usize) -> bool;
}

/// Admits searches to every block, because all blocks were verified in this epoch.
#[derive(Clone, Copy)]
pub(super) struct AllVerified;

impl Gate for AllVerified {
    const IS_OPEN: bool = true;

    #[inline(always)]
    fn admits_node(self, _: usize) -> bool {
        true
    }

    #[inline(always)]
    fn admits_fence(self, _: usize) -> bool {
        true
    }
}

/// Verifies each block before a search reads it, and admits searches to intact blocks.
#[derive(Clone, Copy)]
pub(super) struct VerifyFirst<'s> {
    pub(super) store: &'s Store,
    pub(super) epoch: Epoch,
}

impl Gate for VerifyFirst<'_> {
    const IS_OPEN: bool = false;

    fn admits_node(self, node: usize) -> bool {
        self.store.is_node_intact(self.epoch, node)
    }

    fn admits_fence(self, fence: usize) -> bool {
        self.store.is_fence_intact(self.epoch, fence)
    }
}

/// The fences of a table, and the tree above them.
#[derive(Clone, Copy)]
pub(super) struct Fences<'a> {
    pub(super) fences: &'a [Fence],
    pub(super) nodes: &'a [Node],
    pub(super) levels: &'a TreeLevels,
}

impl<'a> Fences<'a> {
    /// Returns the last fence whose head is less than `bound`, or the first fence if no head is, as an index. Returns
    /// `None` if `gate` does not admit the search to a node.
    #[inline]
    pub(super) fn last_below(&self, bound: u64, gate: impl Gate) -> Option<usize> {
        let mut lanes = [Lane { head: 0, bound, at: 0 }];
        self.search_upper_levels(&mut lanes, gate);
        self.search_lowest_level(&mut lanes, gate);
        (lanes[0].at != NOT_ADMITTED).then_some(lanes[0].at as usize)
    }

    /// Searches all levels of the tree except the lowest. Sets `at` of each lane to the node of the lowest level in
    /// which the search for the lane's bound continues, and prefetches this node. If `gate` does not admit the search
    /// to a node, sets `at` to [`NOT_ADMITTED`].
    ///
    /// The steps of one search depend on each other. The searches therefore proceed level by level, so that the
    /// processor can work on several of them at the same time.
    #[inline(always)]
    pub(super) fn search_upper_levels(&self, lanes: &mut [Lane], gate: impl Gate) {
        lanes.iter_mut().for_each(|lane| lane.at = 0);
        for start in self.levels.starts().get(1..).unwrap_or_default().iter().rev() {
            lanes.iter_mut().for_each(|lane| self.search_level(*start, lane, gate));
        }
        lanes.iter().for_each(|lane| prefetch_item(self.nodes, lane.at as usize));
    }

    /// Searches the lowest level of the tree. Sets `at` of each lane to the last fence whose head is less than the
    /// lane's bound, or to the first fence if no head is, and prefetches this fence. If `gate` does not admit the
    /// search to a node, sets `at` to [`NOT_ADMITTED`].
    #[inline(always)]
    pub(super) fn search_lowest_level(&self, lanes: &mut [Lane], gate: impl Gate) {
        for lane in lanes {
            self.search_level(0, lane, gate);
            prefetch_item(self.fences, lane.at as usize);
        }
    }

    /// Searches the node `at` of the level that begins at the node `start`. Sets `at` to a node of the level below, or
    /// to a fence.
    #[inline(always)]
    pub(super) fn search_level<G: Gate>(&self, start: usize, lane: &mut Lane, gate: G) {
        let node = lane.at as usize;
        if !G::IS_OPEN && (lane.at == NOT_ADMITTED || !gate.admits_node(start + node)) {
            lane.at = NOT_ADMITTED;
            return;
        }
        let head = self.nodes.get(start + node).map_or(0, |node| last_below(node, lane.bound));
        lane.at = (head + node * NODE_HEADS) as u64;
    }

    /// Returns the last row before another row whose place a fence has, and this place. The last row before `row` is
    /// usually `row` itself, unless the records are very long. Returns `None` if there is no such row.
    #[inline(always)]
    pub(super) fn last_place(&self, row: usize) -> Option<(usize, u64)> {
        let fence = self.fences.get(row / FENCE_ROWS)?;
        let (first, last) = (row - row % FENCE_ROWS, row % FENCE_ROWS);
        let (i, distance) = (0..=last).rev().find_map(|i| Some((i, fence.distance(i)?)))?;
        Some((first + i, u64::from(fence.place.get()) + u64::from(distance)))
    }
}

/// The number of keys that each stage of a lookup processes together: about the number of cache misses that a core can
/// have in flight.
// Servers were slower with 8 and with 32 keys.
pub(super) const GROUP_KEYS: usize = 16;
/// The number of groups whose lookups are in flight: one in each of the four stages.
pub(super) const WINDOW_GROUPS: usize = 4;

/// The state of the lookup of one key.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    /// The key's head.
    pub(super) head: u64,
    /// The heads of the fences before the searched position are less than this bound. 0 if the stages do not search.
    /// After the third stage, this number may have another meaning.
    pub(super) bound: u64,
    /// After the first stage, a node of the lowest level of the tree. After the second stage, a fence. After the third
    /// stage, the result of the stages.
    pub(super) at: u64,
}

/// The groups of keys whose lookups are in flight.
pub(super) struct Window([[Lane; GROUP_KEYS]; WINDOW_GROUPS]);

impl Window {
    pub(super) fn new() -> Window {
        Window([[Lane { head: 0, bound: 0, at: 0 }; GROUP_KEYS]; WINDOW_GROUPS])
    }

    /// Returns the lanes of a group of keys. `count` is the number of keys of all groups.
    #[inline(always)]
    pub(super) fn group(&mut self, number: usize, count: usize) -> &mut [Lane] {
        let keys = count.saturating_sub(number * GROUP_KEYS).min(GROUP_KEYS);
        &mut self.0[number % WINDOW_GROUPS][..keys]
    }
}

/// Prefetches an item of two cache lines.
#[inline(always)]
fn prefetch_item<T: IntoBytes + Immutable>(items: &[T], index: usize) {
    const { assert!(size_of::<T>() == 2 * LINE_LEN_BYTES) };
    let offset_bytes = index.wrapping_mul(size_of::<T>());
    prefetch(items.as_bytes(), offset_bytes);
    prefetch(items.as_bytes(), offset_bytes.wrapping_add(LINE_LEN_BYTES));
}

/// Prefetches the cache lines of a range of bytes, which may be outside of `bytes`.
#[inline(always)]
pub(super) fn prefetch_lines(bytes: &[u8], offset_bytes: usize, len_bytes: usize) {
    prefetch(bytes, offset_bytes);
    let mut at = LINE_LEN_BYTES;
    while at < len_bytes {
        prefetch(bytes, offset_bytes.wrapping_add(at));
        at += LINE_LEN_BYTES;
    }
    // A range seldom begins at a cache line, so its last byte can be in one line more.
    prefetch(bytes, offset_bytes.wrapping_add(len_bytes.wrapping_sub(1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_finds_the_same_fence_as_a_binary_search() {
        for count in [1, 2, 15, 16, 17, 31, 255, 256, 257, 4096, 4097, 5000] {
            for repeated in [1, 3, 20] {
                let fence = |i: u64| Fence::of_rows(&[10 + i / repeated * 2], &[i as u32]);
                let fences: Vec<Fence> = (0..count).map(fence).collect();
                let levels = TreeLevels::new(count as usize);
                let nodes = nodes_of(&fences);
                assert_eq!(nodes.len(), levels.node_count());
                let found = Fences { fences: &fences, nodes: &nodes, levels: &levels };
                for bound in (0..count * 2 + 20).chain([u64::MAX]) {
                    let below = fences.partition_point(|fence| fence.head.get() < bound);
                    assert_eq!(
                        found.last_below(bound, AllVerified),
                        Some(below.saturating_sub(1)),
                        "{count} fences, bound {bound}"
                    );
                }
            }
        }
    }

    /// Returns the nodes of the tree above these fences, the lowest level first.
    fn nodes_of(fences: &[Fence]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut level: Vec<u64> = fences.iter().map(|fence| fence.head.get()).collect();
        loop {
            let of_level = level
                .chunks(NODE_HEADS)
                .map(|heads| -> Node { std::array::from_fn(|i| heads.get(i).copied().unwrap_or(u64::MAX).into()) });
            nodes.extend(of_level);
            if level.len() <= NODE_HEADS {
                return nodes;
            }
            level = level.into_iter().step_by(NODE_HEADS).collect();
        }
    }
}
