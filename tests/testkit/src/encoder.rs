//! An encoder that is written only from `docs/FORMAT.md`. It shares no code and no constant with the crate, so a test
//! that compares their files catches a mistake in either.

use std::collections::BTreeMap;

use twox_hash::{XxHash3_64, XxHash3_128};

use super::random::Random;
use super::rows::KeySpan;

pub const HEADER: usize = 304;
pub const ENTRIES: usize = 80;
pub const ENTRY: usize = 32;
pub const KEY_KIND: usize = 12;
pub const KEY_TYPE: usize = 64;
pub const FLAGS: usize = 72;
pub const ROW_COUNT: usize = 24;
pub const HASH_SEED: usize = 32;
pub const RECORD_ALIGN: usize = 40;
pub const DIGEST: std::ops::Range<usize> = 48..64;
pub const RECORDS: usize = 0;
pub const FENCES: usize = 1;
pub const FENCE_TREE: usize = 2;
pub const PILOTS: usize = 3;
pub const PLACES: usize = 4;
pub const SCHEMA: usize = 5;
pub const BLOCK_SUMS: usize = 6;
pub const SECTIONS: [usize; 7] = [RECORDS, FENCES, FENCE_TREE, PILOTS, PLACES, SCHEMA, BLOCK_SUMS];
/// The length of a fence.
pub const FENCE: usize = 128;
/// The number of rows of a fence.
pub const FENCE_ROWS: usize = 18;

const BLOCK: usize = 4096;
/// The offset of the records.
const RECORDS_AT: usize = 4096;
const ALIGN: usize = 8;
const NODE_HEADS: usize = 16;
const PART_ROWS: u64 = 32768;
const SEEDS: u64 = 64;

pub fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

pub fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

pub fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the position of the header field that contains the offset of a section. Sections are numbered from 0.
pub fn offset_at(section: usize) -> usize {
    ENTRIES + section * ENTRY + 8
}

pub fn len_at(section: usize) -> usize {
    ENTRIES + section * ENTRY + 16
}

/// Returns the position of the header field that contains the checksum of a section.
pub fn checksum_at(section: usize) -> usize {
    ENTRIES + section * ENTRY + 24
}

/// Returns the offset and length of a section according to the section table.
pub fn section(file: &[u8], section: usize) -> (usize, usize) {
    (number(file, offset_at(section)) as usize, number(file, len_at(section)) as usize)
}

pub fn block_sums(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(BLOCK).flat_map(|block| XxHash3_64::oneshot(block).to_le_bytes()).collect()
}

/// Returns the section of block sums for the sections before it, in order: the sum of each block, and the root.
pub fn block_sums_of(sections: &[Vec<u8>]) -> Vec<u8> {
    let sums: Vec<u8> = sections.iter().flat_map(|section| block_sums(section)).collect();
    let root = block_sums(&sums);
    [sums, root].concat()
}

/// Returns the checksum of the section of block sums: the checksum of its root.
fn root_sum(section: &[u8]) -> u64 {
    // The root has 8 bytes for each block of the sums before it.
    let root_len = (section.len() / 8).div_ceil(BLOCK / 8 + 1) * 8;
    XxHash3_64::oneshot(&section[section.len() - root_len..])
}

/// Writes the digest of the header's bytes into the header.
pub fn seal_header(file: &mut [u8]) {
    file[DIGEST].fill(0);
    let digest = XxHash3_128::oneshot(&file[..HEADER]);
    file[DIGEST].copy_from_slice(&digest.to_le_bytes());
}

