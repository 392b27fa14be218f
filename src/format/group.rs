//! Groups, which hold the keys of the compact layout and the positions of the values.
//!
//! A group describes [`GROUP_ROWS`] consecutive rows: the first key, and for each row a code of one byte, the bits of
//! the key that the code omits, and the end of the value. The keys are exact, so a lookup reads no value of another
//! row, and the lookup of a missing key reads no value at all. Each group has its own widths, so far keys and long
//! values cost space only in their own groups.
//!
//! Reasons and evidence: `docs/decisions/compact-layout.md`.

use std::ops::Range;

use super::record::VALUE_LEN_MAX_BYTES;

/// The number of rows that a group describes. The last group of a table may have fewer rows.
pub const GROUP_ROWS: usize = 32;
/// The alignment of groups in their section.
pub const GROUP_ALIGN_BYTES: usize = 8;
/// The maximum length of all groups of a table: a place is the position of a group, divided by the alignment.
pub const GROUPS_LEN_MAX_BYTES: u64 = (GROUP_ALIGN_BYTES as u64) << u32::BITS;
/// The minimum length of a group.
pub const GROUP_LEN_MIN_BYTES: usize = group_len_bytes(Widths { low_bits: 0, end_bits: 0 });

const POSITION_AT: usize = size_of::<u64>();
const LOW_BITS_AT: usize = POSITION_AT + POSITION_LEN_BYTES;
const END_BITS_AT: usize = LOW_BITS_AT + 1;
const LEN_MIN_AT: usize = END_BITS_AT + 1;
const CODES_AT: usize = LEN_MIN_AT + size_of::<u32>();
const ENTRIES_AT: usize = CODES_AT + GROUP_ROWS;

/// The length of the position of a group's values.
const POSITION_LEN_BYTES: usize = 6;
/// The number of bits of a code.
const CODE_BITS: u32 = u8::BITS;
/// The code of a row that the last group does not have.
const NO_CODE: u8 = u8::MAX;
/// The maximum number of bits of a key that its code omits.
const LOW_BITS_MAX: u32 = u64::BITS - CODE_BITS;
/// The maximum number of bits of an end: the values of a group take less than 2³⁶ bytes.
const END_BITS_MAX: u32 = 36;

const _: () = {
    assert!(ENTRIES_AT == 52);
    assert!(GROUP_LEN_MIN_BYTES.is_multiple_of(GROUP_ALIGN_BYTES));
    // A field of this width is inside of 8 bytes, whatever bit of a byte it begins with.
    assert!(LOW_BITS_MAX + u8::BITS - 1 < u64::BITS && END_BITS_MAX + u8::BITS - 1 < u64::BITS);
    assert!((GROUP_ROWS * VALUE_LEN_MAX_BYTES) as u64 >> END_BITS_MAX == 0);
};

/// The widths of the fields of an entry. A group has one entry for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    /// The number of low bits of a key that its code omits.
    low_bits: u32,
    /// The number of bits of an end.
    end_bits: u32,
}

impl Widths {
    #[inline(always)]
    const fn entry_bits(self) -> usize {
        (self.low_bits + self.end_bits) as usize
    }
}

/// Returns the length of a group, including its padding.
const fn group_len_bytes(widths: Widths) -> usize {
    // Every width takes whole bytes, because the number of rows is a multiple of 8.
    (ENTRIES_AT + GROUP_ROWS / 8 * widths.entry_bits()).next_multiple_of(GROUP_ALIGN_BYTES)
}

/// Returns the number of groups of a table.
pub const fn group_count(row_count: u64) -> usize {
    row_count.div_ceil(GROUP_ROWS as u64) as usize
}

/// A group in its section.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The section from the start of the group on.
    bytes: &'a [u8],
    codes: &'a [u8; GROUP_ROWS],
    head: u64,
    position: u64,
    len_min: u64,
    widths: Widths,
    row_count: usize,
}

