//! Looking keys up in the index.
//!
//! One key at a time, or many in stages: all keys go down one level before any
//! goes down the next, so that their memory accesses overlap. Whatever the
//! directory holds, a search ends in some leaf of the index, and whatever the
//! leaf holds, a key is found only where it stands.

use zerocopy::little_endian::U64;

#[cfg(target_arch = "x86_64")]
use super::compare::avx2;
use super::compare::{below, not_above};
use super::prefetch::{prefetch, prefetch_value};
use crate::format::index::{LEAF_ROWS, Leaf, Level, NODE_KEYS, Node, Shape};
use crate::format::record::Locator;

/// Keys that go through the stages together: enough to keep the memory busy,
/// few enough that what was prefetched first is still in the cache.
const STAGE_KEYS: usize = 64;

const LINE_LEN_BYTES: usize = 64;

/// Typed views of the index sections.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    pub(super) shape: &'a Shape,
    pub(super) directory: &'a [Node],
    pub(super) leaves: &'a [Leaf],
}

/// Whether the processor has what [`avx2`] needs.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt")
}

impl Index<'_> {
    /// The key and locator of a row.
    #[inline]
    pub(super) fn row(&self, row: usize) -> Option<(u64, Locator)> {
        if row >= self.shape.row_count {
            return None;
        }
        let leaf = self.leaves.get(row / LEAF_ROWS)?;
        Some((leaf.keys[row % LEAF_ROWS].get(), leaf.locators[row % LEAF_ROWS]))
    }

    /// The locator of a key, [`Locator::MISSING`] if it is not there.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Locator {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: The processor has the features that the function asks for.
            return unsafe { self.find_avx2(key) };
        }
        self.descend(key, not_above, below)
    }

    /// The locators of many keys; the records that were found are on their way
    /// into the cache.
    ///
    /// # Panics
    /// If `locators` is shorter than `keys`.
    pub(super) fn find_many(&self, keys: &[u64], locators: &mut [Locator], records: &[u8]) {
        let locators = &mut locators[..keys.len()];
        for (keys, locators) in keys.chunks(STAGE_KEYS).zip(locators.chunks_mut(STAGE_KEYS)) {
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                // SAFETY: The processor has the features that the function asks for.
                unsafe { self.find_stage_avx2(keys, locators, records) };
                continue;
            }
            self.descend_together(keys, locators, records, not_above, below);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn find_avx2(&self, key: u64) -> Locator {
        self.descend(key, |keys, key| avx2::not_above(keys, key), |keys, key| avx2::below(keys, key))
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn find_stage_avx2(&self, keys: &[u64], locators: &mut [Locator], records: &[u8]) {
        let not_above = |keys: &_, key| avx2::not_above(keys, key);
        let below = |keys: &_, key| avx2::below(keys, key);
        self.descend_together(keys, locators, records, not_above, below);
    }

    #[inline(always)]
    fn descend(
        &self,
        key: u64,
        not_above: impl Fn(&[U64; NODE_KEYS], u64) -> usize,
        below: impl Fn(&[U64; LEAF_ROWS], u64) -> usize,
    ) -> Locator {
        let mut position = 0;
        for level in &self.shape.levels {
            position = self.step(level, position, key, &not_above);
        }
        self.find_in_leaf(position, key, &below)
    }

    /// Takes at most [`STAGE_KEYS`] keys through all stages.
    #[inline(always)]
    fn descend_together(
        &self,
        keys: &[u64],
        locators: &mut [Locator],
        records: &[u8],
        not_above: impl Fn(&[U64; NODE_KEYS], u64) -> usize,
        below: impl Fn(&[U64; LEAF_ROWS], u64) -> usize,
    ) {
        let mut positions = [0_usize; STAGE_KEYS];
        for level in &self.shape.levels {
            for (position, key) in positions.iter_mut().zip(keys) {
                *position = self.step(level, *position, *key, &not_above);
            }
        }
        for (position, _) in positions.iter().zip(keys) {
            if let Some(leaf) = self.leaves.get(*position) {
                prefetch_value(leaf);
            }
        }
        for ((position, key), locator) in positions.iter().zip(keys).zip(locators) {
            *locator = self.find_in_leaf(*position, *key, &below);
            let record = locator.offset_bytes() as usize;
            prefetch(records, record);
            prefetch(records, record + LINE_LEN_BYTES);
        }
    }

    /// From a node of a level to the node of the level below that may hold the
    /// key: the last whose first key is not above it.
    #[inline(always)]
    fn step(
        &self,
        level: &Level,
        position: usize,
        key: u64,
        not_above: impl Fn(&[U64; NODE_KEYS], u64) -> usize,
    ) -> usize {
        // Where a file that was changed meanwhile leads nowhere, any node does: the leaf decides.
        let Some(node) = self.directory.get(level.nodes.start + position) else { return 0 };
        let child = position * NODE_KEYS + not_above(&node.keys, key).saturating_sub(1);
        // Unused places are not above the highest key of all, and lead to no node.
        child.min(level.entry_count - 1)
    }

    #[inline(always)]
    fn find_in_leaf(&self, leaf: usize, key: u64, below: impl Fn(&[U64; LEAF_ROWS], u64) -> usize) -> Locator {
        let Some(Leaf { keys, locators }) = self.leaves.get(leaf) else { return Locator::MISSING };
        let place = below(keys, key);
        let row = leaf * LEAF_ROWS + place;
        // Unused places hold a key that may be asked for, so the row must be one that the table has.
        match keys.get(place) {
            Some(found) if found.get() == key && row < self.shape.row_count => locators[place],
            _ => Locator::MISSING,
        }
    }
}
