//! An encoder of its own, written from `docs/FORMAT.md`. It shares no code and
//! no constant with the crate, so that what both get wrong must be wrong twice.

use std::collections::BTreeMap;

use twox_hash::{XxHash3_64, XxHash3_128};

pub(crate) const HEADER: usize = 256;
pub(crate) const ENTRIES: usize = 64;
pub(crate) const ENTRY: usize = 32;
pub(crate) const HASH_SEED: usize = 32;
pub(crate) const RECORD_ALIGN: usize = 40;
pub(crate) const DIGEST: std::ops::Range<usize> = 48..64;
pub(crate) const FENCES: usize = 0;
pub(crate) const RECORDS: usize = 1;
pub(crate) const BUCKETS: usize = 2;
pub(crate) const BLOCK_SUMS: usize = 3;
pub(crate) const BUCKET: usize = 64;
/// Where a bucket has its overflow byte, its reserved bytes and its places.
pub(crate) const OVERFLOWS: usize = 12;
pub(crate) const RESERVED: usize = 13;
pub(crate) const PLACES: usize = 16;

const BLOCK: usize = 16384;
const ALIGN: usize = 8;
const SLOTS: usize = 12;
const PROBES: usize = 16;
const SEEDS: u64 = 64;

pub(crate) fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

pub(crate) fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Where the entry of a section, counted from 0, has its offset and its length.
pub(crate) fn offset_at(section: usize) -> usize {
    ENTRIES + section * ENTRY + 8
}

pub(crate) fn len_at(section: usize) -> usize {
    ENTRIES + section * ENTRY + 16
}

/// Offset and length of a section as the table has them.
pub(crate) fn section(file: &[u8], section: usize) -> (usize, usize) {
    (number(file, offset_at(section)) as usize, number(file, len_at(section)) as usize)
}

fn block_sums(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(BLOCK).flat_map(|block| XxHash3_64::oneshot(block).to_le_bytes()).collect()
}

/// Makes the digest that of the header's bytes.
pub(crate) fn seal_header(file: &mut [u8]) {
    file[DIGEST].fill(0);
    let digest = XxHash3_128::oneshot(&file[..HEADER]);
    file[DIGEST].copy_from_slice(&digest.to_le_bytes());
}

/// Makes every checksum that of the bytes it covers, as far as the section
/// table leads to some.
pub(crate) fn seal(file: &mut [u8]) {
    let place = |file: &[u8], i: usize| {
        let (offset, len) = section(file, i);
        offset.checked_add(len).filter(|end| *end <= file.len()).map(|end| offset..end)
    };
    if let (Some(records), Some(sums)) = (place(file, RECORDS), place(file, BLOCK_SUMS)) {
        let found = block_sums(&file[records]);
        if found.len() == sums.len() {
            file[sums].copy_from_slice(&found);
        }
    }
    for i in [FENCES, RECORDS, BUCKETS, BLOCK_SUMS] {
        if let Some(range) = place(file, i) {
            let sum = XxHash3_64::oneshot(&block_sums(&file[range]));
            put(file, ENTRIES + i * ENTRY + 24, sum);
        }
    }
    seal_header(file);
}

/// The whole file for these rows.
pub(crate) fn encode(rows: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    let (fences, records, places) = fences_and_records(rows);
    let (hash_seed, buckets) =
        (0..SEEDS).find_map(|k| buckets(&places, seed(k))).expect("keys that some seed spreads well enough");
    let sums = block_sums(&records);
    let mut file = vec![0; HEADER];
    for (i, section) in [fences, records, buckets, sums].into_iter().enumerate() {
        file.resize(file.len().next_multiple_of(64), 0);
        let entry = ENTRIES + i * ENTRY;
        file[entry] = i as u8 + 1;
        let offset = file.len() as u64;
        put(&mut file, entry + 8, offset);
        put(&mut file, entry + 16, section.len() as u64);
        file.extend_from_slice(&section);
    }
    file[..8].copy_from_slice(&[0x89, 0x5a, 0x4b, 0x56, 0x0d, 0x0a, 0x1a, 0x0a]);
    file[8] = 1;
    file[12] = 1;
    let len = file.len() as u64;
    put(&mut file, 16, len);
    put(&mut file, 24, rows.len() as u64);
    put(&mut file, HASH_SEED, hash_seed);
    put_u32(&mut file, RECORD_ALIGN, ALIGN as u32);
    put_u32(&mut file, 44, BLOCK as u32);
    seal(&mut file);
    file
}

/// Fences, records, and the place of each key's record.
fn fences_and_records(rows: &BTreeMap<u64, Vec<u8>>) -> (Vec<u8>, Vec<u8>, Vec<(u64, u32)>) {
    let (mut fences, mut records, mut places) = (Vec::new(), Vec::<u8>::new(), Vec::new());
    for (row, (key, value)) in rows.iter().enumerate() {
        if row % 8 == 0 {
            fences.extend_from_slice(&key.to_le_bytes());
            fences.extend_from_slice(&(records.len() as u64).to_le_bytes());
        }
        places.push((*key, (records.len() / ALIGN) as u32));
        records.extend_from_slice(&key.to_le_bytes());
        records.extend_from_slice(&[0; 4]);
        records.extend_from_slice(&(value.len() as u32).to_be_bytes());
        records.extend_from_slice(value);
        records.resize(records.len().next_multiple_of(ALIGN), 0);
    }
    (fences, records, places)
}

pub(crate) fn seed(k: u64) -> u64 {
    k.wrapping_mul(0xa076_1d64_78bd_642f)
}

pub(crate) fn hash(key: u64, seed: u64) -> u64 {
    let h = (key ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 32)
}

pub(crate) fn home(hash: u64, homes: usize) -> usize {
    ((u128::from(hash >> 32) * homes as u128) >> 32) as usize
}

/// Keys whose home is bucket `home` of a table of so many rows, under seed 0.
pub(crate) fn colliding(rows: usize, bucket: usize) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| home(hash(*key, 0), rows.div_ceil(8)) == bucket)
}

/// The buckets under a seed, if each row is near enough to its home.
fn buckets(places: &[(u64, u32)], seed: u64) -> Option<(u64, Vec<u8>)> {
    let homes = places.len().div_ceil(8);
    let mut hashed: Vec<(u64, u32)> = places.iter().map(|(key, place)| (hash(*key, seed), *place)).collect();
    hashed.sort_unstable();
    let mut buckets = vec![(Vec::new(), false); homes];
    for (hash, place) in hashed {
        let home = home(hash, homes);
        let mut at = home;
        while buckets[at].0.len() == SLOTS {
            buckets[at].1 = true;
            at += 1;
            if at == home + PROBES {
                return None;
            }
            if at == buckets.len() {
                buckets.push((Vec::new(), false));
            }
        }
        buckets[at].0.push(((hash as u8).max(1), place));
    }
    let mut bytes = vec![0; buckets.len() * BUCKET];
    for ((slots, overflows), bucket) in buckets.iter().zip(bytes.chunks_mut(BUCKET)) {
        bucket[OVERFLOWS] = u8::from(*overflows);
        for (slot, (tag, place)) in slots.iter().enumerate() {
            bucket[slot] = *tag;
            put_u32(bucket, PLACES + slot * 4, *place);
        }
    }
    Some((seed, bytes))
}
