//! Sets of slots.

use std::fmt;

use crate::slots::{SLOT_COUNT, SlotRange};

/// The number of slots that one word of a set describes.
const WORD_SLOTS: usize = u64::BITS as usize;
const WORDS: usize = SLOT_COUNT as usize / WORD_SLOTS;

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    words: [u64; WORDS],
}

impl SlotSet {
    /// The empty set.
    pub const NONE: SlotSet = SlotSet { words: [0; WORDS] };
    /// All slots.
    pub const ALL: SlotSet = SlotSet { words: [u64::MAX; WORDS] };

    /// Returns whether the set has a slot.
    #[inline]
    pub fn has(&self, slot: u16) -> bool {
        let slot = usize::from(slot);
        self.words.get(slot / WORD_SLOTS).is_some_and(|word| word >> (slot % WORD_SLOTS) & 1 != 0)
    }

    /// Adds a slot, which must be less than [`SLOT_COUNT`].
    #[inline]
    pub fn insert(&mut self, slot: u16) {
        let slot = usize::from(slot);
        self.words[slot / WORD_SLOTS] |= 1 << (slot % WORD_SLOTS);
    }

    /// Adds the slots of a range.
    pub fn insert_range(&mut self, range: SlotRange) {
        (range.first_slot..=range.last_slot).for_each(|slot| self.insert(slot));
    }

    /// Removes a slot, which must be less than [`SLOT_COUNT`].
    pub fn remove(&mut self, slot: u16) {
        let slot = usize::from(slot);
        self.words[slot / WORD_SLOTS] &= !(1 << (slot % WORD_SLOTS));
    }

    /// Adds the slots of another set.
    pub fn insert_all(&mut self, other: &SlotSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Removes the slots of another set.
    pub fn remove_all(&mut self, other: &SlotSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// Returns whether another set has all slots of this set.
    pub fn is_subset(&self, other: &SlotSet) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & !other == 0)
    }

    /// Returns whether the set has no slots.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the slots in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SLOT_COUNT).filter(|slot| self.has(*slot))
    }

    /// Returns the slots as ranges in ascending order. Between two ranges, at least one slot is missing.
    pub fn ranges(&self) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for slot in self.slots() {
            match ranges.last_mut() {
                Some(last) if last.last_slot + 1 == slot => last.last_slot = slot,
                _ => ranges.push(SlotRange { first_slot: slot, last_slot: slot }),
            }
        }
        ranges
    }
}

impl FromIterator<SlotRange> for SlotSet {
    fn from_iter<I: IntoIterator<Item = SlotRange>>(ranges: I) -> SlotSet {
        let mut set = SlotSet::NONE;
        ranges.into_iter().for_each(|range| set.insert_range(range));
        set
    }
}

/// Shows the ranges of the set, such as `0-99,200-200`, or `none`.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges().iter().map(SlotRange::to_string).collect();
        f.write_str(if ranges.is_empty() { "none".to_owned() } else { ranges.join(",") }.as_str())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &str) -> SlotSet {
        ranges.split(',').filter(|range| !range.is_empty()).map(|range| range.parse().unwrap()).collect()
    }

    #[test]
    fn a_set_has_the_slots_of_its_ranges_and_no_others() {
        for ranges in ["", "0-0", "63-64", "0-16383", "5-9,11-11,16383-16383", "0-127,129-200"] {
            let (found, parsed): (SlotSet, Vec<SlotRange>) = {
                let parsed = ranges.split(',').filter_map(|range| range.parse().ok());
                (set(ranges), parsed.collect())
            };
            assert_eq!(found.ranges(), parsed, "{ranges}");
            for slot in 0..SLOT_COUNT {
                assert_eq!(found.has(slot), parsed.iter().any(|range| range.has(slot)), "{slot} in {ranges}");
            }
            assert_eq!(found.len(), found.slots().count());
            assert_eq!(found.is_empty(), ranges.is_empty());
        }
        assert_eq!((set("0-16383"), set("")), (SlotSet::ALL, SlotSet::NONE));
        assert!(!SlotSet::ALL.has(SLOT_COUNT) && !SlotSet::ALL.has(u16::MAX));
    }

    #[test]
    fn adjacent_ranges_are_joined_and_the_text_lists_them() {
        assert_eq!(set("0-4,5-9,20-30").to_string(), "0-9,20-30");
        assert_eq!(SlotSet::NONE.to_string(), "none");
    }

    #[test]
    fn subsets_and_unions_are_those_of_the_slots() {
        let (low, high) = (set("0-99"), set("90-200"));
        assert!(set("5-7").is_subset(&low) && !high.is_subset(&low) && SlotSet::NONE.is_subset(&SlotSet::NONE));
        let mut both = low.clone();
        both.insert_all(&high);
        assert_eq!(both, set("0-200"));
        both.remove(100);
        assert_eq!(both, set("0-99,101-200"));
        both.remove_all(&high);
        assert_eq!(both, set("0-89"));
    }
}
