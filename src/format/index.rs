//! The index: leaves of keys and locators, and a directory above them.
//!
//! A static search tree without pointers. Each level of the directory holds the
//! first key of every node of the level below, so the child of entry `i` is
//! node `i`, and the shape follows from the row count alone.

use std::ops::Range;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::record::Locator;

/// A file holds at most this many rows, 2³².
pub const ROW_COUNT_MAX: u64 = 1 << 32;
/// Rows of a leaf: their keys fill one 64-byte cache line, their locators the next.
pub const LEAF_ROWS: usize = 8;
/// Keys of a directory node: two cache lines.
pub const NODE_KEYS: usize = 16;
/// A directory has at most this many levels.
pub const LEVELS_MAX: usize = 8;

/// The key that fills unused places. It is also a key that a row may have, so
/// no search takes it as a sign.
pub const UNUSED_KEY: U64 = U64::MAX_VALUE;

/// [`LEAF_ROWS`] rows in key order.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Leaf {
    /// The keys, ascending; [`UNUSED_KEY`] after the last row.
    pub keys: [U64; LEAF_ROWS],
    /// Where each key's record is; [`Locator::UNUSED`] after the last row.
    pub locators: [Locator; LEAF_ROWS],
}

/// [`NODE_KEYS`] entries of a directory level.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Node {
    /// The first keys of the nodes below, ascending; then [`UNUSED_KEY`].
    pub keys: [U64; NODE_KEYS],
}

const _: () = {
    assert!(size_of::<Leaf>() == 128);
    assert!(size_of::<Node>() == 128);
    // One entry more than the largest table needs is never asked for.
    assert!(ROW_COUNT_MAX.div_ceil(LEAF_ROWS as u64) <= (NODE_KEYS as u64).pow(LEVELS_MAX as u32));
};

impl Leaf {
    /// A leaf without rows.
    pub const UNUSED: Leaf = Leaf { keys: [UNUSED_KEY; LEAF_ROWS], locators: [Locator::UNUSED; LEAF_ROWS] };
}

/// One level of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its nodes, counted from the start of the directory section.
    pub nodes: Range<usize>,
    /// How many entries it has: the nodes of the level below.
    pub entry_count: usize,
}

/// The shape of an index, which follows from its row count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many rows the index holds.
    pub row_count: usize,
    /// How many leaves they fill.
    pub leaf_count: usize,
    /// The directory's levels from the root, which is one node, to the level
    /// above the leaves. None if there is at most one leaf.
    pub levels: Vec<Level>,
}

impl Shape {
    /// The shape for a row count; `None` beyond [`ROW_COUNT_MAX`].
    pub fn of(row_count: u64) -> Option<Shape> {
        let row_count = usize::try_from(row_count).ok().filter(|_| row_count <= ROW_COUNT_MAX)?;
        let leaf_count = row_count.div_ceil(LEAF_ROWS);
        let mut entry_counts = Vec::new();
        let mut below = leaf_count;
        while below > 1 {
            entry_counts.push(below);
            below = below.div_ceil(NODE_KEYS);
        }
        let mut first = 0;
        let level_from = |entry_count: usize| {
            let nodes = first..first + entry_count.div_ceil(NODE_KEYS);
            first = nodes.end;
            Level { nodes, entry_count }
        };
        let levels = entry_counts.into_iter().rev().map(level_from).collect();
        Some(Shape { row_count, leaf_count, levels })
    }

    /// Length of the directory section.
    pub fn directory_len_bytes(&self) -> u64 {
        (self.levels.last().map_or(0, |level| level.nodes.end) * size_of::<Node>()) as u64
    }

    /// Length of the leaves section.
    pub fn leaves_len_bytes(&self) -> u64 {
        (self.leaf_count * size_of::<Leaf>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_an_entry_for_each_node_below() {
        for rows in [0, 1, 8, 9, 128, 129, 2048, 2049, 100_000, 10_000_000, ROW_COUNT_MAX] {
            let shape = Shape::of(rows).unwrap();
            let mut below = shape.leaf_count;
            for level in shape.levels.iter().rev() {
                assert_eq!(level.entry_count, below, "{rows} rows");
                below = level.nodes.len();
            }
            assert!(below <= 1, "{rows} rows: the root is one node");
            assert!(shape.levels.len() <= LEVELS_MAX, "{rows} rows");
        }
        assert_eq!(Shape::of(ROW_COUNT_MAX + 1), None);
    }

    #[test]
    fn levels_follow_each_other_without_a_gap() {
        let shape = Shape::of(1_000_000).unwrap();
        let mut next = 0;
        for level in &shape.levels {
            assert_eq!(level.nodes.start, next);
            next = level.nodes.end;
        }
        assert_eq!(shape.directory_len_bytes(), (next * 128) as u64);
    }
}
