//! Sets of slots.

use std::fmt::{self, Write};
use std::str::FromStr;

use crate::slots::{SLOT_COUNT, SlotRange};

/// The number of slots that one word of a set describes.
const WORD_SLOTS: usize = u64::BITS as usize;
const WORDS: usize = SLOT_COUNT as usize / WORD_SLOTS;
/// The length that [`SlotSet::summary`] lists ranges up to.
const SUMMARY_LEN_BYTES: usize = 400;
/// The number of slots that one hexadecimal digit of [`SlotSet::to_digits`] describes.
#[cfg(feature = "cluster")]
const DIGIT_SLOTS: usize = 4;

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    words: [u64; WORDS],
}

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet::NONE
    }
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
        let (first, last) = (usize::from(range.first_slot), usize::from(range.last_slot));
        // Documents of other machines have as many ranges as they like, so a range takes a step per word, not per slot.
        for word in first / WORD_SLOTS..=last / WORD_SLOTS {
            let from = if word == first / WORD_SLOTS { u64::MAX << (first % WORD_SLOTS) } else { u64::MAX };
            let to =
                if word == last / WORD_SLOTS { u64::MAX >> (WORD_SLOTS - 1 - last % WORD_SLOTS) } else { u64::MAX };
            self.words[word] |= from & to;
        }
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

    /// Returns whether both sets have a slot in common.
    pub fn overlaps(&self, other: &SlotSet) -> bool {
        self.words.iter().zip(&other.words).any(|(word, other)| word & other != 0)
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
        self.iter_ranges().flat_map(|range| range.first_slot..=range.last_slot)
    }

    /// Returns the slots as ranges in ascending order. Between two ranges, at least one slot is missing.
    pub fn ranges(&self) -> Vec<SlotRange> {
        self.iter_ranges().collect()
    }

    fn iter_ranges(&self) -> impl Iterator<Item = SlotRange> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first_slot = self.next_slot(at, true)?;
            at = self.next_slot(first_slot, false).unwrap_or(SLOT_COUNT);
            Some(SlotRange { first_slot, last_slot: at - 1 })
        })
    }

    /// Returns the first slot from `from` on that the set has or, if `is_member` is false, that it lacks.
    fn next_slot(&self, from: u16, is_member: bool) -> Option<u16> {
        let mut at = usize::from(from);
        while let Some(word) = self.words.get(at / WORD_SLOTS) {
            let found = if is_member { *word } else { !word } >> (at % WORD_SLOTS);
            if found != 0 {
                return Some((at + found.trailing_zeros() as usize) as u16);
            }
            at = (at / WORD_SLOTS + 1) * WORD_SLOTS;
        }
        None
    }

    /// Returns the number of ranges.
    pub fn range_count(&self) -> usize {
        let mut before = 0;
        let starts = self.words.iter().map(|word| {
            let starts = word & !(word << 1 | before);
            before = word >> (WORD_SLOTS - 1);
            starts.count_ones() as usize
        });
        starts.sum()
    }

    /// Returns the text of the set for people and logs: all ranges or, if there are too many for a line, the first ones,
    /// and the numbers of slots and ranges.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for range in self.iter_ranges() {
            if text.len() >= SUMMARY_LEN_BYTES {
                // Writing to a string cannot fail.
                let _ = write!(text, ",… ({} slots in {} ranges)", self.len(), self.range_count());
                return text;
            }
            let _ = write!(text, "{}{range}", if text.is_empty() { "" } else { "," });
        }
        if text.is_empty() { "none".to_owned() } else { text }
    }

    /// Returns whether [`SlotSet::summary`] leaves ranges out.
    #[cfg(feature = "server")]
    pub(crate) fn is_summary_partial(&self) -> bool {
        self.summary().ends_with(')')
    }

    /// Returns the set as 4,096 hexadecimal digits, whatever its ranges are. A digit describes four slots, of which the
    /// first is its highest bit.
    #[cfg(feature = "server")]
    pub(crate) fn to_digits(&self) -> String {
        let digit = |at: usize| {
            let nibble = self.words[at * DIGIT_SLOTS / WORD_SLOTS] >> (at * DIGIT_SLOTS % WORD_SLOTS) & 0xF;
            let reversed = (nibble as u32).reverse_bits() >> (u32::BITS as usize - DIGIT_SLOTS);
            char::from_digit(reversed, 16).expect("four bits are a hexadecimal digit")
        };
        (0..usize::from(SLOT_COUNT) / DIGIT_SLOTS).map(digit).collect()
    }

    /// Parses the digits of [`SlotSet::to_digits`]. Returns `None` for any other text.
    #[cfg(feature = "cluster")]
    pub(crate) fn from_digits(digits: &str) -> Option<SlotSet> {
        if digits.len() != usize::from(SLOT_COUNT) / DIGIT_SLOTS {
            return None;
        }
        let mut set = SlotSet::NONE;
        for (at, digit) in digits.chars().enumerate() {
            let nibble = digit.to_digit(16)?.reverse_bits() >> (u32::BITS as usize - DIGIT_SLOTS);
            set.words[at * DIGIT_SLOTS / WORD_SLOTS] |= u64::from(nibble) << (at * DIGIT_SLOTS % WORD_SLOTS);
        }
        Some(set)
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

/// Parses the text that [`SlotSet`] is shown as.
impl FromStr for SlotSet {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotSet, String> {
        match text {
            "none" => Ok(SlotSet::NONE),
            ranges => ranges.split(',').map(SlotRange::from_str).collect(),
        }
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

    /// Returns sets with any number of ranges: random ones, and those with the most ranges.
    fn samples() -> Vec<SlotSet> {
        let mut seed = 0x5EED_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u16 % SLOT_COUNT
        };
        let every = |step: u16, from: u16| {
            (from..SLOT_COUNT)
                .step_by(step.into())
                .map(|slot| SlotRange { first_slot: slot, last_slot: slot })
                .collect()
        };
        let mut sets = vec![SlotSet::NONE, SlotSet::ALL, every(2, 0), every(2, 1), every(64, 63), every(64, 0)];
        for ranges in 0..40 {
            let range = |(a, b): (u16, u16)| SlotRange { first_slot: a.min(b), last_slot: a.max(b) };
            sets.push((0..ranges).map(|_| range((random(), random().max(16_300)))).chain([range((7, 7))]).collect());
            sets.push((0..ranges * ranges).map(|_| random()).map(|slot| range((slot, slot))).collect());
        }
        sets
    }

    #[test]
    fn ranges_are_those_of_testing_slot_by_slot() {
        for set in samples() {
            let slots: Vec<u16> = (0..SLOT_COUNT).filter(|slot| set.has(*slot)).collect();
            assert!(set.slots().eq(slots.iter().copied()));
            let ranges: Vec<SlotRange> = slots
                .chunk_by(|a, b| a + 1 == *b)
                .map(|run| SlotRange { first_slot: run[0], last_slot: run[run.len() - 1] })
                .collect();
            assert_eq!((set.ranges(), set.range_count()), (ranges, set.iter_ranges().count()));
            let mut one_by_one = SlotSet::NONE;
            slots.iter().for_each(|slot| one_by_one.insert(*slot));
            assert_eq!(one_by_one, set);
        }
    }

    #[test]
    fn texts_and_digits_are_parsed_back_and_bounded() {
        for set in samples() {
            assert_eq!(set.to_string().parse(), Ok(set.clone()));
            assert_eq!((set.to_digits().len(), SlotSet::from_digits(&set.to_digits())), (4096, Some(set.clone())));
            let summary = set.summary();
            assert!(summary.len() <= SUMMARY_LEN_BYTES + 60, "{summary}");
            assert_eq!(set.is_summary_partial(), summary != set.to_string(), "{summary}");
            assert_eq!(set.is_summary_partial(), summary.parse::<SlotSet>().is_err(), "{summary}");
        }
        assert_eq!(&set("0-0,5-6").to_digits()[..3], "860");
        for text in ["", ",", "0-1,", "none,0-1", "0-16384", "5-1", "0", "-1-2"] {
            assert!(text.parse::<SlotSet>().is_err(), "{text}");
        }
        for digits in [String::new(), "0".repeat(4095), "0".repeat(4097), "g".repeat(4096), "é".repeat(2048)] {
            assert_eq!(SlotSet::from_digits(&digits), None);
        }
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
