//! Random changes of valid files, with correct checksums.

use std::ops::Range;
use std::panic::RefUnwindSafe;

use zero_kv::bake::TableLayout;
use zero_kv::{Key, KeyKind, Lookup, LookupError, Store};

use super::bytes::byte_rows;
use super::ranges::{address, addresses, span_rows};
use super::rows;
use crate::helpers::encoder::{self, SECTIONS, number, put, seal};
use crate::helpers::random::Random;
use crate::helpers::records::{RecordKey, assert_lookups_match_its_records};
use crate::helpers::rows::{KeySpan, Scratch};

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
    try_each_forgery(good, seeds, |store, file| {
        assert_eq!(Some(store.key_kind()), KeyKind::from_code(K::KIND));
        assert_lookups_match_its_records(store, file, keys);
    })
}

/// Opens changed files with correct checksums, and passes those that open to `check`. Returns how many were opened and
/// rejected.
fn try_each_forgery(good: &[Vec<u8>], seeds: Range<u64>, check: impl Fn(&Store, &[u8]) + RefUnwindSafe) -> (u64, u64) {
    let scratch = Scratch::new();
    let (mut opened, mut refused) = (0, 0);
    for seed in seeds {
        let mut random = Random(seed);
        let mut file = good[random.below(good.len())].clone();
        mutate(&mut file, &mut random);
        seal(&mut file);
        let outcome = std::panic::catch_unwind(|| match scratch.open(&file) {
            Ok(store) => {
                check(&store, &file);
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
fn a_forged_file_with_the_compact_layout_is_rejected_or_every_lookup_matches_its_groups() {
    let scratch = Scratch::of(TableLayout::Compact);
    let good = [0, 5, 21, 300, 700].map(|count| scratch.bake(&rows(count)));
    let (opened, refused) = try_each_forgery(&good, 0..4000, |store, file| {
        let rows = encoder::rows_of_compact::<u64>(file);
        assert_eq!((store.len(), store.key_kind()), (rows.len(), KeyKind::U64));
        assert!(store.iter().map(Result::unwrap).eq(rows.iter().map(|(key, value)| (Key::U64(*key), &value[..]))));
        let keys = rows.keys().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]);
        for key in keys.chain([0, 1 << 63, u64::MAX]) {
            assert_eq!(store.get(key), Ok(rows.get(&key).map(|value| &value[..])), "key {key}");
            let row = |(key, value): (&u64, &'_ Vec<u8>)| (*key, value.clone());
            let found = |row: Option<(Key<'_>, &[u8])>| row.map(|(key, value)| (key.as_u64().unwrap(), value.to_vec()));
            assert_eq!(store.floor(key).map(found), Ok(rows.range(..=key).next_back().map(row)), "floor of {key}");
            assert_eq!(store.ceiling(key).map(found), Ok(rows.range(key..).next().map(row)), "ceiling of {key}");
        }
    });
    assert!(opened > 100 && refused > 1000, "too few of one kind: {opened} opened, {refused} rejected");
}

#[test]
fn a_forged_file_of_ranges_with_the_compact_layout_is_rejected_or_every_cover_matches_its_groups() {
    let good = [0, 5, 40, 300].map(|count| encoder::encode_compact(&span_rows(count, |i| i * 3)));
    let (opened, refused) = try_each_forgery(&good, 0..4000, |store, file| {
        let rows = encoder::rows_of_compact::<KeySpan<u64>>(file);
        assert_eq!((store.len(), store.key_kind()), (rows.len(), KeyKind::U64));
        // Without rows, only the header says that rows are ranges.
        assert!(store.has_ranges() || rows.is_empty());
        let keys = rows.keys().flat_map(|span| [span.first, span.last, span.last.wrapping_add(1)]);
        for key in keys.chain([0, 1 << 63, u64::MAX]) {
            let floor = rows.range(..=KeySpan { first: key, last: key }).next_back();
            let range = floor.filter(|(span, _)| key <= span.last);
            let expected = range.map(|(span, value)| (Key::U64(span.first), Key::U64(span.last), &value[..]));
            let expected = if store.has_ranges() { Ok(expected) } else { Err(LookupError::NoRanges) };
            assert_eq!(store.cover(key), expected, "key {key}");
        }
    });
    assert!(opened > 100 && refused > 1000, "too few of one kind: {opened} opened, {refused} rejected");
}

#[test]
fn a_forged_file_of_addresses_or_ranges_is_rejected_or_every_lookup_matches_its_records() {
    let (addresses, numbers) = (addresses(300), span_rows(300, |i| i * 3));
    let texts = span_rows(300, |i| format!("key-{:03}", i * 3).into_bytes());
    let spans = span_rows(200, |i| address(i * 3));
    let keys = |end: u64| (0..end).step_by(13);
    let numbers_near: Vec<_> = keys(910).map(|first| KeySpan { first, last: first }).collect();
    let near = |first: Vec<u8>| KeySpan { last: first.clone(), first };
    let texts_near: Vec<_> = keys(910).map(|i| near(format!("key-{i:03}").into_bytes())).collect();
    let spans_near: Vec<_> = keys(610).map(|i| KeySpan { first: address(i), last: address(i) }).collect();
    for (opened, refused) in [
        try_forgeries(&[Scratch::new().bake(&addresses)], 0..1000, &keys(910).map(address).collect::<Vec<_>>()),
        try_forgeries(&[encoder::encode(&numbers)], 0..1000, &numbers_near),
        try_forgeries(&[encoder::encode(&texts)], 0..1000, &texts_near),
        try_forgeries(&[encoder::encode(&spans)], 0..1000, &spans_near),
    ] {
        assert!(opened > 20 && refused > 250, "too few of one kind: {opened} opened, {refused} rejected");
    }
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