/// Recomputes the block sums, the checksum of each section that the section table locates inside the file, and the
/// digest of the header.
pub fn seal(file: &mut [u8]) {
    let place = |file: &[u8], i: usize| {
        let (offset, len) = section(file, i);
        offset.checked_add(len).filter(|end| *end <= file.len()).map(|end| offset..end)
    };
    let data: Option<Vec<Vec<u8>>> =
        SECTIONS[..BLOCK_SUMS].iter().map(|i| Some(file[place(file, *i)?].to_vec())).collect();
    if let (Some(data), Some(sums)) = (data, place(file, BLOCK_SUMS)) {
        let found = block_sums_of(&data);
        if found.len() == sums.len() {
            file[sums].copy_from_slice(&found);
        }
    }
    for i in SECTIONS {
        if let Some(range) = place(file, i) {
            let sum = match i {
                BLOCK_SUMS => root_sum(&file[range]),
                _ => XxHash3_64::oneshot(&block_sums(&file[range])),
            };
            put(file, checksum_at(i), sum);
        }
    }
    seal_header(file);
}

/// A key as `docs/FORMAT.md` specifies it.
pub trait Keyed {
    /// The number of the key kind.
    const KIND: u32;
    /// The number of the key type: `u64` and `bytes` have the numbers of their kinds.
    const TYPE: u32 = Self::KIND;
    /// The flags of a table with these keys.
    const FLAGS: u64 = 0;
    /// Returns the bytes of a record before its response.
    fn prefix(&self) -> Vec<u8>;
    /// Returns the part of the key that a fence stores if all keys share their first `common` bytes.
    fn head(&self, common: usize) -> u64;
    /// Returns this key's part of the bytes whose hash is the seed.
    fn seed_bytes(&self) -> Vec<u8>;
    fn hash(&self, seed: u64) -> u64;
    /// Returns the length of the prefix that all keys from this key to `last` share.
    fn common(&self, last: &Self) -> usize;
}

impl Keyed for u64 {
    const KIND: u32 = 1;

    fn prefix(&self) -> Vec<u8> {
        self.to_le_bytes().into()
    }

    fn head(&self, _: usize) -> u64 {
        *self
    }

    fn seed_bytes(&self) -> Vec<u8> {
        self.to_le_bytes().into()
    }

    fn hash(&self, seed: u64) -> u64 {
        let h = (self ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^ (h >> 32)
    }

    fn common(&self, _: &u64) -> usize {
        0
    }
}

impl Keyed for Vec<u8> {
    const KIND: u32 = 2;

    fn prefix(&self) -> Vec<u8> {
        let mut prefix = (self.len() as u16).to_le_bytes().to_vec();
        prefix.extend_from_slice(self);
        prefix.resize(prefix.len().next_multiple_of(8), 0);
        prefix
    }

    fn head(&self, common: usize) -> u64 {
        (common..common + 8).fold(0, |head, at| head << 8 | u64::from(self.get(at).copied().unwrap_or(0)))
    }

    fn seed_bytes(&self) -> Vec<u8> {
        [&(self.len() as u16).to_le_bytes()[..], self].concat()
    }

    fn hash(&self, seed: u64) -> u64 {
        XxHash3_64::oneshot_with_seed(seed, self)
    }

    fn common(&self, last: &Vec<u8>) -> usize {
        (0..self.len().min(last.len())).find(|at| self[*at] != last[*at]).unwrap_or(self.len().min(last.len()))
    }
}

/// A key of the type `ip`.
impl Keyed for [u8; 16] {
    const KIND: u32 = 2;
    const TYPE: u32 = 5;

    fn prefix(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn head(&self, common: usize) -> u64 {
        let bytes = self.to_vec();
        match (common, bytes.head(0), bytes.head(8)) {
            (0, 0, low) => low.min(1 << 48),
            (0, high, _) => high.max(1 << 48),
            _ => bytes.head(common),
        }
    }

    fn seed_bytes(&self) -> Vec<u8> {
        self.to_vec().seed_bytes()
    }

    fn hash(&self, seed: u64) -> u64 {
        self.to_vec().hash(seed)
    }

    fn common(&self, last: &[u8; 16]) -> usize {
        self.to_vec().common(&last.to_vec())
    }
}

/// A range of keys, whose row has its first key.
impl<K: Keyed> Keyed for KeySpan<K> {
    const KIND: u32 = K::KIND;
    const TYPE: u32 = K::TYPE;
    const FLAGS: u64 = 1;

    fn prefix(&self) -> Vec<u8> {
        [self.first.prefix(), self.last.prefix()].concat()
    }

