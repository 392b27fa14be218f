//! Slots: the partition function of Redis Cluster.
//!
//! In: a key. Out: its slot. A table of several files divides the slots among its files, which are its shards.

use std::fmt::{self, Write};
use std::str::FromStr;

use crate::excerpt::excerpt;
use crate::format::key::Key;
use crate::format::key_type::KeyType;

/// The number of slots.
pub const SLOT_COUNT: u16 = 16384;

/// A contiguous range of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "object-store", derive(serde::Serialize, serde::Deserialize))]
pub struct SlotRange {
    /// The first slot of the range.
    pub first_slot: u16,
    /// The last slot of the range, which is at least the first slot and less than [`SLOT_COUNT`].
    pub last_slot: u16,
}

impl SlotRange {
    /// All slots.
    pub const ALL: SlotRange = SlotRange { first_slot: 0, last_slot: SLOT_COUNT - 1 };

    /// Returns whether the range has a slot.
    pub fn has(self, slot: u16) -> bool {
        (self.first_slot..=self.last_slot).contains(&slot)
    }

    /// Returns whether the range has all slots of another range.
    pub fn contains(self, other: SlotRange) -> bool {
        self.first_slot <= other.first_slot && other.last_slot <= self.last_slot
    }

    /// Returns whether both ranges have a slot in common.
    pub fn overlaps(self, other: SlotRange) -> bool {
        self.first_slot <= other.last_slot && other.first_slot <= self.last_slot
    }

    /// Returns whether the range has the slot of a key: see [`slot_of`].
    pub fn has_key(self, key: Key<'_>) -> bool {
        self.has(slot_of(key))
    }

    /// Returns the number of slots.
    pub fn slot_count(self) -> u16 {
        self.last_slot - self.first_slot + 1
    }

    /// Divides a valid range into `count` ranges, at most as many as it has slots. Their numbers of slots differ by at
    /// most one.
    ///
    /// # Example
    /// ```
    /// use zero_kv::slots::SlotRange;
    ///
    /// assert_eq!(SlotRange::ALL.divide(4)[1].to_string(), "4096-8191");
    /// ```
    pub fn divide(self, count: u16) -> Vec<SlotRange> {
        let (slot_count, count) = (u32::from(self.slot_count()), u32::from(count));
        let bound = |range: u32| self.first_slot + (slot_count * range / count) as u16;
        (0..count).map(|range| SlotRange { first_slot: bound(range), last_slot: bound(range + 1) - 1 }).collect()
    }

    /// Returns whether the bounds are in order and name existing slots.
    pub fn is_valid(self) -> bool {
        self.first_slot <= self.last_slot && self.last_slot < SLOT_COUNT
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first_slot, self.last_slot)
    }
}

impl FromStr for SlotRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotRange, String> {
        let parsed = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        parsed
            .map(|(first_slot, last_slot)| SlotRange { first_slot, last_slot })
            .filter(|range| range.is_valid())
            .ok_or_else(|| format!("found {:?}, expected two slots from 0 to 16383, such as 0-8191", excerpt(text, 40)))
    }
}

/// Returns the slot of a key: CRC-16/XMODEM of the key, modulo 16384. If the key contains `{` and a later `}` with
/// bytes between them, only the bytes between the first `{` and the next `}` are hashed. A number is hashed as decimal
/// text.
///
/// # Example
/// ```
/// use zero_kv::slots::slot_of;
///
/// // The example of Redis's cluster specification.
/// assert_eq!(slot_of("123456789".into()), 0x31c3);
/// assert_eq!(slot_of(123456789.into()), 0x31c3);
/// assert_eq!(slot_of("{user1000}.following".into()), slot_of("user1000".into()));
/// ```
pub fn slot_of(key: Key<'_>) -> u16 {
    let crc = match key {
        Key::U64(number) => crc16(itoa::Buffer::new().format(number).as_bytes()),
        Key::Bytes(bytes) => crc16(hash_tag(bytes)),
    };
    crc % SLOT_COUNT
}

