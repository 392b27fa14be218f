//! Groups, which hold the keys of the compact layout and the positions of the values.
//!
//! A group describes [`GROUP_ROWS`] consecutive rows: the first key, and for each row a code of one byte, the bits of
//! the key that the code omits, and the end of the value. The keys are exact, so a lookup reads no value of another
//! row, and the lookup of a missing key reads no value at all. Each group has its own widths, so far keys and long
//! values cost space only in their own groups.
//!
//! In a table of ranges, a group also has the last keys of its ranges. A range that ends directly before the next one of
//! its group takes one bit.
//!
//! Reasons and evidence: `docs/decisions/compact-layout.md`.

use std::ops::Range;

use super::form::RowKey;
use super::key::Key;
use super::record::VALUE_LEN_MAX_BYTES;

/// The number of rows that a group describes. The last group of a table may have fewer rows.
pub const GROUP_ROWS: usize = 32;
/// The alignment of groups in their section.
pub const GROUP_ALIGN_BYTES: usize = 8;
/// The maximum length of all groups of a table: a place is the position of a group, divided by the alignment.
pub const GROUPS_LEN_MAX_BYTES: u64 = (GROUP_ALIGN_BYTES as u64) << u32::BITS;
/// The minimum length of a group.
pub const GROUP_LEN_MIN_BYTES: usize = group_len_bytes(Widths { low_bits: 0, end_bits: 0 }, 0);

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
/// The length of the fields that precede the extents of ranges: a bit for each row, and the number of bits of an extent.
const EXTENTS_HEAD_LEN_BYTES: usize = GROUP_ROWS / 8 + 1;

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

/// Returns the offset of the byte after the entries of a group.
const fn entries_end_bytes(widths: Widths) -> usize {
    // Every width takes whole bytes, because the number of rows is a multiple of 8.
    ENTRIES_AT + GROUP_ROWS / 8 * widths.entry_bits()
}

/// Returns the length of a group, including its padding. `extents_len_bytes` is the length of the extents and their
/// head.
const fn group_len_bytes(widths: Widths, extents_len_bytes: usize) -> usize {
    (entries_end_bytes(widths) + extents_len_bytes).next_multiple_of(GROUP_ALIGN_BYTES)
}

/// Where the ranges of a group end. The extent of a range is the difference between its last and its first key.
#[derive(Clone, Copy, Debug)]
struct Extents {
    /// A bit for each row, which is set if the row's range ends directly before the range of the next row of the group.
    /// These rows have no extents. The bits of rows that the last group does not have are set.
    adjacent: u32,
    /// The number of bits of an extent.
    bits: u32,
}

impl Extents {
    const fn len_bytes(self) -> usize {
        EXTENTS_HEAD_LEN_BYTES + ((self.adjacent.count_zeros() * self.bits) as usize).div_ceil(8)
    }
}

/// A row that a group describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The key.
    pub key: u64,
    /// The last key of the range that begins with the key, in a table of ranges.
    pub end: Option<u64>,
    /// The length of the value.
    pub value_len_bytes: u64,
}

impl GroupRow {
    /// Returns the number of keys of the row's range, minus one.
    fn extent(&self) -> u64 {
        self.end.map_or(0, |end| end.saturating_sub(self.key))
    }
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
    has_ranges: bool,
}

