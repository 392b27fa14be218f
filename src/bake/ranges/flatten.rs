//! Turns ranges that may overlap into ranges that do not.
//!
//! In: ranges in the order of their starts; of ranges with the same start, the longer one comes first. Out: disjoint
//! ranges in the order of their starts. A key belongs to the range that wins among all ranges that contain it. Every
//! range of an input wins over the ranges of the base. If a deletion wins, the key belongs to no range. Adjacent ranges with
//! equal values become one.

use std::cmp::Ordering;

use super::super::options::Overlaps;
use super::super::sort::BASE_ORIGIN;

/// The maximum number of values whose memory is used again, and the maximum length of this memory.
const SPARE_MAX: usize = 64;
const SPARE_LEN_MAX_BYTES: usize = 16 << 10;

/// A range of numbers, both ends included, with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u128,
    pub(super) end: u128,
    pub(super) value: Vec<u8>,
    /// The input and line of the range.
    pub(super) origin: u64,
    /// Whether the range has no value and removes its keys.
    pub(super) deleted: bool,
    /// Whether the range is a deletion that [`BaseCounts`] counts as effective.
    is_counted: bool,
}

impl Range {
    /// Returns a range that has no value yet.
    pub(super) fn new((start, end): (u128, u128), origin: u64, deleted: bool) -> Range {
        Range { start, end, origin, deleted, ..Range::default() }
    }

    fn is_of_base(&self) -> bool {
        self.origin >= BASE_ORIGIN
    }

    fn held_bytes(&self) -> usize {
        size_of::<Range>() + self.value.len()
    }
}

/// How the ranges of the inputs changed those of the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BaseCounts {
    /// The number of ranges of the base that lose keys, the first of them to another range.
    pub(super) replaced: u64,
    /// The number of ranges of the base that lose keys, the first of them to a deletion.
    pub(super) removed: u64,
    pub(super) deletions: u64,
    /// The number of deletions that take keys of a range of the base.
    pub(super) effective_deletions: u64,
}

/// The last range of the base that was added.
#[derive(Clone, Copy, Debug)]
struct BaseRange {
    end: u128,
    /// Whether the range has lost keys.
    is_counted: bool,
}

impl BaseCounts {
    /// Notes that a range wins at a position, which is not before the start of the base's range.
    fn note(&mut self, base: &mut Option<BaseRange>, winner: &mut Range, at: u128) {
        let Some(base) = base.as_mut().filter(|base| base.end >= at && !winner.is_of_base()) else { return };
        if !base.is_counted {
            *(if winner.deleted { &mut self.removed } else { &mut self.replaced }) += 1;
        }
        self.effective_deletions += u64::from(winner.deleted && !winner.is_counted);
        (base.is_counted, winner.is_counted) = (true, true);
    }
}

/// Two input ranges that share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub(super) earlier_origin: u64,
    pub(super) later_origin: u64,
}

/// Flattens ranges of one space of numbers, in one pass.
///
/// The memory holds only ranges that contain the current position, and that will win at some later position if no
/// further range follows. For nested ranges, these are the enclosing ranges.
#[derive(Debug)]
pub(super) struct Flattener {
    overlaps: Overlaps,
    /// The first position that no range has been assigned to.
    at: u128,
    /// Ranges that reach `at`. Each wins over the ranges before it, and ends before them: a range that neither wins nor
    /// ends later than another one can be forgotten. The last range wins at `at`.
    open: Vec<Range>,
    /// The memory that the open ranges take.
    open_len_bytes: usize,
    /// The latest range of the result, which the next one may extend.
    last: Option<Range>,
    /// Values that are no longer needed, whose memory is used again.
    spare: Vec<Vec<u8>>,
    base: Option<BaseRange>,
    pub(super) counts: BaseCounts,
}

impl Flattener {
    pub(super) fn new(overlaps: Overlaps) -> Flattener {
        let (base, counts) = (None, BaseCounts::default());
        let (open, spare) = (Vec::new(), Vec::new());
        Flattener { overlaps, at: 0, open, open_len_bytes: 0, last: None, spare, base, counts }
    }