    fn head(&self, common: usize) -> u64 {
        self.first.head(common)
    }

    fn seed_bytes(&self) -> Vec<u8> {
        self.first.seed_bytes()
    }

    fn hash(&self, seed: u64) -> u64 {
        self.first.hash(seed)
    }

    fn common(&self, last: &KeySpan<K>) -> usize {
        self.first.common(&last.first)
    }
}

/// The division of an index: the number of parts, and of pilots and slots in each part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub parts: u64,
    pub pilots: u64,
    pub slots: u64,
}

impl Shape {
    /// Returns the shape that the baker chooses for these keys.
    pub fn of_keys<'k, K: Keyed + 'k>(keys: impl ExactSizeIterator<Item = &'k K>, seed: u64) -> Shape {
        let parts = (keys.len() as u64).div_ceil(PART_ROWS);
        let mut rows = vec![0_u64; parts as usize];
        for key in keys {
            rows[scale(key.hash(seed), parts)] += 1;
        }
        let largest = rows.into_iter().max().unwrap_or(0);
        Shape { parts, pilots: largest.div_ceil(3), slots: largest + largest.div_ceil(16) }
    }

    /// Returns the shape of the index in a file, which must have rows.
    pub fn of_file(file: &[u8]) -> Shape {
        let parts = number(file, ROW_COUNT).div_ceil(PART_ROWS);
        let of_part = |i| section(file, i).1 as u64 / parts;
        Shape { parts, pilots: of_part(PILOTS), slots: of_part(PLACES) / 4 }
    }

    pub fn pilot(self, hash: u64) -> usize {
        scale(hash, self.parts * self.pilots)
    }

    pub fn slot(self, hash: u64, pilot: u8) -> usize {
        let turned = (hash ^ u64::from(pilot).wrapping_mul(0xa076_1d64_78bd_642f)).wrapping_mul(0xe703_7ed1_a0b4_28db);
        scale(hash, self.parts) * self.slots as usize + (((turned >> 32) * self.slots) >> 32) as usize
    }
}

fn scale(hash: u64, count: u64) -> usize {
    ((u128::from(hash) * u128::from(count)) >> 64) as usize
}

/// Returns the seed that a baker tries after `k` other seeds.
pub fn seed<'k, K: Keyed + 'k>(keys: impl Iterator<Item = &'k K>, k: u64) -> u64 {
    let keys: Vec<u8> = keys.flat_map(Keyed::seed_bytes).collect();
    XxHash3_64::oneshot(&keys).wrapping_add(k.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns the offset of a key's pilot in a file.
pub fn pilot_at(file: &[u8], key: &impl Keyed) -> usize {
    section(file, PILOTS).0 + Shape::of_file(file).pilot(key.hash(number(file, HASH_SEED)))
}

/// Returns the offset of the place in the slot that a key's hash and pilot select.
pub fn place_at(file: &[u8], key: &impl Keyed) -> usize {
    let slot = Shape::of_file(file).slot(key.hash(number(file, HASH_SEED)), file[pilot_at(file, key)]);
    section(file, PLACES).0 + slot * 4
}

/// Returns the file for these rows with the seed and the shape that the baker chooses.
pub fn encode<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>) -> Vec<u8> {
    let mut seeds = (0..SEEDS).map(|k| seed(rows.keys(), k));
    seeds
        .find_map(|seed| encode_as(rows, seed, Shape::of_keys(rows.keys(), seed)))
        .expect("keys that some seed works for")
}

/// Returns the file for these rows with this schema section.
pub fn encode_typed<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>, schema: &[u8]) -> Vec<u8> {
    let untyped = encode(rows);
    let mut sections = SECTIONS.map(|i| {
        let (start, len) = section(&untyped, i);
        untyped[start..start + len].to_vec()
    });
    sections[SCHEMA] = schema.to_vec();
    sections[BLOCK_SUMS] = block_sums_of(&sections[..BLOCK_SUMS]);
    typed_as::<K>(assemble(K::KIND, rows.len() as u64, number(&untyped, HASH_SEED), sections))
}

/// Returns the file for these rows, or `None` if no pilots fit this seed and this shape.
pub fn encode_as<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>, seed: u64, shape: Shape) -> Option<Vec<u8>> {
    let (records, record_places) = records_and_places(rows);
    let (fences, fence_tree) = fences_and_tree(rows, &record_places);
    let hashes: Vec<u64> = rows.keys().map(|key| key.hash(seed)).collect();
    let pilots = pilots(&hashes, shape)?;
    let mut places = vec![0; (shape.parts * shape.slots * 4) as usize];
    for (hash, place) in hashes.iter().zip(&record_places) {
        put_u32(&mut places, shape.slot(*hash, pilots[shape.pilot(*hash)]) * 4, *place);
    }
    let mut sections = [records, fences, fence_tree, pilots, places, Vec::new(), Vec::new()];
    sections[BLOCK_SUMS] = block_sums_of(&sections[..BLOCK_SUMS]);
    Some(typed_as::<K>(assemble(K::KIND, rows.len() as u64, seed, sections)))
}

