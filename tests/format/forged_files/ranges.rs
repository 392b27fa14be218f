//! Forged tables of ranges, and tables whose keys have a fixed length.

use std::collections::BTreeMap;
use std::fs;

use zero_kv::Lookup;
use zero_kv::bake::{self, BakeError, Options};

use super::row;
use crate::helpers::encoder::{self, FLAGS, RECORDS, put, seal};
use crate::helpers::records::assert_lookups_match_its_records;
use crate::helpers::rows::{KeySpan, Scratch};

/// Returns an IPv4 address for even numbers, and an IPv6 address for odd numbers.
pub(crate) fn address(number: u64) -> [u8; 16] {
    let prefix: u128 = if number.is_multiple_of(2) { 0xffff_0000_0000 } else { 0x2001_0db8 << 96 };
    (prefix + u128::from(number) * 1000).to_be_bytes()
}

pub(crate) fn addresses(count: u64) -> Vec<([u8; 16], Vec<u8>)> {
    (0..count).map(|i| (address(i * 3), vec![b'a'; (i % 40) as usize])).collect()
}

/// Returns ranges between keys. Every third range ends where it begins.
pub(crate) fn span_rows<K: Clone + Ord>(count: u64, key: impl Fn(u64) -> K) -> BTreeMap<KeySpan<K>, Vec<u8>> {
    let mut keys: Vec<K> = (0..2 * count).map(key).collect();
    keys.sort();
    let span = |(i, pair): (usize, &[K])| {
        let last = pair[usize::from(!i.is_multiple_of(3))].clone();
        (KeySpan { first: pair[0].clone(), last }, vec![b'a'; i % 40])
    };
    keys.chunks_exact(2).enumerate().map(span).collect()
}

#[test]
fn lookups_in_encoded_ranges_match_the_records() {
    let scratch = Scratch::new();
    for count in [0, 1, 17, 18, 19, 700] {
        let numbers = encoder::encode(&span_rows(count, |i| i * 5));
        let keys: Vec<_> = (0..40_u64).map(|first| KeySpan { first, last: first }).collect();
        assert_lookups_match_its_records(&scratch.open(&numbers).unwrap(), &numbers, &keys);
        let spans = encoder::encode(&span_rows(count, address));
        let keys: Vec<_> = (0..40).map(|i| KeySpan { first: address(i), last: address(i) }).collect();
        assert_lookups_match_its_records(&scratch.open(&spans).unwrap(), &spans, &keys);
    }
}

/// Asserts that a file of these ranges is rejected with this error after a change of its records.
#[track_caller]
fn assert_forgery_refused(mut file: Vec<u8>, change: impl FnOnce(&mut [u8]), number: u64, what: &'static str) {
    let scratch = Scratch::new();
    assert!(scratch.open(&file).unwrap().has_ranges());
    let (start, len) = encoder::section(&file, RECORDS);
    change(&mut file[start..start + len]);
    seal(&mut file);
    assert_eq!(scratch.refusal(&file), row(number, what));
}

#[test]
fn ranges_that_end_before_they_begin_or_overlap_are_rejected() {
    // Row 0 is the range from 0 to 0, row 1 the range from 20 to 30 with a value of 1 byte, and row 2 begins at 40.
    let numbers = || encoder::encode(&span_rows(4, |i| i * 10));
    let end_of_row_1 = |end: u64| move |records: &mut [u8]| put(records, 24 + 8, end);
    assert_forgery_refused(numbers(), end_of_row_1(19), 1, "the range ends before it begins");
    for end in [40, 41, u64::MAX] {
        assert_forgery_refused(numbers(), end_of_row_1(end), 2, "the range begins before the preceding range ends");
    }
    let mut file = numbers();
    let (start, len) = encoder::section(&file, RECORDS);
    end_of_row_1(39)(&mut file[start..start + len]);
    seal(&mut file);
    assert_eq!(Scratch::new().open(&file).unwrap().cover(39).unwrap(), Some((20.into(), 39.into(), &b"a"[..])));

    let spans = || encoder::encode(&span_rows(3, |i| (u128::from(i) << 64).to_be_bytes()));
    // Row 0 takes 40 bytes. Row 1 begins with its key and its end.
    assert_forgery_refused(spans(), |records| records[40 + 16..40 + 32].fill(0), 1, "the range ends before it begins");
    let overlap = "the range begins before the preceding range ends";
    assert_forgery_refused(spans(), |records| records[40 + 16..40 + 32].fill(0xff), 2, overlap);
}

#[test]
fn ranges_that_are_none_of_the_type_of_the_keys_are_not_merged() {
    let (scratch, folder) = (Scratch::new(), tempfile::tempdir().unwrap());
    let merge = |mut file: Vec<u8>, change: &dyn Fn(&mut [u8])| {
        let (start, len) = encoder::section(&file, RECORDS);
        change(&mut file[start..start + len]);
        seal(&mut file);
        fs::write(scratch.path(), &file).unwrap();
        bake::merge(&[scratch.path()], &folder.path().join("new.db"), &Options::default()).map(drop)
    };
    let numbers = || encoder::encode(&span_rows(4, |i| i * 10));
    merge(numbers(), &|_| ()).unwrap();
    let damaged = merge(numbers(), &|records| put(records, 24 + 8, 19)).unwrap_err().to_string();
    assert!(damaged.contains("row 1: the range is not one of the type of the keys"), "{damaged}");
    let overlap = merge(numbers(), &|records| put(records, 24 + 8, 41)).unwrap_err();
    assert!(matches!(overlap, BakeError::TableRow { row: 2, .. }), "{overlap}");
}

#[test]
fn the_padding_of_an_end_is_zero() {
    let texts = || encoder::encode(&span_rows(3, |i| format!("key-{i}").into_bytes()));
    // Row 0 has a key of 5 bytes, which takes 8 bytes with its length, and so has its end.
    for at in [7, 15] {
        let change = move |records: &mut [u8]| records[at] = 1;
        assert_forgery_refused(texts(), change, 0, "the padding is missing or not zero");
    }
    // A length of the end that leads beyond the section.
    let change = |records: &mut [u8]| records[8..10].fill(0xff);
    assert_forgery_refused(texts(), change, 0, "the record is missing or malformed");
}

#[test]
fn a_flag_that_contradicts_the_records_is_rejected() {
    let scratch = Scratch::new();
    for (mut file, flags) in [
        (encoder::encode(&span_rows(30, |i| i * 5)), 0),
        (scratch.bake(&super::rows(30)), 1),
        (scratch.bake(&addresses(30)), 1),
    ] {
        put(&mut file, FLAGS, flags);
        seal(&mut file);
        scratch.refusal(&file);
    }
}