    /// Returns the number of ranges in memory, and the memory that they take.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.open.len(), self.open_len_bytes)
    }

    /// Adds the next range, whose value is `value`, and passes the ranges of the result that are complete to `take`.
    /// Returns the overlap of two ranges of inputs, if there is one.
    pub(super) fn push<E>(
        &mut self,
        mut range: Range,
        value: &[u8],
        take: &mut impl FnMut(&Range) -> Result<(), E>,
    ) -> Result<Option<Overlap>, E> {
        self.advance(Some(range.start), take)?;
        self.at = range.start;
        // All ranges of inputs win over those of the base, so the last one is of an input if any is.
        let overlap = self.open.last().filter(|open| !open.is_of_base() && !range.is_of_base()).map(|open| Overlap {
            earlier_origin: open.origin.min(range.origin),
            later_origin: open.origin.max(range.origin),
        });
        self.counts.deletions += u64::from(range.deleted);
        if range.is_of_base() {
            self.base = Some(BaseRange { end: range.end, is_counted: false });
        }
        let rank = self.open.partition_point(|open| self.order(open, &range) == Ordering::Less);
        // Of the ranges that win over this one, the next one ends last.
        if self.open.get(rank).is_some_and(|winner| winner.end >= range.end) {
            return Ok(overlap);
        }
        range.value = copied(&mut self.spare, value);
        self.open_len_bytes += range.held_bytes();
        let first_hidden = self.open[..rank].partition_point(|loser| loser.end > range.end);
        for hidden in self.open.splice(first_hidden..rank, [range]) {
            self.open_len_bytes -= hidden.held_bytes();
            keep(&mut self.spare, hidden.value);
        }
        Ok(overlap)
    }

    /// Ends the input: passes the remaining ranges to `take`. The next range may have any start.
    pub(super) fn finish<E>(&mut self, take: &mut impl FnMut(&Range) -> Result<(), E>) -> Result<(), E> {
        self.advance(None, take)?;
        self.base = None;
        if let Some(last) = self.last.take() {
            take(&last)?;
            keep(&mut self.spare, last.value);
        }
        Ok(())
    }

    /// Orders two ranges of which the first one was added first: the greater one wins.
    fn order(&self, open: &Range, added: &Range) -> Ordering {
        let of_base = added.is_of_base().cmp(&open.is_of_base());
        of_base.then_with(|| match self.overlaps {
            // Overlaps are reported, so the result is never used.
            Overlaps::Error | Overlaps::First => added.origin.cmp(&open.origin),
            Overlaps::Last => open.origin.cmp(&added.origin),
            // Of two ranges of equal length, the one that starts later wins, whatever the order of the input is.
            Overlaps::Narrowest => {
                let len = |range: &Range| range.end - range.start;
                len(added).cmp(&len(open)).then(open.start.cmp(&added.start))
            }
        })
    }

    /// Assigns all positions before `until`, or all positions, to the ranges that win there.
    fn advance<E>(&mut self, until: Option<u128>, take: &mut impl FnMut(&Range) -> Result<(), E>) -> Result<(), E> {
        let Flattener { at, open, open_len_bytes, last, spare, base, counts, .. } = self;
        while let Some(winner) = open.last_mut() {
            if let Some(until) = until
                && until <= winner.end
            {
                if *at < until {
                    counts.note(base, winner, *at);
                    add(last, spare, (*at, until - 1), winner, take)?;
                }
                return Ok(());
            }
            counts.note(base, winner, *at);
            add(last, spare, (*at, winner.end), winner, take)?;
            // All other ranges end later, so if there is one, there is a next position.
            *at = winner.end.saturating_add(1);
            *open_len_bytes -= winner.held_bytes();
            open.pop().into_iter().for_each(|closed| keep(spare, closed.value));
        }
        Ok(())
    }
}

