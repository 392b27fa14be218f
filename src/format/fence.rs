//! Fences and the tree above them, which find rows by the order of their keys and by their numbers.
//!
//! A fence describes [`FENCE_ROWS`] consecutive rows in two cache lines: a 32-bit code of each row's key, in key order,
//! and the distance of each row's record from the first one. A code is the distance of the key's head from the head of
//! another row, without its lowest bits. Different keys can therefore have equal codes, and then the keys of their
//! records are compared. The tree has the heads of the first rows of all fences, and, above them, every sixteenth head
//! of the level below. The same tree leads to the groups of the compact layout: see [`super::group`].
//!
//! Reasons and evidence: `docs/decisions/fences.md`.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number of rows that a fence describes.
pub const FENCE_ROWS: usize = 18;
/// The number of heads in a node of the fence tree. A head is 8 bytes of a key.
pub const NODE_HEADS: usize = 16;
/// The maximum number of levels of the fence tree, for a table of 2³² rows.
pub const TREE_LEVELS_MAX: usize = 7;

/// The number of significant bits of a code, relative to the first code of the same part of a fence.
const CODE_BITS: u32 = 30;
/// The code of a row that the last fence does not have. It is greater than every other code.
const NO_CODE: u32 = u32::MAX;
/// The distance of a record that is too far away for 16 bits, and of a row that the last fence does not have.
const NO_DISTANCE: u16 = u16::MAX;

/// A node of the fence tree: ascending heads. After the last head of a level, the node is filled with `u64::MAX`.
pub type Node = [U64; NODE_HEADS];

/// An entry of the fences section. It describes [`FENCE_ROWS`] consecutive rows.
///
/// The widest gap between the heads of adjacent rows splits the rows into a lower part and an upper part. The code of a
/// row is its head's distance from the first head of its part, shifted to the right. Codes of the upper part begin at
/// [`Fence::upper_code`], which is greater than all codes of the lower part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Fence {
    /// The head of the first row's key: see [`Heads`](super::heads::Heads).
    pub head: U64,
    /// The head of the first row of the upper part. If all heads are equal, every row is in the upper part.
    pub upper_head: U64,
    /// The place of the first row's record.
    pub place: U32,
    /// The code of the first row of the upper part.
    pub upper_code: U32,
    /// The codes of all rows except the first, whose code is 0.
    pub codes: [U32; FENCE_ROWS - 1],
    /// The number of bits by which heads in the lower part are shifted.
    pub lower_shift: u8,
    /// The number of bits by which heads in the upper part are shifted.
    pub upper_shift: u8,
    /// For each row except the first, the difference between the place of its record and [`Fence::place`].
    pub distances: [U16; FENCE_ROWS - 1],
}

const _: () = assert!(size_of::<Fence>() == 128);

impl Fence {
    /// Returns the fence of up to [`FENCE_ROWS`] rows, with the head of each row's key and the place of each row's
    /// record, in key order.
    ///
    /// If the heads are not in order, the codes are meaningless.
    ///
    /// # Panics
    /// If there are no rows, or more than [`FENCE_ROWS`].
    pub fn of_rows(heads: &[u64], places: &[u32]) -> Fence {
        let (first, last) = (heads[0], heads[heads.len() - 1]);
        // Two reference heads, on both sides of the widest gap: one outlier, or the end of a cluster of keys, costs the
        // codes of the other rows no precision.
        let (split, gap) = widest_gap(heads);
        let lower_last = if gap > 0 { heads[split - 1] } else { first };
        let upper_head = heads[split];
        let lower_span = lower_last.saturating_sub(first);
        let (lower_shift, upper_shift) = (shift(lower_span), shift(last.saturating_sub(upper_head)));
        // The code before the first code of the upper part belongs to no row, so a head in the gap has it.
        let upper_code = if gap > 0 { (lower_span >> lower_shift) as u32 + 2 } else { 0 };
        let mut fence = Fence {
            head: first.into(),
            upper_head: upper_head.into(),
            place: places[0].into(),
            upper_code: upper_code.into(),
            codes: [NO_CODE.into(); FENCE_ROWS - 1],
            lower_shift,
            upper_shift,
            distances: [NO_DISTANCE.into(); FENCE_ROWS - 1],
        };
        for (i, (head, place)) in heads.iter().zip(places).enumerate().skip(1) {
            let code = match i < split {
                true => (head.wrapping_sub(first) >> lower_shift) as u32,
                false => upper_code.wrapping_add((head.wrapping_sub(upper_head) >> upper_shift) as u32),
            };
            fence.codes[i - 1] = code.into();
            let distance = u16::try_from(place.wrapping_sub(places[0])).unwrap_or(NO_DISTANCE);
            fence.distances[i - 1] = distance.into();
        }
        fence
    }

