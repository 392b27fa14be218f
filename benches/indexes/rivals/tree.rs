//! A packed static B-tree (S+ tree). A leaf has `N` sorted keys. An inner node has `N + 1` children, and stores the
//! largest key below each of the first `N` children.

use super::Search;
use crate::indexes::memory::{LINE_LEN_BYTES, prefetch};
use crate::indexes::table::Table;

/// The key in the unused entries of the last node of a level.
const NO_KEY: u64 = u64::MAX;

const LINE_KEYS: usize = LINE_LEN_BYTES / size_of::<u64>();

#[derive(Clone)]
#[repr(align(64))]
struct Node<const N: usize>([u64; N]);

impl<const N: usize> Node<N> {
    /// Returns the number of keys in this node that are less than `key`.
    #[inline(always)]
    fn count_below(&self, key: u64) -> usize {
        // The sum is as wide as the keys, so the compiler can keep the comparisons in vector registers.
        self.0.iter().map(|other| u64::from(*other < key)).sum::<u64>() as usize
    }

    #[inline(always)]
    fn prefetch(&self) {
        for line in self.0.chunks(LINE_KEYS) {
            prefetch(&line[0]);
        }
    }
}

pub(crate) struct Tree<const N: usize> {
    /// The levels from the root down. The last level contains all keys.
    levels: Vec<Vec<Node<N>>>,
}

impl<const N: usize> Search for Tree<N> {
    fn new(table: &Table) -> Self {
        let nodes = |keys: &[u64]| {
            let node = |keys: &[u64]| Node(std::array::from_fn(|i| keys.get(i).copied().unwrap_or(NO_KEY)));
            keys.chunks(N).map(node).collect::<Vec<_>>()
        };
        let mut levels = vec![nodes(&table.keys)];
        // The largest key below each node of the last level.
        let mut largest: Vec<u64> = table.keys.chunks(N).map(|keys| keys[keys.len() - 1]).collect();
        while largest.len() > 1 {
            let children = largest.chunks(N + 1);
            levels.push(children.clone().flat_map(|largest| nodes(&largest[..largest.len().min(N)])).collect());
            largest = children.map(|largest| largest[largest.len() - 1]).collect();
        }
        levels.reverse();
        Tree { levels }
    }

    fn len_bytes(&self, _table: &Table) -> usize {
        self.levels.iter().map(|level| size_of_val(&**level)).sum()
    }

    #[inline(always)]
    fn row(&self, _table: &Table, key: u64) -> usize {
        let (leaves, inner) = self.levels.split_last().expect("a tree has leaves");
        let mut at = 0;
        for level in inner {
            // The last node may have fewer children.
            let Some(node) = level.get(at) else { return usize::MAX };
            at = at * (N + 1) + node.count_below(key);
        }
        leaves.get(at).map_or(usize::MAX, |leaf| at * N + leaf.count_below(key))
    }

    #[inline(always)]
    fn rows(&self, table: &Table, keys: &[u64], rows: &mut [usize]) {
        let leaf_level = self.levels.len() - 1;
        rows.fill(0);
        for level in 0..leaf_level {
            for (key, at) in keys.iter().zip(&mut *rows) {
                let Some(node) = self.levels[level].get(*at) else { continue };
                *at = *at * (N + 1) + node.count_below(*key);
                if let Some(child) = self.levels[level + 1].get(*at) {
                    child.prefetch();
                }
                if level + 1 == leaf_level {
                    table.prefetch_place(*at * N);
                }
            }
        }
        for (key, at) in keys.iter().zip(rows) {
            *at = self.levels[leaf_level].get(*at).map_or(usize::MAX, |leaf| *at * N + leaf.count_below(*key));
        }
    }
}
