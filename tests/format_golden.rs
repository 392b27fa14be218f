//! The bytes of a file: what the document shows and what an encoder written
//! from it gives are what the baker writes.

#![cfg(feature = "bake")]

mod support;

use std::collections::BTreeMap;

use support::encoder::{self, BUCKET, BUCKETS, HASH_SEED, OVERFLOWS, number};
use support::{Random, Rows, Scratch};
use zero_kv::Store;

const DOCUMENT: &str = include_str!("../docs/FORMAT.md");

fn example_rows() -> Rows {
    vec![(1_000_000, b"a longer value".to_vec()), (7, b"seven".to_vec()), (40, Vec::new())]
}

/// The bytes of the lines `offset: bytes  meaning` in the document, which must
/// follow each other without a gap.
fn document_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in DOCUMENT.lines() {
        let Some((offset, rest)) = line.split_once(": ") else { continue };
        let Ok(offset) = usize::from_str_radix(offset, 16) else { continue };
        assert_eq!(offset, bytes.len(), "the line before {line:?} must end where it begins");
        let (hex, meaning) = rest.split_once("  ").unwrap_or_else(|| panic!("{line:?} says what its bytes mean"));
        assert!(!meaning.trim().is_empty(), "{line:?} says what its bytes mean");
        bytes.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits")));
    }
    bytes
}

#[track_caller]
fn assert_same_bytes(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!((differs, found.len()), (None, expected.len()), "the first byte that differs, and the length");
}

#[test]
fn the_document_shows_the_bytes_that_the_baker_writes() {
    let document = document_bytes();
    assert_same_bytes(&Scratch::new().bake(&example_rows()), &document);
    assert_same_bytes(&encoder::encode(&example_rows().into_iter().collect()), &document);
}

#[test]
fn the_documents_bytes_are_a_table_with_its_rows() {
    let scratch = Scratch::new();
    let store = scratch.open(&document_bytes()).unwrap();
    for (key, value) in example_rows() {
        assert_eq!(store.get(key), Some(&value[..]), "key {key}");
    }
    assert_eq!(store.iter().map(|(key, _)| key).collect::<Vec<_>>(), [7, 40, 1_000_000]);
    assert_eq!(store.get(8), None);
    assert_eq!(store.digest().to_le_bytes(), document_bytes()[encoder::DIGEST]);
}

/// Rows with no, one and several fences and buckets, with buckets that overflow
/// and with records of several blocks.
fn tables() -> Vec<BTreeMap<u64, Vec<u8>>> {
    let mut random = Random(20);
    let mut tables = vec![
        BTreeMap::new(),
        BTreeMap::from([(5, b"the only one".to_vec())]),
        BTreeMap::from([(0, b"least".to_vec()), (u64::MAX, b"greatest".to_vec())]),
    ];
    for (rows, value_len_max) in [(8, 9), (9, 40), (16, 3), (129, 3), (700, 200), (5000, 60)] {
        let row = |_| (random.next(), { random.below(value_len_max + 1) });
        let rows: Vec<_> = (0..rows).map(row).collect();
        tables.push(rows.into_iter().map(|(key, len)| (key, random.bytes(len))).collect());
    }
    tables.push(BTreeMap::from([(1, random.bytes(3 * 16384 - 8)), (2, vec![]), (3, random.bytes(16384))]));
    // One home for all: as many as it and those behind it hold, and more; in front, and so that buckets are added.
    for (rows, home) in [(192, 0), (192, 23), (193, 0), (400, 7)] {
        tables.push(encoder::colliding(rows, home).take(rows).map(|key| (key, b"v".to_vec())).collect());
    }
    tables
}

#[test]
fn the_tables_have_what_makes_buckets_differ() {
    let files: Vec<_> = tables().iter().map(encoder::encode).collect();
    let buckets = |file: &[u8]| {
        let (start, len) = encoder::section(file, BUCKETS);
        file[start..start + len].to_vec()
    };
    let overflowing = |file: &&Vec<u8>| buckets(file).chunks(BUCKET).any(|bucket| bucket[OVERFLOWS] == 1);
    let extended = |file: &&Vec<u8>| buckets(file).len() / BUCKET > (number(file, 24) as usize).div_ceil(8);
    let reseeded = |file: &&Vec<u8>| number(file, HASH_SEED) != 0;
    assert!(files.iter().filter(overflowing).count() >= 4);
    assert!(files.iter().any(|file| extended(&file)));
    assert_eq!(files.iter().filter(reseeded).count(), 2);
}

#[test]
fn an_encoder_written_from_the_document_gives_the_bakers_bytes() {
    let scratch = Scratch::new();
    for table in tables() {
        let mut rows: Rows = table.clone().into_iter().collect();
        Random(3).shuffle(&mut rows);
        assert_same_bytes(&scratch.bake(&rows), &encoder::encode(&table));
    }
}

#[test]
fn the_order_of_the_input_does_not_show() {
    let scratch = Scratch::new();
    let mut rows: Rows = tables().swap_remove(7).into_iter().collect();
    let ascending = scratch.bake(&rows);
    assert_same_bytes(&scratch.bake(&rows), &ascending);
    rows.reverse();
    assert_same_bytes(&scratch.bake(&rows), &ascending);
    for seed in 0..4 {
        Random(seed).shuffle(&mut rows);
        assert_same_bytes(&scratch.bake(&rows), &ascending);
    }
}

#[test]
fn no_rows_give_a_header_and_nothing_else() {
    let scratch = Scratch::new();
    let bytes = scratch.bake(&[]);
    assert_same_bytes(&bytes, &encoder::encode(&BTreeMap::new()));
    assert_eq!(bytes.len(), encoder::HEADER);
    let store = Store::open(scratch.path()).unwrap();
    assert!(store.is_empty());
    assert_eq!((store.get(0), store.get(u64::MAX), store.iter().count()), (None, None, 0));
}