    /// Returns the code of a head. `head` must not be less than [`Fence::head`].
    ///
    /// Rows with a smaller code have a smaller head, and rows with a greater code have a greater head.
    #[inline(always)]
    pub fn code(&self, head: u64) -> u32 {
        let (upper_head, upper_code) = (self.upper_head.get(), self.upper_code.get());
        let is_upper = head >= upper_head;
        let (from, shift) = if is_upper { (upper_head, self.upper_shift) } else { (self.head.get(), self.lower_shift) };
        let distance = (head.wrapping_sub(from) >> (shift & 63)).min(1 << CODE_BITS) as u32;
        // Each part has codes that belong to no row, for heads that are greater than all heads of the part.
        if is_upper {
            upper_code.wrapping_add(distance).min(NO_CODE - 1)
        } else {
            distance.min(upper_code.wrapping_sub(1))
        }
    }

    /// Returns whether rows with the same code as `head` have the same head.
    #[inline(always)]
    pub fn is_exact(&self, head: u64) -> bool {
        (if head >= self.upper_head.get() { self.upper_shift } else { self.lower_shift }) == 0
    }

    /// Returns the number of rows whose code is less than `code`.
    #[inline(always)]
    pub fn rows_below(&self, code: u32) -> usize {
        usize::from(code > 0) + self.codes.iter().map(|other| u32::from(other.get() < code)).sum::<u32>() as usize
    }

    /// Returns the number of rows whose code is less than or equal to `code`. The first row always is.
    #[inline(always)]
    pub fn rows_up_to(&self, code: u32) -> usize {
        1 + self.codes.iter().map(|other| u32::from(other.get() <= code)).sum::<u32>() as usize
    }

    /// Returns the difference between the place of a row's record and [`Fence::place`]. `i` is the number of rows of
    /// the fence that precede the row. Returns `None` if the difference does not fit into 16 bits, or if there is no
    /// such row.
    #[inline(always)]
    pub fn distance(&self, i: usize) -> Option<u16> {
        match i.checked_sub(1) {
            None => Some(0),
            Some(at) => self.distances.get(at).map(|distance| distance.get()).filter(|found| *found != NO_DISTANCE),
        }
    }
}

/// Returns the first of the rows with the widest gap before their heads, and this gap. Returns row 0 if no heads
/// differ.
fn widest_gap(heads: &[u64]) -> (usize, u64) {
    let gaps = heads.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.enumerate().fold((0, 0), |widest, (i, gap)| if gap > widest.1 { (i + 1, gap) } else { widest })
}

/// Returns the number of bits by which a distance must be shifted so that less than [`CODE_BITS`] bits remain.
fn shift(distance: u64) -> u8 {
    (u64::BITS - distance.leading_zeros()).saturating_sub(CODE_BITS) as u8
}

/// Returns the number of fences of a table.
pub const fn fence_count(row_count: u64) -> usize {
    row_count.div_ceil(FENCE_ROWS as u64) as usize
}

/// The levels of the fence tree. The lowest level has the head of each fence, and comes first in the section. Every
/// level above has the first head of each node of the level below. The highest level is one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeLevels {
    /// The number of levels.
    count: usize,
    /// The number of nodes that precede each level in the section.
    starts: [usize; TREE_LEVELS_MAX],
    node_count: usize,
}

impl TreeLevels {
    /// Returns the levels of the tree above this number of heads, one per fence or group.
    pub fn new(head_count: usize) -> TreeLevels {
        let mut levels = TreeLevels::default();
        let mut heads = head_count;
        while heads > 0 {
            levels.starts[levels.count] = levels.node_count;
            levels.count += 1;
            let nodes = heads.div_ceil(NODE_HEADS);
            levels.node_count += nodes;
            heads = if nodes > 1 { nodes } else { 0 };
        }
        levels
    }

    /// Returns the number of nodes of all levels.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Returns, for each level, the number of nodes that precede it in the section, the lowest level first.
    #[inline(always)]
    pub fn starts(&self) -> &[usize] {
        &self.starts[..self.count.min(TREE_LEVELS_MAX)]
    }
}

