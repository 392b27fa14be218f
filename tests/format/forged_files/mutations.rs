//! Random changes of valid files, with correct checksums.

use std::ops::Range;
use std::panic::RefUnwindSafe;

use zero_kv::KeyKind;
use zero_kv::Lookup;

use super::bytes::byte_rows;
use super::rows;
use crate::helpers::encoder::{self, SECTIONS, number, put, seal};
use crate::helpers::random::Random;
use crate::helpers::records::{RecordKey, assert_lookups_match_its_records};
use crate::helpers::rows::Scratch;

/// Changes one to eight bytes, or one integer, anywhere in the file or in one section.
fn mutate(file: &mut [u8], random: &mut Random) {
    let ranges = [(0, encoder::HEADER)].into_iter().chain(SECTIONS.map(|section| encoder::section(file, section)));
    let ranges: Vec<(usize, usize)> = ranges.chain([(0, file.len())]).collect();
    for _ in 0..random.below(8) + 1 {
        let (start, len) = ranges[random.below(ranges.len())];
        let at = start + random.below(len.max(1));
        let near = |random: &mut Random, old: u64| match random.below(5) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => 0,
            3 => u64::MAX,
            _ => random.next(),
        };
        match random.below(3) {
            0 if at / 8 * 8 + 8 <= file.len() => {
                let at = at / 8 * 8;
                let old = number(file, at);
                put(file, at, near(random, old));
            }
            1 => file[at.min(file.len() - 1)] ^= 1 << random.below(8),
            _ => file[at.min(file.len() - 1)] = random.next() as u8,
        }
    }
}

/// Opens changed files with correct checksums, and makes lookups in those that open. Returns how many were opened and
/// rejected.
fn try_forgeries<K: RecordKey + RefUnwindSafe>(good: &[Vec<u8>], seeds: Range<u64>, keys: &[K]) -> (u64, u64) {
    let scratch = Scratch::new();
    let (mut opened, mut refused) = (0, 0);
    for seed in seeds {
        let mut random = Random(seed);
        let mut file = good[random.below(good.len())].clone();
        mutate(&mut file, &mut random);
        seal(&mut file);
        let outcome = std::panic::catch_unwind(|| match scratch.open(&file) {
            Ok(store) => {
                assert_eq!(Some(store.key_kind()), KeyKind::from_code(K::KIND));
                assert_lookups_match_its_records(&store, &file, keys);
                true
            }
            Err(_) => false,
        });
        match outcome {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("seed {seed}: see the message above"),
        }
    }
    (opened, refused)
}

#[test]
fn a_forged_file_is_rejected_or_every_lookup_matches_its_records() {
    let good = [0, 5, 21, 300].map(|count| Scratch::new().bake(&rows(count)));
    let keys: Vec<u64> = (0..910).step_by(13).chain([u64::MAX, u64::MAX - 1, 1 << 63]).collect();
    let (opened, refused) = try_forgeries(&good, 0..4000, &keys);
    assert!(opened > 100 && refused > 1000, "too few of one kind: {opened} opened, {refused} rejected");
}

#[test]
fn a_forged_file_of_byte_keys_is_rejected_or_every_lookup_matches_its_records() {
    // A file without rows has a key kind, but no row that could contradict it.
    let good = [5, 21, 300].map(|count| Scratch::new().bake(&byte_rows(count)));
    let mut keys: Vec<Vec<u8>> = (0..910).step_by(13).map(|i| format!("key-{i:03}").into_bytes()).collect();
    keys.extend([&b""[..], b"\0", b"key-", b"key", b"key-0000", b"\xff\xff", b"\0\0\0\0\0\0\0\0"].map(<[u8]>::to_vec));
    let (opened, refused) = try_forgeries(&good, 0..4000, &keys);
    assert!(opened > 100 && refused > 1000, "too few of one kind: {opened} opened, {refused} rejected");
}
