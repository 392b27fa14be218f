//! Slots: the partition function of Redis Cluster.
//!
//! In: a key. Out: its slot. A table of several files divides the slots among its files, which are its shards.

use std::fmt;
use std::str::FromStr;

use crate::excerpt::excerpt;
use crate::format::key::Key;

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

    /// Returns whether the range has the slot of a key.
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

/// Returns the bytes of a key that are hashed.
fn hash_tag(key: &[u8]) -> &[u8] {
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
}