impl<'a> Group<'a> {
    /// Returns the group at an offset of the groups section. `row_count` is the number of its rows, at most
    /// [`GROUP_ROWS`]. Returns `None` if the group is not inside the section, or if its widths are invalid.
    #[inline(always)]
    pub fn at(groups: &'a [u8], offset_bytes: usize, row_count: usize) -> Option<Group<'a>> {
        let bytes = groups.get(offset_bytes..)?;
        let start = bytes.first_chunk::<ENTRIES_AT>()?;
        let codes = start.last_chunk()?;
        let word = u64::from_le_bytes(*start[POSITION_AT..].first_chunk()?);
        let position = word & ((1 << (8 * POSITION_LEN_BYTES)) - 1);
        let widths = Widths { low_bits: start[LOW_BITS_AT].into(), end_bits: start[END_BITS_AT].into() };
        let len_min = u32::from_le_bytes(*start[LEN_MIN_AT..].first_chunk()?).into();
        let is_valid = widths.low_bits <= LOW_BITS_MAX && widths.end_bits <= END_BITS_MAX && row_count <= GROUP_ROWS;
        let head = u64::from_le_bytes(*start.first_chunk()?);
        is_valid.then_some(Group { bytes, codes, head, position, len_min, widths, row_count })
    }

    /// Returns the number of rows.
    #[inline]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns the length of the group, including its padding.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        group_len_bytes(self.widths)
    }

    /// Returns the position of the values in the records section.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of rows whose key is less than `key`, and whether the next row has this key.
    #[inline(always)]
    pub fn rows_below(&self, key: u64) -> (usize, bool) {
        if key < self.head {
            return (0, false);
        }
        let distance = key - self.head;
        let Ok(code) = u8::try_from(distance >> self.widths.low_bits) else { return (self.row_count, false) };
        let below = self.codes.iter().map(|other| u8::from(*other < code)).sum::<u8>() as usize;
        // The codes after the last row are the greatest ones.
        if below >= self.row_count || self.codes[below % GROUP_ROWS] != code {
            return (below.min(self.row_count), false);
        }
        let low = distance & mask(self.widths.low_bits);
        let found = self.low(below);
        if found >= low { (below, found == low) } else { self.rows_below_among(below + 1, code, low) }
    }

    /// Implements [`Group::rows_below`] if several rows may have the code of the key. `from` is the first row that may
    /// not be below the key.
    #[inline(never)]
    fn rows_below_among(&self, from: usize, code: u8, low: u64) -> (usize, bool) {
        let (mut start, mut end) =
            (from, self.codes.iter().filter(|other| **other <= code).count().min(self.row_count));
        while start < end {
            let middle = start.midpoint(end);
            if self.low(middle) < low { start = middle + 1 } else { end = middle }
        }
        let is_found = start < self.row_count && self.codes[start] == code && self.low(start) == low;
        (start, is_found)
    }

    /// Returns the key of a row, which must be less than [`Group::row_count`].
    #[inline(always)]
    pub fn key(&self, row: usize) -> u64 {
        let code = u64::from(self.codes[row % GROUP_ROWS]);
        self.head.wrapping_add(code << self.widths.low_bits | self.low(row))
    }

    /// Returns the range of the records section that has the value of a row. Returns `None` if the group is damaged.
    #[inline(always)]
    pub fn value(&self, row: usize) -> Option<Range<u64>> {
        let (start, end) = (if row == 0 { 0 } else { self.end(row - 1) }, self.end(row));
        let first = self.position + row as u64 * self.len_min;
        (start <= end).then(|| first + start..first + end + self.len_min)
    }

    #[inline(always)]
    fn low(&self, row: usize) -> u64 {
        self.field(row * self.widths.entry_bits(), self.widths.low_bits)
    }

