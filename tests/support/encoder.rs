//! An encoder of its own, written from `docs/FORMAT.md`. It shares no code and
//! no constant with the crate, so that what both get wrong must be wrong twice.

use std::collections::BTreeMap;

use twox_hash::{XxHash3_64, XxHash3_128};

pub(crate) const HEADER: usize = 256;
pub(crate) const ENTRIES: usize = 64;
pub(crate) const ENTRY: usize = 32;
pub(crate) const DIGEST: std::ops::Range<usize> = 48..64;
pub(crate) const DIRECTORY: usize = 0;
pub(crate) const LEAVES: usize = 1;
pub(crate) const RECORDS: usize = 2;
pub(crate) const BLOCK_SUMS: usize = 3;

const BLOCK: usize = 16384;

pub(crate) fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
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
    for i in [DIRECTORY, LEAVES, RECORDS, BLOCK_SUMS] {
        if let Some(range) = place(file, i) {
            let sum = XxHash3_64::oneshot(&block_sums(&file[range]));
            put(file, ENTRIES + i * ENTRY + 24, sum);
        }
    }
    seal_header(file);
}

/// The whole file for these rows.
pub(crate) fn encode(rows: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    let (leaves, first_keys, records) = leaves_and_records(rows);
    let directory = directory(first_keys);
    let sums = block_sums(&records);
    let mut file = vec![0; HEADER];
    for (i, section) in [directory, leaves, records, sums].into_iter().enumerate() {
        file.resize(file.len().next_multiple_of(128), 0);
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
    put(&mut file, 32, 16384 | 4 << 32);
    seal(&mut file);
    file
}

fn leaves_and_records(rows: &BTreeMap<u64, Vec<u8>>) -> (Vec<u8>, Vec<u64>, Vec<u8>) {
    let (mut leaves, mut first_keys, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let rows: Vec<_> = rows.iter().collect();
    for leaf in rows.chunks(8) {
        let (mut keys, mut locators) = ([u64::MAX; 8], [0_u64; 8]);
        first_keys.push(*leaf[0].0);
        for (place, (key, value)) in leaf.iter().enumerate() {
            keys[place] = **key;
            locators[place] = (records.len() as u64 / 8) << 24 | (value.len() as u64).min((1 << 24) - 1);
            records.extend_from_slice(&[0; 4]);
            records.extend_from_slice(&(value.len() as u32).to_be_bytes());
            records.extend_from_slice(value);
            records.resize(records.len().next_multiple_of(8), 0);
        }
        leaves.extend(keys.into_iter().chain(locators).flat_map(u64::to_le_bytes));
    }
    (leaves, first_keys, records)
}

fn directory(mut below: Vec<u64>) -> Vec<u8> {
    let mut levels = Vec::new();
    while below.len() > 1 {
        let mut level = below.clone();
        level.resize(level.len().next_multiple_of(16), u64::MAX);
        below = level.chunks(16).map(|node| node[0]).collect();
        levels.push(level);
    }
    levels.into_iter().rev().flatten().flat_map(u64::to_le_bytes).collect()
}