/// Returns the slot of a stored key of this type: the slot of its written form, because clients of Redis Cluster hash
/// what they send.
pub fn slot_of_typed(key_type: KeyType, key: Key<'_>) -> u16 {
    if key_type.is_plain() {
        return slot_of(key);
    }
    let mut text = Vec::new();
    key_type.write(key, &mut text);
    slot_of(Key::Bytes(&text))
}

/// Returns the bytes of a key that are hashed.
pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[start..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[start..start + len])
    };
    tag().unwrap_or(key)
}

/// The number of bytes that are hashed in one step. The lookups of a step do not depend on each other.
const STEP_LEN_BYTES: usize = 8;

/// For each distance, the CRC of each byte value that is followed by so many zero bytes.
static CRC_TABLES: [[u16; 256]; STEP_LEN_BYTES] = {
    const POLYNOMIAL: u16 = 0x1021;
    let mut tables = [[0; 256]; STEP_LEN_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut distance = 0;
        while distance < STEP_LEN_BYTES {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 != 0 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
                bit += 1;
            }
            tables[distance][byte] = crc;
            distance += 1;
        }
        byte += 1;
    }
    tables
};

fn crc16(bytes: &[u8]) -> u16 {
    let (steps, rest) = bytes.as_chunks::<STEP_LEN_BYTES>();
    let crc = steps.iter().fold(0_u16, |crc, step| {
        let [high, low] = crc.to_be_bytes();
        let mut step = *step;
        (step[0], step[1]) = (step[0] ^ high, step[1] ^ low);
        step.iter().zip(CRC_TABLES.iter().rev()).fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)])
    });
    rest.iter().fold(crc, |crc, byte| (crc << 8) ^ CRC_TABLES[0][usize::from((crc >> 8) as u8 ^ byte)])
}

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

    /// Returns the text of the set for people and logs: all ranges or, if there are too many for a line, the first
    /// ones, and the numbers of slots and ranges.
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

    #[test]
    fn the_hash_is_that_of_hashing_bit_by_bit() {
        let bytes: Vec<u8> = (0..300_u32).map(|at| ((at * 193) >> 3) as u8).collect();
        for len in 0..bytes.len() {
            let bits = bytes[..len].iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from((byte >> bit) & 1)));
            let shift = |crc: u16, bit: u16| (crc << 1) ^ (0x1021 * ((crc >> 15) ^ bit));
            assert_eq!(crc16(&bytes[..len]), bits.fold(0, shift), "{len} bytes");
        }
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn only_the_first_non_empty_hash_tag_is_hashed() {
        let slot = |key: &str| slot_of(key.into());
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOT_COUNT);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
        assert_eq!(slot("}{bar"), crc16(b"}{bar") % SLOT_COUNT);
        // The replies of CLUSTER KEYSLOT in redis-server 7.0.15.
        assert_eq!(
            [slot("foo"), slot("somekey"), slot("foo{hash_tag}"), slot("bar{hash_tag}")],
            [12182, 11058, 2515, 2515]
        );
    }

    #[test]
    fn keys_have_the_slots_that_the_document_lists() {
        let document = include_str!("../docs/operations/bake.md");
        let mut rows = 0;
        for key in ["42", "128512", "user:42", "{user1000}.following", "user1000"] {
            let row = format!("| `{key}` | {} |", slot_of(key.into()));
            rows += document.lines().filter(|line| *line == row).count();
            let number = key.parse::<u64>();
            assert!(number.is_err() || number.map(|number| slot_of(number.into())) == Ok(slot_of(key.into())), "{key}");
        }
        assert_eq!(rows, 5);
    }

    #[test]
    fn ranges_are_parsed_only_if_they_name_existing_slots() {
        assert_eq!("0-16383".parse(), Ok(SlotRange::ALL));
        assert_eq!("5-5".parse::<SlotRange>().unwrap().to_string(), "5-5");
        let range = |text: &str| text.parse::<SlotRange>().unwrap();
        assert!(range("5-9").contains(range("5-9")) && !range("5-9").contains(range("4-9")));
        assert!(range("5-9").overlaps(range("9-12")) && !range("5-9").overlaps(range("10-12")));
        for text in ["", "5", "-", "6-5", "0-16384", "a-b", "0-1-2"] {
            assert!(text.parse::<SlotRange>().is_err(), "{text}");
        }
    }

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
