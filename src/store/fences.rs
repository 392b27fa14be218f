//! Finds a fence by a key's head, and a row's record by the row's number.
//!
//! In: fences, and the tree above them, as the file stores them. Out: indexes of fences, and offsets of records. If
//! either section is damaged, the result is wrong, but every access is in bounds.

use zerocopy::{Immutable, IntoBytes};

use super::machine::prefetch;
use crate::format::fence::{FENCE_ROWS, Fence, NODE_HEADS, Node, TreeLevels, last_below};

const LINE_LEN_BYTES: usize = 64;

/// The fences of a table, and the tree above them.
#[derive(Clone, Copy)]
pub(super) struct Fences<'a> {
    pub(super) fences: &'a [Fence],
    pub(super) nodes: &'a [Node],
    pub(super) levels: &'a TreeLevels,
}

impl<'a> Fences<'a> {
    /// Returns the last fence whose head is less than `bound`, or the first fence if no head is, as an index.
    #[inline]
    pub(super) fn last_below(&self, bound: u64) -> usize {
        self.last_below_in_node(self.lowest_node(bound), bound)
    }

    /// Searches all levels of the tree except the lowest. Returns the node of the lowest level in which the search for
    /// `bound` continues.
    #[inline(always)]
    pub(super) fn lowest_node(&self, bound: u64) -> usize {
        let upper = self.levels.starts().get(1..).unwrap_or_default();
        upper.iter().rev().fold(0, |node, start| self.search(start + node, bound) + node * NODE_HEADS)
    }

    /// Searches a node of the lowest level. Returns the last fence whose head is less than `bound`, as an index.
    #[inline(always)]
    pub(super) fn last_below_in_node(&self, node: usize, bound: u64) -> usize {
        self.search(node, bound) + node * NODE_HEADS
    }

    #[inline(always)]
    fn search(&self, node: usize, bound: u64) -> usize {
        self.nodes.get(node).map_or(0, |node| last_below(node, bound))
    }

    #[inline(always)]
    pub(super) fn prefetch_node(&self, node: usize) {
        prefetch_lines(self.nodes, node);
    }

    #[inline(always)]
    pub(super) fn prefetch_fence(&self, fence: usize) {
        prefetch_lines(self.fences, fence);
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

/// Prefetches an item of two cache lines.
#[inline(always)]
fn prefetch_lines<T: IntoBytes + Immutable>(items: &[T], index: usize) {
    const { assert!(size_of::<T>() == 2 * LINE_LEN_BYTES) };
    let offset_bytes = index.wrapping_mul(size_of::<T>());
    prefetch(items.as_bytes(), offset_bytes);
    prefetch(items.as_bytes(), offset_bytes.wrapping_add(LINE_LEN_BYTES));
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
                let levels = TreeLevels::new(count * FENCE_ROWS as u64);
                let nodes = nodes_of(&fences);
                assert_eq!(nodes.len(), levels.node_count());
                let found = Fences { fences: &fences, nodes: &nodes, levels: &levels };
                for bound in (0..count * 2 + 20).chain([u64::MAX]) {
                    let below = fences.partition_point(|fence| fence.head.get() < bound);
                    assert_eq!(found.last_below(bound), below.saturating_sub(1), "{count} fences, bound {bound}");
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