/// Returns the last head of a node that is less than `bound`, as an index, or 0 if no head is.
#[inline(always)]
pub fn last_below(node: &Node, bound: u64) -> usize {
    let mut last = 0;
    // No branches: their outcomes would be random.
    for step in [8, 4, 2, 1] {
        // The mask has no effect, but removes the bounds check.
        last += usize::from(node[(last + step) % NODE_HEADS].get() < bound) * step;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lists of heads: dense, far apart, with one or several gaps, equal, and at the limits of numbers.
    fn lists_of_heads() -> Vec<Vec<u64>> {
        let mut lists: Vec<Vec<u64>> = Vec::new();
        for count in 1..=FENCE_ROWS as u64 {
            lists.push((0..count).map(|i| 100 + i).collect());
            lists.push((0..count).map(|i| i << 58).collect());
            lists.push((0..count).map(|i| u64::MAX - (count - 1 - i)).collect());
            lists.push((0..count).map(|i| 5 + i + ((i / 7) << 40)).collect());
            lists.push((0..count).map(|i| 5 + i % 2 + ((i / 2) << 58)).collect());
            lists.push((0..count).map(|i| u64::MAX.wrapping_mul(u64::from(i > 1))).collect());
            lists.push(vec![7; count as usize]);
            lists.push(vec![u64::MAX; count as usize]);
            lists.push((0..count).map(|i| 1_u64.checked_shl(i as u32 * 4).unwrap_or(u64::MAX)).collect());
        }
        lists
    }

    #[test]
    fn codes_are_in_the_order_of_the_heads() {
        for heads in lists_of_heads() {
            let places: Vec<u32> = (0..heads.len() as u32).collect();
            let fence = Fence::of_rows(&heads, &places);
            let around = |head: &u64| [head.wrapping_sub(1), *head, head.wrapping_add(1), head ^ (1 << 40), head / 2];
            for head in heads.iter().flat_map(around).chain([0, u64::MAX]).filter(|head| *head >= heads[0]) {
                let code = fence.code(head);
                let (below, up_to) = (fence.rows_below(code), fence.rows_up_to(code));
                let rows_below = heads.partition_point(|other| *other < head);
                let rows_up_to = heads.partition_point(|other| *other <= head);
                assert!(below <= rows_below && rows_up_to <= up_to && up_to <= heads.len(), "{head} in {heads:?}");
                if fence.is_exact(head) {
                    assert_eq!((below, up_to), (rows_below, rows_up_to), "{head} in {heads:?}");
                }
            }
        }
    }

    #[test]
    fn one_wide_gap_costs_no_precision() {
        let heads: Vec<u64> = (0..18).map(|i| if i < 5 { i * 1000 } else { (1 << 60) + i * 1_000_000 }).collect();
        let fence = Fence::of_rows(&heads, &[0; 18]);
        assert!(heads.iter().all(|head| fence.is_exact(*head)));
        assert_eq!((fence.upper_head.get(), fence.upper_code.get()), (heads[5], 4002));
        assert_eq!(fence.code(1 << 50), 4001);
    }

    #[test]
    fn a_record_that_is_too_far_away_has_no_distance() {
        let places = [7, 9, 7 + 65_534, 7 + 65_535, 7 + 65_536];
        let fence = Fence::of_rows(&[1, 2, 3, 4, 5], &places);
        let distances: Vec<Option<u16>> = (0..=FENCE_ROWS).map(|i| fence.distance(i)).collect();
        assert_eq!(distances[..4], [Some(0), Some(2), Some(65_534), None]);
        assert!(distances[3..].iter().all(Option::is_none));
    }

    #[test]
    fn the_highest_level_is_one_node() {
        for (rows, nodes) in [(0, 0), (1, 1), (18 * 16, 1), (18 * 16 + 1, 3), (18 * 256, 17), (18 * 256 + 1, 17 + 3)] {
            assert_eq!(TreeLevels::new(fence_count(rows)).node_count(), nodes, "{rows} rows");
        }
        assert_eq!(TreeLevels::new(fence_count(1 << 32)).starts().len(), TREE_LEVELS_MAX);
    }

    #[test]
    fn a_search_in_a_node_finds_the_last_head_below_a_bound() {
        for count in 1..=NODE_HEADS {
            let head = |i: usize| if i < count { 10 + i as u64 / 2 * 5 } else { u64::MAX };
            let node: Node = std::array::from_fn(|i| head(i).into());
            for bound in (0..70).chain([u64::MAX]) {
                let below = node.iter().filter(|head| head.get() < bound).count();
                assert_eq!(last_below(&node, bound), below.saturating_sub(1), "{bound} among {count}");
            }
        }
    }
}