impl<'a> Group<'a> {
    /// Returns the group at an offset of the groups section. `row_count` is the number of its rows, at most
    /// [`GROUP_ROWS`], and `has_ranges` is whether they are ranges. Returns `None` if the group is not inside the
    /// section, or if its widths are invalid.
    #[inline(always)]
    pub fn at(groups: &'a [u8], offset_bytes: usize, row_count: usize, has_ranges: bool) -> Option<Group<'a>> {
        let bytes = groups.get(offset_bytes..)?;
        let start = bytes.first_chunk::<ENTRIES_AT>()?;
        let codes = start.last_chunk()?;
        let word = u64::from_le_bytes(*start[POSITION_AT..].first_chunk()?);
        let position = word & ((1 << (8 * POSITION_LEN_BYTES)) - 1);
        let widths = Widths { low_bits: start[LOW_BITS_AT].into(), end_bits: start[END_BITS_AT].into() };
        let len_min = u32::from_le_bytes(*start[LEN_MIN_AT..].first_chunk()?).into();
        let is_valid = widths.low_bits <= LOW_BITS_MAX && widths.end_bits <= END_BITS_MAX && row_count <= GROUP_ROWS;
        let head = u64::from_le_bytes(*start.first_chunk()?);
        is_valid.then_some(Group { bytes, codes, head, position, len_min, widths, row_count, has_ranges })
    }

    /// Returns the number of rows.
    #[inline]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns the length of the part of the group that determines [`Group::len_bytes`].
    #[inline]
    pub fn head_len_bytes(&self) -> usize {
        entries_end_bytes(self.widths) + if self.has_ranges { EXTENTS_HEAD_LEN_BYTES } else { 0 }
    }

    /// Returns the length of the group, including its padding.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        group_len_bytes(self.widths, if self.has_ranges { self.extents().len_bytes() } else { 0 })
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

    /// Returns the last key of a row's range, in a table of ranges. The row must be less than [`Group::row_count`].
    #[inline(always)]
    pub fn last_key(&self, row: usize) -> u64 {
        let extents = self.extents();
        let row_bit = 1 << (row % GROUP_ROWS);
        if extents.adjacent & row_bit != 0 {
            return self.key(row + 1).wrapping_sub(1);
        }
        let before = (!extents.adjacent & (row_bit - 1)).count_ones() * extents.bits;
        let first_bit = (self.head_len_bytes() - ENTRIES_AT) * 8 + before as usize;
        // A field has fewer bits than an extent can have.
        let (lower_bits, upper_bits) = (extents.bits.min(u32::BITS), extents.bits.saturating_sub(u32::BITS));
        let lower = self.field(first_bit, lower_bits);
        let upper = self.field(first_bit + lower_bits as usize, upper_bits);
        self.key(row).wrapping_add(upper << u32::BITS | lower)
    }

    /// Returns the key of a row and, in a table of ranges, the last key of the row's range. The row must be less than
    /// [`Group::row_count`].
    #[inline]
    pub fn row_key(&self, row: usize) -> RowKey<'static> {
        let end = self.has_ranges.then(|| Key::U64(self.last_key(row)));
        RowKey { key: Key::U64(self.key(row)), end }
    }

    /// Returns where the ranges of the rows end.
    #[inline(always)]
    fn extents(&self) -> Extents {
        let word = self.word(entries_end_bytes(self.widths));
        // A baker writes no greater width.
        Extents { adjacent: word as u32, bits: ((word >> u32::BITS) as u32 & 0xff).min(u64::BITS) }
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
        (self.word(ENTRIES_AT + first_bit / 8) >> (first_bit % 8)) & mask(bits)
    }

    /// Returns the 8 bytes at an offset as a number, with zeros in place of bytes beyond the section.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => last_word(self.bytes, at),
        }
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

/// Appends the group of some rows, at most [`GROUP_ROWS`], with its padding. The rows are in key order, and either all or
/// none of them have ends; `position` is the position of the first value in the records section.
///
/// # Panics
/// If there are no rows, or more than [`GROUP_ROWS`].
pub fn write_group(rows: &[GroupRow], position: u64, groups: &mut Vec<u8>) {
    let (head, Shape { widths, len_min, extents }) = (rows[0].key, Shape::of(rows));
    let start = groups.len();
    groups.resize(start + group_len_bytes(widths, extents.map_or(0, Extents::len_bytes)), 0);
    let group = &mut groups[start..];
    group[..POSITION_AT].copy_from_slice(&head.to_le_bytes());
    group[POSITION_AT..LOW_BITS_AT].copy_from_slice(&position.to_le_bytes()[..POSITION_LEN_BYTES]);
    (group[LOW_BITS_AT], group[END_BITS_AT]) = (widths.low_bits as u8, widths.end_bits as u8);
    group[LEN_MIN_AT..CODES_AT].copy_from_slice(&(len_min as u32).to_le_bytes());
    group[CODES_AT..ENTRIES_AT].fill(NO_CODE);
    let mut end = 0;
    for (i, row) in rows.iter().enumerate() {
        let distance = row.key.saturating_sub(head);
        group[CODES_AT + i] = (distance >> widths.low_bits) as u8;
        end += row.value_len_bytes - len_min;
        let first_bit = i * widths.entry_bits();
        put(&mut group[ENTRIES_AT..], first_bit, distance & mask(widths.low_bits));
        put(&mut group[ENTRIES_AT..], first_bit + widths.low_bits as usize, end);
    }
    if let Some(extents) = extents {
        put_extents(&mut group[entries_end_bytes(widths)..], rows, extents);
    }
}