    /// Returns the sum of the lengths of the values up to a row, without [`Group::len_min`] of each.
    #[inline(always)]
    fn end(&self, row: usize) -> u64 {
        self.field(row * self.widths.entry_bits() + self.widths.low_bits as usize, self.widths.end_bits)
    }

    /// Returns a number of the entries that begins with a bit and has a number of bits.
    #[inline(always)]
    fn field(&self, first_bit: usize, bits: u32) -> u64 {
        let at = ENTRIES_AT + first_bit / 8;
        let word = match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => last_word(self.bytes, at),
        };
        (word >> (first_bit % 8)) & mask(bits)
    }
}

/// Returns the last bytes of a section, fewer than 8, as a number.
#[cold]
#[inline(never)]
fn last_word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).unwrap_or_default().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Returns a number whose lowest `bits` bits are set. `bits` is less than 64.
#[inline(always)]
fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Appends the group of some rows, at most [`GROUP_ROWS`], with its padding. `rows` has the key and the length of the
/// value of each row, in key order; `position` is the position of the first value in the records section.
///
/// # Panics
/// If there are no rows, or more than [`GROUP_ROWS`].
pub fn write_group(rows: &[(u64, u64)], position: u64, groups: &mut Vec<u8>) {
    let (head, last) = (rows[0].0, rows[rows.len() - 1].0);
    let span = last.saturating_sub(head);
    let len_min = rows.iter().map(|(_, len_bytes)| *len_bytes).min().unwrap_or_default();
    let excess = rows.iter().map(|(_, len_bytes)| len_bytes - len_min).sum();
    let widths = Widths { low_bits: bits_of(span).saturating_sub(CODE_BITS), end_bits: bits_of(excess) };
    let start = groups.len();
    groups.resize(start + group_len_bytes(widths), 0);
    let group = &mut groups[start..];
    group[..POSITION_AT].copy_from_slice(&head.to_le_bytes());
    group[POSITION_AT..LOW_BITS_AT].copy_from_slice(&position.to_le_bytes()[..POSITION_LEN_BYTES]);
    (group[LOW_BITS_AT], group[END_BITS_AT]) = (widths.low_bits as u8, widths.end_bits as u8);
    group[LEN_MIN_AT..CODES_AT].copy_from_slice(&(len_min as u32).to_le_bytes());
    group[CODES_AT..ENTRIES_AT].fill(NO_CODE);
    let mut end = 0;
    for (i, (key, len_bytes)) in rows.iter().enumerate() {
        let distance = key.saturating_sub(head);
        group[CODES_AT + i] = (distance >> widths.low_bits) as u8;
        end += len_bytes - len_min;
        let first_bit = i * widths.entry_bits();
        put(&mut group[ENTRIES_AT..], first_bit, distance & mask(widths.low_bits));
        put(&mut group[ENTRIES_AT..], first_bit + widths.low_bits as usize, end);
    }
}

/// Adds a number to bits that are 0.
fn put(entries: &mut [u8], first_bit: usize, number: u64) {
    let word = u128::from(number) << (first_bit % 8);
    for (byte, add) in entries[first_bit / 8..].iter_mut().zip(word.to_le_bytes()) {
        *byte |= add;
    }
}