/// Adds a part of a range to the result, unless it is a deletion: extends the latest range, or passes it to `take` and
/// begins the next one.
fn add<E>(
    last: &mut Option<Range>,
    spare: &mut Vec<Vec<u8>>,
    (start, end): (u128, u128),
    range: &Range,
    take: &mut impl FnMut(&Range) -> Result<(), E>,
) -> Result<(), E> {
    if range.deleted {
        return Ok(());
    }
    if let Some(last) = last
        && last.end.checked_add(1) == Some(start)
        && last.value == range.value
    {
        last.end = end;
        return Ok(());
    }
    let value = copied(spare, &range.value);
    if let Some(complete) = last.replace(Range { start, end, value, origin: range.origin, ..Range::default() }) {
        take(&complete)?;
        keep(spare, complete.value);
    }
    Ok(())
}

/// Keeps the memory of a value, unless much memory is kept already.
fn keep(spare: &mut Vec<Vec<u8>>, value: Vec<u8>) {
    if spare.len() < SPARE_MAX && value.capacity() <= SPARE_LEN_MAX_BYTES {
        spare.push(value);
    }
}

/// Returns a copy of a value, in memory that is used again.
fn copied(spare: &mut Vec<Vec<u8>>, value: &[u8]) -> Vec<u8> {
    let mut copy = spare.pop().unwrap_or_default();
    copy.clear();
    copy.extend_from_slice(value);
    copy
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The largest position of the tests.
    const LAST: u128 = 40;

    fn sorted(mut ranges: Vec<Range>) -> Vec<Range> {
        ranges.sort_by_key(|range| (range.start, u128::MAX - range.end, range.origin));
        // Equal ranges are duplicates, of which the sort keeps one.
        ranges.dedup_by_key(|range| (range.start, range.end));
        ranges
    }

    /// The start, the end, and the value of a range.
    type Row = (u128, u128, Vec<u8>);

    /// Returns the result, the counts, whether ranges overlap, and how many were open at most.
    fn flattened(ranges: &[Range], overlaps: Overlaps) -> (Vec<Row>, BaseCounts, bool, usize) {
        let (mut result, mut has_overlap, mut open_max) = (Vec::new(), false, 0);
        let mut flattener = Flattener::new(overlaps);
        let mut take = |range: &Range| {
            result.push((range.start, range.end, range.value.clone()));
            Ok::<(), Infallible>(())
        };
        for range in ranges {
            let Ok(overlap) = flattener.push(Range { value: Vec::new(), ..range.clone() }, &range.value, &mut take);
            has_overlap |= overlap.is_some();
            open_max = open_max.max(flattener.open.len());
        }
        let Ok(()) = flattener.finish(&mut take);
        (result, flattener.counts, has_overlap, open_max)
    }

    /// Returns whether the ranges share a position.
    fn overlap(one: &Range, other: &Range) -> bool {
        other.start <= one.end && one.start <= other.end
    }

    /// Finds the winner at each position, and joins adjacent positions with equal values. Also returns the number of
    /// deletions that win at a position of the base.
    fn naive(ranges: &[Range], overlaps: Overlaps) -> (Vec<Row>, u64) {
        let mut result: Vec<Row> = Vec::new();
        let mut effective = BTreeSet::new();
        for at in 0..=LAST {
            let here = || ranges.iter().filter(|range| (range.start..=range.end).contains(&at));
            let has_input = here().any(|range| !range.is_of_base());
            let has_base = here().any(Range::is_of_base);
            let here = here().filter(|range| !has_input || !range.is_of_base());
            let winner = match overlaps {
                Overlaps::Error | Overlaps::First => here.min_by_key(|range| range.origin),
                Overlaps::Last => here.max_by_key(|range| range.origin),
                Overlaps::Narrowest => here.min_by_key(|range| (range.end - range.start, LAST - range.start)),
            };
            let Some(winner) = winner else { continue };
            if winner.deleted {
                effective.extend(has_base.then_some(winner.origin));
                continue;
            }
            match result.last_mut() {
                Some((_, end, value)) if *end + 1 == at && *value == winner.value => *end = at,
                _ => result.push((at, at, winner.value.clone())),
            }
        }
        (result, effective.len() as u64)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_position_has_the_value_of_the_winner(
            drawn in vec((0..=LAST as u64, 0..=LAST as u64, b'a'..=b'd'), 0..12),
            base in vec((0..6_u128, 0..6_u128, b'a'..=b'c'), 0..6),
        ) {
            let range = |(origin, (a, b, value)): (u64, (u64, u64, u8))| {
                let (start, end, deleted) = (a.min(b).into(), a.max(b).into(), value == b'd');
                Range { start, end, value: vec![value], origin, deleted, ..Range::default() }
            };
            let inputs = sorted((0..).zip(drawn).map(range).collect());
            // Ranges of a base do not overlap.
            let (mut base_ranges, mut next) = (Vec::new(), 0);
            for (gap, len, value) in base {
                let (start, origin) = (next + gap, BASE_ORIGIN + base_ranges.len() as u64);
                if start + len > LAST {
                    break;
                }
                base_ranges.push(Range { start, end: start + len, value: vec![value], origin, ..Range::default() });
                next = start + len + 1;
            }
            let overlapping = inputs
                .iter()
                .enumerate()
                .any(|(i, one)| inputs[i + 1..].iter().any(|other| overlap(one, other)));
            let changed = base_ranges.iter().filter(|base| inputs.iter().any(|input| overlap(base, input))).count();
            let deletions = inputs.iter().filter(|input| input.deleted).count();
            let mut ranges = [&inputs[..], &base_ranges[..]].concat();
            ranges.sort_by_key(|range| (range.start, u128::MAX - range.end, range.origin));
            for overlaps in [Overlaps::Error, Overlaps::First, Overlaps::Last, Overlaps::Narrowest] {
                let (result, counts, has_overlap, _) = flattened(&ranges, overlaps);
                let (expected, effective_deletions) = naive(&ranges, overlaps);
                prop_assert_eq!(result, expected, "{:?}", overlaps);
                prop_assert_eq!(has_overlap, overlapping, "{:?}", overlaps);
                prop_assert_eq!((counts.replaced + counts.removed) as usize, changed);
                prop_assert_eq!(counts.deletions as usize, deletions);
                prop_assert_eq!(counts.effective_deletions, effective_deletions, "{:?}", overlaps);
            }
        }
    }

    #[test]
    fn the_first_and_the_last_number_belong_to_ranges() {
        let range = |start, end, origin| Range { start, end, value: vec![origin as u8], origin, ..Range::default() };
        let ranges = [range(0, u128::MAX, 0), range(0, 0, 1), range(u128::MAX, u128::MAX, 2)];
        let (result, ..) = flattened(&ranges, Overlaps::Narrowest);
        let expected = [(0, 0, vec![1]), (1, u128::MAX - 1, vec![0]), (u128::MAX, u128::MAX, vec![2])];
        assert_eq!(result, expected);
    }

    #[test]
    fn memory_is_bounded_by_the_depth_of_the_nesting() {
        let range = |start, end, value: &str, origin| Range {
            start,
            end,
            value: value.as_bytes().to_vec(),
            origin,
            ..Range::default()
        };
        let parts = (0..1000).map(|i| range(2 * i, 2 * i, "part", 1 + i as u64));
        let ranges: Vec<_> = std::iter::once(range(0, u128::MAX, "whole", 0)).chain(parts).collect();
        for (overlaps, rows) in [(Overlaps::First, 1), (Overlaps::Last, 2000), (Overlaps::Narrowest, 2000)] {
            let (result, .., open_max) = flattened(&sorted(ranges.clone()), overlaps);
            assert!(open_max <= 2, "{overlaps:?}: {open_max} ranges are held");
            assert_eq!(result.len(), rows, "{overlaps:?}");
        }
    }
}