/// Returns the length of the group that [`write_group`] writes for some rows.
///
/// # Panics
/// If there are no rows.
pub fn len_of_group_bytes(rows: &[GroupRow]) -> usize {
    let Shape { widths, extents, .. } = Shape::of(rows);
    group_len_bytes(widths, extents.map_or(0, Extents::len_bytes))
}

/// What determines the length of the group of some rows.
struct Shape {
    widths: Widths,
    /// The length of the shortest value.
    len_min: u64,
    /// Where the ranges end, in a table of ranges.
    extents: Option<Extents>,
}

impl Shape {
    fn of(rows: &[GroupRow]) -> Shape {
        let span = rows[rows.len() - 1].key.saturating_sub(rows[0].key);
        let len_min = rows.iter().map(|row| row.value_len_bytes).min().unwrap_or_default();
        let excess = rows.iter().map(|row| row.value_len_bytes - len_min).sum();
        let widths = Widths { low_bits: bits_of(span).saturating_sub(CODE_BITS), end_bits: bits_of(excess) };
        Shape { widths, len_min, extents: rows[0].end.map(|_| extents_of(rows)) }
    }
}

/// Returns which rows have extents, and the number of bits of the greatest extent.
fn extents_of(rows: &[GroupRow]) -> Extents {
    // The bits of missing rows are set.
    let mut adjacent = u32::MAX.checked_shl(rows.len() as u32).unwrap_or(0);
    for (i, pair) in rows.windows(2).enumerate() {
        let is_adjacent = pair[0].end.and_then(|end| end.checked_add(1)) == Some(pair[1].key);
        adjacent |= u32::from(is_adjacent) << i;
    }
    let with_extent = rows.iter().enumerate().filter(|(i, _)| adjacent >> i & 1 == 0);
    Extents { adjacent, bits: bits_of(with_extent.map(|(_, row)| row.extent()).max().unwrap_or_default()) }
}

/// Writes the extents of rows and their head to bytes that are 0.
fn put_extents(bytes: &mut [u8], rows: &[GroupRow], extents: Extents) {
    let (head, entries) = bytes.split_at_mut(EXTENTS_HEAD_LEN_BYTES);
    head[..GROUP_ROWS / 8].copy_from_slice(&extents.adjacent.to_le_bytes());
    head[GROUP_ROWS / 8] = extents.bits as u8;
    let with_extent = rows.iter().enumerate().filter(|(i, _)| extents.adjacent >> i & 1 == 0);
    for (number, (_, row)) in with_extent.enumerate() {
        put(entries, number * extents.bits as usize, row.extent());
    }
}