/// Returns a file with the key type and the flags of these keys.
fn typed_as<K: Keyed>(mut file: Vec<u8>) -> Vec<u8> {
    put_u32(&mut file, KEY_TYPE, K::TYPE);
    put(&mut file, FLAGS, K::FLAGS);
    seal_header(&mut file);
    file
}

/// Returns a file of the key type `u64` or `bytes` with these sections in order.
pub fn assemble(key_kind: u32, row_count: u64, seed: u64, sections: [Vec<u8>; 7]) -> Vec<u8> {
    let mut file = vec![0; HEADER];
    for (i, section) in sections.into_iter().enumerate() {
        let align = if i == RECORDS { RECORDS_AT } else { 64 };
        file.resize(file.len().next_multiple_of(align), 0);
        file[ENTRIES + i * ENTRY] = i as u8 + 1;
        let offset = file.len() as u64;
        put(&mut file, offset_at(i), offset);
        put(&mut file, len_at(i), section.len() as u64);
        file.extend_from_slice(&section);
    }
    file[..8].copy_from_slice(&[0x89, 0x5a, 0x4b, 0x56, 0x0d, 0x0a, 0x1a, 0x0a]);
    file[8] = 6;
    put_u32(&mut file, KEY_KIND, key_kind);
    let len = file.len() as u64;
    put(&mut file, 16, len);
    put(&mut file, ROW_COUNT, row_count);
    put(&mut file, HASH_SEED, seed);
    put_u32(&mut file, RECORD_ALIGN, ALIGN as u32);
    put_u32(&mut file, 44, BLOCK as u32);
    // The key type: `u64` and `bytes` have the numbers of their kinds.
    put_u32(&mut file, KEY_TYPE, key_kind);
    seal(&mut file);
    file
}

/// The number of rows of a group of the compact layout.
pub const GROUP_ROWS: usize = 32;
/// The offset of the codes in a group, and of the entries.
const GROUP_CODES: usize = 20;
const GROUP_ENTRIES: usize = GROUP_CODES + GROUP_ROWS;

/// A key of the compact layout.
pub trait GroupKey: Keyed + Ord {
    /// Returns the key, and the last key of its range in a table of ranges.
    fn bounds(&self) -> (u64, Option<u64>);
    fn new(key: u64, last: Option<u64>) -> Self;
}

impl GroupKey for u64 {
    fn bounds(&self) -> (u64, Option<u64>) {
        (*self, None)
    }

    fn new(key: u64, _: Option<u64>) -> u64 {
        key
    }
}

impl GroupKey for KeySpan<u64> {
    fn bounds(&self) -> (u64, Option<u64>) {
        (self.first, Some(self.last))
    }

    fn new(first: u64, last: Option<u64>) -> KeySpan<u64> {
        KeySpan { first, last: last.expect("the end of a range") }
    }
}