/// Returns the number of bits that a number has.
fn bits_of(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lists of keys: dense, far apart, with gaps of all sizes, and at the limits of numbers.
    fn lists_of_keys() -> Vec<Vec<u64>> {
        let mut lists: Vec<Vec<u64>> = Vec::new();
        for count in 1..=GROUP_ROWS as u64 {
            lists.push((0..count).map(|i| 100 + i).collect());
            lists.push((0..count).map(|i| i * 8).collect());
            lists.push((0..count).map(|i| i << 59).collect());
            lists.push((0..count).map(|i| u64::MAX - (count - 1 - i)).collect());
            lists.push((0..count).map(|i| 5 + i + ((i / 7) << 40)).collect());
            lists.push((0..count).map(|i| i + (u64::from(i > 3 && i + 1 == count) << 63)).collect());
            lists.push((0..count).map(|i| i * i * i * i * 1_000_003).collect());
            if count > 1 {
                lists.push((0..count).map(|i| if i + 1 == count { u64::MAX } else { i }).collect());
            }
        }
        lists
    }

    fn written(keys: &[u64], len_bytes: impl Fn(usize) -> u64, position: u64) -> Vec<u8> {
        let rows: Vec<(u64, u64)> = keys.iter().enumerate().map(|(i, key)| (*key, len_bytes(i))).collect();
        let mut groups = Vec::new();
        write_group(&rows, position, &mut groups);
        groups
    }

    #[test]
    fn a_group_has_exactly_the_keys_that_were_written() {
        for keys in lists_of_keys() {
            let groups = written(&keys, |_| 26, 0);
            let group = Group::at(&groups, 0, keys.len()).unwrap();
            assert_eq!(group.len_bytes(), groups.len());
            assert!((0..keys.len()).map(|row| group.key(row)).eq(keys.iter().copied()), "{keys:?}");
            let around = |key: &u64| [key.wrapping_sub(1), *key, key.wrapping_add(1), key ^ (1 << 40), key / 2];
            for key in keys.iter().flat_map(around).chain([0, u64::MAX]) {
                let below = keys.partition_point(|other| *other < key);
                assert_eq!(group.rows_below(key), (below, keys.get(below) == Some(&key)), "{key} in {keys:?}");
            }
        }
    }

    #[test]
    fn a_group_has_the_positions_of_its_values() {
        let keys: Vec<u64> = (0..GROUP_ROWS as u64).collect();
        let lens: [fn(usize) -> u64; 5] = [
            |_| 0,
            |_| 26,
            |row| row as u64 % 7,
            |row| if row == 9 { VALUE_LEN_MAX_BYTES as u64 } else { 3 },
            |row| VALUE_LEN_MAX_BYTES as u64 - row as u64,
        ];
        for (len_bytes, position) in lens.into_iter().zip([0, 7, 1 << 20, 1 << 44, (1 << 48) - (1 << 40)]) {
            let groups = written(&keys, len_bytes, position);
            let group = Group::at(&groups, 0, keys.len()).unwrap();
            let mut next = position;
            for row in 0..keys.len() {
                assert_eq!(group.value(row), Some(next..next + len_bytes(row)), "row {row}");
                next += len_bytes(row);
            }
        }
    }

    #[test]
    fn dense_keys_and_values_of_one_length_take_their_codes_and_nothing_else() {
        let keys: Vec<u64> = (0..GROUP_ROWS as u64).collect();
        assert_eq!(written(&keys, |_| 100, 1 << 40).len(), GROUP_LEN_MIN_BYTES);
        assert_eq!(GROUP_LEN_MIN_BYTES, 56);
    }

    #[test]
    fn damaged_groups_are_never_read_beyond_their_section() {
        let keys: Vec<u64> = (0..GROUP_ROWS as u64).map(|i| i << 59).collect();
        let groups = written(&keys, |row| 1 << row.min(30), 0);
        for len_bytes in 0..groups.len() {
            if let Some(group) = Group::at(&groups[..len_bytes], 0, GROUP_ROWS) {
                for (row, key) in keys.iter().enumerate() {
                    let _ = (group.key(row), group.value(row), group.rows_below(*key));
                }
            }
        }
        for at in 0..groups.len() {
            for bit in 0..8 {
                let mut damaged = groups.clone();
                damaged[at] ^= 1 << bit;
                if let Some(group) = Group::at(&damaged, 0, GROUP_ROWS) {
                    for (row, key) in keys.iter().enumerate() {
                        let _ = (group.key(row), group.value(row), group.rows_below(*key));
                    }
                }
            }
        }
        assert!(Group::at(&groups, 1, GROUP_ROWS + 1).is_none() && Group::at(&groups, usize::MAX, 1).is_none());
    }
}