/// Adds a number to bits that are 0.
fn put(entries: &mut [u8], first_bit: usize, number: u64) {
    let word = u128::from(number) << (first_bit % 8);
    for (byte, add) in entries.iter_mut().skip(first_bit / 8).zip(word.to_le_bytes()) {
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
        let row = |(i, key): (usize, &u64)| GroupRow { key: *key, end: None, value_len_bytes: len_bytes(i) };
        let rows: Vec<GroupRow> = keys.iter().enumerate().map(row).collect();
        let mut groups = Vec::new();
        write_group(&rows, position, &mut groups);
        assert_eq!(groups.len(), len_of_group_bytes(&rows));
        groups
    }

    /// Returns the group of ranges that begin with these keys. The number of an end selects where each range ends: at
    /// its first key, directly before the next range, or in between.
    fn written_ranges(keys: &[u64], end: impl Fn(usize) -> u8) -> (Vec<u64>, Vec<u8>) {
        let row = |(i, key): (usize, &u64)| {
            let last = keys.get(i + 1).map_or(u64::MAX, |next| next - 1);
            let end = [*key, last, key.midpoint(last)][usize::from(end(i))];
            GroupRow { key: *key, end: Some(end), value_len_bytes: 2 }
        };
        let rows: Vec<GroupRow> = keys.iter().enumerate().map(row).collect();
        let mut groups = Vec::new();
        write_group(&rows, 0, &mut groups);
        assert_eq!(groups.len(), len_of_group_bytes(&rows));
        (rows.into_iter().map(|row| row.end.unwrap()).collect(), groups)
    }

    #[test]
    fn a_group_has_exactly_the_keys_that_were_written() {
        for keys in lists_of_keys() {
            let groups = written(&keys, |_| 26, 0);
            let group = Group::at(&groups, 0, keys.len(), false).unwrap();
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
            let group = Group::at(&groups, 0, keys.len(), false).unwrap();
            let mut next = position;
            for row in 0..keys.len() {
                assert_eq!(group.value(row), Some(next..next + len_bytes(row)), "row {row}");
                next += len_bytes(row);
            }
        }
    }

    #[test]
    fn a_group_has_exactly_the_ends_of_the_ranges_that_were_written() {
        let ends: [fn(usize) -> u8; 6] =
            [|_| 0, |_| 1, |_| 2, |i| (i % 3) as u8, |i| u8::from(i != 5), |i| u8::from(i % 7 == 3) * 2];
        for keys in lists_of_keys() {
            for end in ends {
                let (ends, groups) = written_ranges(&keys, end);
                let group = Group::at(&groups, 0, keys.len(), true).unwrap();
                assert_eq!(group.len_bytes(), groups.len(), "{keys:?}");
                assert!(group.head_len_bytes() <= groups.len());
                for (row, (key, end)) in keys.iter().zip(ends).enumerate() {
                    let expected = RowKey { key: Key::U64(*key), end: Some(Key::U64(end)) };
                    assert_eq!(group.row_key(row), expected, "row {row} of {keys:?}");
                    assert_eq!(group.value(row), Some(row as u64 * 2..row as u64 * 2 + 2));
                }
            }
        }
    }

    #[test]
    fn ranges_without_gaps_take_a_bit_and_the_extent_of_the_last_one() {
        let keys: Vec<u64> = (0..GROUP_ROWS as u64).map(|i| i << 10).collect();
        let row = |(i, key): (usize, &u64)| {
            let end = if i + 1 == GROUP_ROWS { *key + 1000 } else { keys[i + 1] - 1 };
            GroupRow { key: *key, end: Some(end), value_len_bytes: 2 }
        };
        let rows: Vec<GroupRow> = keys.iter().enumerate().map(row).collect();
        let (mut groups, single) = (Vec::new(), written(&keys, |_| 2, 0));
        write_group(&rows, 0, &mut groups);
        assert_eq!((single.len(), groups.len()), (80, 88));
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
        let read = |groups: &[u8], has_ranges| {
            if let Some(group) = Group::at(groups, 0, GROUP_ROWS, has_ranges) {
                for (row, key) in keys.iter().enumerate() {
                    let _ = (group.row_key(row), group.value(row), group.rows_below(*key), group.len_bytes());
                }
            }
        };
        let groups = written(&keys, |row| 1 << row.min(30), 0);
        for (groups, has_ranges) in [(&groups, false), (&written_ranges(&keys, |i| (i % 3) as u8).1, true)] {
            (0..groups.len()).for_each(|len_bytes| read(&groups[..len_bytes], has_ranges));
            for (at, bit) in (0..groups.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut damaged = groups.clone();
                damaged[at] ^= 1 << bit;
                read(&damaged, has_ranges);
            }
        }
        let at = |offset_bytes, row_count| Group::at(&groups, offset_bytes, row_count, false);
        assert!(at(1, GROUP_ROWS + 1).is_none() && at(usize::MAX, 1).is_none());
    }
}