/// Returns the file with the compact layout for these rows.
pub fn encode_compact<K: GroupKey>(rows: &BTreeMap<K, Vec<u8>>) -> Vec<u8> {
    let all: Vec<(&K, &Vec<u8>)> = rows.iter().collect();
    let (mut values, mut groups, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for rows in all.chunks(GROUP_ROWS) {
        places.extend_from_slice(&((groups.len() / 8) as u32).to_le_bytes());
        groups.extend(group(rows, values.len()));
        rows.iter().for_each(|(_, value)| values.extend_from_slice(value));
    }
    let heads = all.iter().step_by(GROUP_ROWS).map(|(key, _)| key.bounds().0).collect();
    let mut sections = [values, groups, tree(heads), Vec::new(), places, Vec::new(), Vec::new()];
    sections[BLOCK_SUMS] = block_sums_of(&sections[..BLOCK_SUMS]);
    let mut file = assemble(1, rows.len() as u64, 0, sections);
    put_u32(&mut file, RECORD_ALIGN, 1);
    put(&mut file, FLAGS, K::FLAGS | 2);
    seal_header(&mut file);
    file
}

/// Returns the number of bits of a number.
fn width(number: u64) -> usize {
    (0..=64).find(|bits| u128::from(number) >> bits == 0).expect("64 bits")
}

fn bytes_of_bits(bits: &[u64]) -> impl Iterator<Item = u8> {
    bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8))
}

/// Returns the group of rows whose values begin at an offset of the records section.
fn group<K: GroupKey>(rows: &[(&K, &Vec<u8>)], values_at: usize) -> Vec<u8> {
    let keys: Vec<u64> = rows.iter().map(|(key, _)| key.bounds().0).collect();
    let (head, last) = (keys[0], keys[keys.len() - 1]);
    let least = rows.iter().map(|(_, value)| value.len()).min().expect("a row");
    let low_bits = width(last - head).saturating_sub(8);
    let end_bits = width(rows.iter().map(|(_, value)| value.len() - least).sum::<usize>() as u64);
    let mut group = head.to_le_bytes().to_vec();
    group.extend_from_slice(&values_at.to_le_bytes()[..6]);
    group.extend_from_slice(&[low_bits as u8, end_bits as u8]);
    group.extend_from_slice(&(least as u32).to_le_bytes());
    group.extend(keys.iter().map(|key| ((key - head) >> low_bits) as u8));
    group.resize(GROUP_ENTRIES, 255);
    let (mut bits, mut end) = (Vec::new(), 0);
    for (key, (_, value)) in keys.iter().zip(rows) {
        end += (value.len() - least) as u64;
        bits.extend((0..low_bits).map(|bit| (key - head) >> bit & 1));
        bits.extend((0..end_bits).map(|bit| end >> bit & 1));
    }
    bits.resize(GROUP_ROWS * (low_bits + end_bits), 0);
    group.extend(bytes_of_bits(&bits));
    let ends: Vec<u64> = rows.iter().filter_map(|(key, _)| key.bounds().1).collect();
    if !ends.is_empty() {
        let is_adjacent = |i: usize| i >= keys.len() || i + 1 < keys.len() && ends[i] + 1 == keys[i + 1];
        group.extend(bytes_of_bits(&(0..GROUP_ROWS).map(|i| is_adjacent(i).into()).collect::<Vec<_>>()));
        let extents: Vec<u64> = (0..keys.len()).filter(|i| !is_adjacent(*i)).map(|i| ends[i] - keys[i]).collect();
        let extent_bits = extents.iter().map(|extent| width(*extent)).max().expect("the last row has an extent");
        group.push(extent_bits as u8);
        let bits: Vec<u64> =
            extents.iter().flat_map(|extent| (0..extent_bits).map(move |bit| extent >> bit & 1)).collect();
        group.extend(bytes_of_bits(&bits));
    }
    group.resize(group.len().next_multiple_of(8), 0);
    group
}

