//! Sets of bytes of an object: what a download has.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::limits;

/// The maximum number of ranges of a set in the state of a download. Longer states are ignored.
const RANGES_MAX: usize = 1 << 20;

/// A set of bytes, as ranges in ascending order. Between two ranges, at least one byte is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ByteRanges {
    #[serde(deserialize_with = "limits::list::<_, _, RANGES_MAX>")]
    ranges: Vec<Range<u64>>,
}

impl ByteRanges {
    /// Returns whether the set is in its form and has no bytes after a length. A set from a file may have any numbers.
    pub(super) fn is_valid(&self, len_bytes: u64) -> bool {
        let mut before = None;
        self.ranges.iter().all(|range| {
            let is_after = before.is_none_or(|end| end < range.start);
            before = Some(range.end);
            is_after && range.start < range.end && range.end <= len_bytes
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Adds the bytes of a range.
    pub(super) fn insert(&mut self, added: Range<u64>) {
        if added.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let end = self.ranges.partition_point(|range| range.start <= added.end);
        let merged = self.ranges[first..end]
            .iter()
            .fold(added, |merged, range| merged.start.min(range.start)..merged.end.max(range.end));
        self.ranges.splice(first..end, [merged]);
    }

    /// Returns the ranges of the bytes that are missing, up to a length.
    pub(super) fn gaps(&self, len_bytes: u64) -> Vec<Range<u64>> {
        let ends = self.ranges.iter().map(|range| range.end);
        let starts = self.ranges.iter().map(|range| range.start).chain([len_bytes]);
        let gaps = [0].into_iter().chain(ends).zip(starts).map(|(start, end)| start..end);
        gaps.filter(|gap| !gap.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn a_set_has_the_bytes_of_its_ranges_and_no_others() {
        const LEN_BYTES: u64 = 60;
        let mut random = SmallRng::seed_from_u64(7);
        for _ in 0..300 {
            let (mut set, mut model) = (ByteRanges::default(), [false; LEN_BYTES as usize]);
            for _ in 0..12 {
                let start = random.random_range(0..=LEN_BYTES);
                let end = (start + random.random_range(0..9)).min(LEN_BYTES);
                set.insert(start..end);
                (start..end).for_each(|at| model[at as usize] = true);
                assert!(set.is_valid(LEN_BYTES), "{set:?}");
                assert_eq!(set.len_bytes(), model.iter().filter(|has| **has).count() as u64);
                let missing: Vec<u64> = set.gaps(LEN_BYTES).into_iter().flatten().collect();
                let expected = (0..LEN_BYTES).filter(|at| !model[*at as usize]);
                assert_eq!(missing, expected.collect::<Vec<u64>>(), "{set:?}");
            }
        }
    }

    #[test]
    fn a_set_of_impossible_ranges_is_invalid() {
        let parse = |json: &str| serde_json::from_str::<ByteRanges>(json).unwrap();
        for ranges in ["1,0", "0,0", "0,11", "0,5},{\"start\":5,\"end\":6", "4,5},{\"start\":0,\"end\":2"] {
            let json = format!("{{\"ranges\":[{{\"start\":{}}}]}}", ranges.replacen(',', ",\"end\":", 1));
            assert!(!parse(&json).is_valid(10), "{json}");
        }
        assert!(parse("{\"ranges\":[{\"start\":0,\"end\":5},{\"start\":6,\"end\":10}]}").is_valid(10));
    }
}