/// Returns the rows of a valid file with the compact layout.
pub fn rows_of_compact<K: GroupKey>(file: &[u8]) -> BTreeMap<K, Vec<u8>> {
    let ((values, _), (groups, _), (places, _)) =
        (section(file, RECORDS), section(file, FENCES), section(file, PLACES));
    let row_count = number(file, ROW_COUNT) as usize;
    let row = |row: usize| {
        let place = places + row / GROUP_ROWS * 4;
        let place = u32::from_le_bytes(file[place..place + 4].try_into().expect("four bytes"));
        let group = &file[groups + place as usize * 8..];
        let (low_bits, end_bits) = (usize::from(group[14]), usize::from(group[15]));
        let least = u32::from_le_bytes(group[16..20].try_into().expect("four bytes")) as usize;
        let field = |first: usize, bits: usize| {
            (first..first + bits)
                .rev()
                .fold(0, |number, bit| number << 1 | u64::from(group[GROUP_ENTRIES + bit / 8] >> (bit % 8) & 1))
        };
        let i = row % GROUP_ROWS;
        let entry = |i: usize| i * (low_bits + end_bits);
        let end = |i: usize| field(entry(i) + low_bits, end_bits) as usize + (i + 1) * least;
        let key =
            |i: usize| number(group, 0) + (u64::from(group[GROUP_CODES + i]) << low_bits | field(entry(i), low_bits));
        let last = (number(file, FLAGS) & 1 == 1).then(|| {
            let adjacent_at = entry(GROUP_ROWS);
            let is_adjacent = |i: usize| field(adjacent_at + i, 1) == 1;
            let extent_bits = field(adjacent_at + GROUP_ROWS, 8) as usize;
            let before = (0..i).filter(|i| !is_adjacent(*i)).count();
            match is_adjacent(i) {
                true => key(i + 1) - 1,
                false => key(i) + field(adjacent_at + GROUP_ROWS + 8 + before * extent_bits, extent_bits),
            }
        });
        let first = values + (number(group, 8) & ((1 << 48) - 1)) as usize;
        (K::new(key(i), last), file[first + if i == 0 { 0 } else { end(i - 1) }..first + end(i)].to_vec())
    };
    (0..row_count).map(row).collect()
}

/// Returns the records, and the place of each record.
fn records_and_places<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>) -> (Vec<u8>, Vec<u32>) {
    let (mut records, mut places) = (Vec::<u8>::new(), Vec::new());
    for (key, value) in rows {
        places.push((records.len() / ALIGN) as u32);
        records.extend_from_slice(&key.prefix());
        records.extend_from_slice(&[0; 4]);
        records.extend_from_slice(&(value.len() as u32).to_be_bytes());
        records.extend_from_slice(value);
        records.resize(records.len().next_multiple_of(ALIGN), 0);
    }
    (records, places)
}

/// Returns the fences, and the tree above them.
fn fences_and_tree<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>, places: &[u32]) -> (Vec<u8>, Vec<u8>) {
    let ends = rows.first_key_value().zip(rows.last_key_value());
    let common = ends.map_or(0, |((first, _), (last, _))| first.common(last));
    let heads: Vec<u64> = rows.keys().map(|key| key.head(common)).collect();
    let of_fences = heads.chunks(FENCE_ROWS).zip(places.chunks(FENCE_ROWS));
    let fences = of_fences.flat_map(|(heads, places)| fence(heads, places)).collect();
    (fences, tree(heads.into_iter().step_by(FENCE_ROWS).collect()))
}

/// Returns the tree above fences or groups with these heads.
fn tree(heads: Vec<u64>) -> Vec<u8> {
    let (mut tree, mut level): (Vec<u64>, Vec<u64>) = (Vec::new(), heads);
    while !level.is_empty() {
        let is_highest = level.len() <= NODE_HEADS;
        tree.extend_from_slice(&level);
        tree.resize(tree.len().next_multiple_of(NODE_HEADS), u64::MAX);
        level = if is_highest { vec![] } else { level.into_iter().step_by(NODE_HEADS).collect() };
    }
    tree.iter().flat_map(|head| head.to_le_bytes()).collect()
}

/// Returns the length of the tree above a number of fences.
pub fn tree_len(fence_count: usize) -> usize {
    let nodes = fence_count.div_ceil(NODE_HEADS);
    nodes * NODE_HEADS * 8 + if nodes > 1 { tree_len(nodes) } else { 0 }
}

/// Returns a fence of rows with these heads and places.
fn fence(heads: &[u64], places: &[u32]) -> Vec<u8> {
    let gap = |i: usize| if i == 0 { 0 } else { heads[i] - heads[i - 1] };
    // The first row with the widest gap before it, or row 0 if there is no gap.
    let upper = (0..heads.len()).rev().max_by_key(|i| gap(*i)).filter(|i| gap(*i) > 0).unwrap_or(0);
    let shift = |part: &[u64]| {
        let span = part.last().zip(part.first()).map_or(0, |(last, first)| last - first);
        (0..).find(|shift| span >> shift < 1 << 30).expect("a number of bits")
    };
    let (lower_shift, upper_shift) = (shift(&heads[..upper]), shift(&heads[upper..]));
    let upper_code = if upper == 0 { 0 } else { ((heads[upper - 1] - heads[0]) >> lower_shift) + 2 };
    let code = |i: usize| match i < upper {
        true => (heads[i] - heads[0]) >> lower_shift,
        false => upper_code + ((heads[i] - heads[upper]) >> upper_shift),
    };
    let mut bytes = [heads[0].to_le_bytes(), heads[upper].to_le_bytes()].concat();
    bytes.extend_from_slice(&places[0].to_le_bytes());
    bytes.extend_from_slice(&(upper_code as u32).to_le_bytes());
    for i in 1..FENCE_ROWS {
        let code = if i < heads.len() { code(i) as u32 } else { u32::MAX };
        bytes.extend_from_slice(&code.to_le_bytes());
    }
    bytes.extend_from_slice(&[lower_shift, upper_shift]);
    for i in 1..FENCE_ROWS {
        let distance = if i < heads.len() { (places[i] - places[0]).min(65535) as u16 } else { u16::MAX };
        bytes.extend_from_slice(&distance.to_le_bytes());
    }
    bytes
}

/// Returns pilots that lead each hash to a different slot, if a random walk finds them: keys that share a pilot take
/// the slots that they prefer, and the previous owners of these slots are assigned again later.
fn pilots(hashes: &[u64], shape: Shape) -> Option<Vec<u8>> {
    let mut groups = vec![Vec::new(); (shape.parts * shape.pilots) as usize];
    for hash in hashes {
        groups[shape.pilot(*hash)].push(*hash);
    }
    let mut pilots = vec![0; groups.len()];
    let mut owners = vec![None; (shape.parts * shape.slots) as usize];
    let mut waiting: Vec<usize> = (0..groups.len()).filter(|group| !groups[*group].is_empty()).collect();
    waiting.sort_by_key(|group| groups[*group].len());
    let mut random = Random(1);
    for _ in 0..1000 + 20 * hashes.len() {
        let Some(group) = waiting.pop() else { return Some(pilots) };
        let first = random.next() as u8;
        let mut best: Option<(usize, u8, Vec<usize>)> = None;
        for pilot in (0..=255_u8).map(|pilot| pilot.wrapping_add(first)) {
            let slots: Vec<usize> = groups[group].iter().map(|hash| shape.slot(*hash, pilot)).collect();
            if (1..slots.len()).any(|i| slots[..i].contains(&slots[i])) {
                continue;
            }
            let lost = slots.iter().filter_map(|slot| owners[*slot]).map(|owner: usize| groups[owner].len().pow(2));
            let lost: usize = lost.sum();
            if best.as_ref().is_none_or(|(least, ..)| lost < *least) {
                best = Some((lost, pilot, slots));
            }
            if lost == 0 {
                break;
            }
        }
        let (_, pilot, slots) = best?;
        for slot in slots {
            if let Some(loser) = owners[slot] {
                groups[loser].iter().for_each(|hash| owners[shape.slot(*hash, pilots[loser])] = None);
                waiting.push(loser);
            }
            owners[slot] = Some(group);
        }
        pilots[group] = pilot;
    }
    None
}
